//! The real program on queues that hold anything: it ends in time, does not panic, and what it shows is
//! harmless.

use std::path::Path;
use std::process::Output;

use rustix::process::Signal;
use tempfile::TempDir;

use super::any::{HASHES, IDS, SCORES, VALUES, is_harmless};
use crate::support::{Host, RedisServer, dqhost, eventually, guest, run, stats};

/// Every difficult id in every state with every difficult value.
fn spoil(server: &RedisServer) {
    let mut connection = server.connection();
    let mut add = |name: &str, key: &str, values: Vec<&[u8]>| {
        let mut command = redis::cmd(name);
        command.arg(format!("{{dp:q}}:{key}")).arg(values);
        let () = command.query(&mut connection).unwrap();
    };
    for (at, id) in IDS.iter().enumerate() {
        let score = SCORES[at % SCORES.len()].as_bytes();
        for key in ["pending", "unack", "dead", "dedup", "moving", "hosts"] {
            add("ZADD", key, vec![score, id]);
        }
        for key in ["ready", "retry", "ended"] {
            add("RPUSH", key, vec![id]);
        }
        add("SADD", "garbage", vec![id]);
        for (nth, key) in HASHES.iter().enumerate() {
            let value = VALUES[(at * HASHES.len() + nth) % VALUES.len()];
            add("HSET", key, vec![id, value]);
        }
        // The worst that each can hold, for some.
        if at % 2 == 0 {
            add("HSET", "headers", vec![id, VALUES[22]]);
            add("HSET", "history", vec![id, VALUES[24]]);
            add("HSET", "hosts:info", vec![id, VALUES[25]]);
        }
    }
    for id in ["a", "0", "\u{1b}[2J\u{7}", "line\r\nbreak"] {
        add(
            "SET",
            &format!("msg:{id}"),
            vec![b"\x1b]0;title\x07\xe2\x80\xae"],
        );
    }
    add(
        "HSET",
        "stats",
        vec![
            b"sent",
            b"many",
            b"acked",
            b"18446744073709551615",
            b"nacked",
            b"-1",
        ],
    );
    add(
        "HSET",
        "moving:peer",
        vec![b"name", b"\x1b[2J\xe2\x80\xae", b"run", b"x"],
    );
    let mut names = redis::cmd("SADD");
    names
        .arg("dqhost:queues")
        .arg("q")
        .arg("\u{1b}[2J")
        .arg("a b")
        .arg(b"\xff".as_slice());
    let () = names.query(&mut connection).unwrap();
}

fn check(args: &[&str], output: &Output) {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| code <= 5)
            && !err.contains("panicked")
            && !err.contains("a bug in"),
        "{args:?}: {code:?}\n{err}"
    );
    assert!(is_harmless(&out), "{args:?}: {out:?}");
    assert!(is_harmless(&err), "{args:?}: {err:?}");
    assert!(out.len() + err.len() < 1 << 20, "{args:?} prints too much");
}

const COMMANDS: [&[&str]; 34] = [
    &["stats"],
    &["stats", "--json"],
    &["list", "pending"],
    &["list", "ready"],
    &["list", "unack"],
    &["list", "retry"],
    &["list", "dead", "--json"],
    &["list", "ended"],
    &["list", "ended", "-o", "wide"],
    &["list", "ready", "--json", "--offset", "3", "--limit", "5"],
    &["list", "ready", "--offset", "18446744073709551614"],
    &["dead", "list"],
    &["get", "a"],
    &["get", "a", "--json"],
    &["get", "0"],
    &["get", "\u{1b}[2J\u{7}"],
    &["get", "line\r\nbreak", "--json"],
    &["get", ""],
    &["get", "}:ready"],
    &["reschedule", "a", "{x}", "\u{1b}[2J\u{7}", "--in", "1h"],
    &["top", "--snapshot"],
    &["top", "--snapshot", "--ascii"],
    &["send", "x", "--in", "1h"],
    &["send", "x", "--idempotency-key", "k"],
    &["pause"],
    &["resume"],
    &["dead", "redrive", "0", "\u{1b}[2J\u{7}", "nothing"],
    &["dead", "redrive", "a", "--payload", "y"],
    &["dead", "redrive", "all", "--rate", "10000"],
    &["dead", "delete", "--all"],
    &["dead", "delete", "line\r\nbreak"],
    &["cancel", "a", "\u{1b}[2J\u{7}", "line\r\nbreak", ""],
    &["dead", "delete", "--all", "--yes"],
    &["stats"],
];

fn try_all(store: &str) {
    for args in COMMANDS {
        let mut command = dqhost(Some(store), args);
        command.env("DQHOST_QUEUE", "q");
        check(args, &command.output().unwrap());
    }
}

/// A host on the broken queue and on the one beside it.
fn serve(store: &str, what: &str) {
    let handler = guest("noop").display().to_string();
    let queues = [format!("q={handler}"), format!("fine={handler}")];
    run(Some(store), &["send", "x", "--queue", "fine"], 0);
    let args = [
        "--queue",
        &queues[0],
        "--queue",
        &queues[1],
        "--lease",
        "500ms",
        "--backoff",
        "1ms",
        "--log",
        "debug",
    ];
    let mut host = Host::start(store, &args);
    eventually("the queue beside goes on", || {
        (stats(store, "fine")["totals"]["acked"].as_u64() >= Some(1)).then_some(())
    });
    host.wait_for_queue(what, "q");
    host.signal(Signal::TERM);
    let (status, lines) = host.end();
    let text = format!("{lines:#?}");
    assert!(status.success(), "{text}");
    assert!(
        !text.contains("panicked") && !text.contains("a bug in"),
        "{text}"
    );
    let harmless = |line: &serde_json::Value| {
        let fields = line
            .as_object()
            .map(|fields| fields.values().filter_map(|v| v.as_str()));
        fields.is_some_and(|mut fields| fields.all(is_harmless))
    };
    let bad = lines.iter().find(|line| !harmless(line));
    assert!(bad.is_none(), "{bad:#?}");
}

#[test]
fn the_program_survives_keys_that_hold_anything() {
    let server = RedisServer::start();
    spoil(&server);
    let url = server.url();
    let output = dqhost(Some(&url), &["top", "--snapshot=svg"])
        .output()
        .unwrap();
    check(&["svg"], &output);
    try_all(&url);
    let () = server.command(&["FLUSHALL"]);
    spoil(&server);
    serve(&url, "acked");
}

/// Every difficult value in every column that the schema lets it into.
fn spoil_file(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .pragma_update(None, "ignore_check_constraints", true)
        .unwrap();
    for (at, id) in IDS.iter().enumerate() {
        let state = i64::try_from(at % 8 + 2).unwrap();
        let number = [1, i64::MAX, -1, 4_294_967_296][at % 4];
        let place = [1, i64::MAX, -1, 0][at / 4 % 4];
        let [headers, history] = if at % 2 == 0 {
            [VALUES[22], VALUES[24]]
        } else {
            [VALUES[at], VALUES[at + 10]]
        };
        let payload = (at % 3 > 0).then_some(b"\x1b]0;title\x07\xff".as_slice());
        connection
            .execute(
                "INSERT INTO messages
                   (queue, id, state, place, due_ms, failed, retries_left, headers, history, payload)
                 VALUES ((SELECT queue FROM queues WHERE name = 'q'), CAST(?1 AS TEXT), ?2, ?3, ?3,
                   ?4, ?4, CAST(?5 AS TEXT), CAST(?6 AS TEXT), ?7)",
                rusqlite::params![id, state, place, number, headers, history, payload],
            )
            .unwrap();
    }
    connection
        .execute_batch(
            "UPDATE queues SET pending = 2, ready = 2, unack = 2, retry = 2, garbage = 2, dead = 2,
               moving = 9223372036854775807, peer = CAST(x'1b5b324aff' AS TEXT),
               sent = 9223372036854775807, acked = -1, tail = 9223372036854775807 WHERE name = 'q';
             INSERT INTO queues (name) VALUES (CAST(x'1b5b324a' AS TEXT)), (CAST(x'ff' AS TEXT));
             INSERT INTO hosts SELECT queue, CAST(x'ff' AS TEXT), 4102444800000,
               CAST(x'7b22ff' AS TEXT) FROM queues WHERE name = 'q';",
        )
        .unwrap();
}

#[test]
fn the_program_survives_rows_that_hold_anything() {
    let folder = TempDir::new().unwrap();
    for (name, is_served) in [("a.db", false), ("b.db", true)] {
        let path = folder.path().join(name);
        let store = path.display().to_string();
        run(Some(&store), &["send", "x", "--queue", "q"], 0);
        spoil_file(&path);
        if is_served {
            serve(&store, "");
        } else {
            try_all(&store);
        }
    }
}
