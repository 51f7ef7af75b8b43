//! The keys of a queue in a real Redis hold anything.

use std::collections::BTreeSet;

use dqhost::message::{MessageId, QueueName};
use proptest::prelude::*;
use redis::Value;

use super::any::{HASHES, IDS, SCORES, VALUES, bytes, cases};
use super::methods::{handle, look, neighbour_works, steer};
use crate::contract::tools::queue;
use crate::support::RedisServer;

/// What is under one key.
#[derive(Debug, Clone)]
enum Content {
    Scored(Vec<(Vec<u8>, &'static str)>),
    List(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    Text(Vec<u8>),
}

impl Content {
    fn write(&self, key: &str, connection: &mut redis::Connection) {
        let mut command = match self {
            Self::Scored(_) => redis::cmd("ZADD"),
            Self::List(_) => redis::cmd("RPUSH"),
            Self::Set(_) => redis::cmd("SADD"),
            Self::Hash(_) => redis::cmd("HSET"),
            Self::Text(_) => redis::cmd("SET"),
        };
        command.arg(key);
        match self {
            Self::Scored(pairs) => pairs.iter().for_each(|(id, score)| {
                command.arg(*score).arg(id.as_slice());
            }),
            Self::List(ids) | Self::Set(ids) => ids.iter().for_each(|id| {
                command.arg(id.as_slice());
            }),
            Self::Hash(pairs) => pairs.iter().for_each(|(id, value)| {
                command.arg(id.as_slice()).arg(value.as_slice());
            }),
            Self::Text(bytes) => {
                command.arg(bytes.as_slice());
            }
        }
        let () = command.query(connection).unwrap();
    }
}

fn some_ids() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(bytes(&IDS), 1..7)
}

fn scored() -> impl Strategy<Value = Content> {
    let pair = (bytes(&IDS), prop::sample::select(&SCORES[..]));
    prop::collection::vec(pair, 1..7).prop_map(Content::Scored)
}

fn list() -> impl Strategy<Value = Content> {
    some_ids().prop_map(Content::List)
}

fn set() -> impl Strategy<Value = Content> {
    some_ids().prop_map(Content::Set)
}

const TOTALS: [&[u8]; 10] = [
    b"sent",
    b"acked",
    b"nacked",
    b"rejected",
    b"expired",
    b"released",
    b"dead",
    b"redriven",
    b"cancelled",
    b"deleted",
];

fn hash(names: &'static [&'static [u8]]) -> impl Strategy<Value = Content> {
    prop::collection::vec((bytes(names), bytes(&VALUES)), 1..9).prop_map(Content::Hash)
}

fn text() -> impl Strategy<Value = Content> {
    bytes(&VALUES).prop_map(Content::Text)
}

/// Keys and what is under each: mostly of the right type, since what is not ends at once.
fn world() -> impl Strategy<Value = Vec<(String, Content)>> {
    let any_kind = || prop_oneof![scored(), list(), set(), hash(&IDS), text()];
    let mut keys = Vec::new();
    let mut add = |name: &str, right: BoxedStrategy<Content>| {
        let key = format!("{{dp:q}}:{name}");
        let content = prop_oneof![
            7 => right.prop_map(Some),
            3 => Just(None),
        ];
        keys.push(
            content
                .prop_map(move |content| Some((key.clone(), content?)))
                .boxed(),
        );
    };
    for name in ["pending", "unack", "dead", "dedup", "moving", "hosts"] {
        add(name, scored().boxed());
    }
    for name in ["ready", "retry", "ended"] {
        add(name, list().boxed());
    }
    add("garbage", set().boxed());
    for name in HASHES {
        add(name, hash(&IDS).boxed());
    }
    add("stats", hash(&TOTALS).boxed());
    add("moving:peer", hash(&[b"name", b"run"]).boxed());
    for id in ["a", "}:ready", "", "019a2b3c-0000-7000-8000-000000000001"] {
        add(&format!("msg:{id}"), text().boxed());
    }
    // One key of another type, in some worlds.
    let wrong = (
        prop::sample::select(vec!["ready", "attempts", "stats", "hosts", "msg:a"]),
        any_kind(),
    );
    let wrong = prop::option::weighted(0.2, wrong);
    (keys, wrong).prop_map(|(keys, wrong)| {
        let mut keys: Vec<_> = keys.into_iter().flatten().collect();
        if let Some((name, content)) = wrong {
            let key = format!("{{dp:q}}:{name}");
            keys.retain(|(other, _)| *other != key);
            keys.push((key, content));
        }
        keys
    })
}

/// Every id that is in some state, whatever state that is.
fn in_a_state(connection: &mut redis::Connection) -> BTreeSet<Vec<u8>> {
    let commands: [&[&str]; 7] = [
        &["ZRANGE", "pending", "0", "-1"],
        &["ZRANGE", "unack", "0", "-1"],
        &["ZRANGE", "dead", "0", "-1"],
        &["ZRANGE", "moving", "0", "-1"],
        &["LRANGE", "ready", "0", "-1"],
        &["LRANGE", "retry", "0", "-1"],
        &["SMEMBERS", "garbage"],
    ];
    let mut ids = BTreeSet::new();
    for words in commands {
        let mut command = redis::cmd(words[0]);
        command
            .arg(format!("{{dp:q}}:{}", words[1]))
            .arg(&words[2..]);
        // Of a key of another type nothing is known, and nothing can leave it.
        if let Ok(Value::Array(found)) = command.query(connection) {
            ids.extend(found.into_iter().filter_map(|id| match id {
                Value::BulkString(id) => Some(id),
                _ => None,
            }));
        }
    }
    ids
}

/// True for an id with a payload or with retries on record: one with neither is what a delayqueue
/// consumer's ack leaves, and is dropped.
fn is_message(connection: &mut redis::Connection, id: &[u8]) -> bool {
    let payload = [b"{dp:q}:msg:", id].concat();
    let payload: bool = redis::cmd("EXISTS").arg(payload).query(connection).unwrap();
    let mut count = redis::cmd("HEXISTS");
    count.arg("{dp:q}:retry:cnt").arg(id);
    payload || count.query(connection).unwrap_or(true)
}

async fn nothing_is_lost(store: &dyn dqhost::store::Store, connection: &mut redis::Connection) {
    let before = in_a_state(connection);
    let mut messages = before.clone();
    messages.retain(|id| is_message(connection, id));
    for _ in 0..4 {
        let _ = store.advance(&queue()).await;
        let wanted = dqhost::store::Reservation {
            max: 3,
            lease: std::time::Duration::ZERO,
            first: dqhost::store::First::Ready,
            retries_default: 3,
        };
        let _ = store.advance_and_reserve(&queue(), wanted).await;
        let after = in_a_state(connection);
        assert!(after.is_subset(&before), "{:?}", after.difference(&before));
        assert!(
            messages.is_subset(&after),
            "{:?}",
            messages.difference(&after)
        );
    }
}

#[test]
fn keys_that_hold_anything_are_survived_and_lose_no_message() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = RedisServer::start();
    let store = runtime.block_on(server.store());
    let connection = std::cell::RefCell::new(server.connection());
    let queue: QueueName = queue();
    let ids: Vec<MessageId> = IDS
        .iter()
        .filter_map(|id| std::str::from_utf8(id).ok().map(MessageId::from))
        .collect();
    proptest!(cases(40), |(world in world())| {
        let mut connection = connection.borrow_mut();
        let () = redis::cmd("FLUSHALL").query(&mut *connection).unwrap();
        for (key, content) in &world {
            content.write(key, &mut connection);
        }
        runtime.block_on(async {
            look(&*store, &queue, &ids).await;
            nothing_is_lost(&*store, &mut connection).await;
            handle(&*store, &queue).await;
            look(&*store, &queue, &ids).await;
            steer(&*store, &queue, &ids).await;
            neighbour_works(&*store).await.unwrap();
        });
    });
}

/// A total that is no number stops nothing, and is not taken for an error of what it counts.
#[tokio::test]
async fn totals_that_are_no_numbers_stop_nothing() {
    use crate::contract::tools::*;
    use dqhost::message::Due;
    use dqhost::store::{Settled, Settlement};

    let server = RedisServer::start();
    let store = server.store().await;
    let mut spoil = redis::cmd("HSET");
    spoil.arg("{dp:q}:stats");
    for name in TOTALS {
        spoil.arg(name).arg("many");
    }
    // As many as can be.
    spoil.arg("acked").arg(i64::MAX);
    let () = spoil.query(&mut server.connection()).unwrap();
    send(&*store, "a", Due::NOW, 0).await;
    let dead = send(&*store, "b", Due::NOW, 0).await;
    let [a, b] = reserve(&*store, 2, LONG).await.try_into().unwrap();
    assert_eq!(
        settle(&*store, &a.claim, Settlement::ACK).await,
        Settled::Done
    );
    assert_eq!(settle(&*store, &b.claim, nack(None)).await, Settled::Done);
    collect_garbage(&*store).await;
    store
        .redrive(&queue(), &[dead], dqhost::store::Redrive::default())
        .await
        .unwrap();
    let counts = store.counts(&queue()).await.unwrap();
    assert_eq!((counts.ready, counts.dead, counts.totals.sent), (1, 0, 0));
    assert_eq!(counts.totals.acked, u64::try_from(i64::MAX).unwrap());
}

/// An id that is no text cannot be named to another store and back: a copy says so and does not go
/// round for ever.
#[tokio::test]
async fn a_copy_refuses_an_id_that_is_no_text() {
    let (from, to) = (RedisServer::start(), RedisServer::start());
    let mut push = redis::cmd("LPUSH");
    push.arg("{dp:q}:ready").arg(b"\xff\xfe".as_slice());
    let () = push.query(&mut from.connection()).unwrap();
    let (one, other) = (from.store().await, to.store().await);
    let copied =
        dqhost::store::move_queue::move_queue(&*one, &*other, &queue(), false, |_| {}).await;
    let error = copied.unwrap_err().to_string();
    assert!(error.contains("is no text"), "{error}");
    // In the other direction what has "arrived" cannot be found in the first store.
    let mut add = redis::cmd("ZADD");
    add.arg("{dp:q}:moving").arg(1).arg(b"\xff".as_slice());
    let () = add.query(&mut to.connection()).unwrap();
    let () = from.command(&["FLUSHALL"]);
    crate::contract::tools::send(&*one, "x", dqhost::message::Due::NOW, 3).await;
    let copied =
        dqhost::store::move_queue::move_queue(&*one, &*other, &queue(), true, |_| {}).await;
    assert!(copied.is_ok(), "{copied:?}");
}
