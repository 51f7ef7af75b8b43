//! `dqhost dead redrive --to`.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::http_api::with_each_store;
use crate::support::{dqhost, guest, run, stats, stderr, stdout};

/// Sends to the queue `old`, where it becomes a dead letter at once. Returns its id.
fn die(store: &str, more: &[&str]) -> String {
    let sent = run(Some(store), &[&["send", "-q", "old"], more].concat(), 0);
    let handler = format!("old={}", guest("reject").display());
    let host = ["up", "--queue", &handler, "--exit-when-empty"];
    run(Some(store), &host, 0);
    stdout(&sent).trim().to_owned()
}

fn redrive<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["dead", "redrive", "-q", "old", "--to", "new"], more].concat()
}

fn listed(store: &str) -> Vec<Value> {
    let list = ["list", "ready", "-q", "new", "--json"];
    let lines = stdout(&run(Some(store), &list, 0));
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn dead_letters_go_to_another_queue_with_all_that_they_carry() {
    with_each_store(|store| {
        let id = die(store, &["one", "--header", "k=v", "--retries", "7"]);
        die(store, &["two"]);
        // A name that nobody uses may be misspelt.
        for (args, says) in [
            (
                redrive(&["--all"]),
                "there is no queue new: --create makes it",
            ),
            (
                vec!["dead", "redrive", "-q", "old", "--to", "old", &id],
                "--to old is the queue of the dead letters",
            ),
            (redrive(&[&id, "--payload", "x"]), "cannot be used with"),
        ] {
            let errors = stderr(&run(Some(store), &args, 2));
            assert!(errors.contains(says), "{errors}");
        }
        let dry = redrive(&["--all", "--create", "--dry-run"]);
        assert_eq!(stdout(&run(Some(store), &dry, 0)).lines().count(), 2);
        assert_eq!(stats(store, "old")["dead"], 2);

        let done = run(Some(store), &redrive(&[&id, "nosuch", "--create"]), 5);
        let [found] = &listed(store)[..] else {
            panic!("one message");
        };
        assert_eq!(
            stdout(&done),
            format!("{id} -> {}\n", found["id"].as_str().unwrap())
        );
        assert!(stderr(&done).contains("nosuch is not redriven: it is no dead letter of old"));
        assert_eq!(
            (&found["payload"], &found["retries"], &found["attempts"]),
            (&"one".into(), &7.into(), &0.into())
        );
        assert_eq!(found["headers"], serde_json::json!([["k", "v"]]));
        run(
            Some(store),
            &redrive(&["--match", "payload:two", "--retries", "1"]),
            0,
        );
        assert_eq!(listed(store)[1]["retries"], 1);
        let (old, new) = (stats(store, "old"), stats(store, "new"));
        assert_eq!(
            (&old["dead"], &old["totals"]["deleted"]),
            (&0.into(), &2.into())
        );
        assert_eq!(new["totals"]["sent"], 2);
    });
}

#[test]
fn a_crash_at_any_step_loses_no_dead_letter_and_a_repeat_sends_none_twice() {
    with_each_store(|store| {
        for (at, point) in [
            "before get",
            "after get",
            "before send",
            "after send",
            "before deleting dead letters",
            "after deleting dead letters",
        ]
        .into_iter()
        .enumerate()
        {
            die(store, &["x"]);
            let args = redrive(&["--all", "--create"]);
            let mut command = dqhost(Some(store), &args);
            command.env("FAILPOINTS", format!("{point}=return"));
            let status = command.output().unwrap().status;
            let aborted = status.signal() == Some(Signal::ABORT.as_raw());
            assert!(aborted, "{point} was not passed: {status}");
            let dead = stats(store, "old")["dead"].as_u64().unwrap();
            let there = usize::try_from(dead).unwrap() + listed(store).len();
            assert!(there > at, "{point}: it is lost");
            run(Some(store), &args, 0);
            assert_eq!(stats(store, "old")["dead"], 0, "{point}");
            assert_eq!(listed(store).len(), at + 1, "{point}");
        }
    });
}

#[test]
fn an_id_that_dies_again_is_another_message_in_the_other_queue() {
    with_each_store(|store| {
        let keyed = ["x", "--idempotency-key", "k", "--dedup-window", "0s"];
        for number in 1..=2 {
            die(store, &keyed);
            run(Some(store), &redrive(&["--all", "--create"]), 0);
            assert_eq!(listed(store).len(), number);
            assert_eq!(stats(store, "old")["dead"], 0);
        }
    });
}

#[test]
fn what_goes_to_another_queue_need_not_begin_by_its_old_time() {
    with_each_store(|store| {
        die(store, &["x", "--expires-in", "1h", "--header", "k=v"]);
        run(Some(store), &redrive(&["--all", "--create"]), 0);
        let [found] = &listed(store)[..] else {
            panic!("one message");
        };
        let headers = found["headers"].to_string();
        assert!(
            headers.contains('k') && !headers.contains("expires"),
            "{headers}"
        );
    });
}
