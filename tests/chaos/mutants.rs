//! Programs with a deliberate mistake each, which the checker must find in a trial: what it does not
//! find there, a clean trial does not show to be absent.
//!
//! All mistakes are put into one copy of the sources, which is built once, with this test in it: the
//! environment variable `DQHOST_MUTANT` says which of them is made, by hosts and producers.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::check::Violation;
use crate::mistakes::{MISTAKES, Mistake, Where};
use crate::plan::Shape;
use crate::trial::{Kind, Setup, carry_out};

/// Trials of one mistake, each with another seed, until it must have been found.
const TRIES: u64 = 5;

/// What the program with the mistakes is called.
const PROGRAM: &str = "dqhost-mutants";

/// Trials at a time: they wait more than they compute.
const AT_A_TIME: usize = 5;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Writes a file unless it has that content, so that what is unchanged is not built again.
fn write(path: &Path, content: &str) {
    if fs::read_to_string(path).ok().as_deref() != Some(content) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// The file of that name, or all files in the folder of that name.
fn files(folder: &Path) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_owned()];
    }
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all
}

/// What stands there once is replaced; what does not means that the mistake has to be written anew.
fn replaced(text: &str, old: &str, new: &str, place: &str) -> String {
    let times = text.matches(old).count();
    assert_eq!(
        times, 1,
        "this stands {times} times in {place}, so the mistake cannot be made: {old}"
    );
    text.replacen(old, new, 1)
}

/// A module that knows which mistake is to be made, and makes those in scripts.
fn switch() -> String {
    let mut arms = String::new();
    for Mistake { name, places, .. } in MISTAKES {
        for place in *places {
            if let Where::Script { file, old, new } = place {
                let script = fs::read_to_string(root().join("lua").join(file)).unwrap();
                replaced(&script, old, new, file);
                writeln!(
                    arms,
                    "        {name:?} => source.replacen({old:?}, {new:?}, 1),"
                )
                .unwrap();
            }
        }
    }
    format!(
        "
/// The mistake that is made.
pub mod mutant {{
    /// Whether it is this one.
    pub fn is(name: &str) -> bool {{
        std::env::var(\"DQHOST_MUTANT\").is_ok_and(|made| made == name)
    }}

    /// Whether it is this one, from the second question on.
    pub fn is_again(name: &str) -> bool {{
        use std::sync::atomic::{{AtomicBool, Ordering}};
        static ASKED: AtomicBool = AtomicBool::new(false);
        is(name) && ASKED.swap(true, Ordering::SeqCst)
    }}

    /// A script, with the mistake in it.
    pub fn script(source: String) -> String {{
        match std::env::var(\"DQHOST_MUTANT\").unwrap_or_default().as_str() {{
{arms}            _ => source,
        }}
    }}
}}
"
    )
}

/// A source file of the copy.
fn mistaken(file: &str, text: String) -> String {
    let mut text = text;
    for place in MISTAKES.iter().flat_map(|mistake| mistake.places) {
        if let Where::Source { file: of, old, new } = place
            && *of == file
        {
            text = replaced(&text, old, new, file);
        }
    }
    match file {
        "lib.rs" => text + &switch(),
        "store/redis/scripts.rs" => replaced(
            &text,
            "        let hash = redis::Script::new",
            "        let source = crate::mutant::script(source);\n        let hash = redis::Script::new",
            file,
        ),
        _ => text,
    }
}

/// The manifest of the copy: the same dependencies with the same features, so that none is built
/// again, and package and program under another name, so that they do not take the place of the real
/// ones: where a package is does not tell it from another of its name in cargo's folder.
fn manifest() -> String {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    // Without the other members of the workspace.
    let (_, rest) = text.split_once("members = [").unwrap();
    let (_, rest) = rest.split_once(']').unwrap();
    let text = format!("[workspace]\nmembers = []{rest}");
    let name = format!("[package]\nname = \"{PROGRAM}\"");
    let text = replaced(&text, "[package]\nname = \"dqhost\"", &name, "Cargo.toml");
    let (text, _) = text.split_once("[[bench]]").unwrap();
    format!(
        "{text}[lib]\nname = \"dqhost\"\n\n[[bin]]\nname = \"{PROGRAM}\"\npath = \"src/main.rs\"\n\n\
         [[test]]\nname = \"chaos\"\npath = \"tests/chaos/main.rs\"\n"
    )
}

/// A test's file of the copy: it runs the copy's program, with the real example handlers.
fn of_copy(text: &str) -> String {
    text.replace("CARGO_BIN_EXE_dqhost", &format!("CARGO_BIN_EXE_{PROGRAM}"))
        .replace(
            "env!(\"CARGO_MANIFEST_DIR\")",
            &format!("\"{}\"", root().display()),
        )
}

/// Builds the copy; returns its test.
fn build() -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    for folder in [
        "src",
        "lua",
        "wit",
        "templates",
        "tests/chaos",
        "tests/it/support.rs",
    ] {
        for path in files(&root().join(folder)) {
            let name = path.strip_prefix(root()).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let text = match name.strip_prefix("src") {
                Ok(file) => mistaken(file.to_str().unwrap(), text),
                Err(_) if name.starts_with("tests") => of_copy(&text),
                Err(_) => text,
            };
            write(&copy.join(name), &text);
        }
    }
    write(&copy.join("Cargo.toml"), &manifest());
    for file in ["Cargo.lock", "README.md"] {
        write(
            &copy.join(file),
            &fs::read_to_string(root().join(file)).unwrap(),
        );
    }
    let program = Path::new(env!("CARGO_BIN_EXE_dqhost"));
    let target = program.parent().unwrap().parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo tells this test of its package; by it crates that look at such names would be built
    // again here, and again for whoever builds next.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    let output = cargo
        .args([
            "test",
            "--offline",
            "--no-run",
            "--test",
            "chaos",
            "--message-format",
            "json",
        ])
        .arg("--target-dir")
        .arg(target)
        .current_dir(&copy)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let messages = String::from_utf8(output.stdout).unwrap();
    let mut built = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        let is_test = message["target"]["name"] == "chaos";
        let program = message["executable"].as_str()?;
        is_test.then(|| PathBuf::from(program))
    });
    built.next().unwrap()
}

fn setup(name: &str, kind: Kind, shape: &Shape, seed: u64) -> Setup {
    Setup {
        name: format!("mutant-{name}"),
        seed,
        kind,
        shape: *shape,
        envs: vec![("DQHOST_MUTANT".to_owned(), name.to_owned())],
        end_limit: Duration::from_secs(11),
        is_patient: false,
    }
}

/// Trials of the mistake that this process makes, until it is found; of none, one of each store.
#[test]
#[ignore = "a mistake is made only in the copy that `each_mistake_is_found` builds"]
fn the_mistake_is_found() {
    let name = std::env::var("DQHOST_MUTANT").unwrap();
    let Some(mistake) = MISTAKES.iter().find(|mistake| mistake.name == name) else {
        for kind in [Kind::Redis, Kind::File] {
            let setup = Setup {
                end_limit: Duration::from_mins(1),
                is_patient: true,
                ..setup(&name, kind, &crate::mistakes::little(), 1)
            };
            crate::steady(&setup).must_be_clean();
        }
        return;
    };
    for seed in 1..=TRIES {
        let report = carry_out(&setup(&name, mistake.kind, &(mistake.shape)(), seed));
        let shows = |violation: &&Violation| violation.words.contains(mistake.shows);
        if let Some(one) = report.violations.iter().find(shows) {
            println!(
                "found: {one:?} (one of {}, with seed {seed})",
                report.violations.len()
            );
            return;
        }
        println!(
            "seed {seed}: {:?}",
            report.violations.iter().take(3).collect::<Vec<_>>()
        );
    }
    panic!("not found");
}

#[test]
fn each_mistake_is_found() {
    let _machine = crate::alone();
    let test = build();
    // And that nothing is found where none is made.
    let names = MISTAKES.iter().map(|mistake| mistake.name).chain(["none"]);
    let wanted = std::env::var("DQHOST_CHAOS_MISTAKE").ok();
    let is_wanted = |name: &&str| {
        let wanted = wanted.as_deref();
        wanted.is_none_or(|wanted| wanted.split(',').any(|one| one == *name))
    };
    let names = names.filter(is_wanted);
    let todo = Mutex::new(names);
    let unfound = Mutex::new(Vec::new());
    let work = || {
        loop {
            let Some(name) = todo.lock().unwrap().next() else {
                return;
            };
            let output = Command::new(&test)
                .args([
                    "mutants::the_mistake_is_found",
                    "--exact",
                    "--ignored",
                    "--nocapture",
                ])
                .env("DQHOST_MUTANT", name)
                .output()
                .unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            match said.split_once("found: ") {
                Some((_, why)) => println!("{name}: {}", why.lines().next().unwrap_or_default()),
                None if output.status.success() => println!("{name}: nothing found"),
                None => {
                    println!("{name}: {said}{}", String::from_utf8_lossy(&output.stderr));
                    unfound.lock().unwrap().push(name);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(work);
        }
    });
    assert_eq!(
        *unfound.lock().unwrap(),
        Vec::<&str>::new(),
        "were not found"
    );
}
