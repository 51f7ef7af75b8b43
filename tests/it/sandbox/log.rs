//! What handlers can do to the log of their host: neither flood it, nor speak for the host, nor tell
//! secrets.

use std::collections::HashSet;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::support::{
    Host, RedisServer, dqhost, eventually, expect, feed, guest, run, stats, stderr, stdout,
};

/// Lines of one run that the log takes, and the one that tells how many were left out.
const RUN_LINES_MAX: usize = 20;

fn path(name: &str) -> String {
    guest(name).display().to_string()
}

fn send(store: &str, payload: &str) -> String {
    stdout(&run(Some(store), &["send", "--retries", "0", payload], 0))
        .trim()
        .to_owned()
}

/// Both kinds of stores.
fn on_both(test: impl Fn(&str)) {
    let server = RedisServer::start();
    test(&server.url());
    let folder = TempDir::new().unwrap();
    test(folder.path().join("dqhost.db").to_str().unwrap());
}

/// Those lines of a log that handlers caused, and the others.
fn apart(lines: &[Value]) -> (Vec<&Value>, Vec<&Value>) {
    lines.iter().partition(|line| line["guest"] == true)
}

#[test]
fn warnings_of_a_library_are_limited_for_each_run_and_told_once() {
    on_both(|store| {
        let host = Host::start(
            store,
            &["--handler", &path("warn-flood"), "--timeout", "1h"],
        );
        let ids = [send(store, "3000"), send(store, "4")];
        eventually("both are acked", || {
            (stats(store, "default")["totals"]["acked"] == 2).then_some(())
        });
        host.signal(Signal::TERM);
        let (_, lines) = host.end();
        let (of_guests, of_host) = apart(&lines);
        let about = |id: &str| {
            let lines = of_guests.iter().filter(|line| line["id"] == id);
            lines.copied().collect::<Vec<_>>()
        };
        let (flood, few) = (about(&ids[0]), about(&ids[1]));
        assert_eq!(
            (flood.len(), few.len()),
            (RUN_LINES_MAX + 1, 4),
            "{flood:#?}"
        );
        let left_out = format!(
            "{} more lines of this run were left out",
            3000 - RUN_LINES_MAX
        );
        let (last, warnings) = flood.split_last().unwrap();
        assert_eq!(
            (&last["message"], &last["source"]),
            (&left_out.into(), &"host".into())
        );
        for line in warnings.iter().chain(&few) {
            assert_eq!(
                (&line["level"], &line["queue"]),
                (&"WARN".into(), &"default".into())
            );
            let message = line["message"].as_str().unwrap();
            assert!(message.starts_with("http request error"), "{line}");
        }
        assert_eq!(of_guests.len(), flood.len() + few.len());
        let acked = of_host.iter().filter(|line| line["message"] == "acked");
        assert_eq!(acked.count(), 2, "{of_host:#?}");
    });
}

#[test]
fn a_handler_that_is_stopped_in_a_flood_has_its_lines_counted_as_well() {
    let server = RedisServer::start();
    let url = server.url();
    let handler = path("warn-flood");
    let mut host = Host::start(&url, &["--handler", &handler, "--timeout", "1s"]);
    let id = send(&url, "");
    host.wait_for("dead", |line| line["id"] == id.as_str());
    host.wait_for_line_with("more lines of this run were left out");
    host.signal(Signal::TERM);
    let (_, lines) = host.end();
    let (of_guests, _) = apart(&lines);
    assert_eq!(of_guests.len(), RUN_LINES_MAX + 1, "{of_guests:#?}");
}

#[test]
fn lines_of_all_runs_have_a_rate_and_the_host_is_heard_through_it() {
    let server = RedisServer::start();
    let url = server.url();
    let lines = format!("{{\"payload\": \"{}\"}}\n", "x".repeat(60_000)).repeat(1000);
    let command = dqhost(Some(&url), &["send", "--ndjson", "--retries", "0"]);
    expect(feed(command, lines.as_bytes()), 0);
    let mut host = Host::start(&url, &["--handler", &path("echo")]);
    eventually("all are acked", || {
        (stats(&url, "default")["totals"]["acked"] == 1000).then_some(())
    });
    host.wait_for_line_with("lines of handlers were left out");
    host.signal(Signal::TERM);
    let (_, lines) = host.end();
    let (of_guests, of_host) = apart(&lines);
    // Each run has two.
    assert!(of_guests.len() < 2000, "{}", of_guests.len());
    let acked = of_host.iter().filter(|line| line["message"] == "acked");
    let ids: HashSet<&str> = acked.filter_map(|line| line["id"].as_str()).collect();
    assert_eq!(ids.len(), 1000);
}

#[test]
fn lines_of_handlers_have_a_file_of_their_own_and_push_out_nothing_of_the_hosts() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let mut tty = Tty::start(&store, &["--handler", &path("warn-flood")], (160, 40));
    tty.wait_for("> default");
    let id = send(&store, "500");
    eventually("it is acked", || {
        (stats(&store, "default")["totals"]["acked"] == 1).then_some(())
    });
    tty.keys("6");
    // Both are on the screen.
    tty.wait_for("dqhost.log and dqhost-guests.log");
    tty.wait_for("[guest] \"480 more lines of this run were left out\"");
    tty.wait_for(" INFO acked queue=default");
    let files = tty.state.path().join("dqhost");
    tty.keys("q");
    let state = TempDir::new().unwrap();
    let state = std::mem::replace(&mut tty.state, state);
    tty.end(0);
    let read = |name: &str| std::fs::read_to_string(files.join(name)).unwrap();
    let (host, guests) = (read("dqhost.log"), read("dqhost-guests.log"));
    drop(state);
    assert!(
        host.contains(" INFO serving ") && host.contains(" INFO acked "),
        "{host}"
    );
    assert!(
        !host.contains("http request error") && !host.contains("[guest]"),
        "{host}"
    );
    assert_eq!(guests.lines().count(), RUN_LINES_MAX + 1, "{guests}");
    let is_marked = |line: &str| line.contains(" [guest] \"") && line.contains(&id);
    assert!(guests.lines().all(is_marked), "{guests}");
}

#[test]
fn no_line_of_a_handler_looks_like_one_of_the_host() {
    let forged = "acked queue=default id=forged attempt=1 took=1ms\n\
                  2026-11-22T16:00:00.000000Z  INFO acked queue=default id=forged\r\
                  \" level=INFO id=forged \u{1b}[2K\u{202e}";
    on_both(|store| {
        let args = ["--handler", &path("echo"), "--exit-when-empty"];
        send(store, forged);
        let text = stderr(&run(Some(store), &args, 0));
        let (of_guest, of_host): (Vec<&str>, Vec<&str>) = text
            .lines()
            .partition(|line| line.contains(" INFO [guest] \""));
        assert_eq!(of_guest.len(), 3, "{text}");
        assert!(
            !of_host.iter().any(|line| line.contains("forged")),
            "{text}"
        );
        // Between the mark and the end of the quotes nothing is a field.
        for line in of_guest {
            let text = line.split_once("[guest] \"").unwrap().1;
            let plain = text.replace("\\\\", "").replace("\\\"", "");
            let (said, fields) = plain.split_once('"').unwrap();
            assert!(
                !fields.contains("forged") && fields.starts_with(" queue=default id="),
                "{line}"
            );
            assert!(
                said.contains("forged") || said == "attempt 1 of 1",
                "{line}"
            );
        }
        send(store, forged);
        let json = stderr(&run(
            Some(store),
            &[&args[..], &["--log-format", "json"]].concat(),
            0,
        ));
        let lines: Vec<Value> = json
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (of_guest, of_host) = apart(&lines);
        assert_eq!(of_guest.len(), 3, "{json}");
        assert!(of_guest.iter().all(|line| line["id"] != "forged"), "{json}");
        assert!(
            !of_host
                .iter()
                .any(|line| line.to_string().contains("forged")),
            "{json}"
        );
        assert!(!json.contains(['\u{1b}', '\u{202e}']), "{json:?}");
    });
}

#[test]
fn no_usual_form_of_a_secret_is_in_a_log_a_reason_or_a_history() {
    let folder = TempDir::new().unwrap();
    let secret = "pa55/w\u{f6}rd?\"of\" ours~\u{203d}";
    let file = folder.path().join("secret");
    std::fs::write(&file, secret).unwrap();
    let given = format!("KEY={}", file.display());
    let teller = path("secret-teller");
    let args = [
        "run",
        &teller,
        "--payload",
        "KEY",
        "--secret-file",
        &given,
        "--json",
    ];
    let report: Value = serde_json::from_slice(&run(None, &args, 6).stdout).unwrap();
    let mut lines: Vec<&str> = report["log"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    lines.push(report["reason"].as_str().unwrap());
    assert_eq!(lines.len(), 10, "{report:#}");
    for line in &lines {
        assert_eq!(line.matches("[secret KEY]").count(), 1, "{line}");
        assert!(line.len() < 40, "{line}");
    }
    // What a host logs and keeps is the same.
    let store = folder.path().join("dqhost.db").display().to_string();
    let id = send(&store, "KEY");
    let args = [
        "--handler",
        &teller,
        "--secret-file",
        &given,
        "--exit-when-empty",
    ];
    let log = stderr(&run(Some(&store), &args, 0));
    let kept = stdout(&run(Some(&store), &["get", "--json", &id], 0));
    for text in [log, kept] {
        assert!(text.matches("[secret KEY]").count() >= 10, "{text}");
        for part in [
            "pa55", "cGE1N", "BhNTUv", "wYTU1", "70613535", "%70%61", "u{70}",
        ] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }
}
