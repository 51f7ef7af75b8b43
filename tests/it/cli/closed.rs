//! What happens when nobody reads stderr any more.

use std::process::Output;

use tempfile::TempDir;

use crate::support::{RedisServer, dqhost, expect, feed, run, stats, stdout};

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
