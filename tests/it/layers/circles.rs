//! No two modules import each other, however long the way round. A module and those inside it are one.

use std::collections::{BTreeMap, BTreeSet};

use super::source_files;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The module that a file holds.
fn module_of(file: &str) -> String {
    file.trim_end_matches(".rs").replace('/', "::")
}

/// What `a::{b, c::{d}}` stands for: each path alone.
fn expanded(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts
        .flat_map(|part| expanded(&format!("{head}{part}")))
        .collect()
}

/// The paths that a file imports, from the root of the crate on.
fn imports(module: &str, text: &str) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    let uses = code.split(';').filter_map(|statement| {
        let at = statement.rfind("use ")?;
        let is_word = at == 0 || statement[..at].ends_with(char::is_whitespace);
        is_word.then(|| statement[at + 4..].split_whitespace().collect::<String>())
    });
    let here: Vec<&str> = module.split("::").collect();
    let mut paths = Vec::new();
    for path in uses.flat_map(|tree| expanded(&tree)) {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut base = match parts[0] {
            "crate" => Vec::new(),
            "self" | "super" => here.clone(),
            _ => continue,
        };
        while let Some(first @ ("crate" | "self" | "super")) = parts.first().copied() {
            if first == "super" {
                base.pop();
            }
            parts.remove(0);
        }
        let whole = base.into_iter().chain(parts).map(str::to_owned);
        paths.push(whole.collect());
    }
    paths
}

fn is_inside(one: &str, other: &str) -> bool {
    one.starts_with(&format!("{other}::"))
}

fn graph(files: &[(String, String)]) -> Graph {
    let modules: BTreeSet<String> = files.iter().map(|(name, _)| module_of(name)).collect();
    let mut graph = Graph::new();
    for (name, text) in files {
        let module = module_of(name);
        let used = imports(&module, text).into_iter().filter_map(|path| {
            let lengths = (1..=path.len()).rev();
            let mut prefixes = lengths.map(|length| path[..length].join("::"));
            prefixes.find(|prefix| modules.contains(prefix))
        });
        let used = used.filter(|other| {
            *other != module && !is_inside(other, &module) && !is_inside(&module, other)
        });
        let used = used.collect();
        graph.insert(module, used);
    }
    graph
}

/// All that can be reached from a module.
fn reached(graph: &Graph, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&String> = graph[from].iter().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module.clone()) {
            next.extend(&graph[module]);
        }
    }
    seen
}

fn in_circles(graph: &Graph) -> Vec<&String> {
    let modules = graph.keys();
    modules
        .filter(|module| reached(graph, module).contains(*module))
        .collect()
}

#[test]
fn no_modules_import_each_other() {
    let graph = graph(&source_files());
    assert!(graph.len() > 100);
    let circles = in_circles(&graph);
    assert!(circles.is_empty(), "these are in circles: {circles:?}");
}

#[test]
fn a_circle_is_seen_whatever_its_length_and_form() {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let files = [
        file("a.rs", "use crate::b::{\n    C,\n    d::E,\n};\n"),
        file("b.rs", "mod d;\nuse self::d::E;\n"),
        file("b/d.rs", "use super::super::f::G;\nuse std::fmt;\n"),
        file("f.rs", "pub use crate::{a::{X, Y}, b};\n// use crate::z;\n"),
        file(
            "z.rs",
            "use super::f::G;\n#[cfg(test)]\nmod tests { use crate::z::A; }",
        ),
    ];
    let graph = graph(&files);
    assert_eq!(in_circles(&graph), ["a", "b::d", "f"]);
}

#[test]
fn nothing_reaches_over_its_parent() {
    for (name, text) in source_files() {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        assert!(!code.contains("super::super"), "{name} says super::super");
    }
}
