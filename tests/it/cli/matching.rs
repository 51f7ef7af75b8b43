//! `--match` and `--dry-run`: what a filter chooses, and what would be done to it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::dashboard::tty::Tty;
use crate::http_api::with_each_store;
use crate::support::{RedisServer, dqhost, expect, feed, guest, run, stats, stderr, stdout};

/// Sends a message a line, and returns the ids in their order.
pub(super) fn send(store: &str, lines: &str) -> Vec<String> {
    let command = dqhost(Some(store), &["send", "--ndjson"]);
    let sent = stdout(&expect(feed(command, lines.as_bytes()), 0));
    sent.lines().map(str::to_owned).collect()
}

/// So many messages that are due at once; each hundredth is a needle.
fn hay(number: usize) -> String {
    let mut lines = String::new();
    for n in 0..number {
        let what = if n % 100 == 99 { "needle" } else { "hay" };
        writeln!(lines, "{{\"payload\":\"{what} {n}\"}}").unwrap();
    }
    lines
}

fn first_words(text: &str) -> Vec<&str> {
    text.lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect()
}

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_list_shows_what_matches_to_its_end() {
    with_each_store(|store| {
        let ids = send(store, &hay(1234));
        let needles: Vec<&str> = (0..12).map(|n| ids[n * 100 + 99].as_str()).collect();
        let list = |args: &[&str]| {
            let output = run(Some(store), &[&["list", "ready"], args].concat(), 0);
            (stdout(&output), stderr(&output))
        };
        let (found, told) = list(&["--match", "payload:NEEDLE"]);
        assert_eq!((first_words(&found), told.as_str()), (needles.clone(), ""));
        let (json, _) = list(&["--match", "needle", "--json"]);
        let of_json: Vec<Value> = objects(&json);
        assert_eq!(of_json[11]["id"], needles[11]);
        assert_eq!(of_json[11]["payload"], "needle 1199");
        let (found, told) = list(&["--match", "needle", "--limit", "3", "--offset", "2"]);
        assert_eq!(first_words(&found), needles[2..5]);
        assert!(
            told.starts_with("3 shown, after ")
                && told.ends_with(" of 1,234 messages; --limit 0 or --offset 5 shows more\n"),
            "{told}"
        );
        let (found, told) = list(&["--match", "!hay !needle"]);
        assert_eq!((found.as_str(), told.as_str()), ("", ""));
    });
    for (filter, says) in [
        ("reason:", "nothing to look for in \"reason:\""),
        ("", "it is empty: give words to look for"),
    ] {
        for args in [&["list", "ready"][..], &["dead", "redrive"], &["cancel"]] {
            let args = [args, &["--match", filter]].concat();
            let errors = stderr(&run(Some("unused"), &args, 2));
            assert!(errors.contains(says), "{args:?}: {errors}");
        }
    }
}

#[test]
fn what_matches_is_cancelled_when_that_is_confirmed() {
    with_each_store(|store| {
        let of = |tenant: &str, due: &str| {
            format!("{{\"payload\":1,\"headers\":{{\"tenant\":\"{tenant}\"}}{due}}}\n")
        };
        let later = ",\"in\":\"1h\"";
        let lines = [of("a", ""), of("b", ""), of("a", later), of("b", later)].concat();
        let ids = send(store, &lines);
        let before = stats(store, "default");
        let filter = ["cancel", "--match", "header:tenant=a"];
        let with = |args: &[&str], code| run(Some(store), &[&filter, args].concat(), code);
        // Neither a dry run nor a question changes anything.
        let dry = with(&["--dry-run"], 0);
        let both: BTreeSet<&str> = [ids[0].as_str(), ids[2].as_str()].into();
        assert_eq!(stdout(&dry).lines().collect::<BTreeSet<_>>(), both);
        assert_eq!(
            stderr(&dry),
            "2 waiting messages of default would be cancelled; this is a dry run, and nothing is \
             changed\n"
        );
        let asked = stderr(&with(&[], 2));
        assert!(
            asked.contains("2 waiting messages of default would be cancelled for good; say --yes"),
            "{asked}"
        );
        assert_eq!(stats(store, "default"), before);
        let done = with(&["--yes"], 0);
        assert_eq!(stdout(&done).lines().collect::<BTreeSet<_>>(), both);
        let after = stats(store, "default");
        assert_eq!(
            (
                &after["ready"],
                &after["pending"],
                &after["totals"]["cancelled"]
            ),
            (&1.into(), &1.into(), &2.into())
        );
        let none = with(&["--yes"], 0);
        let says = "no waiting message of default matches, so nothing is cancelled\n";
        assert_eq!(
            (stdout(&none), stderr(&none)),
            (String::new(), says.to_owned())
        );
        // Another time for what matches: no question, since nothing is gone.
        let to = [
            "reschedule",
            "--match",
            "header:tenant=b",
            "--in",
            "2h",
            "--json",
        ];
        let dry = run(Some(store), &[&to[..], &["--dry-run"]].concat(), 0);
        let dry = objects(&stdout(&dry));
        assert_eq!((dry.len(), &dry[0]["dry_run"]), (2, &true.into()));
        assert_eq!(stats(store, "default")["ready"], 1);
        let moved = objects(&stdout(&run(Some(store), &to, 0)));
        assert_eq!(moved.len(), 2);
        for object in &moved {
            assert_eq!(object["outcome"], "rescheduled");
            assert!(object["due_at_ms"].as_u64() >= dry[0]["due_at_ms"].as_u64());
        }
        assert_eq!(stats(store, "default")["pending"], 2);
    });
}

#[test]
fn dead_letters_that_match_are_redriven_and_deleted() {
    with_each_store(|store| {
        let handler = guest("flaky").display().to_string();
        let host = ["--handler", &handler, "--exit-when-empty"];
        for payload in ["north", "south", "east"] {
            run(Some(store), &["send", payload], 0);
        }
        run(Some(store), &host, 0);
        let dead = |args: &[&str], code| run(Some(store), &[&["dead"], args].concat(), code);
        let listed = stdout(&dead(
            &["list", "--match", "class:rejected reason:north"],
            0,
        ));
        let [id] = first_words(&listed)[..] else {
            panic!("one matches: {listed}");
        };
        let redrive = ["redrive", "--match", "reason:north"];
        let dry = dead(&[&redrive[..], &["--dry-run", "--json"]].concat(), 0);
        let expected = serde_json::json!({"id": id, "outcome": "redriven", "dry_run": true});
        assert_eq!(objects(&stdout(&dry)), [expected]);
        assert!(stderr(&dry).starts_with("1 dead letter of default would be redriven;"));
        assert_eq!(stats(store, "default")["dead"], 3);
        let done = objects(&stdout(&dead(&[&redrive[..], &["--json"]].concat(), 0)));
        assert_eq!(
            (&done[0]["id"], &done[0]["outcome"]),
            (&id.into(), &"redriven".into())
        );
        let new = done[0]["new_id"].as_str().unwrap();
        assert!(stdout(&run(Some(store), &["get", new], 0)).contains("north"));
        assert_eq!(stats(store, "default")["dead"], 2);
        let delete = ["delete", "--match", "payload:south"];
        let asked = stderr(&dead(&delete, 2));
        assert!(
            asked.contains("1 dead letter of default would be deleted"),
            "{asked}"
        );
        assert_eq!(
            stdout(&dead(&[&delete[..], &["--dry-run"]].concat(), 0))
                .lines()
                .count(),
            1
        );
        assert_eq!(stats(store, "default")["dead"], 2);
        dead(&[&delete[..], &["--yes"]].concat(), 0);
        let left = stdout(&dead(&["list"], 0));
        assert!(left.lines().count() == 1 && left.contains("east"), "{left}");
        // Of those that are named, the ones that are not there are told in a dry run, too.
        let east = first_words(&left)[0];
        for verb in ["redrive", "delete"] {
            let named = dead(&[verb, "--dry-run", "--json", east, "nosuch"], 5);
            let outcomes = objects(&stdout(&named));
            assert_eq!(outcomes[1]["outcome"], "not-found", "{verb}");
            assert!(outcomes[0]["outcome"] != "not-found", "{verb}");
        }
        assert_eq!(stats(store, "default")["dead"], 1);
    });
}

#[test]
fn a_dry_run_says_what_is_in_the_way() {
    let server = RedisServer::start();
    let url = server.url();
    let store = Some(url.as_str());
    run(store, &["send", "x"], 0);
    let script = "redis.call('SET', '{dp:default}:msg:held', 'x')
        redis.call('ZADD', '{dp:default}:unack', 9999999999, 'held')
        redis.call('HSET', '{dp:default}:attempts', 'bare', '1:0:3')
        redis.call('ZADD', '{dp:default}:dead', 1, 'bare')";
    let () = server.command(&["EVAL", script, "0"]);
    for verb in ["cancel", "reschedule"] {
        let output = run(store, &[verb, "--dry-run", "held"], 1);
        let told = stderr(&output);
        assert!(
            told.contains("held is not ") && told.contains("a host is handling it"),
            "{told}"
        );
        let json = stdout(&run(store, &[verb, "--dry-run", "--json", "held"], 1));
        assert_eq!(objects(&json)[0]["outcome"], "in-flight");
    }
    for which in ["bare", "--all"] {
        let told = stderr(&run(store, &["dead", "redrive", "--dry-run", which], 1));
        assert!(
            told.contains("its payload is missing from the store"),
            "{told}"
        );
    }
    // Another payload takes the place of the one that is missing.
    let edited = ["dead", "redrive", "--dry-run", "bare", "--payload", "y"];
    assert_eq!(stdout(&run(store, &edited, 0)), "bare\n");
    assert_eq!(stats(&url, "default")["dead"], 1);
}

#[test]
fn a_search_says_on_a_terminal_how_far_it_is() {
    with_each_store(|store| {
        send(store, &hay(600));
        let args = ["cancel", "--match", "needle", "--dry-run"];
        let piped = run(Some(store), &args, 0);
        assert!(!stderr(&piped).contains("looked at"), "{}", stderr(&piped));
        let mut tty = Tty::start(store, &args, (100, 30));
        let text = tty.wait_for("this is a dry run");
        // The line is gone once the search has ended.
        assert!(!text.contains("looked at"), "{text}");
        let bytes = String::from_utf8(tty.bytes()).unwrap();
        assert!(bytes.contains("600 looked at, 6 match"), "{bytes:?}");
        tty.end(0);
    });
}

#[test]
fn the_verbs_that_write_print_json() {
    with_each_store(|store| {
        let json = |args: &[&str], code| {
            let output = run(Some(store), &[args, &["--json"]].concat(), code);
            (objects(&stdout(&output)), stderr(&output))
        };
        let ids = send(store, "{\"payload\":1}\n");
        let told = json(&["cancel", &ids[0], "nosuch"], 5);
        let expected = [
            serde_json::json!({"id": ids[0], "outcome": "cancelled"}),
            serde_json::json!({"id": "nosuch", "outcome": "not-found"}),
        ];
        assert_eq!(told, (expected.to_vec(), String::new()));
        for (verb, paused) in [("pause", true), ("resume", false)] {
            let expected = serde_json::json!({"queue": "default", "paused": paused});
            assert_eq!(json(&[verb], 0).0, [expected]);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("other.db").display().to_string();
        send(store, "{\"payload\":1}\n");
        let moved = json(&["move", "--from", store, "--to", &file], 0).0;
        assert_eq!(
            (&moved[0]["queue"], &moved[0]["messages"]),
            (&"default".into(), &1.into())
        );
    });
}
