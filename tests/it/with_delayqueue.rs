//! What goes wrong beside HDT3213/delayqueue: findings from trials with its real library, one test each.

use std::sync::Arc;
use std::time::Duration;

use dqhost::message::{
    Delivery, Due, HistoryEntry, MessageId, NewMessage, Outgoing, Record, State,
};
use dqhost::store::move_queue::move_queue;
use dqhost::store::{Audit, Peer, Settled, Settlement, Store};

use crate::contract::tools::*;
use crate::support::{Host, RedisServer, eventually, guest, run, stats};

fn key(name: &str) -> String {
    format!("{{dp:q}}:{name}")
}

fn payload_key(id: &str) -> String {
    key(&format!("msg:{id}"))
}

/// What `SendDelayMsg` writes, and where the message is then.
fn delayqueue_message(server: &RedisServer, id: &str, ttl: &str) {
    let () = server.command(&["SET", &payload_key(id), id, "EX", ttl]);
    let () = server.command(&["HSET", &key("retry:cnt"), id, "3"]);
}

fn ttl(server: &RedisServer, id: &str) -> i64 {
    server.command(&["TTL", &payload_key(id)])
}

fn now_ms(server: &RedisServer) -> u64 {
    let (seconds, us): (u64, u64) = server.command(&["TIME"]);
    seconds * 1000 + us / 1000
}

fn with_id(id: &MessageId, payload: &str) -> NewMessage {
    NewMessage {
        id: id.clone(),
        ..NewMessage::new(payload)
    }
}

async fn totals(store: &dyn Store) -> dqhost::store::Totals {
    store.counts(&queue()).await.unwrap().totals
}

/// Advances and reserves until nothing waits any more; nothing may be given out.
async fn nothing_is_delivered(store: &dyn Store) {
    for _ in 0..3 {
        store.advance(&queue()).await.unwrap();
        assert_eq!(reserve(store, 100, LONG).await, Vec::<Delivery>::new());
    }
    assert_eq!(depths(store).await, [0, 0, 0, 0, 0]);
}

/// One message in each state, by its name.
async fn in_every_state(store: &dyn Store) -> Vec<(&'static str, MessageId)> {
    let mut all = Vec::new();
    let dead = send(store, "dead", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    all.push(("dead", dead));
    all.push(("unack", send(store, "unack", Due::NOW, 3).await));
    reserve_one(store, LONG).await;
    all.push(("retry", send(store, "retry", Due::NOW, 3).await));
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    all.push(("ready", send(store, "ready", Due::NOW, 3).await));
    all.push(("pending", send(store, "pending", Due::In(LONG), 3).await));
    all
}

#[tokio::test]
async fn a_send_whose_payload_others_removed_restores_it_and_leaves_the_message_where_it_is() {
    let server = RedisServer::start();
    let store = server.store().await;
    let all = in_every_state(&*store).await;
    let before = depths(&*store).await;
    for (state, id) in &all {
        let () = server.command(&["DEL", &payload_key(id.as_str())]);
        let again = with_id(id, state);
        let sent = store.send(&queue(), &[again.clone()]).await.unwrap();
        assert_eq!(sent[0].due_at_ms.is_some(), *state != "dead", "{state}");
        let record = store.get(&queue(), id).await.unwrap().unwrap();
        assert_eq!(record.payload.as_deref(), Some(state.as_bytes()));
        assert_eq!(depths(&*store).await, before, "{state}");
        // The message is there now, with its payload.
        let sent = store.send(&queue(), &[again]).await.unwrap();
        assert_eq!(sent[0].due_at_ms, None, "{state}");
    }
    assert_eq!(totals(&*store).await.sent, 5);
    let pending = &all[4].1;
    let at_ms = store.get(&queue(), pending).await.unwrap().unwrap().at_ms;
    let () = server.command(&["DEL", &payload_key(pending.as_str())]);
    let sent = store
        .send(&queue(), &[with_id(pending, "x")])
        .await
        .unwrap();
    assert_eq!(sent[0].due_at_ms, at_ms);
    // In a batch with others, and twice in it.
    let () = server.command(&["DEL", &payload_key(pending.as_str())]);
    let batch = [
        NewMessage::new("other"),
        with_id(pending, "x"),
        with_id(pending, "x"),
    ];
    let sent = store.send(&queue(), &batch).await.unwrap();
    let is_new: Vec<bool> = sent.iter().map(|sent| sent.due_at_ms.is_some()).collect();
    assert_eq!(is_new, [true, true, false]);
    assert_eq!(totals(&*store).await.sent, 6);
}

#[tokio::test]
async fn what_an_ack_sends_restores_a_payload_as_well() {
    let server = RedisServer::start();
    let store = server.store().await;
    let waits = send(&*store, "waits", Due::In(LONG), 3).await;
    let () = server.command(&["DEL", &payload_key(waits.as_str())]);
    send(&*store, "sends", Due::NOW, 3).await;
    let claim = reserve_one(&*store, LONG).await.claim;
    let outbox = vec![Outgoing {
        queue: queue(),
        message: with_id(&waits, "waits"),
    }];
    let how = Settlement::Ack { outbox };
    assert_eq!(settle(&*store, &claim, how).await, Settled::Done);
    assert_eq!(depths(&*store).await, [1, 0, 0, 0, 0]);
    let record = store.get(&queue(), &waits).await.unwrap().unwrap();
    assert_eq!(record.payload.as_deref(), Some(b"waits".as_slice()));
    assert_eq!(totals(&*store).await.sent, 2);
}

/// A crash in the middle of a delayqueue ack leaves it behind.
#[tokio::test]
async fn a_retry_count_without_a_message_lets_no_send_vanish() {
    let server = RedisServer::start();
    let store = server.store().await;
    let (plain, along) = (MessageId::new(), MessageId::new());
    for id in [&plain, &along] {
        let () = server.command(&["HSET", &key("retry:cnt"), id.as_str(), "1"]);
    }
    let sent = store.send(&queue(), &[with_id(&plain, "plain")]).await;
    assert!(sent.unwrap()[0].due_at_ms.is_some());
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!((delivery.attempt, delivery.attempts_max), (1, 4));
    let outbox = vec![Outgoing {
        queue: queue(),
        message: with_id(&along, "along"),
    }];
    settle(&*store, &delivery.claim, Settlement::Ack { outbox }).await;
    assert_eq!(reserve_one(&*store, LONG).await.claim.id, along);
    assert_eq!(totals(&*store).await.sent, 2);
}

#[tokio::test]
async fn an_id_that_is_twice_in_line_is_given_out_once() {
    let server = RedisServer::start();
    let store = server.store().await;
    let id = send(&*store, "x", Due::NOW, 3).await;
    let twice = |list: &str| {
        let () = server.command(&["LPUSH", &key(list), id.as_str()]);
    };
    twice("ready");
    let delivery = reserve_one(&*store, LONG).await;
    twice("ready");
    twice("retry");
    assert_eq!(reserve(&*store, 10, LONG).await, Vec::<Delivery>::new());
    assert_eq!(depths(&*store).await, [0, 0, 1, 0, 0]);
    twice("retry");
    settle(&*store, &delivery.claim, Settlement::ACK).await;
    nothing_is_delivered(&*store).await;
}

#[tokio::test]
async fn an_import_restores_a_payload_and_makes_no_second_message() {
    let server = RedisServer::start();
    let store = server.store().await;
    let id = send(&*store, "x", Due::In(LONG), 3).await;
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    let () = server.command(&["DEL", &payload_key(id.as_str())]);
    let peer = Peer {
        name: "other".to_owned(),
        renamed: false,
        run: "1".to_owned(),
    };
    store.begin_transfer(&queue(), &peer).await.unwrap();
    store.import(&queue(), "1", &[record]).await.unwrap();
    let counts = store.counts(&queue()).await.unwrap();
    assert_eq!((counts.pending, counts.moving), (1, 0));
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    assert_eq!(record.payload.as_deref(), Some(b"x".as_slice()));
}

#[tokio::test]
async fn a_dead_letter_from_delayqueues_garbage_keeps_its_payload_and_has_a_reason() {
    let server = RedisServer::start();
    let store = server.store().await;
    let ours = send(&*store, "ours", Due::NOW, 3).await;
    let () = server.command(&["LREM", &key("ready"), "0", ours.as_str()]);
    let () = server.command(&["SET", &payload_key("g1"), "p", "EX", "8"]);
    // delayqueue takes the retry count away.
    for id in ["g1", ours.as_str()] {
        let () = server.command(&["HDEL", &key("retry:cnt"), id]);
        let () = server.command(&["SADD", &key("garbage"), id]);
    }
    advance_until(&*store, |advanced| advanced.dead_lettered == 2).await;
    for id in ["g1", ours.as_str()] {
        assert_eq!(ttl(&server, id), -1);
        let record = store.get(&queue(), &id.into()).await.unwrap().unwrap();
        assert_eq!(record.state, State::Dead);
        let Some(HistoryEntry::Attempt(last)) = record.history.last() else {
            panic!("{record:?}")
        };
        assert_eq!(last.class, "out-of-retries");
        assert_eq!(last.reason, "a delayqueue consumer gave up on it");
    }
    let totals = totals(&*store).await;
    assert_eq!((totals.sent, totals.dead), (2, 2));
    // It has the usual number of retries again.
    store
        .redrive(&queue(), &["g1".into()], dqhost::store::Redrive::default())
        .await
        .unwrap();
    assert_eq!(reserve_one(&*store, LONG).await.attempts_max, 4);
}

#[tokio::test]
async fn a_dead_letter_that_an_audit_makes_keeps_its_payload() {
    let server = RedisServer::start();
    let store = server.store().await;
    let () = server.command(&["SET", &payload_key("orphan"), "p", "EX", "8"]);
    let how = Audit {
        repair: true,
        settling: SHORT,
    };
    store.audit(&queue(), how).await.unwrap();
    assert_eq!(depths(&*store).await, [0, 0, 0, 0, 1]);
    assert_eq!(ttl(&server, "orphan"), -1);
}

#[tokio::test]
async fn expiries_of_what_delayqueue_promoted_are_taken_off_wherever_it_waits() {
    const EACH: usize = 400;
    let server = RedisServer::start();
    let store = server.store().await;
    let mut pipe = redis::pipe();
    for n in 0..3 * EACH {
        let id = format!("id-{n}");
        pipe.cmd("SET")
            .arg(payload_key(&id))
            .arg("x")
            .arg("EX")
            .arg(600);
        pipe.cmd("HSET").arg(key("retry:cnt")).arg(&id).arg(3);
        match n % 3 {
            0 => pipe.cmd("LPUSH").arg(key("ready")).arg(&id),
            1 => pipe.cmd("LPUSH").arg(key("retry")).arg(&id),
            _ => pipe
                .cmd("ZADD")
                .arg(key("unack"))
                .arg(9_000_000_000_u64)
                .arg(&id),
        };
    }
    let () = pipe.query(&mut server.connection()).unwrap();
    while store.advance(&queue()).await.unwrap().more {}
    let expiring = || (0..3 * EACH).filter(|n| ttl(&server, &format!("id-{n}")) != -1);
    assert_eq!(expiring().count(), 0);
    assert_eq!(totals(&*store).await.sent, 3 * EACH as u64);
    // What comes later counts as well, behind others that wait.
    delayqueue_message(&server, "later", "600");
    let () = server.command(&["LPUSH", &key("ready"), "later"]);
    let look = async {
        while ttl(&server, "later") != -1 {
            store.advance(&queue()).await.unwrap();
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, look)
        .await
        .unwrap();
}

/// Every due time, given to the producer in ms, with what the expiry was cut to, or late by.
#[tokio::test]
async fn a_due_time_that_a_producer_cut_is_kept_to_the_millisecond() {
    let server = RedisServer::start();
    let store = server.store().await;
    let second = now_ms(&server) / 1000 - 2;
    let mut asked = Vec::new();
    for ttl in [3600, 30, 90, 7, 8, 31, 3601] {
        for fraction in [0, 1, 2, 99, 100, 500, 997, 998, 999] {
            for off in [-1, 0, 1, 2] {
                let due_ms = second * 1000 + fraction;
                let end = (due_ms + ttl * 1000).saturating_add_signed(off);
                let id = format!("{ttl}/{fraction}/{off}");
                asked.push((id.clone(), due_ms, ttl));
                let end = end.to_string();
                let () = server.command(&["SET", &payload_key(&id), "x", "PXAT", &end]);
                let () = server.command(&["ZADD", &key("pending"), &second.to_string(), &id]);
            }
        }
    }
    let () = server.command(&["SET", &payload_key("bare"), "x"]);
    let () = server.command(&["ZADD", &key("pending"), &second.to_string(), "bare"]);
    let all = asked.len() + 1;
    let mut promoted = 0;
    while promoted < all {
        promoted += store.advance(&queue()).await.unwrap().promoted;
    }
    assert_eq!(totals(&*store).await.sent, asked.len() as u64);
    let deliveries = reserve(&*store, 1000, LONG).await;
    assert_eq!(deliveries.len(), all);
    for delivery in deliveries {
        let id = delivery.claim.id.as_str();
        let at_ms = delivery.due_at_ms.unwrap();
        if id == "bare" {
            assert_eq!(at_ms, second * 1000);
            continue;
        }
        let (_, due_ms, ttl) = asked.iter().find(|(other, ..)| other == id).unwrap();
        assert!(at_ms >= *due_ms, "{id} is {} ms early", due_ms - at_ms);
        let late_max = if ttl % 30 == 0 { 4 } else { 1004 };
        assert!(
            at_ms <= due_ms + late_max,
            "{id} is {} ms late",
            at_ms - due_ms
        );
    }
}

#[tokio::test]
async fn a_message_of_others_is_not_given_out_before_the_millisecond_that_was_asked_for() {
    let server = RedisServer::start();
    let store = server.store().await;
    let due_ms = now_ms(&server) / 1000 * 1000 + 1_967;
    let end = (due_ms + 3_600_000).to_string();
    let () = server.command(&["SET", &payload_key("a"), "x", "PXAT", &end]);
    let second = (due_ms / 1000).to_string();
    let () = server.command(&["ZADD", &key("pending"), &second, "a"]);
    let advance = advance_until(&*store, |advanced| advanced.promoted == 1).await;
    assert!(now_ms(&server) >= due_ms);
    assert!(advance.waiting);
    assert_eq!(reserve_one(&*store, LONG).await.claim.id.as_str(), "a");
}

#[tokio::test]
async fn what_is_moved_to_another_store_keeps_the_millisecond_that_was_asked_for() {
    let server = RedisServer::start();
    let store = server.store().await;
    let due_ms = now_ms(&server) / 1000 * 1000 + 60_456;
    let end = (due_ms + 3_600_000).to_string();
    let () = server.command(&["SET", &payload_key("a"), "x", "PXAT", &end]);
    let second = (due_ms / 1000).to_string();
    let () = server.command(&["ZADD", &key("pending"), &second, "a"]);
    let peer = Peer {
        name: "other".to_owned(),
        renamed: false,
        run: "1".to_owned(),
    };
    store.begin_transfer(&queue(), &peer).await.unwrap();
    // The second time it is what an interrupted copy left.
    for _ in 0..2 {
        let records = store.export(&queue(), "1", 10).await.unwrap();
        assert_eq!(records[0].at_ms, Some(due_ms + 2));
    }
    assert_eq!(ttl(&server, "a"), -1);
    store
        .commit_import(&queue(), "1", &["a".into()])
        .await
        .unwrap();
    let record = store.get(&queue(), &"a".into()).await.unwrap().unwrap();
    assert_eq!(record.at_ms, Some(due_ms + 2));
}

#[tokio::test]
async fn what_a_delayqueue_consumers_ack_left_is_dropped_and_counted() {
    let server = RedisServer::start();
    let store = server.store().await;
    for (command, place, words) in [
        ("LPUSH", "ready", &["a"][..]),
        ("LPUSH", "retry", &["b"]),
        ("ZADD", "unack", &["1", "c"]),
        ("SADD", "garbage", &["d"]),
        ("ZADD", "pending", &["1", "e"]),
        // We had taken it back before the ack came.
        ("LPUSH", "retry", &["f"]),
    ] {
        let place = key(place);
        let () = server.command(&[&[command, &place], words].concat());
    }
    let () = server.command(&["HSET", &key("attempts"), "f", "1:0"]);
    let () = server.command(&["HSET", &key("history"), "f", "{}"]);
    nothing_is_delivered(&*store).await;
    let totals = totals(&*store).await;
    assert_eq!((totals.dropped, totals.dead), (6, 0));
    let keys: Vec<String> = server.command(&["KEYS", "*"]);
    assert_eq!(keys, [key("stats")]);
}

/// It must not be taken and given back for ever.
#[tokio::test]
async fn an_id_whose_payload_is_something_else_is_delivered_without_one() {
    let server = RedisServer::start();
    let store = server.store().await;
    let () = server.command(&["LPUSH", &payload_key("a"), "no payload"]);
    let () = server.command(&["LPUSH", &key("retry"), "a"]);
    let () = server.command(&["HSET", &key("attempts"), "a", "1:0"]);
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!(delivery.payload, None);
    settle(&*store, &delivery.claim, reject()).await;
    collect_garbage(&*store).await;
    assert_eq!(depths(&*store).await, [0, 0, 0, 0, 1]);
}

#[test]
fn a_host_logs_what_it_dropped_and_stats_count_it() {
    let server = RedisServer::start();
    let () = server.command(&["LPUSH", &key("ready"), "a"]);
    let handler = guest("noop");
    let args = ["--handler", handler.to_str().unwrap(), "--queue", "q"];
    let mut host = Host::start(&server.url(), &args);
    host.wait_for_queue("dropped 1 ids", "q");
    let counts = stats(&server.url(), "q");
    assert_eq!(counts["totals"]["dropped"], 1);
    assert_eq!(counts["dead"], 0);
}

/// `TryIntercept` of a message that is in unack takes the retry count, which is half of a token, and
/// leaves the payload.
#[tokio::test]
async fn an_intercept_during_a_delivery_leaves_its_answer_valid() {
    let server = RedisServer::start();
    let store = server.store().await;
    let delivery = intercepted(&server, &store).await;
    let extended = store
        .extend(&queue(), &[delivery.claim.clone()], LONG)
        .await;
    assert_eq!(extended.unwrap(), [Settled::Done]);
    let acked = settle(&*store, &delivery.claim, Settlement::ACK).await;
    assert_eq!(acked, Settled::Done);
    nothing_is_delivered(&*store).await;
    let totals = totals(&*store).await;
    assert_eq!((totals.acked, totals.dead, totals.expired), (1, 0, 0));
}

/// It has failed once, by our handler, and nobody else has tried it.
#[tokio::test]
async fn what_was_intercepted_is_not_retried_and_keeps_the_reason_of_its_handler() {
    let server = RedisServer::start();
    let store = server.store().await;
    for how in [nack(None), nack(Some(LONG)), reject()] {
        let id = intercepted(&server, &store).await.claim;
        assert_eq!(settle(&*store, &id, how.clone()).await, Settled::Done);
        collect_garbage(&*store).await;
        let record = store.get(&queue(), &id.id).await.unwrap().unwrap();
        assert_eq!((record.state, record.attempts), (State::Dead, 1), "{how:?}");
        let last = record.last_attempt().unwrap();
        let (Settlement::Reject { attempt } | Settlement::Nack { attempt, .. }) = how else {
            unreachable!()
        };
        assert_eq!((last, record.history.len()), (&attempt, 1));
    }
}

async fn intercepted(server: &RedisServer, store: &Arc<dyn Store>) -> Delivery {
    let id = send(&**store, "x", Due::NOW, 3).await;
    let delivery = reserve_one(&**store, LONG).await;
    let () = server.command(&["LREM", &key("ready"), "0", id.as_str()]);
    let () = server.command(&["ZREM", &key("pending"), id.as_str()]);
    let () = server.command(&["HDEL", &key("retry:cnt"), id.as_str()]);
    let () = server.command(&["LREM", &key("retry"), "0", id.as_str()]);
    delivery
}

/// Ids that an ack of delayqueue has left behind stand before a message, more than there are slots.
#[tokio::test]
async fn what_is_dropped_leaves_its_slots_to_the_messages_behind_it() {
    let server = RedisServer::start();
    let store = server.store().await;
    for n in 0..200 {
        let () = server.command(&["LPUSH", &key("ready"), &format!("ghost-{n}")]);
    }
    let id = send(&*store, "x", Due::NOW, 3).await;
    let reserved = reserve(&*store, 16, LONG).await;
    let ids: Vec<_> = reserved.into_iter().map(|d| d.claim.id).collect();
    assert_eq!(ids, [id]);
    assert_eq!(totals(&*store).await.dropped, 200);
}

/// Between its reservation and the moment at which it would be dropped the host dies.
#[tokio::test]
async fn what_is_left_of_an_acked_message_is_dropped_also_after_a_crash() {
    let server = RedisServer::start();
    let store = server.store().await;
    let () = server.command(&["ZADD", &key("unack"), "1000", "ghost"]);
    advance_until(&*store, |advanced| advanced.expired == 1).await;
    nothing_is_delivered(&*store).await;
    let totals = totals(&*store).await;
    assert_eq!((totals.dropped, totals.dead), (1, 0));
}

/// One of a producer that records no retries has them on record once its payload was seen.
#[tokio::test]
async fn a_message_without_retries_on_record_gets_them_when_its_payload_was_seen() {
    let server = RedisServer::start();
    let store = server.store().await;
    let () = server.command(&["SET", &payload_key("a"), "x"]);
    let () = server.command(&["LPUSH", &key("ready"), "a"]);
    let first = reserve_one(&*store, LONG).await;
    assert_eq!((first.attempt, first.attempts_max), (1, 4));
    let left: String = server.command(&["HGET", &key("retry:cnt"), "a"]);
    assert_eq!(left, "3");
    assert_eq!(
        settle(&*store, &first.claim, nack(None)).await,
        Settled::Done
    );
    let second = reserve_one(&*store, LONG).await;
    assert_eq!((second.attempt, second.attempts_max), (2, 4));
}

#[tokio::test]
async fn an_intercept_lets_no_stale_delivery_through() {
    let server = RedisServer::start();
    let store = server.store().await;
    let id = send(&*store, "x", Due::NOW, 3).await;
    let stale = reserve_one(&*store, SHORT).await.claim;
    advance_until(&*store, |advanced| advanced.expired == 1).await;
    let released = reserve_one(&*store, LONG).await.claim;
    store.release(&queue(), &[released.clone()]).await.unwrap();
    let current = reserve_one(&*store, LONG).await.claim;
    let () = server.command(&["DEL", &payload_key(id.as_str())]);
    let () = server.command(&["HDEL", &key("retry:cnt"), id.as_str()]);
    let before = server.dump();
    for claim in [&stale, &released] {
        for how in [Settlement::ACK, nack(None), reject()] {
            assert_eq!(settle(&*store, claim, how).await, Settled::LeaseLost);
        }
        let claims = [claim.clone()];
        let extended = store.extend(&queue(), &claims, LONG).await.unwrap();
        let released = store.release(&queue(), &claims).await.unwrap();
        assert_eq!([extended, released].concat(), [Settled::LeaseLost; 2]);
    }
    assert_eq!(server.dump(), before);
    let done = settle(&*store, &current, Settlement::ACK).await;
    assert_eq!(done, Settled::Done);
}

#[tokio::test]
async fn a_send_after_a_delayqueue_consumers_ack_starts_anew() {
    let server = RedisServer::start();
    let store = server.store().await;
    let message = NewMessage {
        due: Due::In(Duration::from_millis(1)),
        headers: vec![("k".to_owned(), "v".to_owned())],
        ..NewMessage::new("x")
    };
    let id = message.id.clone();
    let gone = |list: &str| {
        let () = server.command(&["LREM", &key(list), "0", id.as_str()]);
        let () = server.command(&["DEL", &payload_key(id.as_str())]);
        let () = server.command(&["HDEL", &key("retry:cnt"), id.as_str()]);
    };
    // Before it was ever delivered, and after an attempt.
    store.send(&queue(), &[message.clone()]).await.unwrap();
    advance_until(&*store, |advanced| advanced.promoted == 1).await;
    gone("ready");
    store.send(&queue(), &[message.clone()]).await.unwrap();
    advance_until(&*store, |advanced| advanced.promoted == 1).await;
    let claim = reserve_one(&*store, LONG).await.claim;
    settle(&*store, &claim, nack(None)).await;
    gone("retry");
    store.send(&queue(), &[with_id(&id, "x")]).await.unwrap();
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    assert_eq!((record.attempts, record.history.len()), (0, 0));
    let delivery = reserve_one(&*store, LONG).await;
    assert_eq!((delivery.attempt, delivery.attempts_max), (1, 4));
    assert_eq!((delivery.headers.len(), delivery.due_at_ms), (0, None));
    assert_eq!(totals(&*store).await.sent, 3);
}

#[tokio::test]
async fn messages_of_others_are_counted_when_they_are_first_seen() {
    let server = RedisServer::start();
    let store = server.store().await;
    for id in ["a", "b", "c", "d", "e", "f"] {
        delayqueue_message(&server, id, "600");
    }
    for (id, score) in [("a", "1"), ("b", "1"), ("c", "1"), ("d", "9000000000")] {
        let () = server.command(&["ZADD", &key("pending"), score, id]);
    }
    let () = server.command(&["LPUSH", &key("ready"), "e"]);
    let () = server.command(&["SADD", &key("garbage"), "f"]);
    advance_until(&*store, |advanced| advanced.promoted == 3).await;
    let deliveries = reserve(&*store, 10, LONG).await;
    assert_eq!(deliveries.len(), 4);
    let ends = [
        Settlement::ACK,
        Settlement::ACK,
        reject(),
        nack(Some(SHORT)),
    ];
    for (delivery, how) in deliveries.iter().zip(ends) {
        settle(&*store, &delivery.claim, how).await;
    }
    collect_garbage(&*store).await;
    advance_until(&*store, |advanced| !advanced.more).await;
    let waits = store.reschedule(&queue(), &["d".into()], Due::NOW).await;
    waits.unwrap();
    let counts = store.counts(&queue()).await.unwrap();
    let totals = counts.totals;
    assert_eq!((totals.acked, totals.dead, counts.alive()), (2, 2, 2));
    assert_eq!(totals.sent, totals.acked + totals.dead + counts.alive());
}

#[test]
fn a_lease_that_has_ended_is_logged_by_the_host_that_notices() {
    let server = RedisServer::start();
    delayqueue_message(&server, "a", "600");
    let () = server.command(&["ZADD", &key("unack"), "1", "a"]);
    let handler = guest("noop");
    let args = ["--handler", handler.to_str().unwrap(), "--queue", "q"];
    let mut host = Host::start(&server.url(), &args);
    let line = host.wait_for_queue("1 leases have expired without an answer", "q");
    assert_eq!(line["level"].as_str().unwrap().to_lowercase(), "info");
}

#[test]
fn a_delivery_that_another_took_back_is_logged() {
    let server = RedisServer::start();
    run(Some(&server.url()), &["send", "600000", "--queue", "q"], 0);
    let handler = guest("sleeper");
    let args = [
        "--handler",
        handler.to_str().unwrap(),
        "--queue",
        "q",
        "--lease",
        "1s",
    ];
    let mut host = Host::start(&server.url(), &args);
    let id = eventually("it is in flight", || {
        let held: Vec<String> = server.command(&["ZRANGE", &key("unack"), "0", "-1"]);
        held.into_iter().next()
    });
    // As a delayqueue host does with a lease that has ended.
    let () = server.command(&["HINCRBY", &key("retry:cnt"), &id, "-1"]);
    let line = host.wait_for_line_with("its lease was lost");
    assert_eq!(line["id"].as_str(), Some(id.as_str()));
}

#[tokio::test]
async fn a_payload_that_comes_to_a_long_line_is_kept() {
    let server = RedisServer::start();
    let store = server.store().await;
    let fill =
        "for i = 1, 50000 do for _, key in ipairs(KEYS) do redis.call('LPUSH', key, i) end end";
    let () = server.command(&["EVAL", fill, "2", &key("ready"), &key("retry")]);
    while store.advance(&queue()).await.unwrap().more {}
    for list in ["ready", "retry"] {
        let () = server.command(&["SET", &payload_key(list), "x", "PX", "5000"]);
        let () = server.command(&["LPUSH", &key(list), list]);
        while ttl(&server, list) >= 0 {
            store.advance(&queue()).await.unwrap();
        }
        assert_eq!(
            ttl(&server, list),
            -1,
            "the payload of one in {list} is lost"
        );
    }
    assert_eq!(totals(&*store).await.sent, 2);
}

/// Five ids that the ack of a Go consumer left in line, and a message whose payload is lost.
fn five_that_an_ack_left(server: &RedisServer) {
    let () = server.command(&["LPUSH", &key("ready"), "a", "b", "c", "d", "e"]);
    let () = server.command(&["LPUSH", &key("retry"), "lost"]);
    let () = server.command(&["HSET", &key("retry:cnt"), "lost", "3"]);
}

#[tokio::test]
async fn an_audit_drops_what_an_ack_left_and_counts_it() {
    let server = RedisServer::start();
    let store = server.store().await;
    five_that_an_ack_left(&server);
    let how = Audit {
        repair: true,
        settling: SHORT,
    };
    let report = store.audit(&queue(), how).await.unwrap();
    assert_eq!((report.0[0].repaired, report.0[0].dead_lettered), (5, 1));
    assert_eq!(depths(&*store).await, [0, 0, 0, 0, 1]);
    let totals = totals(&*store).await;
    assert_eq!((totals.dropped, totals.dead), (5, 1));
}

#[tokio::test]
async fn a_copy_drops_what_an_ack_left_and_counts_it() {
    let (from, to) = (RedisServer::start(), RedisServer::start());
    let (here, there) = (from.store().await, to.store().await);
    five_that_an_ack_left(&from);
    let peer = Peer {
        name: "other".to_owned(),
        renamed: false,
        run: "1".to_owned(),
    };
    here.begin_transfer(&queue(), &peer).await.unwrap();
    // Two at a time: those that are dropped do not look like the end.
    let taken = here.export(&queue(), "1", 2).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].id.as_str(), "lost");
    let arrived = move_queue(&*here, &*there, &queue(), true, |_| ()).await;
    assert_eq!(arrived.unwrap(), 1);
    assert_eq!(totals(&*here).await.dropped, 5);
    let keys: Vec<String> = from.command(&["KEYS", &key("*")]);
    assert!(
        keys.iter().all(|key| !key.contains("moving:was")),
        "{keys:?}"
    );
    let counts = there.counts(&queue()).await.unwrap();
    assert_eq!((counts.alive(), counts.dead), (1, 0));
}

#[tokio::test]
async fn an_id_that_is_sent_again_while_it_is_in_delayqueues_garbage_is_not_buried() {
    let server = RedisServer::start();
    let store = server.store().await;
    for id in [MessageId::new(), "of-go".into()] {
        // Payload and retry count are gone.
        let () = server.command(&["SADD", &key("garbage"), id.as_str()]);
        store.send(&queue(), &[with_id(&id, "x")]).await.unwrap();
        while server.command::<u64>(&["SCARD", &key("garbage")]) > 0 {
            store.advance(&queue()).await.unwrap();
        }
        assert_eq!(depths(&*store).await, [0, 1, 0, 0, 0]);
        let delivery = reserve_one(&*store, LONG).await;
        assert_eq!(delivery.payload.as_deref(), Some(b"x".as_slice()));
        settle(&*store, &delivery.claim, Settlement::ACK).await;
        nothing_is_delivered(&*store).await;
    }
    assert_eq!(totals(&*store).await.dead, 0);
}

#[tokio::test]
async fn empty_ids_in_garbage_are_dropped_without_a_rest_between() {
    let server = RedisServer::start();
    let store = server.store().await;
    let fill = "for i = 1, 600 do redis.call('SADD', KEYS[1], i) end";
    let () = server.command(&["EVAL", fill, "1", &key("garbage")]);
    while store.advance(&queue()).await.unwrap().more {}
    assert_eq!(server.command::<u64>(&["SCARD", &key("garbage")]), 0);
    assert_eq!(totals(&*store).await.dropped, 600);
}

/// How often a command was called.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let info: String = server.command(&["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Each look through the lists may take milliseconds, while which Redis does nothing else.
#[tokio::test]
async fn no_script_looks_for_more_than_twenty_ids_in_the_lists() {
    let server = RedisServer::start();
    let store = server.store().await;
    let ids: Vec<MessageId> = (0..100).map(|_| MessageId::new()).collect();
    for id in &ids {
        let () = server.command(&["HSET", &key("retry:cnt"), id.as_str(), "1"]);
    }
    let records: Vec<Record> = ids.iter().map(record).collect();
    let peer = Peer {
        name: "other".to_owned(),
        renamed: false,
        run: "1".to_owned(),
    };
    store.begin_transfer(&queue(), &peer).await.unwrap();
    let scripts = calls(&server, "evalsha");
    store.import(&queue(), "1", &records).await.unwrap();
    assert!(calls(&server, "lpos") <= 40 * (calls(&server, "evalsha") - scripts));
    // Each has arrived all the same.
    let counts = store.counts(&queue()).await.unwrap();
    assert_eq!(counts.moving, 100);
    store.remove_exported(&queue(), "1", &ids).await.unwrap();
    for id in &ids {
        let () = server.command(&["HSET", &key("retry:cnt"), id.as_str(), "1"]);
    }
    send(&*store, "x", Due::NOW, 3).await;
    let claim = reserve_one(&*store, LONG).await.claim;
    let before = calls(&server, "lpos");
    let outbox = ids.iter().map(|id| Outgoing {
        queue: queue(),
        message: with_id(id, "x"),
    });
    let outbox = outbox.collect();
    settle(&*store, &claim, Settlement::Ack { outbox }).await;
    assert!(calls(&server, "lpos") - before <= 40);
}

fn record(id: &MessageId) -> Record {
    Record {
        id: id.clone(),
        state: State::Ready,
        at_ms: None,
        attempts: 0,
        retries_left: 3,
        payload: Some(b"x".to_vec()),
        headers: Vec::new(),
        history: Vec::new(),
    }
}
