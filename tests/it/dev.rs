//! `dqhost dev`: a handler is built and tried on every save.

use std::fs;
use std::path::Path;

use dqhost::runtime::{Effort, Limits, Permissions, Runtime};
use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::support::{dqhost, expect, guest, stderr, stdout};

/// A folder whose handler is built by copying `source.wasm`, which takes no time.
fn project(handler: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let manifest =
        "[handler]\nbuild = \"cat order; cp source.wasm handler.wasm\"\nfile = \"handler.wasm\"\n";
    fs::write(folder.path().join("handler.toml"), manifest).unwrap();
    fs::write(folder.path().join("order"), "building\n").unwrap();
    let messages = "{\"payload\": \"first\"}\n{\"payload\": \"exit 65\"}\n";
    fs::write(folder.path().join("messages.ndjson"), messages).unwrap();
    save(folder.path(), handler);
    folder
}

/// Saves as an editor does: the file is whole from its first moment.
fn save(folder: &Path, handler: &str) {
    let new = folder.join(".source.new");
    fs::copy(guest(handler), &new).unwrap();
    fs::rename(new, folder.join("source.wasm")).unwrap();
}

fn once(folder: &Path, code: i32) -> (String, String) {
    let mut command = dqhost(None, &["dev", "--once"]);
    let output = expect(command.current_dir(folder).output().unwrap(), code);
    (stdout(&output), stderr(&output))
}

#[test]
fn a_save_shows_what_changed_in_each_verdict() {
    let folder = project("echo");
    let path = folder.path().to_str().unwrap();
    let mut tty = Tty::start("unused", &["dev", path], (100, 40));
    tty.wait_for("building");
    tty.wait_for("  1  acked");
    tty.wait_for("  2  acked");
    tty.wait_for("waiting for a save");
    // The same messages through another handler.
    save(folder.path(), "command");
    let text = tty.wait_for("it was acked");
    assert!(text.contains("  2  rejected"), "{text}");
    assert!(text.contains("     exit with 65"), "{text}");
    // A payload of a person.
    tty.keys("exit 75\r");
    tty.wait_for("  1  nacked");
    tty.wait_for("     exit with 75");
    // What does not build or load leaves the handler in place.
    fs::write(folder.path().join("source.wasm"), "no component").unwrap();
    tty.wait_for("it is not WebAssembly");
    tty.keys("exit 9\r");
    tty.wait_for("exited");
    fs::remove_file(folder.path().join("source.wasm")).unwrap();
    tty.wait_for("the build failed (exit status: 1)");
    save(folder.path(), "reject");
    tty.wait_for("  1  rejected");
    tty.keys("\u{3}");
}

#[test]
fn a_round_compiles_quickly() {
    let folder = project("echo");
    let home = TempDir::new().unwrap();
    let mut command = dqhost(None, &["dev", "--once"]);
    command
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", home.path());
    expect(command.output().unwrap(), 0);
    let kept = |effort: Effort| {
        let cache = home.path().join("dqhost");
        let runtime = Runtime::new(1, Limits::default(), Permissions::default(), Some(&cache));
        let runtime = runtime
            .unwrap()
            .compile_with("/nonexistent")
            .with_effort(effort);
        runtime.load(&runtime.read(&guest("echo")).unwrap()).is_ok()
    };
    assert!(kept(Effort::Quick) && !kept(Effort::Full));
}

#[test]
fn one_round_ends_with_the_worst_verdict() {
    let folder = project("echo");
    let (text, _) = once(folder.path(), 0);
    assert!(
        text.contains("built in ") && text.contains("  2  acked"),
        "{text}"
    );
    save(folder.path(), "command");
    once(folder.path(), 6);
    save(folder.path(), "trap");
    let (text, _) = once(folder.path(), 1);
    assert!(text.contains("  1  trapped"), "{text}");
    fs::write(folder.path().join("messages.ndjson"), "no JSON").unwrap();
    let (_, error) = once(folder.path(), 2);
    assert!(error.contains("line 1 of ./messages.ndjson: "), "{error}");
    fs::remove_file(folder.path().join("source.wasm")).unwrap();
    let (_, error) = once(folder.path(), 4);
    assert!(error.contains("the build failed"), "{error}");
}

#[test]
fn a_folder_that_says_nothing_of_its_handler_is_told_of() {
    let folder = TempDir::new().unwrap();
    let (_, error) = once(folder.path(), 2);
    assert!(error.contains("./handler.toml is missing"), "{error}");
    let manifest = folder.path().join("handler.toml");
    for (text, wanted) in [
        ("[handler]\nbuild = 1\n", "invalid type"),
        ("[handler]\nbuild = \"x\"\n", "missing field `file`"),
        ("[handler]\nbuilt = \"x\"\n", "unknown field `built`"),
        ("\u{1b}[2J", "is not understood"),
    ] {
        fs::write(&manifest, text).unwrap();
        let (_, error) = once(folder.path(), 2);
        assert!(error.contains(wanted), "{error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }
}

#[test]
fn a_mistake_in_the_manifest_is_told_with_its_line() {
    let folder = TempDir::new().unwrap();
    let manifest = folder.path().join("handler.toml");
    for (text, told) in [
        (
            "[handler]\nbuild = 1\n",
            "error: ./handler.toml:2:9: this is not understood: invalid type: integer `1`",
        ),
        (
            "[handler]\nbuild = \"x\"\nfile = \n",
            "error: ./handler.toml:3:8: this is not understood: ",
        ),
    ] {
        fs::write(&manifest, text).unwrap();
        let (_, error) = once(folder.path(), 2);
        assert!(error.starts_with(told), "{error}");
        assert!(!error.contains("\\n") && !error.contains('|'), "{error}");
    }
}

#[test]
fn a_first_build_that_fails_leaves_no_handler() {
    let folder = project("echo");
    fs::remove_file(folder.path().join("source.wasm")).unwrap();
    let (_, error) = once(folder.path(), 4);
    let told = "the build failed (exit status: 1), so there is no handler to try\n";
    assert!(error.ends_with(told), "{error}");
}
