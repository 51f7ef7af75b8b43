//! What the program says: its help, and its refusals.

use std::fs;

use tempfile::TempDir;

use crate::support::{
    Host, RedisServer, dqhost, eventually, expect, feed, guest, run, stats, stderr, stdout,
};

#[test]
fn the_bare_command_prints_a_short_help_by_what_a_user_wants() {
    let print = |args: &[&str], code| {
        let mut command = dqhost(None, args);
        expect(command.env("COLUMNS", "80").output().unwrap(), code)
    };
    let bare = print(&[], 2);
    assert_eq!(stdout(&bare), "");
    insta::assert_snapshot!("help-bare", stderr(&bare));
    let short = print(&["-h"], 0);
    assert_eq!(stdout(&short), stderr(&bare));
    // Of one command: the store's flags are named once, elsewhere.
    let of_send = stdout(&print(&["send", "-h"], 0));
    insta::assert_snapshot!("help-send-short", of_send);
    let of_store = stdout(&print(&["help", "store"], 0));
    insta::assert_snapshot!("help-store", of_store);
    for command in ["send", "list", "stats", "pause", "audit", "up", "top"] {
        let short = stdout(&print(&[command, "-h"], 0));
        let whole = stdout(&print(&[command, "--help"], 0));
        for flag in ["--db <PATH>", "--redis-ca <PATH>", "--no-hash-tag"] {
            assert!(!short.contains(flag), "{command}: {short}");
            assert!(
                whole.contains(flag) && of_store.contains(flag),
                "{command}: {whole}"
            );
        }
        assert!(short.contains("dqhost help store"), "{command}: {short}");
        assert!(!short.contains("Password"), "{command}: {short}");
        let is_narrow = |line: &str| line.chars().count() <= 80;
        assert!(short.lines().all(is_narrow), "{command}: {short}");
    }
}

#[test]
fn numbers_are_refused_in_plain_words() {
    let echo = guest("echo").display().to_string();
    for (args, says) in [
        (
            &["--handler", &echo, "--slots", "abc"][..],
            "--slots must be a whole number from 1 to 4096, not abc",
        ),
        (
            &["--handler", &echo, "--memory", "0"],
            "--memory must be a whole number from 1 to 4096, not 0",
        ),
        (
            &["--handler", &echo, "--dead-max", "few"],
            "--dead-max must be a whole number, not few",
        ),
        (
            &["send", "x", "--max-payload", "1MB"],
            "--max-payload must be a whole number, not 1MB",
        ),
        (
            &["list", "ready", "--limit", "all"],
            "--limit must be a whole number, not all",
        ),
        (
            &["list", "ready", "--offset", "1.5"],
            "--offset must be a whole number, not 1.5",
        ),
        (
            &["dead", "redrive", "x", "--rate", "0"],
            "--rate must be a whole number of at least 1, not 0",
        ),
        (
            &["run", &echo, "--attempt", "0"],
            "--attempt must be a whole number of at least 1, not 0",
        ),
        (
            &["run", &echo, "--attempts", "\u{1b}[2J"],
            "--attempts must be a whole number, not \\u{1b}[2J",
        ),
    ] {
        let errors = stderr(&run(Some("unused"), args, 2));
        assert!(
            errors.starts_with(&format!("error: {says}\n")),
            "{args:?}: {errors}"
        );
    }
    let mut command = dqhost(None, &["--handler", &echo]);
    let output = expect(command.env("DQHOST_SLOTS", "many").output().unwrap(), 2);
    assert!(stderr(&output).contains("--slots must be a whole number from 1 to 4096, not many"));
}

#[test]
fn a_payload_that_is_too_long_is_reported_with_its_size() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let long = vec![b'x'; 300_000];
    let file = folder.path().join("long");
    fs::write(&file, &long).unwrap();
    let at_file = format!("@{}", file.display());
    let known = "the payload has 300000 bytes and the limit is 262144";
    let refused = stderr(&run(Some(&store), &["send", &at_file], 2));
    assert!(refused.contains(known), "{refused}");
    let again = ["dead", "redrive", "x", "--payload", &at_file];
    run(Some(&store), &["send", "x"], 0);
    let refused = stderr(&run(Some(&store), &again, 2));
    assert!(refused.contains(known), "{refused}");
    let echo = guest("echo").display().to_string();
    let refused = stderr(&run(None, &["run", &echo, "--payload", &at_file], 2));
    assert!(refused.contains(known), "{refused}");
    // Of a pipe only as much is read as tells that it is too long.
    let output = expect(feed(dqhost(Some(&store), &["send", "-"]), &long), 2);
    let unknown = "the payload has more than 262144 bytes and the limit is 262144";
    assert!(stderr(&output).contains(unknown), "{}", stderr(&output));
}

#[test]
fn an_empty_payload_is_not_a_missing_one() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    for store in [server.url(), file] {
        let id = stdout(&run(Some(&store), &["send", ""], 0));
        for args in [&["list", "ready"][..], &["get", id.trim()]] {
            let shown = stdout(&run(Some(&store), args, 0));
            assert!(shown.contains("(empty)"), "{args:?}: {shown}");
            let json = [args, &["--json"]].concat();
            let shown = stdout(&run(Some(&store), &json, 0));
            assert!(shown.contains(r#""payload":"","#), "{shown}");
            assert!(shown.contains(r#""payload_missing":false"#), "{shown}");
        }
    }
}

#[test]
fn a_payload_without_quotes_is_answered_with_the_quotes() {
    for (args, says) in [
        (&["send", "not", "an", "order"][..], "send 'not an order'"),
        (
            &["send", "it's", "late", "--in", "5s"],
            "send 'it'\\''s late'",
        ),
        (&["send", "a", "\u{1b}[2J"], "send 'a \\u{1b}[2J'"),
    ] {
        let errors = stderr(&run(Some("unused"), args, 2));
        assert!(
            errors.contains("several words: quote it") && errors.contains(says),
            "{errors}"
        );
    }
    // A flag that is not there is still named.
    let errors = stderr(&run(Some("unused"), &["send", "x", "--retires", "3"], 2));
    assert!(errors.contains("--retires"), "{errors}");
}

#[test]
fn times_in_the_log_are_numbers_in_json_and_values_with_spaces_are_quoted_in_text() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let handler = guest("flaky").display().to_string();
    for payload in ["1", "2", "no number"] {
        run(Some(&store), &["send", payload], 0);
    }
    let mut host = Host::start(&store, &["--handler", &handler]);
    let acked = host.wait_for("acked", |_| true);
    assert!(
        acked["took"].as_f64().is_some_and(|took| took < 60.0),
        "{acked}"
    );
    let retried = host.wait_for("to be retried", |_| true);
    assert_eq!(retried["delay"], 0.0, "{retried}");
    let dead = host.wait_for("dead", |_| true);
    assert!(dead["took"].is_f64(), "{dead}");
    host.signal(rustix::process::Signal::TERM);
    host.end();
    eventually("all have ended", || {
        (stats(&store, "default")["unack"] == 0).then_some(())
    });
    run(Some(&store), &["send", "no \"number\" \u{1b}[2J"], 0);
    let up = ["--handler", &handler, "--exit-when-empty"];
    let log = stderr(&run(Some(&store), &up, 0));
    let line = log.lines().find(|line| line.contains(" dead ")).unwrap();
    assert!(line.contains("class=rejected reason=\"payload "), "{line}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
    let took = line.split("took=").nth(1).unwrap();
    assert!(
        took.ends_with('s') && took.starts_with(|c: char| c.is_ascii_digit()),
        "{line}"
    );
}
