//! What handlers send: accepted with the ack, once, or never.
//!
//! `DQHOST_TEST_OUTBOX_KILLS` is the number of kills on each store instead of 20.

use std::process::{Child, Stdio};
use std::time::Duration;

use dqhost::message::{Due, MessageId, NewMessage, Outgoing, QueueName};
use dqhost::runtime::{Call, Limits, Permissions, Report};
use dqhost::store::address::{self, StoreAddress, StoreSettings};
use dqhost::verdict::Outcome;
use serde_json::Value;
use tempfile::TempDir;

use crate::guests::{call, load_with};
use crate::support::{RedisServer, dqhost, guest, run, stats, stdout};

async fn fan_out(headers: &[(&str, &str)], limits: Limits) -> Report {
    let permissions = Permissions {
        sends: vec!["children".parse().unwrap()],
        retries_default: 5,
        ..Permissions::default()
    };
    let (_runtime, handler) = load_with(&guest("fan-out"), limits, permissions);
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let to = headers
        .iter()
        .find(|(key, _)| *key == "to")
        .map_or("children", |(_, to)| to);
    let call = Call {
        headers: headers.iter().map(pair).collect(),
        ..call(to.as_bytes(), 1)
    };
    handler.run(call).await
}

#[tokio::test]
async fn what_is_sent_belongs_to_the_trace_of_its_parent() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let trace = [("traceparent", parent), ("tracestate", "a=1")];
    let sent = fan_out(&trace, Limits::default()).await;
    let own = ("parent".to_owned(), "id".to_owned());
    let of_trace = trace.map(|(name, value)| (name.to_owned(), value.to_owned()));
    for Outgoing { message, .. } in &sent.outbox {
        assert_eq!(message.headers, [&[own.clone()], &of_trace[..]].concat());
    }
    let broken = [("traceparent", "00-x")];
    let sent = fan_out(&broken, Limits::default()).await;
    assert_eq!(sent.outbox[0].message.headers, [own]);
}

#[tokio::test]
async fn what_is_sent_has_what_the_handler_gave_it_and_the_same_id_in_each_attempt() {
    let first = fan_out(&[("delay-ms", "1500")], Limits::default()).await;
    assert_eq!((&first.outcome, first.outbox.len()), (&Outcome::Acked, 10));
    let Outgoing { queue, message } = &first.outbox[1];
    assert_eq!(queue.as_str(), "children");
    assert_eq!(message.payload, b"2");
    assert_eq!(message.retries, 5);
    assert_eq!(message.due, Due::In(Duration::from_millis(1500)));
    assert_eq!(message.headers, [("parent".to_owned(), "id".to_owned())]);
    assert_eq!(message.id, MessageId::derived("q", "id", 2));
    let again = fan_out(&[("delay-ms", "1500")], Limits::default()).await;
    assert_eq!(first.outbox, again.outbox);
}

#[tokio::test]
async fn only_an_ack_sends() {
    for then in ["trap", "nack", "reject", "spin"] {
        let limits = Limits {
            time: Duration::from_millis(100),
            time_max: Duration::from_millis(100),
            ..Limits::default()
        };
        let report = fan_out(&[("then", then)], limits).await;
        assert_ne!(report.outcome, Outcome::Acked, "{then}");
        assert_eq!(report.outbox, [], "{then}");
    }
}

#[tokio::test]
async fn a_send_that_is_not_allowed_or_too_much_is_refused_and_told() {
    for (headers, limits, reason) in [
        (
            vec![("to", "others")],
            Limits::default(),
            "a send to queue others is not allowed (--allow-send)",
        ),
        (
            vec![("to", "no such name")],
            Limits::default(),
            "queue name \"no such name\" is not allowed",
        ),
        (
            vec![("count", "101")],
            Limits::default(),
            "more than 100 messages (--limit sends)",
        ),
        (
            vec![],
            Limits {
                send_bytes: 100,
                ..Limits::default()
            },
            "more than 100 bytes (--limit send-bytes)",
        ),
        (
            vec![("delay-ms", "99999999999999")],
            Limits::default(),
            "is over the limit of 100 years",
        ),
    ] {
        let report = fan_out(&headers, limits).await;
        assert_eq!(report.outcome.class(), "rejected", "{headers:?}");
        let said = report.outcome.reason();
        assert!(said.contains(reason), "{headers:?}: {said}");
        assert_eq!(report.outbox, []);
        // What is no valid message is the guest's mistake and no refusal.
        let is_refusal = reason.contains("(--");
        assert_eq!(report.refused, usize::from(is_refusal), "{headers:?}");
    }
}

fn handle(store: &str, more: &[&str]) {
    let handler = guest("fan-out");
    let host = ["--handler", handler.to_str().unwrap(), "--exit-when-empty"];
    run(Some(store), &[&host, more].concat(), 0);
}

fn children_follow_their_parents_ack(store: &str) {
    let send = |args: &[&str]| {
        let sent = run(Some(store), &[&["send", "children"], args].concat(), 0);
        stdout(&sent).trim().to_owned()
    };
    let parent = send(&["--header", "delay-ms=3600000"]);
    send(&["--header", "then=nack", "--retries", "1"]);
    handle(store, &["--allow-send", "children", "--backoff", "1ms"]);
    let counts = stats(store, "children");
    assert_eq!(
        (&counts["pending"], &counts["totals"]["sent"]),
        (&10.into(), &10.into())
    );
    assert_eq!(stats(store, "default")["dead"], 1);
    let output = run(
        Some(store),
        &["list", "pending", "--queue", "children", "--json"],
        0,
    );
    let listed = stdout(&output);
    let children: Vec<Value> = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(children.len(), 10, "{listed}");
    for child in children {
        assert_eq!(child["headers"][0], serde_json::json!(["parent", parent]));
        assert_eq!(child["retries_left"], 3);
    }
}

#[test]
fn children_follow_their_parents_ack_on_a_file() {
    let folder = TempDir::new().unwrap();
    children_follow_their_parents_ack(folder.path().join("dqhost.db").to_str().unwrap());
}

#[test]
fn children_follow_their_parents_ack_on_redis() {
    let server = RedisServer::start();
    children_follow_their_parents_ack(&server.url());
}

#[test]
fn a_store_that_is_full_takes_the_ack_back_and_says_so() {
    let server = RedisServer::start();
    let url = server.url();
    run(Some(&url), &["send", "children", "--retries", "0"], 0);
    let used: String = server.command(&["INFO", "memory"]);
    assert!(used.contains("used_memory"));
    server.command::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    handle(&url, &["--allow-send", "children"]);
    server.command::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["dead"], &counts["totals"]["acked"]),
        (&1.into(), &0.into())
    );
    let listed = stdout(&run(Some(&url), &["dead", "list"], 0));
    assert!(
        listed.contains("sends-refused: the store has no room"),
        "{listed}"
    );
    assert_eq!(stats(&url, "children")["totals"]["sent"], 0);
}

fn start(store: &str, more: &[&str]) -> Child {
    let handler = format!("parents={}", guest("fan-out").display());
    let args = [
        "--queue",
        &handler,
        "--allow-send",
        "children",
        "--lease",
        "500ms",
        "--log",
        "off",
    ];
    dqhost(Some(store), &[&args, more].concat())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills hosts at random moments while parents are there to be handled.
fn each_acked_parent_has_ten_children(store: &str) {
    let kills = std::env::var("DQHOST_TEST_OUTBOX_KILLS").map_or(20, |n| n.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(7);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let parents: QueueName = "parents".parse().unwrap();
    let children: QueueName = "children".parse().unwrap();
    let address: StoreAddress = store.parse().unwrap();
    let store_handle = runtime
        .block_on(address::open(&address, StoreSettings::default()))
        .unwrap();
    let mut sent = 0;
    let mut top_up = |least: u64| {
        let counts = runtime.block_on(store_handle.counts(&parents)).unwrap();
        if counts.ready + counts.retry < least {
            let batch: Vec<NewMessage> = (0..500)
                .map(|_| NewMessage {
                    retries: 1_000_000,
                    ..NewMessage::new("children")
                })
                .collect();
            sent += runtime
                .block_on(store_handle.send(&parents, &batch))
                .unwrap()
                .len() as u64;
        }
    };
    for _ in 0..kills {
        top_up(2000);
        let mut host = start(store, &[]);
        // Once it works, it dies at any moment.
        let before = runtime
            .block_on(store_handle.counts(&parents))
            .unwrap()
            .totals
            .acked;
        crate::support::eventually("parents are acked", || {
            top_up(500);
            let counts = runtime.block_on(store_handle.counts(&parents)).unwrap();
            (counts.totals.acked > before).then_some(())
        });
        std::thread::sleep(Duration::from_millis(random.u64(..20)));
        assert!(host.try_wait().unwrap().is_none(), "a host ended by itself");
        host.kill().unwrap();
        host.wait().unwrap();
        let acked = runtime
            .block_on(store_handle.counts(&parents))
            .unwrap()
            .totals
            .acked;
        let made = runtime
            .block_on(store_handle.counts(&children))
            .unwrap()
            .totals
            .sent;
        assert_eq!(made, acked * 10);
    }
    assert!(
        start(store, &["--exit-when-empty"])
            .wait()
            .unwrap()
            .success()
    );
    let end = runtime.block_on(store_handle.counts(&parents)).unwrap();
    let made = runtime.block_on(store_handle.counts(&children)).unwrap();
    assert!(end.is_drained(), "{end:?}");
    assert_eq!((end.totals.acked, made.totals.sent), (sent, sent * 10));
    assert_eq!(made.ready, sent * 10);
    println!(
        "{kills} kills: {sent} parents, {} children, {} leases ended",
        made.ready, end.totals.expired
    );
}

#[test]
fn each_acked_parent_has_ten_children_on_a_file_whose_hosts_are_killed() {
    let folder = TempDir::new().unwrap();
    each_acked_parent_has_ten_children(folder.path().join("dqhost.db").to_str().unwrap());
}

#[test]
fn each_acked_parent_has_ten_children_on_redis_whose_hosts_are_killed() {
    let server = RedisServer::start();
    each_acked_parent_has_ten_children(&server.url());
}
