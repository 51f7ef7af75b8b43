//! The wire format of HDT3213/delayqueue: what its producers write is delivered, and what dqhost
//! writes is what its consumers read. The keys are those of the table that its source gives:
//! payload string with a TTL, retries left in a hash, whole-second scores in a sorted set.

use std::time::{SystemTime, UNIX_EPOCH};

use dqhost::message::{Due, NewMessage};
use dqhost::store::{Settled, Settlement};

use crate::contract::tools::*;
use crate::support::{RedisServer, guest, run, stats};

const ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// What `SendDelayMsg` of a delayqueue named `q` does: three commands.
fn delayqueue_send(server: &RedisServer, prefix: &str, id: &str, payload: &str, due: u64) {
    let () = server.command(&["SET", &format!("{prefix}:msg:{id}"), payload, "EX", "3600"]);
    let () = server.command(&["HSET", &format!("{prefix}:retry:cnt"), id, "3"]);
    let () = server.command(&["ZADD", &format!("{prefix}:pending"), &due.to_string(), id]);
}

#[tokio::test]
async fn a_message_of_a_delayqueue_producer_is_delivered() {
    for (prefix, hash_tag) in [("{dp:q}", true), ("dp:q", false)] {
        let server = RedisServer::start();
        let store = server.store_with(hash_tag).await;
        delayqueue_send(&server, prefix, ID, "from go", unix_seconds());
        let payload_key = format!("{prefix}:msg:{ID}");
        advance_until(&*store, |advanced| advanced.promoted == 1).await;
        // From here on it may wait for as long as it takes.
        assert_eq!(server.command::<i64>(&["TTL", &payload_key]), -1);
        let delivery = reserve_one(&*store, LONG).await;
        assert_eq!(delivery.claim.id.as_str(), ID);
        assert_eq!(delivery.payload.as_deref(), Some(b"from go".as_slice()));
        assert_eq!((delivery.attempt, delivery.attempts_max), (1, 4));
        assert_eq!(delivery.claim.id.sent_at_ms(), None);
        assert_eq!(
            settle(&*store, &delivery.claim, Settlement::ACK).await,
            Settled::Done
        );
        let keys: Vec<String> = server.command(&["KEYS", "*"]);
        assert_eq!(keys, [format!("{prefix}:stats")]);
    }
}

#[tokio::test]
async fn one_that_a_delayqueue_host_promoted_or_nacked_is_delivered() {
    let server = RedisServer::start();
    let store = server.store().await;
    // Promoted by a Go host: in ready, the TTL still on its payload.
    delayqueue_send(&server, "{dp:q}", ID, "promoted", unix_seconds() + 1000);
    let () = server.command(&["ZREM", "{dp:q}:pending", ID]);
    let () = server.command(&["LPUSH", "{dp:q}:ready", ID]);
    let claim = reserve_one(&*store, LONG).await.claim;
    assert_eq!(
        server.command::<i64>(&["TTL", &format!("{{dp:q}}:msg:{ID}")]),
        -1
    );
    settle(&*store, &claim, Settlement::ACK).await;
    // Nacked by a Go host: it stays in unack until the delay is over.
    delayqueue_send(&server, "{dp:q}", "abc", "nacked", unix_seconds() + 1000);
    let () = server.command(&["ZREM", "{dp:q}:pending", "abc"]);
    let () = server.command(&["ZADD", "{dp:q}:unack", &unix_seconds().to_string(), "abc"]);
    advance_until(&*store, |advanced| advanced.expired == 1).await;
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!((delivery.claim.id.as_str(), delivery.attempt), ("abc", 2));
    assert_eq!(delivery.attempts_max, 4);
}

#[tokio::test]
async fn a_message_without_a_retry_count_gets_that_of_the_host() {
    let server = RedisServer::start();
    let store = server.store().await;
    let () = server.command(&["SET", "{dp:q}:msg:bare", "x"]);
    let () = server.command(&["LPUSH", "{dp:q}:ready", "bare"]);
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!(delivery.attempts_max, 4);
    assert_eq!(
        settle(&*store, &delivery.claim, nack(None)).await,
        Settled::Done
    );
    assert_eq!(
        server.command::<u32>(&["HGET", "{dp:q}:retry:cnt", "bare"]),
        2
    );
}

#[tokio::test]
async fn what_send_writes_is_what_a_delayqueue_consumer_reads() {
    for (prefix, hash_tag) in [("{dp:q}", true), ("dp:q", false)] {
        let server = RedisServer::start();
        let store = server.store_with(hash_tag).await;
        let later = NewMessage {
            due: Due::At(4_000_000_000_123),
            retries: 7,
            ..NewMessage::new(b"\x00raw".as_slice())
        };
        let now = NewMessage::new("now");
        store
            .send(&queue(), &[later.clone(), now.clone()])
            .await
            .unwrap();
        let key = |name: &str| format!("{prefix}:{name}");
        let payload = key(&format!("msg:{}", later.id));
        assert_eq!(server.command::<Vec<u8>>(&["GET", &payload]), b"\x00raw");
        assert_eq!(server.command::<i64>(&["TTL", &payload]), -1);
        let left: String = server.command(&["HGET", &key("retry:cnt"), later.id.as_str()]);
        assert_eq!(left, "7");
        let pending: Vec<(String, f64)> =
            server.command(&["ZRANGE", &key("pending"), "0", "-1", "WITHSCORES"]);
        assert_eq!(pending, [(later.id.to_string(), 4_000_000_000.123)]);
        let ready: Vec<String> = server.command(&["LRANGE", &key("ready"), "0", "-1"]);
        assert_eq!(ready, [now.id.to_string()]);
        let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
        keys.sort();
        let mut expected: Vec<String> = ["pending", "ready", "retry:cnt", "stats"].map(key).into();
        expected.extend([
            payload,
            key(&format!("msg:{}", now.id)),
            "dqhost:queues".to_owned(),
        ]);
        expected.sort();
        assert_eq!(keys, expected);
    }
}

/// The ancestor leases a whole backlog at once, and loses about half of this one: its leases expire
/// while the messages wait in memory.
#[test]
fn a_backlog_longer_than_the_lease_runs_once_each() {
    let server = RedisServer::start();
    for n in 0..200 {
        delayqueue_send(&server, "{dp:q}", &format!("id-{n}"), "200", unix_seconds());
    }
    let handler = guest("sleeper");
    run(
        Some(&server.url()),
        &[
            "--handler",
            handler.to_str().unwrap(),
            "--queue",
            "q",
            "--slots",
            "4",
            "--lease",
            "5s",
            "--exit-when-empty",
            "--log",
            "warn",
        ],
        0,
    );
    let stats = stats(&server.url(), "q");
    assert_eq!(
        (&stats["totals"]["acked"], &stats["totals"]["expired"]),
        (&200.into(), &0.into())
    );
    assert_eq!(
        (&stats["totals"]["nacked"], &stats["dead"]),
        (&0.into(), &0.into())
    );
}
