//! `dqhost stats --fail-if` and `--watch`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::http_api::with_each_store;
use crate::support::{RedisServer, dqhost, eventually, run, stderr, stdout};

#[test]
fn a_wrong_name_is_no_queue_without_messages() {
    with_each_store(|store| {
        run(Some(store), &["send", "x", "-q", "q"], 0);
        run(Some(store), &["pause", "-q", "new", "--create"], 0);
        for queue in ["q", "new"] {
            let fine = run(
                Some(store),
                &["stats", "-q", queue, "--fail-if", "dead>0"],
                0,
            );
            assert!(!stderr(&fine).contains("there is no queue"), "{fine:?}");
        }
        let folder = TempDir::new().unwrap();
        let to = folder.path().join("other.db").display().to_string();
        for (args, code) in [
            (&["stats", "-q", "typo"][..], 0),
            (&["stats", "-q", "typo", "--fail-if", "dead>0"], 1),
            (&["audit", "-q", "typo", "-q", "q"], 0),
            (&["move", "--from", store, "--to", &to, "-q", "typo"], 1),
        ] {
            let told = stderr(&run(Some(store), args, code));
            assert!(told.contains("there is no queue typo"), "{args:?}: {told}");
        }
    });
}

#[test]
fn a_queue_that_meets_a_condition_is_named_and_fails() {
    with_each_store(|store| {
        run(Some(store), &["send", "x", "--queue", "a"], 0);
        run(Some(store), &["send", "x", "--queue", "b", "--in", "1h"], 0);
        for holds in ["dead>0", "dead>0,ready>1", "lag>1h", "pending>=2"] {
            let output = run(Some(store), &["stats", "--fail-if", holds], 0);
            assert_eq!(stderr(&output), "", "{holds}");
        }
        let output = run(Some(store), &["stats", "--fail-if", "ready>0, hosts<1"], 1);
        assert_eq!(
            stderr(&output),
            "queue a: ready is 1 (ready>0)\nqueue a: hosts is 0 (hosts<1)\n\
             queue b: hosts is 0 (hosts<1)\n"
        );
        assert!(stdout(&output).contains("PENDING"));
        let of_b = ["stats", "--queue", "b", "--fail-if", "ready>0"];
        run(Some(store), &of_b, 0);
        eventually("it has waited", || {
            let command = dqhost(Some(store), &["stats", "--fail-if", "lag>10ms"]).output();
            (command.unwrap().status.code() == Some(1)).then_some(())
        });
    });
    for (condition, says) in [
        ("died>0", "no figure of a queue"),
        ("lag>60", "with a unit"),
        ("dead", "dead>0 or lag>60s"),
    ] {
        let errors = stderr(&run(Some("unused"), &["stats", "--fail-if", condition], 2));
        assert!(errors.contains(says), "{errors}");
    }
}

#[test]
fn a_watch_reads_again_until_a_condition_is_met() {
    with_each_store(|store| {
        run(Some(store), &["send", "x"], 0);
        let args = ["stats", "--json", "--watch=10ms", "--fail-if", "ready>1"];
        let mut child = dqhost(Some(store), &args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ready = || {
            let line: Value = serde_json::from_str(&lines.next()?.unwrap()).unwrap();
            line["queues"][0]["ready"].as_u64()
        };
        assert_eq!((ready(), ready()), (Some(1), Some(1)));
        run(Some(store), &["send", "x"], 0);
        let mut last = None;
        while let Some(count) = ready() {
            last = Some(count);
        }
        assert_eq!(last, Some(2));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("queue default: ready is 2 (ready>1)"));
    });
}

#[test]
fn a_watch_outlasts_its_store() {
    let mut server = RedisServer::start();
    run(Some(&server.url()), &["send", "x"], 0);
    let mut child = dqhost(Some(&server.url()), &["stats", "--json", "--watch=10ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut readings = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(readings.next().unwrap().unwrap().contains("\"ready\":1"));
    server.kill();
    // Beside what the log says of the connection.
    let away = |line: &std::io::Result<String>| {
        let line = line.as_ref().unwrap();
        line.starts_with("reading on until the store answers: ")
    };
    assert!(told.any(|line| away(&line)));
    server.restart();
    for _ in 0..2 {
        run(Some(&server.url()), &["send", "x"], 0);
    }
    let is_new = |line: std::io::Result<String>| {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        line["queues"][0]["ready"].as_u64() >= Some(2)
    };
    assert!(readings.any(is_new));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_watch_on_a_terminal_shows_the_latest_reading_only() {
    with_each_store(|store| {
        run(Some(store), &["send", "x"], 0);
        let mut tty = Tty::start(store, &["stats", "--watch=10ms"], (130, 24));
        let is_ready = |screen: &str, count: u64| {
            let mut lines = screen.lines().filter(|line| line.starts_with("default  "));
            let words = lines
                .next()
                .map(|line| line.split_whitespace().nth(2).unwrap().to_owned());
            words == Some(count.to_string()) && lines.next().is_none()
        };
        tty.wait_until("the first reading", |screen| is_ready(screen, 1));
        run(Some(store), &["send", "x"], 0);
        run(Some(store), &["pause"], 0);
        tty.wait_until("a later one", |screen| {
            is_ready(screen, 2) && screen.contains("default is paused")
        });
        run(Some(store), &["resume"], 0);
        let screen = tty.wait_until("what is gone is not shown", |screen| {
            is_ready(screen, 2) && !screen.contains("paused")
        });
        assert_eq!(screen.matches("PENDING").count(), 1, "{screen}");
        tty.keys("\x03");
        let left = tty.end(1);
        assert!(!left.contains("error"), "{left}");
    });
}

#[test]
fn a_watch_ends_quietly_when_nobody_reads_it() {
    with_each_store(|store| {
        run(Some(store), &["send", "x"], 0);
        let mut child = dqhost(Some(store), &["stats", "--watch=1ms"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A block for each reading, one below the other.
        for _ in 0..2 {
            assert!(lines.next().unwrap().unwrap().starts_with("store "));
            assert!(lines.next().unwrap().unwrap().starts_with("QUEUE "));
            assert!(lines.next().unwrap().unwrap().starts_with("default "));
        }
        drop(lines);
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (Some(0), String::new())
        );
    });
}
