//! Repeats that change what is there, where others than dqhost end runs, and as producers give them.

use dqhost::message::{Due, MessageId, NewMessage, OnRepeat, SendOutcome};
use dqhost::store::{HOST_SILENCE, HostInfo, Settlement, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::contract::tools::*;
use crate::http_api::{Api, with_each_store};
use crate::support::{RedisServer, dqhost, expect, feed, guest, run, stats, stderr, stdout};

async fn replaced(store: &dyn Store, payload: &str) -> SendOutcome {
    let message = NewMessage {
        id: MessageId::of_key("key"),
        on_repeat: OnRepeat::Replace { max_wait: None },
        ..NewMessage::new(payload)
    };
    store.send(&queue(), &[message]).await.unwrap()[0].outcome
}

async fn heartbeat(store: &dyn Store) {
    let host = HostInfo {
        id: "host".to_owned(),
        version: String::new(),
        handler: String::new(),
        slots: 1,
        in_flight: 0,
    };
    let beat = store.heartbeat(&queue(), &host, HOST_SILENCE).await;
    beat.unwrap();
}

/// As a delayqueue consumer acks, which knows nothing of repeats. So does a host that dies behind its ack.
fn ack_of_another(server: &RedisServer) {
    let id = MessageId::of_key("key");
    let () = server.command(&["ZREM", "{dp:q}:unack", id.as_str()]);
    let () = server.command(&["DEL", &format!("{{dp:q}}:msg:{id}")]);
    let () = server.command(&["HDEL", "{dp:q}:retry:cnt", id.as_str()]);
}

#[tokio::test]
async fn a_repeat_follows_a_run_that_another_consumer_has_ended() {
    let server = RedisServer::start();
    let store = server.store().await;
    replaced(&*store, "first").await;
    reserve_one(&*store, LONG).await;
    assert_eq!(replaced(&*store, "second").await, SendOutcome::AfterRunning);
    heartbeat(&*store).await;
    assert_eq!(depths(&*store).await, [0, 0, 1, 0, 0]);
    ack_of_another(&server);
    assert_eq!(depths(&*store).await, [0; 5]);
    heartbeat(&*store).await;
    let next = reserve_one(&*store, LONG).await;
    assert_eq!(next.payload.as_deref(), Some(&b"second"[..]));
    assert_eq!(next.attempt, 1);
    settle(&*store, &next.claim, Settlement::ACK).await;
    let left: Vec<String> = server.command(&["HKEYS", "{dp:q}:repeats"]);
    assert_eq!(left, [""; 0]);
    assert_eq!(depths(&*store).await, [0; 5]);
}

/// What came before takes effect before what comes now, though no host has seen to it.
#[tokio::test]
async fn a_later_repeat_is_not_undone_by_one_that_waited_for_the_run() {
    let server = RedisServer::start();
    let store = server.store().await;
    replaced(&*store, "first").await;
    reserve_one(&*store, LONG).await;
    replaced(&*store, "second").await;
    ack_of_another(&server);
    assert_eq!(replaced(&*store, "third").await, SendOutcome::Replaced);
    heartbeat(&*store).await;
    let next = reserve_one(&*store, LONG).await;
    assert_eq!(next.payload.as_deref(), Some(&b"third"[..]));
    assert_eq!(depths(&*store).await, [0, 0, 1, 0, 0]);
}

/// As when all of it is in one millisecond, or after the clock was set back: the run is as new as the repeat.
#[tokio::test]
async fn a_repeat_is_not_lost_that_comes_at_the_time_of_the_send() {
    let server = RedisServer::start();
    let store = server.store().await;
    replaced(&*store, "first").await;
    let id = MessageId::of_key("key");
    let in_a_minute = format!("0:{}", (now_ms() + 60_000) * 1000);
    let () = server.command(&["HSET", "{dp:q}:attempts", id.as_str(), &in_a_minute]);
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!(replaced(&*store, "second").await, SendOutcome::AfterRunning);
    store.release(&queue(), &[delivery.claim]).await.unwrap();
    let next = reserve_one(&*store, LONG).await;
    assert_eq!(next.payload.as_deref(), Some(&b"second"[..]));
    assert_eq!(depths(&*store).await, [0, 0, 1, 0, 0]);
}

/// Many run, and each is found in some heartbeat.
#[tokio::test]
async fn heartbeats_find_every_repeat_among_many_that_run() {
    let server = RedisServer::start();
    let store = server.store().await;
    let batch = |payload: &str| -> Vec<NewMessage> {
        let message = |n: u32| NewMessage {
            id: MessageId::of_key(&n.to_string()),
            on_repeat: OnRepeat::Extend { max_wait: None },
            due: Due::NOW,
            ..NewMessage::new(payload)
        };
        (0..130).map(message).collect()
    };
    store.send(&queue(), &batch("first")).await.unwrap();
    let running = reserve(&*store, 200, LONG).await;
    assert_eq!(running.len(), 130);
    let sent = store.send(&queue(), &batch("second")).await.unwrap();
    let after = sent
        .iter()
        .filter(|s| s.outcome == SendOutcome::AfterRunning);
    assert_eq!(after.count(), 130);
    for delivery in &running {
        let () = server.command(&["ZREM", "{dp:q}:unack", delivery.claim.id.as_str()]);
        let payload = format!("{{dp:q}}:msg:{}", delivery.claim.id);
        let () = server.command(&["DEL", &payload]);
    }
    let mut beats = 0;
    while store.counts(&queue()).await.unwrap().ready < 130 {
        heartbeat(&*store).await;
        beats += 1;
        assert!(beats < 100);
    }
    assert_eq!(depths(&*store).await, [0, 130, 0, 0, 0]);
}

#[test]
fn the_command_says_what_a_repeat_did_and_refuses_what_does_not_go_together() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    for store in [server.url(), file] {
        let under_key = |payload: &str, more: &[&str]| {
            let key = ["send", payload, "--idempotency-key", "k"];
            run(Some(&store), &[&key, more].concat(), 0)
        };
        let first = under_key("a", &["--replace", "--in", "1h"]);
        assert_eq!(stderr(&first), "");
        let again = under_key("b", &["--replace", "--in", "1h", "--max-wait", "2h"]);
        assert_eq!(stdout(&again), stdout(&first));
        let told = stderr(&again);
        assert!(
            told.contains("has the new payload, headers and time"),
            "{told}"
        );
        let json = stdout(&under_key("c", &["--extend", "--in", "2h", "--json"]));
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["outcome"], "extended");
        let record = run(Some(&store), &["get", stdout(&first).trim(), "--json"], 0);
        let record: Value = serde_json::from_slice(&record.stdout).unwrap();
        assert_eq!(record["payload"], "b");
        assert_eq!(record["at_ms"], json["due_at_ms"]);
        // In lines, each its own way.
        let line = |more: &str| format!("{{\"payload\":\"l\",\"idempotency_key\":\"l\"{more}}}\n");
        let lines = [
            line(""),
            line(",\"in\":\"1h\""),
            line(",\"extend\":true,\"max_wait\":\"1h\""),
            line(",\"replace\":false"),
        ];
        let flags = ["send", "--ndjson", "--json", "--replace", "--in", "1m"];
        let output = expect(
            feed(dqhost(Some(&store), &flags), lines.concat().as_bytes()),
            0,
        );
        let outcome = |line: &str| {
            let sent: Value = serde_json::from_str(line).unwrap();
            sent["outcome"].as_str().unwrap().to_owned()
        };
        let outcomes: Vec<String> = stdout(&output).lines().map(outcome).collect();
        assert_eq!(outcomes, ["sent", "replaced", "extended", "repeat"]);
        assert_eq!(stats(&store, "default")["pending"], 2);
        let of_lines = MessageId::of_key("l");
        run(Some(&store), &["cancel", of_lines.as_str()], 0);
        under_key("now", &["--replace"]);
        let handler = guest("noop").display().to_string();
        let until_empty = ["--handler", &handler, "--exit-when-empty"];
        run(Some(&store), &until_empty, 0);
        assert_eq!(stats(&store, "default")["totals"]["acked"], 1);
        assert_eq!(stderr(&under_key("anew", &["--replace"])), "");
    }
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_sent() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    for (args, says) in [
        (&["--replace"][..], "an --idempotency-key"),
        (&["--extend"], "an --idempotency-key"),
        (&["--max-wait", "1h"], "replace or extend"),
        (
            &["--idempotency-key", "k", "--max-wait", "1h"],
            "replace or extend",
        ),
        (
            &["--idempotency-key", "k", "--replace", "--extend"],
            "cannot be used with",
        ),
        (
            &[
                "--idempotency-key",
                "k",
                "--replace",
                "--dedup-window",
                "1h",
            ],
            "leave out the deduplication window",
        ),
        (
            &[
                "--idempotency-key",
                "k",
                "--extend",
                "--in",
                "2h",
                "--max-wait",
                "1h",
            ],
            "wait for 2h 00m, and at most for 1h 00m",
        ),
        (
            &["--idempotency-key", "k", "--extend", "--max-wait", "0s"],
            "more than zero",
        ),
    ] {
        let told = stderr(&run(Some(&store), &[&["send", "x"], args].concat(), 2));
        assert!(told.contains(says), "{args:?}: {told}");
    }
    assert!(!std::path::Path::new(&store).exists());
}

#[test]
fn lines_that_do_not_go_together_are_refused_one_by_one() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let lines = [
        (r#""replace":true"#, "with an idempotency key"),
        (
            r#""idempotency_key":"k","replace":1"#,
            "replace must be true or false, not 1",
        ),
        (
            r#""idempotency_key":"k","replace":true,"extend":true"#,
            "not both",
        ),
        (
            r#""idempotency_key":"k","extend":true,"max_wait":"soon""#,
            "max_wait \"soon\"",
        ),
        (
            r#""idempotency_key":"k","extend":true,"dedup_window":"1h""#,
            "leave out the",
        ),
        (
            r#""idempotency_key":"k","max_wait":"1h""#,
            "replace or extend",
        ),
    ];
    for (fields, says) in lines {
        let line = format!("{{\"payload\":1,{fields}}}\n");
        let command = dqhost(Some(&store), &["send", "--ndjson"]);
        let told = stderr(&expect(feed(command, line.as_bytes()), 1));
        assert!(told.contains(says), "{fields}: {told}");
    }
    let queues = stats(&store, "default");
    assert_eq!(
        (&queues["pending"], &queues["ready"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn repeats_over_http_change_what_is_there() {
    const MESSAGES: &str = "/queues/q/messages";
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let post = |more: &[(&str, &str)], body: &str| {
            let key = [("content-type", "text/plain"), ("idempotency-key", "k")];
            api.post(MESSAGES, &[&key, more].concat(), body)
        };
        let later = ("dqhost-in", "1h");
        let first = post(&[later, ("dqhost-replace", "true")], "a").is(201);
        assert_eq!(first.json()["outcome"], "sent");
        let wait = ("dqhost-max-wait", "2h");
        let again = post(&[later, wait, ("dqhost-replace", "true")], "b").is(200);
        assert_eq!(again.json()["outcome"], "replaced");
        assert_eq!(again.id(), first.id());
        assert!(again.head.contains(&first.id()));
        let moved = post(&[later, ("dqhost-extend", "true")], "c").is(200);
        assert_eq!(moved.json()["outcome"], "extended");
        let path = format!("{MESSAGES}/{}", first.id());
        let record = api.get(&path).is(200).json();
        assert_eq!(record["payload"], "b");
        assert_eq!(record["at_ms"], moved.json()["due_at_ms"]);
        // Without them, another payload under the key is a mistake.
        post(&[("dqhost-replace", "false")], "c").is_problem(422, "another payload");
        // In JSON, also with the key in a header, and in a batch.
        let body = r#"{"payload":"d","in":"1h","replace":true}"#;
        let key = [
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
        ];
        let sent = api.post(MESSAGES, &key, body).is(200);
        assert_eq!(sent.json()["outcome"], "replaced");
        let one = r#"{"payload":"e","in":"1h","idempotency_key":"k","extend":true}"#;
        let sent = api
            .post_json(MESSAGES, &format!("[{one},{one}]"))
            .is(200)
            .json();
        assert_eq!(sent[1]["outcome"], "extended");
        for (headers, says) in [
            (&[("dqhost-replace", "yes")][..], "true or false"),
            (
                &[("dqhost-replace", "true"), ("dqhost-extend", "true")],
                "not both",
            ),
            (&[("dqhost-max-wait", "1h")], "replace or extend"),
            (
                &[("dqhost-extend", "true"), ("dqhost-max-wait", "x")],
                "dqhost-max-wait",
            ),
        ] {
            post(headers, "x").is_problem(400, says);
        }
        let without = [("content-type", "text/plain"), ("dqhost-replace", "true")];
        api.post(MESSAGES, &without, "x")
            .is_problem(400, "an idempotency key");
        assert_eq!(stats(store, "q")["pending"], 1);
    });
}
