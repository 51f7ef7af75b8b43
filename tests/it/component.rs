//! `dqhost component`: what it makes of a core module, and what it refuses.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::support::{dqhost, expect, guest, run, stderr, stdout};

/// What bindings export, with an answer of zeros, which is an ack.
const HANDLE: &str = r#"(memory (export "memory") 1)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
    (func (export "dqhost:queue/handler@0.1.0#handle")
        (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i64) (result i32) i32.const 0)"#;

fn component(folder: &Path, args: &[&str], code: i32) -> Output {
    let args = [&["component", "core.wasm", "-o", "handler.wasm"], args].concat();
    let mut command = dqhost(None, &args);
    expect(command.current_dir(folder).output().unwrap(), code)
}

/// A folder with this core module.
fn with_module(text: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let module = wat::parse_str(format!("(module {text})")).unwrap();
    fs::write(folder.path().join("core.wasm"), module).unwrap();
    folder
}

fn is_acked(folder: &Path) {
    let file = folder.join("handler.wasm").display().to_string();
    let told = stdout(&run(None, &["run", &file, "--payload", "x"], 0));
    assert!(told.contains("acked"), "{told}");
}

#[test]
fn a_core_module_becomes_a_handler_each_time_it_is_built() {
    let folder = with_module(HANDLE);
    let output = folder.path().join("handler.wasm");
    fs::write(&output, "the build before").unwrap();
    let told = stdout(&component(folder.path(), &[], 0));
    let size = fs::metadata(&output).unwrap().len();
    assert_eq!(told, format!("handler.wasm: {size} bytes\n"));
    is_acked(folder.path());
    component(folder.path(), &[], 0);
    is_acked(folder.path());
}

#[test]
fn what_it_needs_of_wasi_is_added() {
    let exit = r#"(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))"#;
    let handle = HANDLE.replace("i32.const 0)", "i32.const 3 call $exit i32.const 0)");
    let folder = with_module(&format!("{exit} {handle}"));
    component(folder.path(), &[], 0);
    let file = folder.path().join("handler.wasm").display().to_string();
    let told = stdout(&run(None, &["run", &file, "--payload", "x"], 1));
    assert!(told.contains("exited"), "{told}");
    let folder = with_module(&format!(
        r#"(import "env" "mystery" (func (param i32))) {HANDLE}"#
    ));
    let refusal = stderr(&component(folder.path(), &[], 4));
    assert!(refusal.contains("env"), "{refusal}");
}

#[test]
fn another_interface_may_be_named() {
    let folder = with_module(HANDLE);
    let wit = folder.path().join("wit").display().to_string();
    run(None, &["wit", &wit], 0);
    let refusal = stderr(&component(folder.path(), &["--wit", "wit"], 2));
    assert!(refusal.contains("--world"), "{refusal}");
    let refusal = stderr(&component(
        folder.path(),
        &["--wit", "wit", "--world", "no\u{1b}[2J"],
        2,
    ));
    assert!(!refusal.contains('\u{1b}'), "{refusal:?}");
    component(folder.path(), &["--wit", "wit", "--world", "consumer"], 0);
    is_acked(folder.path());
    // One that the module is not made for.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let text = "package a:b;\nworld w { export f: func(); }\n";
    fs::write(other.join("w.wit"), text).unwrap();
    let refusal = stderr(&component(folder.path(), &["--wit", "other"], 4));
    assert!(refusal.contains('f'), "{refusal}");
    fs::write(other.join("w.wit"), "package a:b\u{1b}[2J").unwrap();
    let refusal = stderr(&component(folder.path(), &["--wit", "other"], 2));
    assert!(refusal.contains("--wit other"), "{refusal}");
    assert!(!refusal.contains('\u{1b}'), "{refusal:?}");
    let refusal = stderr(&component(folder.path(), &["--wit", "nowhere"], 2));
    assert!(refusal.contains("--wit nowhere"), "{refusal}");
}

#[test]
fn what_cannot_become_a_handler_is_refused_with_what_to_do() {
    let folder = TempDir::new().unwrap();
    let core = folder.path().join("core.wasm");
    let refusal = stderr(&component(folder.path(), &[], 2));
    assert!(refusal.contains("cannot read core.wasm"), "{refusal}");
    let wat = |text: &str| wat::parse_str(format!("(module {text})")).unwrap();
    let start = r#"(func (export "_start"))"#;
    let escape = r#"(func (export "\1b[2J"))"#;
    let half = wat(HANDLE);
    let half = half[..half.len() / 2].to_vec();
    let retyped = HANDLE.replace("i64 i32 i64", "i64");
    for (bytes, says) in [
        (b"no module".to_vec(), "not WebAssembly: build it for"),
        (
            fs::read(guest("echo")).unwrap(),
            "a component already: use it as it is",
        ),
        (half, "it is not a valid module"),
        (wat(""), "it exports no function. Build it with bindings"),
        (
            wat(escape),
            "does not export dqhost:queue/handler@0.1.0#handle",
        ),
        (
            wat(start),
            "since it is a program: build it as a library: clang -mexec-model=reactor",
        ),
        (wat(&retyped), "dqhost:queue/handler@0.1.0"),
    ] {
        fs::write(&core, bytes).unwrap();
        let refusal = stderr(&component(folder.path(), &[], 4));
        assert!(
            refusal.contains("core.wasm: ") && refusal.contains(says),
            "{refusal}"
        );
        assert!(!refusal.contains('\u{1b}'), "{refusal:?}");
    }
    // Nothing was written, and the module itself stays as it is.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    fs::write(&core, wat(HANDLE)).unwrap();
    let mut command = dqhost(None, &["component", "core.wasm", "-o", "./core.wasm"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let refusal = stderr(&expect(output, 2));
    assert!(refusal.contains("would be written over"), "{refusal}");
    assert_eq!(fs::read(&core).unwrap(), wat(HANDLE));
}
