//! The bindings that `dqhost new` writes are those of the interface as it is.
//! `DQHOST_UPDATE_DOCS=1 cargo test --test it bindings` makes them anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wit_bindgen_core::wit_parser::{Resolve, Type, TypeDefKind, WorldId};
use wit_bindgen_core::{Files, WorldGenerator};

use crate::new::downloads;
use crate::support::expect;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The interface with the world of new handlers.
fn interface() -> (Resolve, WorldId) {
    let mut resolve = Resolve::default();
    resolve.push_dir(root().join("wit")).unwrap();
    let world = root().join("templates/world.wit");
    let text = fs::read_to_string(world).unwrap();
    let package = resolve.push_str("world.wit", &text).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    (resolve, world)
}

/// What a generator makes, by paths.
fn made(mut generator: Box<dyn WorldGenerator>) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut resolve, world) = interface();
    let mut files = Files::default();
    generator.generate(&mut resolve, world, &mut files).unwrap();
    let files = files.iter();
    let files = files.map(|(path, bytes)| (PathBuf::from(path), bytes.to_vec()));
    files.collect()
}

/// Checks a file of a template, or writes it.
fn check(path: &Path, bytes: &[u8]) {
    let path = root().join("templates").join(path);
    if std::env::var_os("DQHOST_UPDATE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let there = fs::read(&path).unwrap_or_default();
    assert!(
        there == bytes,
        "{} is not of this interface",
        path.display()
    );
}

#[test]
fn those_in_c_are_of_this_interface() {
    let options = wit_bindgen_c::Opts {
        no_object_file: true,
        ..Default::default()
    };
    for (path, bytes) in made(options.build()) {
        check(&Path::new("c/bindings").join(path), &bytes);
    }
}

/// Beside the package that a user writes.
const GO_PACKAGE: &str = "handler";

#[test]
fn those_in_go_are_of_this_interface() {
    let options = wit_bindgen_go::Opts {
        format: wit_bindgen_go::Format::False,
        pkg_name: Some(format!("{GO_PACKAGE}/bindings")),
        export_pkg_name: Some(GO_PACKAGE.to_owned()),
        ..Default::default()
    };
    let folder = TempDir::new().unwrap();
    let files = made(options.build());
    for (path, bytes) in &files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let mut gofmt = Command::new(downloads("go").join("go/bin/gofmt"));
    expect(gofmt.arg("-w").arg(folder.path()).output().unwrap(), 0);
    for (path, _) in files {
        let bytes = fs::read(folder.path().join(&path)).unwrap();
        check(&Path::new("go/bindings").join(path), &bytes);
    }
    // What they need at run time is of the same version.
    let module = fs::read_to_string(root().join("templates/go/go.mod.in")).unwrap();
    let needed = wit_bindgen_go::remote_pkg_version();
    assert!(module.contains(&format!("require {needed}\n")), "{needed}");
}

/// A name of the interface in JavaScript.
fn camel(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| {
        let (head, tail) = word.split_at(1);
        all + &head.to_uppercase() + tail
    })
}

#[test]
fn the_types_for_typescript_have_all_names_of_this_interface() {
    let types = fs::read_to_string(root().join("templates/ts/interface.d.ts")).unwrap();
    let has = |text: String| assert!(types.contains(&text), "{text}");
    let (resolve, world) = interface();
    for key in resolve.worlds[world].imports.keys() {
        has(format!(
            "declare module \"{}\"",
            resolve.name_world_key(key)
        ));
    }
    for (_, function) in resolve.interfaces.iter().flat_map(|(_, i)| &i.functions) {
        let parameters = function
            .params
            .iter()
            .map(|param| camel(&param.name) + ": ");
        let name = camel(&function.name);
        // The handler itself is written by the user.
        if name != "handle" {
            has(format!("function {name}("));
            parameters.for_each(has);
        }
    }
    for (_, ty) in &resolve.types {
        match &ty.kind {
            TypeDefKind::Record(record) => {
                let is_option = |ty: &_| match ty {
                    Type::Id(id) => {
                        matches!(resolve.types[*id].kind, TypeDefKind::Option(_))
                    }
                    _ => false,
                };
                for field in &record.fields {
                    let mark = if is_option(&field.ty) { "?" } else { "" };
                    has(format!("    {}{mark}: ", camel(&field.name)));
                }
            }
            TypeDefKind::Variant(variant) => {
                for case in &variant.cases {
                    let value = if case.ty.is_some() { "; val: " } else { " }" };
                    has(format!("{{ tag: \"{}\"{value}", case.name));
                }
            }
            TypeDefKind::Enum(words) => {
                words
                    .cases
                    .iter()
                    .for_each(|case| has(format!("\"{}\"", case.name)));
            }
            _ => {}
        }
    }
}
