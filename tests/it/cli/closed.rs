//! What happens when nobody reads stderr any more, or when stdout cannot be written.

use std::fs::File;
use std::process::Output;

use tempfile::TempDir;

use crate::support::{RedisServer, dqhost, expect, feed, run, stats, stderr, stdout};

/// Runs the program with a stderr whose reader is gone.
fn unread(store: &str, args: &[&str], input: &[u8]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), input).unwrap();
    let mut command = dqhost(Some(store), args);
    command.stdin(std::fs::File::open(file.path()).unwrap());
    command.stderr(writer).output().unwrap()
}

fn both_stores(check: impl Fn(&str)) {
    let server = RedisServer::start();
    check(&server.url());
    let folder = TempDir::new().unwrap();
    check(&folder.path().join("dqhost.db").display().to_string());
}

#[test]
fn good_lines_are_sent_when_nobody_reads_of_the_wrong_one() {
    both_stores(|store| {
        let lines = b"{\"payload\":1}\nnot json\n{\"payload\":2}\n";
        let output = expect(unread(store, &["send", "--ndjson"], lines), 5);
        assert_eq!(stdout(&output).lines().count(), 2);
        assert_eq!(stats(store, "default")["ready"], 2);
    });
}

/// Runs the program with a stdout on a full disk.
fn on_full_disk(store: &str, args: &[&str], input: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), input).unwrap();
    let mut command = dqhost(Some(store), args);
    command.stdin(File::open(file.path()).unwrap());
    let full = File::options().write(true).open("/dev/full").unwrap();
    stderr(&expect(command.stdout(full).output().unwrap(), 1))
}

#[test]
fn what_was_sent_is_told_when_its_id_cannot_be_printed() {
    const WHY: &str = "cannot write to standard output: No space left on device";
    both_stores(|store| {
        for args in [
            &["send", "x", "-q", "one"][..],
            &["send", "x", "-q", "one", "--json"],
        ] {
            let told = on_full_disk(store, args, b"");
            let list = ["list", "ready", "-q", "one", "--json"];
            let listed = stdout(&run(Some(store), &list, 0));
            let message: serde_json::Value = serde_json::from_str(listed.trim()).unwrap();
            let id = message["id"].as_str().unwrap();
            let expected = format!("error: message {id} was sent, so do not send it again: {WHY}");
            assert!(told.starts_with(&expected), "{told}");
            run(Some(store), &["purge", "one", "--count", "1"], 0);
        }
        let lines = b"{\"payload\":1}\n{\"payload\":2}\n";
        let told = on_full_disk(store, &["send", "--ndjson", "-q", "two"], lines);
        let expected = "error: 2 messages were sent, up to line 2; ";
        assert!(told.starts_with(expected) && told.contains(WHY), "{told}");
        assert_eq!(stats(store, "two")["ready"], 2);
        // Every command names what it cannot write to.
        let id = stdout(&run(Some(store), &["send", "x"], 0));
        for args in [
            &["get", id.trim()][..],
            &["list", "ready", "--json"],
            &["list", "ready"],
            &["pause"],
            &["cancel", id.trim()],
            &["config", "schema"],
        ] {
            let told = on_full_disk(store, args, b"");
            assert!(
                told.starts_with(&format!("error: {WHY}")),
                "{args:?}: {told}"
            );
        }
    });
}

#[test]
fn commands_end_as_ever_when_nobody_reads_what_they_say() {
    both_stores(|store| {
        let keyed = ["send", "x", "--idempotency-key", "k"];
        let first = stdout(&run(Some(store), &keyed, 0));
        assert_eq!(stdout(&expect(unread(store, &keyed, b""), 0)), first);
        for args in [
            &["cancel", "nosuch"][..],
            &["reschedule", "nosuch"],
            &["dead", "redrive", "nosuch"],
            &["dead", "delete", "nosuch"],
            &["pause", "nosuch"],
            &["get", "nosuch"],
            &["stats", "--queue", "nosuch"],
            &["list", "ready", "--limit", "1"],
            &["audit"],
            &["nosuch"],
        ] {
            let read = feed(dqhost(Some(store), args), b"");
            let code = read.status.code().unwrap();
            let output = expect(unread(store, args, b""), code);
            assert_eq!(stdout(&output), stdout(&read), "{args:?}");
            assert_ne!(code, 101, "{args:?}");
        }
    });
}
