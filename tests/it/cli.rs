//! The command line: what it prints, and what it says to what is wrong.

mod backup;
mod closed;
mod completions;
mod dead_try;
mod export;
mod fail_if;
mod matching;
mod max_redrives;
mod prefix;
mod purge;
mod redrive_to;
mod resend;
mod run;
mod settings;
mod steer;
mod wit;
mod words;

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    RedisServer, dqhost, eventually, expect, feed, guest, run, stats, stderr, stdout,
};

#[test]
fn the_help_is_complete() {
    for (name, args) in [
        ("help", &["--help"] as &[&str]),
        ("help-send", &["send", "--help"]),
        ("help-stats", &["stats", "--help"]),
        ("help-dead-redrive", &["dead", "redrive", "--help"]),
        ("help-top", &["top", "--help"]),
        ("help-audit", &["audit", "--help"]),
        ("help-reschedule", &["reschedule", "--help"]),
        ("help-purge", &["purge", "--help"]),
        ("help-run", &["run", "-h"]),
        ("help-new", &["new", "--help"]),
        ("keys", &["keys"]),
    ] {
        let help = stdout(&run(None, args, 0));
        // In a pipe, where no terminal says how wide it is.
        let wide = help.lines().find(|line| line.chars().count() > 80);
        assert!(args == ["keys"] || wide.is_none(), "{args:?}: {wide:?}");
        insta::assert_snapshot!(name, help);
    }
    // Without anything: the same help, and the code of wrong usage.
    assert!(stderr(&run::<&str>(None, &[], 2)).contains("Usage: dqhost"));
}

#[test]
fn a_sent_message_is_told_by_its_id_or_as_json() {
    let server = RedisServer::start();
    let url = server.url();
    let id = stdout(&run(Some(&url), &["send", "hello", "--header", "k=v=w"], 0));
    let output = run(Some(&url), &["get", id.trim(), "--json"], 0);
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["payload"], "hello");
    assert_eq!(record["headers"], serde_json::json!([["k", "v=w"]]));
    let output = run(
        Some(&url),
        &["send", "later", "--at", "2050-01-01T00:00:00Z", "--json"],
        0,
    );
    let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(sent["due_at_ms"], 2_524_608_000_000_u64);
    assert_eq!(sent["due_at"], "2050-01-01T00:00:00Z");
    let text = stdout(&run(Some(&url), &["get", sent["id"].as_str().unwrap()], 0));
    assert!(text.contains("state         pending"), "{text}");
    assert!(
        text.contains("due           2050-01-01T00:00:00Z"),
        "{text}"
    );
}

#[test]
fn what_is_sent_under_a_key_is_sent_once() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    for store in [server.url(), file] {
        let under = |key: &str| run(Some(&store), &["send", "x", "--idempotency-key", key], 0);
        let first = under("order 17");
        assert_eq!(stderr(&first), "");
        let again = under("order 17");
        assert_eq!(stdout(&again), stdout(&first));
        let told = format!(
            "{} was sent before, so nothing was sent now\n",
            stdout(&first).trim()
        );
        assert_eq!(stderr(&again), told);
        assert_ne!(stdout(&under("order 18")), stdout(&first));
        assert_eq!(stats(&store, "default")["ready"], 2);
        // In lines as well, also twice in one batch.
        let line = |key: &str| format!("{{\"payload\":1,\"idempotency_key\":\"{key}\"}}\n");
        let lines = [line("order 17"), line("order 19"), line("order 19")].concat();
        let command = dqhost(Some(&store), &["send", "--ndjson", "--json"]);
        let sent = stdout(&expect(feed(command, lines.as_bytes()), 0));
        let is_new = |line: &str| {
            let sent: Value = serde_json::from_str(line).unwrap();
            sent["due_at_ms"].is_u64()
        };
        let are_new: Vec<bool> = sent.lines().map(is_new).collect();
        assert_eq!(are_new, [false, true, false]);
        // What was handled still counts, unless its window was none.
        let without = [
            "send",
            "x",
            "--idempotency-key",
            "k",
            "--dedup-window",
            "0s",
        ];
        assert_eq!(stderr(&run(Some(&store), &without, 0)), "");
        let handler = guest("noop").display().to_string();
        run(
            Some(&store),
            &["--handler", &handler, "--exit-when-empty"],
            0,
        );
        assert_eq!(stderr(&under("order 17")), told);
        assert_eq!(stderr(&run(Some(&store), &without, 0)), "");
        let line = "{\"payload\":1,\"idempotency_key\":\"order 17\",\"dedup_window\":\"0s\"}\n";
        let command = dqhost(Some(&store), &["send", "--ndjson"]);
        assert_eq!(stderr(&expect(feed(command, line.as_bytes()), 0)), "");
        let command = dqhost(Some(&store), &["send", "--ndjson", "--dedup-window", "1ms"]);
        let line = "{\"payload\":1,\"idempotency_key\":\"order 18\"}\n";
        let again = stderr(&expect(feed(command, line.as_bytes()), 0));
        assert!(again.contains("was sent before"), "{again}");
    }
    for args in [
        &["send", "x", "--idempotency-key", ""][..],
        &["send", "--ndjson", "--idempotency-key", "one for all"],
        &["send", "x", "--dedup-window", "1h"],
    ] {
        run(Some("unused"), args, 2);
    }
}

#[test]
fn payloads_come_from_files_and_stdin_as_they_are() {
    let server = RedisServer::start();
    let url = server.url();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("payload");
    fs::write(&file, b"\x00\xff\n").unwrap();
    let from_file = run(Some(&url), &["send", &format!("@{}", file.display())], 0);
    let from_stdin = expect(feed(dqhost(Some(&url), &["send", "-"]), b"\x00\xff\n"), 0);
    for output in [from_file, from_stdin] {
        let id = stdout(&output);
        let output = run(Some(&url), &["get", id.trim(), "--json"], 0);
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(record["payload_base64"], "AP8K");
        assert!(stdout(&run(Some(&url), &["get", id.trim()], 0)).contains("0x00ff0a"));
    }
}

#[test]
fn of_many_lines_the_right_ones_go_in_and_the_wrong_ones_are_named() {
    let server = RedisServer::start();
    let url = server.url();
    let lines = b"{\"payload\":1}\n\nnot json\n{\"payload\":\"x\",\"in\":\"1h\"}\n{\"colour\":1}\n";
    let output = expect(feed(dqhost(Some(&url), &["send", "--ndjson"]), lines), 5);
    assert_eq!(stdout(&output).lines().count(), 2);
    let errors = stderr(&output);
    assert!(
        errors.contains("line 3 is not sent")
            && errors.contains("line 5 is not sent: unknown field `colour`"),
        "{errors}"
    );
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["ready"], &counts["pending"]),
        (&1.into(), &1.into())
    );
    expect(
        feed(dqhost(Some(&url), &["send", "--ndjson", "-"]), b"nothing\n"),
        1,
    );
    expect(feed(dqhost(Some(&url), &["send", "--ndjson", "-"]), b""), 0);
}

#[test]
fn wrong_usage_is_refused_before_anything_is_sent() {
    let server = RedisServer::start();
    let url = server.url();
    let long = "x".repeat(256 * 1024 + 1);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("long");
    fs::write(&file, &long).unwrap();
    let at_file = format!("@{}", file.display());
    for (args, says) in [
        (vec!["send"], "give the payload"),
        (vec!["send", "x", "--in", "-5s"], "must not be negative"),
        (vec!["send", "x", "--in", "soon"], "not a duration"),
        (vec!["send", "x", "--in", "5"], "with a unit"),
        (
            vec!["send", "x", "--in", "99999999999999999999h"],
            "not a duration",
        ),
        (vec!["send", "x", "--in", "300 years"], "not a fixed length"),
        (vec!["send", "x", "--in", "200000d"], "100 years"),
        (vec!["send", "x", "--at", "yesterday"], "not a time"),
        (
            vec!["send", "x", "--in", "1s", "--at", "14:00"],
            "cannot be used with",
        ),
        (
            vec!["send", "x", "--retries", "-1"],
            "--retries must be a whole number from 0 to 1000000, not -1",
        ),
        (
            vec!["send", "x", "--retries", "9999999"],
            "--retries must be a whole number from 0 to 1000000, not 9999999",
        ),
        (vec!["send", "x", "--header", "novalue"], "KEY=VALUE"),
        (vec!["send", "x", "--queue", "a{b}"], "queue name"),
        (vec!["send", "x", "--queue", ""], "queue name"),
        (vec!["send", "@/nowhere/at/all"], "cannot read the payload"),
        (vec!["send", &at_file], "over"),
        (vec!["send", "--ndjson", "x"], "reads - or @FILE"),
        (vec!["dead", "redrive"], "required"),
        (vec!["dead", "delete", "--all"], "say --yes"),
    ] {
        let errors = stderr(&run(Some(&url), &args, 2));
        let known =
            errors.contains(says) || (says == "over" && errors.contains("the limit is 262144"));
        assert!(known, "{args:?}: {errors}");
    }
    assert_eq!(stats(&url, "default")["totals"]["sent"], 0);
    run(
        Some(&url),
        &["send", &at_file, "--max-payload", "300000"],
        0,
    );
}

#[test]
fn a_store_that_is_not_there_is_told_with_code_3() {
    let errors = stderr(&run(Some("redis://127.0.0.1:1"), &["stats"], 3));
    assert!(
        errors.contains("redis://127.0.0.1:1 is not reachable"),
        "{errors}"
    );
    run(
        Some("redis://127.0.0.1:1"),
        &["--handler", guest("echo").to_str().unwrap()],
        3,
    );
    run(Some("http://example"), &["stats"], 3);
    let secret = "redis://user:hunter2@127.0.0.1:1";
    let errors = stderr(&run(Some(secret), &["send", "x"], 3));
    assert!(!errors.contains("hunter2"), "{errors}");
    let policy = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let errors = stderr(&run(Some(&policy.url()), &["send", "x"], 3));
    assert!(errors.contains("noeviction"), "{errors}");
    run(Some(&policy.url()), &["send", "x", "--allow-eviction"], 0);
}

#[test]
fn files_that_are_no_handler_are_told_with_code_4() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = fs::read(guest("echo")).unwrap();
    let missing = folder
        .path()
        .join("missing.wasm")
        .to_str()
        .unwrap()
        .to_owned();
    let text = |source: &str| wat::parse_str(source).unwrap();
    for (file, says) in [
        (missing, "cannot read the handler"),
        (
            folder.path().to_str().unwrap().to_owned(),
            "cannot read the handler",
        ),
        (write("empty.wasm", b""), "the file is empty"),
        (write("text.wasm", b"hello"), "it is not WebAssembly"),
        (
            write("module.wasm", &text("(module)")),
            "a core WebAssembly module, not a component",
        ),
        (
            write("nothing.wasm", &text("(component)")),
            "it exports nothing",
        ),
        (
            write(
                "other.wasm",
                &text(
                    r#"(component (type (func)) (import "x:y/z@1.0.0" (instance)) (instance) (export "a:b/c@1.0.0" (instance 1)))"#,
                ),
            ),
            "it does not export dqhost:queue/handler@0.1.x; it exports a:b/c@1.0.0",
        ),
        (
            write(
                "greedy.wasm",
                &text(
                    r#"(component (import "wasi:keyvalue/store@0.2.0" (instance)) (instance) (export "dqhost:queue/handler@0.1.0" (instance 1)))"#,
                ),
            ),
            "it imports wasi:keyvalue/store@0.2.0, which handlers are not given",
        ),
        (
            write(
                "hollow.wasm",
                &text(
                    r#"(component (instance) (export "dqhost:queue/handler@0.1.0" (instance 0)))"#,
                ),
            ),
            "it does not fit the interface",
        ),
        (
            write("cut.wasm", &good[..good.len() / 2]),
            "it does not compile",
        ),
    ] {
        let errors = stderr(&run(Some(&server.url()), &["--handler", &file], 4));
        assert!(errors.contains(says), "{file}: {errors}");
    }
}

#[test]
fn a_hosts_settings_are_checked_before_it_starts() {
    let server = RedisServer::start();
    let echo = guest("echo").to_str().unwrap().to_owned();
    let twice = format!("a={echo}");
    for (args, says) in [
        (vec!["up"], "queue default has no handler"),
        (vec!["up", "--queue", "a"], "queue a has no handler"),
        (vec!["up", "--queue", "a="], "file is missing"),
        (
            vec!["up", "--queue", &twice, "--queue", &twice],
            "given twice",
        ),
        (
            vec!["--handler", &echo, "--slots", "0"],
            "--slots must be auto or a whole number from 1 to 4096, not 0",
        ),
        (
            vec!["--handler", &echo, "--slots", "100000"],
            "--slots must be auto or a whole number from 1 to 4096, not 100000",
        ),
        (vec!["--handler", &echo, "--lease", "1ms"], "at least 500ms"),
        (
            vec!["--handler", &echo, "--timeout", "0s"],
            "more than zero",
        ),
        (
            vec!["--handler", &echo, "--log", "dqhost=loud"],
            "not understood",
        ),
    ] {
        let errors = stderr(&run(Some(&server.url()), &args, 2));
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
}

#[test]
fn waiting_messages_are_listed_and_cancelled() {
    let server = RedisServer::start();
    let url = server.url();
    let one = stdout(&run(Some(&url), &["send", "one", "--in", "1h"], 0))
        .trim()
        .to_owned();
    let two = stdout(&run(Some(&url), &["send", "two", "--in", "2h"], 0))
        .trim()
        .to_owned();
    let listed = stdout(&run(Some(&url), &["list", "pending"], 0));
    let ids: Vec<&str> = listed
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(ids, [&one, &two]);
    let limited = stdout(&run(
        Some(&url),
        &["list", "pending", "--limit", "1", "--offset", "1"],
        0,
    ));
    assert!(limited.starts_with(&two) && limited.lines().count() == 1);
    let output = run(Some(&url), &["cancel", &one, "unknown"], 5);
    assert_eq!(stdout(&output).trim(), one);
    assert!(stderr(&output).contains("unknown is not cancelled"));
    run(Some(&url), &["cancel", &one], 1);
    run(Some(&url), &["get", &one], 1);
    assert_eq!(stats(&url, "default")["pending"], 1);
}

#[test]
fn dead_letters_are_redriven_and_deleted_by_id_or_all() {
    let server = RedisServer::start();
    let url = server.url();
    for n in 0..4 {
        run(Some(&url), &["send", &n.to_string()], 0);
    }
    let handler = guest("reject").to_str().unwrap().to_owned();
    let host = ["--handler", &handler, "--exit-when-empty"];
    run(Some(&url), &host, 0);
    let output = run(Some(&url), &["dead", "list", "--json"], 0);
    let ids: Vec<String> = stdout(&output)
        .lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["history"][0]["reason"], "attempt 1: not wanted");
            record["id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 4);
    let output = run(Some(&url), &["dead", "redrive", &ids[0], "unknown"], 5);
    assert!(stdout(&output).starts_with(&format!("{} -> ", ids[0])));
    run(Some(&url), &["dead", "redrive", "unknown"], 1);
    run(Some(&url), &["dead", "delete", &ids[1]], 0);
    let counts = stats(&url, "default");
    assert_eq!((&counts["dead"], &counts["ready"]), (&2.into(), &1.into()));
    run(Some(&url), &["dead", "redrive", "--all"], 0);
    assert_eq!(stats(&url, "default")["ready"], 3);
    run(Some(&url), &host, 0);
    run(Some(&url), &["dead", "delete", "--all", "--yes"], 0);
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["dead"], &counts["totals"]["deleted"]),
        (&0.into(), &4.into())
    );
}

#[test]
fn the_statistics_show_every_queue_for_people_and_for_programs() {
    let server = RedisServer::start();
    let url = server.url();
    for queue in ["orders", "mail"] {
        run(Some(&url), &["send", "x", "--queue", queue], 0);
    }
    let text = stdout(&run(Some(&url), &["stats"], 0));
    assert!(text.starts_with("store unix://"), "{text}");
    let queues: Vec<&str> = text
        .lines()
        .skip(2)
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(queues, ["mail", "orders"]);
    let output = run(Some(&url), &["stats", "--json"], 0);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (index, name) in ["mail", "orders"].into_iter().enumerate() {
        assert_eq!(value["queues"][index]["queue"], name);
        assert_eq!(value["queues"][index]["ready"], 1);
        assert_eq!(value["queues"][index]["totals"]["sent"], 1);
    }
}

#[test]
fn lines_are_sent_as_they_come_and_whoever_reads_the_answers() {
    use std::io::Write;
    use std::process::Stdio;
    let server = RedisServer::start();
    let url = server.url();
    // A pipe that stays open, with a blank line and half a line behind what is to be sent.
    let mut child = dqhost(Some(&url), &["send", "--ndjson"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"payload\":1}\n\n{\"pay").unwrap();
    eventually("the first is there", || {
        (stats(&url, "default")["ready"] == 1).then_some(())
    });
    // Nobody reads on: the rest goes in all the same.
    drop(child.stdout.take());
    stdin.write_all(b"load\":2}\n").unwrap();
    for n in 0..3000 {
        writeln!(stdin, "{{\"payload\":{n}}}").unwrap();
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(stats(&url, "default")["ready"], 3002);
}

#[test]
fn nothing_hostile_reaches_the_terminal() {
    let server = RedisServer::start();
    let url = server.url();
    let hostile = "\x1b]52;c;aGk=\x07\u{9b}6n\u{7f}\u{202e}\u{200b}";
    let header = format!("k={hostile}");
    let id = stdout(&run(Some(&url), &["send", hostile, "--header", &header], 0));
    for args in [
        &["get", id.trim()] as &[&str],
        &["get", id.trim(), "--json"],
        &["list", "ready"],
        &["list", "ready", "--json"],
        &["stats"],
    ] {
        let text = stdout(&run(Some(&url), args, 0));
        let bad = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202e}' | '\u{200b}');
        assert!(!text.contains(bad), "{args:?}: {text:?}");
    }
    let json: Value =
        serde_json::from_slice(&run(Some(&url), &["get", id.trim(), "--json"], 0).stdout).unwrap();
    assert_eq!(json["payload"], hostile);
    assert!(!stderr(&run(Some(&url), &["get", hostile], 1)).contains('\x1b'));
    assert!(!stderr(&run(Some(&url), &["send", "x", "--queue", hostile], 2)).contains('\x1b'));
}

#[test]
fn settings_come_from_the_environment() {
    let server = RedisServer::start();
    let url = server.url();
    let with = |args: &[&str], settings: &[(&str, &str)], code| {
        let mut command = dqhost(None, args);
        command
            .env("DQHOST_REDIS", &url)
            .envs(settings.iter().copied());
        expect(command.output().unwrap(), code)
    };
    let queue = [("DQHOST_QUEUE", "orders"), ("DQHOST_NO_HASH_TAG", "1")];
    with(&["send", "x"], &queue, 0);
    assert_eq!(server.command::<u64>(&["LLEN", "dp:orders:ready"]), 1);
    with(
        &["up", "--exit-when-empty"],
        &[
            queue[0],
            queue[1],
            ("DQHOST_HANDLER", guest("echo").to_str().unwrap()),
        ],
        0,
    );
    assert_eq!(server.command::<u64>(&["LLEN", "dp:orders:ready"]), 0);
    with(&["send", "x"], &[("DQHOST_NO_HASH_TAG", "perhaps")], 2);
}

#[test]
fn a_paused_queue_waits_and_a_rescheduled_message_moves() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db").display().to_string();
    let store = Some(path.as_str());
    let id = stdout(&run(store, &["send", "x", "--in", "1h"], 0));
    let id = id.trim();
    assert_eq!(stdout(&run(store, &["pause"], 0)), "default is paused\n");
    assert_eq!(stats(&path, "default")["paused"], true);
    assert!(stdout(&run(store, &["stats"], 0)).contains("default is paused"));
    assert!(stdout(&run(store, &["reschedule", id], 0)).starts_with(id));
    assert_eq!(stats(&path, "default")["ready"], 1);
    run(store, &["reschedule", id, "--in", "2h"], 0);
    assert_eq!(stats(&path, "default")["pending"], 1);
    let output = run(store, &["reschedule", id, "nobody"], 5);
    assert!(stderr(&output).contains("nobody is not rescheduled"));
    run(
        store,
        &["reschedule", "nobody", "--in", "1h", "--at", "14:00"],
        2,
    );
    assert_eq!(stdout(&run(store, &["resume"], 0)), "default goes on\n");
    let handler = guest("echo");
    let up = ["--handler", handler.to_str().unwrap(), "--exit-when-empty"];
    run(store, &up, 0);
    assert_eq!(stats(&path, "default")["totals"]["acked"], 1);
    assert_eq!(stats(&path, "default")["paused"], false);
}

#[test]
fn a_dead_letter_is_sent_again_with_another_payload_and_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db").display().to_string();
    let store = Some(path.as_str());
    let handler = guest("flaky");
    let up = ["--handler", handler.to_str().unwrap(), "--exit-when-empty"];
    for payload in ["one", "two", "three"] {
        run(store, &["send", payload], 0);
    }
    run(store, &up, 0);
    let list = stdout(&run(store, &["dead", "list"], 0));
    let id = list.split_whitespace().next().unwrap();
    let file = folder.path().join("payload");
    std::fs::write(&file, "1").unwrap();
    let file = format!("@{}", file.display());
    let told = stdout(&run(store, &["dead", "redrive", id, "--payload", &file], 0));
    assert!(told.starts_with(&format!("{id} -> ")), "{told}");
    run(store, &up, 0);
    let counts = stats(&path, "default");
    assert_eq!(
        (&counts["dead"], &counts["totals"]["acked"]),
        (&3.into(), &1.into())
    );
    run(
        store,
        &["dead", "redrive", id, "other", "--payload", "1"],
        2,
    );
    run(store, &["dead", "redrive", "all", "--payload", "1"], 2);
    // A hundred a second: three take a moment, and none is left out.
    run(store, &["dead", "redrive", "all", "--rate", "100"], 0);
    assert_eq!(stats(&path, "default")["ready"], 3);
}

/// Dead letters, made in one step: so many, latest at this time or later.
fn die(server: &RedisServer, number: usize, at: u64) {
    let script = "for i = 1, tonumber(ARGV[1]) do
            local id = 'dead-' .. ARGV[2] .. '-' .. i
            redis.call('SET', '{dp:default}:msg:' .. id, 'x')
            redis.call('HSET', '{dp:default}:attempts', id, '1:0:3')
            redis.call('ZADD', '{dp:default}:dead', ARGV[2], id)
        end";
    let () = server.command(&["EVAL", script, "0", &number.to_string(), &at.to_string()]);
}

#[test]
fn a_message_that_dies_while_all_are_redriven_or_deleted_is_no_error() {
    const LETTERS: usize = 4000;
    let server = RedisServer::start();
    let url = server.url();
    for args in [&["redrive", "--all"][..], &["delete", "--all", "--yes"]] {
        die(&server, LETTERS, 1);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut at = 2;
                while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                    die(&server, 10, at);
                    at += 1;
                }
            });
            let output = dqhost(Some(&url), &[&["dead"], args].concat()).output();
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
            output.unwrap()
        });
        assert_eq!(stderr(&output), "", "{args:?}");
        let output = expect(output, 0);
        let old = stdout(&output);
        let old = old.lines().filter(|line| line.starts_with("dead-1-"));
        assert_eq!(old.count(), LETTERS, "{args:?}");
    }
}
