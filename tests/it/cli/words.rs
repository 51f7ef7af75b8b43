//! What the program says: its help, and its refusals.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

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
fn the_help_does_not_show_what_the_environment_holds() {
    let names = [
        "DQHOST_HANDLER",
        "DQHOST_QUEUE",
        "DQHOST_LIMIT",
        "DQHOST_PREFIX",
        "DQHOST_REDIS_PASSWORD_FILE",
    ];
    for args in [
        &["up", "-h"][..],
        &["up", "--help"],
        &["help", "up"],
        &["--help"],
        &["send", "-h"],
        &["dead", "list", "--help"],
        &["help", "store"],
    ] {
        let mut command = dqhost(None, args);
        for name in names {
            command.env(name, "\u{1b}]0;hidden\u{7}hidden");
        }
        let help = stdout(&expect(command.output().unwrap(), 0));
        assert!(help.contains("[env: DQHOST_"), "{args:?}: {help}");
        let is_bad = |c: char| c.is_control() && c != '\n';
        assert!(!help.contains("hidden"), "{args:?}: {help}");
        assert!(!help.contains(is_bad), "{args:?}: {help:?}");
    }
}

#[test]
fn values_in_lines_are_refused_in_plain_words() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    for (line, says) in [
        (
            r#"{"payload":"\ud800"}"#,
            r#"payload must be Unicode text without lone surrogates, not "\ud800""#,
        ),
        (r#"{"payload":null}"#, "its payload is null: give \"\""),
        (
            r#"{"payload":null,"payload_base64":null}"#,
            "its payload is null",
        ),
        ("[]", "it is not a JSON object, such as {\"payload\""),
        (r#"["x",null]"#, "it is not a JSON object"),
        (r#""x""#, "it is not a JSON object"),
        ("hello", "it is not a JSON object"),
        ("{\"payload\":1", "it is not valid JSON at column 12: EOF"),
        (
            r#"{"payload":1,"retries":-1}"#,
            "retries must be a whole number from 0 to 1000000, not -1",
        ),
        (
            r#"{"payload":1,"at_ms":"soon"}"#,
            "at_ms must be a time in unix milliseconds, not \"soon\"",
        ),
        (r#"{"payload":1,"in":5}"#, "in must be a string, not 5"),
        (
            r#"{"payload":1,"headers":{"k":1}}"#,
            "headers must be an object of strings, or a list of pairs of strings, not {\"k\":1}",
        ),
        (
            r#"{"payload":1,"state":"lost"}"#,
            "state must be one that a listed message has, not \"lost\"",
        ),
    ] {
        let command = dqhost(Some(&store), &["send", "--ndjson"]);
        let refusal = stderr(&expect(feed(command, line.as_bytes()), 1));
        let expected = format!("line 1 is not sent: {says}");
        assert!(refusal.starts_with(&expected), "{line}: {refusal}");
        for word in ["struct", "u32", "u64", "at line"] {
            assert!(!refusal.contains(word), "{line}: {refusal}");
        }
    }
    // A null leaves any other field out, and a pair of surrogates is one character.
    let line = r#"{"payload":"\ud83d\ude00","in":null,"retries":null,"headers":null,"at":null}"#;
    let command = dqhost(Some(&store), &["send", "--ndjson"]);
    expect(feed(command, line.as_bytes()), 0);
    let listed = stdout(&run(Some(&store), &["list", "ready", "--json"], 0));
    assert!(listed.contains("\"payload\":\"\u{1f600}\""), "{listed}");
}

#[test]
fn limits_that_stop_every_handler_are_refused_at_the_flag() {
    let echo = guest("echo").display().to_string();
    for (limit, says) in [
        (
            "table-elements=0",
            "table-elements must be a whole number from 1 to 10000000",
        ),
        ("tables=0", "tables must be a whole number from 1 to 1000"),
        ("resources=x", "resources must be a whole number from 1 to"),
        (
            "component-bytes=0",
            "component-bytes must be a size from 1KiB to 1024MiB, as in 4096, 64KiB or 4MiB",
        ),
        ("stack=0", "stack must be a size from 64KiB to 64MiB"),
        ("log-bytes=-1", "log-bytes must be a size from 0 to 64MiB"),
    ] {
        let refusal = stderr(&run(None, &["run", &echo, "--limit", limit], 2));
        assert!(refusal.contains(says), "{limit}: {refusal}");
    }
    // Nothing of it is a setting too.
    for limit in ["log-bytes=0", "log-lines=0", "sends=0", "http-requests=0"] {
        run(None, &["run", &echo, "--limit", limit], 0);
    }
}

#[test]
fn numbers_are_refused_in_plain_words() {
    let echo = guest("echo").display().to_string();
    for (args, says) in [
        (
            &["--handler", &echo, "--slots", "abc"][..],
            "--slots must be auto or a whole number from 1 to 4096, not abc",
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
        (
            &["send", "x", "--retries", "-1"],
            "--retries must be a whole number from 0 to 1000000, not -1",
        ),
        (
            &["list", "ready", "--limit", "-1"],
            "--limit must be a whole number, not -1",
        ),
        (
            &["list", "ready", "--offset", "-1"],
            "--offset must be a whole number, not -1",
        ),
        (
            &["run", &echo, "--repeat", "-1"],
            "--repeat must be a whole number of at least 1, not -1",
        ),
        (
            &["--handler", &echo, "--slots", "-1"],
            "--slots must be auto or a whole number from 1 to 4096, not -1",
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
    assert!(
        stderr(&output).contains("--slots must be auto or a whole number from 1 to 4096, not many")
    );
}

#[test]
fn values_that_the_parser_repeats_have_no_line_breaks() {
    let echo = guest("echo").display().to_string();
    for (args, says) in [
        (
            &["send", "x", "--in", "a\nerror: b"][..],
            "error: invalid value 'a\\nerror: b' for '--in <DURATION>': not a duration",
        ),
        (
            &["send", "x", "--in=a\nb"],
            "error: invalid value 'a\\nb' for '--in <DURATION>': not a duration",
        ),
        (&["a\nb"], "error: unrecognized subcommand 'a\\nb'\n\n"),
        (
            &["--handler", &echo, "--rate", "-1/s"],
            "error: invalid value '-1/s' for '--rate <N/UNIT>': ",
        ),
        (
            &["--handler", &echo, "--dead-max-age", "0s"],
            "error: invalid value '0s' for '--dead-max-age <DURATION>': it must be more than zero, or \
             every dead letter is deleted at once\n",
        ),
    ] {
        let errors = stderr(&run(Some("unused"), args, 2));
        assert!(errors.starts_with(says), "{args:?}: {errors}");
    }
}

#[test]
fn a_server_that_is_not_redis_is_called_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let errors = stderr(&run(Some(&url), &["stats"], 3));
    let says = "what answers there is not Redis: check the host and the port";
    assert!(errors.contains(says), "{errors}");
    assert!(!errors.contains("Parse error"), "{errors}");
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
