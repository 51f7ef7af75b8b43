//! `dqhost export` and `dqhost import`.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::http_api::with_each_store;
use crate::support::{Host, dqhost, eventually, expect, feed, guest, run, stats, stderr, stdout};

fn send(store: &str, payload: &str, more: &[&str]) {
    run(
        Some(store),
        &[&["send", payload, "-q", "q"], more].concat(),
        0,
    );
}

/// Of each state one or two: a dead letter, one that has failed and waits, one that waits, one in line.
fn fill(store: &str, folder: &Path) {
    send(store, "dies", &["--header", "k=dead"]);
    let handler = guest("reject").display().to_string();
    let args = ["--handler", &handler, "--queue", "q", "--exit-when-empty"];
    run(Some(store), &args, 0);
    send(store, "3600000", &["--retries", "7"]);
    let handler = guest("sleeper").display().to_string();
    let args = ["--handler", &handler, "--queue", "q", "--timeout", "100ms"];
    let host = Host::start(store, &[&args[..], &["--backoff", "1h"]].concat());
    eventually("one has failed", || {
        (stats(store, "q")["totals"]["nacked"] == 1).then_some(())
    });
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
    let bytes = folder.join("bytes");
    fs::write(&bytes, b"\x00\xff\n").unwrap();
    send(store, &format!("@{}", bytes.display()), &["--in", "1h"]);
    send(store, "\u{1b}[2J", &["--header", "a=1", "--header", "a=2"]);
}

fn lines(text: &str) -> Vec<Value> {
    let mut all: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    all.sort_by_key(|one| one["id"].to_string());
    all
}

fn exported(store: &str, queue: &str) -> Vec<Value> {
    lines(&stdout(&run(Some(store), &["export", queue], 0)))
}

#[test]
fn a_queue_comes_back_with_all_that_is_known_of_it() {
    with_each_store(|store| {
        let folder = TempDir::new().unwrap();
        fill(store, folder.path());
        let output = run(Some(store), &["export", "q"], 0);
        assert!(stderr(&output).contains("4 of q exported"), "{output:?}");
        let file = folder.path().join("q.ndjson");
        fs::write(&file, &output.stdout).unwrap();
        let file = file.display().to_string();
        let other = folder.path().join("other.db").display().to_string();
        for target in [&other, store] {
            let import = |code| stdout(&run(Some(target), &["import", "copy", &file], code));
            assert_eq!(import(0), "copy: 3 sent, 1 dead letters, 0 known already\n");
            let (before, after) = (exported(store, "q"), exported(target, "copy"));
            for (before, after) in before.iter().zip(&after) {
                for field in [
                    "id",
                    "state",
                    "at_ms",
                    "payload",
                    "payload_base64",
                    "headers",
                    "retries_left",
                ] {
                    assert_eq!(before[field], after[field], "{field}: {before}, {after}");
                }
                if before["state"] == "dead" {
                    assert_eq!(before["history"], after["history"]);
                    assert_eq!(after["history"][0]["class"], "rejected");
                }
            }
            assert_eq!(before.len(), after.len());
            let again = "copy: 0 sent, 0 dead letters, 4 known already\n";
            assert_eq!(import(0), again);
            // Also when they are gone.
            let waiting = ["purge", "copy", "--count", "3"];
            run(Some(target), &waiting, 0);
            assert_eq!(import(0), again);
            let stats = stats(target, "copy");
            assert_eq!((&stats["dead"], &stats["moving"]), (&1.into(), &0.into()));
        }
        let dead = run(Some(store), &["export", "q", "--state", "dead"], 0);
        assert_eq!(lines(&stdout(&dead)).len(), 1);
    });
}

#[test]
fn what_is_in_flight_is_exported_only_if_it_is_named() {
    with_each_store(|store| {
        send(store, "3600000", &[]);
        let handler = guest("sleeper").display().to_string();
        let args = ["--handler", &handler, "--queue", "q", "--timeout", "2h"];
        let _host = Host::start(store, &args);
        eventually("it is in flight", || {
            (stats(store, "q")["unack"] == 1).then_some(())
        });
        let output = run(Some(store), &["export", "q"], 0);
        assert_eq!(stdout(&output), "");
        assert!(
            stderr(&output).contains("1 in flight are not exported"),
            "{output:?}"
        );
        let named = run(Some(store), &["export", "q", "--state", "unack"], 0);
        assert_eq!(lines(&stdout(&named)).len(), 1);
        let nowhere = run(Some(store), &["export", "nosuch"], 1);
        assert!(
            stderr(&nowhere).contains("there is no queue nosuch"),
            "{nowhere:?}"
        );
    });
}

#[test]
fn wrong_lines_are_named_and_the_others_come_in() {
    with_each_store(|store| {
        let input = "{\"payload\":\"new\"}\n\nnonsense\u{1b}[2J\n\
            {\"payload\":\"x\",\"id\":\"a\",\"state\":\"ready\"}\n\
            {\"payload\":\"y\",\"id\":\"b\",\"state\":\"dead\",\"history\":7}\n\
            {\"payload\":\"z\",\"id\":\"c\",\"state\":\"dead\"}";
        let command = dqhost(Some(store), &["import", "q", "-", "--json"]);
        let output = expect(feed(command, input.as_bytes()), 5);
        let told: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
        assert_eq!(
            told,
            serde_json::json!({"queue": "q", "sent": 1, "dead": 1, "known": 0, "wrong": 3})
        );
        let errors = stderr(&output);
        for says in [
            "line 1 is not imported: it has no id or no state",
            "line 3 is",
            "line 5 is",
        ] {
            assert!(errors.contains(says), "{errors}");
        }
        assert!(!errors.contains('\u{1b}'));
        let missing = stderr(&run(Some(store), &["import", "q", "nosuch.ndjson"], 2));
        assert!(missing.contains("cannot read nosuch.ndjson: "), "{missing}");
    });
}

#[test]
fn a_folder_is_no_file_of_messages_and_an_empty_file_has_none() {
    with_each_store(|store| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().display().to_string();
        let told = stderr(&run(Some(store), &["import", "q", &path], 2));
        let expected = format!("error: cannot read {path}: is a directory\n");
        assert_eq!(told, expected);
        let told = stderr(&run(Some(store), &["send", &format!("@{path}")], 2));
        let expected = format!("error: cannot read the payload from {path}: is a directory\n");
        assert_eq!(told, expected);
        let file = folder.path().join("empty").display().to_string();
        for text in ["", "\n\n", "\u{feff}"] {
            fs::write(&file, text).unwrap();
            let told = stderr(&run(Some(store), &["import", "q", &file], 0));
            let expected = format!("{file} has no line, so nothing is imported: ");
            assert!(told.starts_with(&expected), "{told}");
        }
    });
}

#[test]
fn a_mark_before_the_first_line_is_no_part_of_it() {
    let marked = |line: &str| format!("\u{feff}{line}\n").into_bytes();
    with_each_store(|store| {
        let send = dqhost(Some(store), &["send", "--ndjson", "-q", "q"]);
        expect(feed(send, &marked(r#"{"payload":"x"}"#)), 0);
        let import = dqhost(Some(store), &["import", "q", "-"]);
        let line = marked(r#"{"payload":"y","id":"a","state":"ready"}"#);
        expect(feed(import, &line), 0);
        assert_eq!(stats(store, "q")["ready"], 2);
        let echo = guest("echo").display().to_string();
        let try_it = dqhost(None, &["run", &echo, "--messages", "-"]);
        expect(feed(try_it, &marked(r#"{"payload":"x"}"#)), 0);
    });
}

#[test]
fn what_is_about_to_be_a_dead_letter_is_exported_as_such() {
    with_each_store(|store| {
        send(store, "dies", &[]);
        let handler = guest("reject").display().to_string();
        let args = ["--handler", &handler, "--queue", "q", "--exit-when-empty"];
        run(Some(store), &args, 0);
        // Without a time of death it waits for a host.
        let mut dead = exported(store, "q").remove(0);
        dead.as_object_mut().unwrap().remove("at_ms");
        let import = dqhost(Some(store), &["import", "other", "-"]);
        expect(feed(import, format!("{dead}\n").as_bytes()), 0);
        let again = exported(store, "other");
        assert_eq!(again.len(), 1);
        assert_eq!(again[0]["state"], "garbage");
        assert_eq!(again[0]["id"], dead["id"]);
    });
}
