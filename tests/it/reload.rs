//! Handlers that are replaced while a host works.

mod command;
mod settings;
mod swaps;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::support::{Host, dqhost, eventually, guest, run, stats, stdout, with_hangups};

const REPLACED: &str = "the handler was replaced";
const REFUSED: &str = "the old handler goes on";
/// As the overview has it, beside the same words in the log below it.
const WARNING: &str = "! the old handler goes on";

/// A handler's file that changes in one step, as by `mv`.
struct File(PathBuf);

impl File {
    fn new(folder: &TempDir, example: &str) -> Self {
        let file = Self(folder.path().join("handler.wasm"));
        file.set(&fs::read(guest(example)).unwrap());
        file
    }

    fn set(&self, bytes: &[u8]) {
        let new = self.0.with_extension("new");
        fs::write(&new, bytes).unwrap();
        fs::rename(&new, &self.0).unwrap();
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

fn database(folder: &TempDir) -> String {
    let path: &Path = folder.path();
    path.join("dqhost.db").display().to_string()
}

fn send(store: &str, payload: &str) -> String {
    let sent = run(Some(store), &["send", payload, "--retries", "0"], 0);
    stdout(&sent).trim().to_owned()
}

/// The last attempt of a message, once it is dead.
fn how_it_died(store: &str, id: &str) -> Value {
    eventually("it is dead", || {
        let record: Value =
            serde_json::from_slice(&run(Some(store), &["get", "--json", id], 0).stdout).unwrap();
        (record["state"] == "dead").then(|| record["history"][0].clone())
    })
}

/// Is set when it goes out of scope, also in a panic.
struct SetOnDrop<'b>(&'b AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A host that hears of hangups and serves.
fn start<S: AsRef<std::ffi::OsStr>>(store: &str, args: &[S]) -> Host {
    let mut host = Host::start_command(with_hangups(&dqhost(Some(store), args)));
    host.wait_for("serving", |_| true);
    host
}

#[test]
fn what_runs_ends_on_the_old_handler_and_what_begins_is_given_the_new_one() {
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let file = File::new(&folder, "sleeper");
    let mut host = start(&store, &["--handler", file.text(), "--timeout", "5s"]);
    let old = host.wait_for("serving", |_| true)["handler"].clone();
    let runs = send(&store, "9999999");
    eventually("it runs", || {
        (stats(&store, "default")["unack"] == 1).then_some(())
    });
    file.set(&fs::read(guest("reject")).unwrap());
    host.signal(Signal::HUP);
    let new = host.wait_for(REPLACED, |_| true)["handler"].clone();
    assert_ne!(old, new);
    let begins = how_it_died(&store, &send(&store, "0"));
    assert_eq!(
        (&begins["class"], &begins["handler"]),
        (&"rejected".into(), &new)
    );
    let ended = how_it_died(&store, &runs);
    assert_eq!(
        (&ended["class"], &ended["handler"]),
        (&"timed-out".into(), &old)
    );
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
}

#[test]
fn a_file_that_is_no_handler_leaves_the_old_one() {
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let file = File::new(&folder, "echo");
    let mut host = start(&store, &["--handler", file.text()]);
    let good = fs::read(&file.0).unwrap();
    file.set(&good[..good.len() / 2]);
    host.signal(Signal::HUP);
    let refused = host.wait_for_start(REFUSED);
    assert_eq!(
        (&refused["level"], &refused["queue"]),
        (&"ERROR".into(), &"default".into())
    );
    let id = send(&store, "a");
    host.wait_for("acked", |line| line["id"] == *id);
    file.set(&good);
    host.signal(Signal::HUP);
    host.wait_for("the handler has not changed", |_| true);
    fs::remove_file(&file.0).unwrap();
    host.signal(Signal::HUP);
    host.wait_for_line_with("the old handler goes on: cannot read");
    let id = send(&store, "b");
    host.wait_for("acked", |line| line["id"] == *id);
}

#[test]
fn the_dashboard_says_why_a_changed_handler_was_refused_and_a_hangup_does_not_end_it() {
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let file = File::new(&folder, "echo");
    let mut tty = Tty::start(&store, &["--handler", file.text()], (120, 40));
    tty.wait_for("> default");
    let good = fs::read(&file.0).unwrap();
    file.set(b"not a component");
    tty.signal(Signal::HUP);
    tty.wait_for(WARNING);
    file.set(&good);
    tty.signal(Signal::HUP);
    tty.wait_until("the warning is gone", |text| !text.contains(WARNING));
    send(&store, "a");
    eventually("it works", || {
        (stats(&store, "default")["totals"]["acked"] == 1).then_some(())
    });
    tty.signal(Signal::TERM);
    tty.end(0);
}

#[test]
fn a_watched_file_is_taken_over_by_itself() {
    let folder = TempDir::new().unwrap();
    let store = database(&folder);
    let file = File::new(&folder, "echo");
    let mut host = start(&store, &["--watch", "--handler", file.text()]);
    file.set(&fs::read(guest("reject")).unwrap());
    host.wait_for(REPLACED, |_| true);
    let died = how_it_died(&store, &send(&store, "a"));
    assert_eq!(died["class"], "rejected");
    file.set(b"");
    host.wait_for_start(REFUSED);
}
