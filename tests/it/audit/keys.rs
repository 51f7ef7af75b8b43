//! Damage among the keys of a queue.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use dqhost::store::StoreError;

use super::*;
use crate::support::RedisServer;

/// A key of the queue.
fn key(name: &str) -> String {
    format!("{{dp:q}}:{name}")
}

fn payload_key(id: &MessageId) -> String {
    key(&format!("msg:{id}"))
}

/// Runs a command on a key, and makes sure that it did something.
fn change(server: &RedisServer, command: &str, name: &str, args: &[&str]) {
    let key = key(name);
    let words = [&[command, &key], args].concat();
    let answer: redis::Value = server.command(&words);
    assert_ne!(answer, redis::Value::Int(0), "{words:?}");
}

/// A server with messages in all states.
async fn filled() -> (RedisServer, Arc<dyn Store>, Filled) {
    let server = RedisServer::start();
    let store = server.store().await;
    let filled = fill(&*store).await;
    assert_eq!(found(&audit(&*store, false).await), []);
    (server, store, filled)
}

/// The audit names exactly this, without changing a byte, then repairs it, and then nothing is wrong.
async fn named_and_mended(
    server: &RedisServer,
    store: &dyn Store,
    expected: &[(FindingKind, u64)],
) -> AuditReport {
    let before = server.dump();
    let report = audit(store, false).await;
    assert_eq!(found(&report), expected);
    assert!(
        report
            .0
            .iter()
            .all(|findings| findings.left == findings.found)
    );
    assert_eq!(server.dump(), before);
    let report = audit(store, true).await;
    assert_eq!(found(&report), expected);
    assert!(report.is_repaired(), "{report:?}");
    let after = server.dump();
    assert_eq!(found(&audit(store, true).await), []);
    assert_eq!(server.dump(), after);
    report
}

#[tokio::test]
async fn messages_that_are_in_no_state_become_dead_letters() {
    let (server, store, mut filled) = filled().await;
    for name in ["pending", "ready", "unack", "retry", "garbage", "dead"] {
        change(&server, "DEL", name, &[]);
    }
    let kind = FindingKind::OrphanPayload;
    let report = named_and_mended(&server, &*store, &[(kind, 18)]).await;
    assert_eq!(done(&report, kind), [0, 18, 0, 0]);
    let ready = &filled.of(State::Ready)[0].clone();
    assert_eq!(class_of(&*store, ready).await, "orphan-payload");
    let totals = store.counts(&queue()).await.unwrap().totals;
    assert_eq!(totals.dead, 3 + 18);
    // With the budget that they had.
    store
        .redrive(
            &queue(),
            &[ready.clone()],
            dqhost::store::Redrive::default(),
        )
        .await
        .unwrap();
    let again = reserve_one(&*store, LONG).await;
    assert_eq!((again.attempts_max, again.headers.len()), (4, 1));
    filled.ids.remove(ready);
    filled.ids.insert(again.claim.id.clone());
    filled.held = vec![again.claim];
    nothing_is_lost(&*store, &filled, &[]).await;
}

#[tokio::test]
async fn fields_of_nobody_are_removed() {
    let (server, store, filled) = filled().await;
    let before = server.dump();
    let fields = [
        "retry:cnt",
        "attempts",
        "due",
        "headers",
        "history",
        "moving:was",
    ];
    for (n, field) in fields.iter().enumerate() {
        change(&server, "HSET", field, &[&format!("ghost {n}"), "1"]);
        change(&server, "HSET", field, &["another", "\x1b[2J"]);
    }
    let kind = FindingKind::OrphanField;
    let report = named_and_mended(&server, &*store, &[(kind, 7)]).await;
    assert_eq!(done(&report, kind), [7, 0, 0, 0]);
    assert_eq!(server.dump(), before);
    nothing_is_lost(&*store, &filled, &[]).await;
}

#[tokio::test]
async fn what_is_due_or_moving_no_more_keeps_no_field_that_says_so() {
    let (server, store, filled) = filled().await;
    let before = server.dump();
    change(&server, "HSET", "due", &[filled.held[0].id.as_str(), "1"]);
    let id = filled.of(State::Pending)[0].as_str();
    change(&server, "HSET", "moving:was", &[id, "ready:-1"]);
    let kind = FindingKind::StaleField;
    named_and_mended(&server, &*store, &[(kind, 2)]).await;
    assert_eq!(server.dump(), before);
    nothing_is_lost(&*store, &filled, &[]).await;
}

#[tokio::test]
async fn messages_without_a_payload_become_dead_letters() {
    let (server, store, mut filled) = filled().await;
    let mut lost = Vec::new();
    for state in [State::Pending, State::Ready, State::Retry] {
        lost.extend_from_slice(&filled.of(state)[1..]);
    }
    // One whose lease has expired.
    let ended = filled.held.remove(0).id;
    change(&server, "ZADD", "unack", &["CH", "1.000", ended.as_str()]);
    lost.push(ended);
    for id in &lost {
        let () = server.command(&["DEL", &payload_key(id)]);
    }
    // And one that has nothing but its id, as the ack of a delayqueue consumer leaves it.
    change(&server, "ZADD", "pending", &["1", "bare"]);
    // Those that will not be handled any more may be without.
    for state in [State::Garbage, State::Dead] {
        let id = &filled.of(state)[0];
        let () = server.command(&["DEL", &payload_key(id)]);
        lost.push(id.clone());
    }
    let kind = FindingKind::PayloadMissing;
    let report = named_and_mended(&server, &*store, &[(kind, 8)]).await;
    assert_eq!(done(&report, kind), [1, 7, 0, 0]);
    assert_eq!(class_of(&*store, &lost[0]).await, "payload-missing");
    nothing_is_lost(&*store, &filled, &lost).await;
}

#[tokio::test]
async fn a_total_that_is_no_number_keeps_nothing_from_being_mended() {
    let (server, store, filled) = filled().await;
    let _: i64 = server.command(&["HSET", &key("stats"), "dead", "many"]);
    let lost = filled.of(State::Ready)[1].clone();
    let () = server.command(&["DEL", &payload_key(&lost)]);
    named_and_mended(&server, &*store, &[(FindingKind::PayloadMissing, 1)]).await;
    nothing_is_lost(&*store, &filled, &[lost]).await;
}

#[tokio::test]
async fn a_lease_that_runs_is_left_alone_though_the_payload_is_gone() {
    let (server, store, filled) = filled().await;
    let id = &filled.held[0].id;
    let () = server.command(&["DEL", &payload_key(id)]);
    let before = server.dump();
    for repair in [false, true] {
        let report = audit(&*store, repair).await;
        assert_eq!(done(&report, FindingKind::PayloadMissing), [0, 0, 1, 1]);
        assert!(!report.is_repaired());
        assert_eq!(server.dump(), before);
    }
    // The handler had read it.
    nothing_is_lost(&*store, &filled, &[]).await;
    assert_eq!(found(&audit(&*store, true).await), []);
}

#[tokio::test]
async fn of_an_id_that_is_in_line_more_than_once_the_next_out_stays() {
    let (server, store, filled) = filled().await;
    for (name, state) in [("ready", State::Ready), ("retry", State::Retry)] {
        let before: Vec<String> = server.command(&["LRANGE", &key(name), "0", "-1"]);
        let ids = filled.of(state);
        change(
            &server,
            "LPUSH",
            name,
            &[ids[0].as_str(), ids[1].as_str(), ids[0].as_str()],
        );
        let kind = FindingKind::TwiceInLine;
        named_and_mended(&server, &*store, &[(kind, 2)]).await;
        let after: Vec<String> = server.command(&["LRANGE", &key(name), "0", "-1"]);
        assert_eq!(after, before);
    }
    // More often than one step takes out.
    let id = filled.of(State::Ready)[0].as_str();
    let copies = vec![id; 9000];
    for _ in 0..3 {
        change(&server, "LPUSH", "ready", &copies);
    }
    named_and_mended(&server, &*store, &[(FindingKind::TwiceInLine, 1)]).await;
    nothing_is_lost(&*store, &filled, &[]).await;
}

/// A place, and the command that puts an id there.
const PLACES: [(&str, &str); 7] = [
    ("pending", "ZADD"),
    ("ready", "LPUSH"),
    ("unack", "ZADD"),
    ("retry", "LPUSH"),
    ("garbage", "SADD"),
    ("dead", "ZADD"),
    ("moving", "ZADD"),
];

fn put(server: &RedisServer, place: (&str, &str), score: &str, id: &str) {
    let (name, command) = place;
    let args: &[&str] = if command == "ZADD" {
        &[score, id]
    } else {
        &[id]
    };
    change(server, command, name, args);
}

async fn place_of(store: &dyn Store, id: &str) -> String {
    let record = store.get(&queue(), &id.into()).await.unwrap().unwrap();
    record.state.as_str().to_owned()
}

#[tokio::test]
async fn of_two_states_one_stays_by_precedence() {
    let (server, store, filled) = filled().await;
    let order = ["unack", "pending", "retry", "ready", "dead", "garbage"];
    let rank = |name: &str| order.iter().position(|other| *other == name);
    for (n, one) in PLACES.iter().enumerate() {
        for other in &PLACES[n + 1..] {
            // One that moves comes before a lease that has ended, and not before one that runs.
            let at = if other.0 == "moving" {
                "1"
            } else {
                "99999999999"
            };
            let id = format!("{}-{}", one.0, other.0);
            let () = server.command(&["SET", &key(&format!("msg:{id}")), "x"]);
            put(&server, *one, at, &id);
            put(&server, *other, at, &id);
            let report = named_and_mended(&server, &*store, &[(FindingKind::TwoStates, 1)]).await;
            assert_eq!(done(&report, FindingKind::TwoStates), [1, 0, 0, 0]);
            let stays = if other.0 == "moving" || rank(other.0) < rank(one.0) {
                other.0
            } else {
                one.0
            };
            assert_eq!(place_of(&*store, &id).await, stays, "{id}");
            change(&server, "DEL", &format!("msg:{id}"), &[]);
            let place = PLACES.iter().find(|place| place.0 == stays).unwrap();
            match place.1 {
                "ZADD" => change(&server, "ZREM", stays, &[&id]),
                "LPUSH" => change(&server, "LREM", stays, &["0", &id]),
                _ => change(&server, "SREM", stays, &[&id]),
            }
        }
    }
    nothing_is_lost(&*store, &filled, &[]).await;
}

#[tokio::test]
async fn a_lease_that_runs_is_kept_whatever_else_the_message_is_in() {
    let (server, store, filled) = filled().await;
    let id = filled.held[0].id.as_str();
    for place in PLACES {
        if !matches!(place.0, "unack" | "moving") {
            put(&server, place, "99999999999", id);
        }
    }
    named_and_mended(&server, &*store, &[(FindingKind::TwoStates, 1)]).await;
    // A copy may go on with it, so that it may not be in its reach and in a host's hand.
    put(&server, PLACES[6], "1", id);
    let before = server.dump();
    let report = audit(&*store, true).await;
    assert_eq!(done(&report, FindingKind::TwoStates), [0, 0, 1, 1]);
    assert_eq!(server.dump(), before);
    change(&server, "ZREM", "moving", &[id]);
    nothing_is_lost(&*store, &filled, &[]).await;
}

#[tokio::test]
async fn a_key_of_a_wrong_type_is_named_and_the_rest_is_mended() {
    let names = [
        "pending",
        "ready",
        "unack",
        "retry",
        "garbage",
        "dead",
        "moving",
        "retry:cnt",
        "attempts",
        "due",
        "headers",
        "history",
        "moving:was",
        "stats",
        "ended",
        "dedup",
        "repeats",
        "hosts",
    ];
    for name in names {
        let (server, store, filled) = filled().await;
        let () = server.command(&["SET", &key(name), "not ours"]);
        let report = audit(&*store, true).await;
        assert_eq!(found(&report), [(FindingKind::WrongType, 1)], "{name}");
        assert_eq!(report.0[0].samples, [key(name)]);
        // Something else that is wrong, in what can be read.
        let other = if name == "pending" { "dead" } else { "pending" };
        let (state, twice) = (
            name == "ready",
            if name == "ready" { "retry" } else { "ready" },
        );
        let id = filled.of(if state { State::Retry } else { State::Ready })[0].as_str();
        change(&server, "ZADD", other, &["99999999999", id]);
        let report = audit(&*store, true).await;
        let both = [(FindingKind::TwoStates, 1), (FindingKind::WrongType, 1)];
        assert_eq!(found(&report), both, "{name}");
        assert_eq!(done(&report, FindingKind::TwoStates), [1, 0, 0, 0]);
        let stays = if other == "pending" { other } else { twice };
        let place: Option<f64> = server.command(&["ZSCORE", &key(other), id]);
        assert_eq!(place.is_some(), stays == other, "{name}");
        let value: String = server.command(&["GET", &key(name)]);
        assert_eq!(value, "not ours");
    }
}

#[tokio::test]
async fn what_cannot_be_dead_lettered_is_left_as_it_is() {
    let (server, store, _) = filled().await;
    let () = server.command(&["SET", &key("msg:orphan"), "x"]);
    let () = server.command(&["SET", &key("history"), "not ours"]);
    let before = server.dump();
    let report = audit(&*store, true).await;
    assert_eq!(done(&report, FindingKind::OrphanPayload), [0, 0, 0, 1]);
    assert_eq!(server.dump(), before);
}

#[tokio::test]
async fn a_payload_that_is_no_string_is_named_and_left() {
    let (server, store, filled) = filled().await;
    let id = &filled.of(State::Ready)[0];
    let () = server.command(&["DEL", &payload_key(id)]);
    let () = server.command(&["LPUSH", &payload_key(id), "not ours"]);
    let () = server.command(&["SADD", &key("msg:alone"), "not ours"]);
    let before = server.dump();
    let report = audit(&*store, true).await;
    assert_eq!(found(&report), [(FindingKind::WrongType, 2)]);
    assert!(report.0[0].samples.contains(&payload_key(id)), "{report:?}");
    assert_eq!(server.dump(), before);
}

#[tokio::test]
async fn ids_may_be_any_bytes() {
    let (server, store, _) = filled().await;
    let id: &[u8] = b"\xff\x00\r\n{}*";
    let payload = [key("msg:").as_bytes(), id].concat();
    let mut connection = server.connection();
    let () = redis::cmd("SET")
        .arg(&payload)
        .arg("x")
        .query(&mut connection)
        .unwrap();
    let () = redis::cmd("HSET")
        .arg(key("headers"))
        .arg(b"\xfe")
        .arg("x")
        .query(&mut connection)
        .unwrap();
    let expected = [
        (FindingKind::OrphanPayload, 1),
        (FindingKind::OrphanField, 1),
    ];
    assert_eq!(found(&audit(&*store, false).await), expected);
    let report = audit(&*store, true).await;
    assert_eq!(
        (found(&report), report.is_repaired()),
        (expected.into(), true)
    );
    assert_eq!(found(&audit(&*store, true).await), []);
    let place: Option<f64> = redis::cmd("ZSCORE")
        .arg(key("dead"))
        .arg(id)
        .query(&mut connection)
        .unwrap();
    assert!(place.is_some());
}

/// A delayqueue producer needs three requests for a send, and its consumer as many for an ack.
#[tokio::test]
async fn what_a_delayqueue_producer_is_in_the_middle_of_is_no_finding() {
    let (server, store, filled) = filled().await;
    let id = "0f8fad5b-d9cb-469f-a165-70867728950e";
    let () = server.command(&["SET", &key(&format!("msg:{id}")), "x"]);
    change(&server, "HSET", "retry:cnt", &[id, "3"]);
    let q = queue();
    let how = Audit {
        repair: true,
        settling: Duration::from_secs(1),
    };
    let mut audit = pin!(store.audit(&q, how));
    // It goes on once the audit has seen it for the first time, if it is quick, or before.
    let pause = tokio::time::sleep(Duration::from_millis(300));
    let report = tokio::select! {
        report = &mut audit => panic!("it did not wait: {report:?}"),
        () = pause => {
            change(&server, "ZADD", "pending", &["99999999999", id]);
            audit.await.unwrap()
        }
    };
    assert_eq!(found(&report), []);
    assert_eq!(state_of(&*store, &id.into()).await, Some(State::Pending));
    change(&server, "ZREM", "pending", &[id]);
    change(&server, "HDEL", "retry:cnt", &[id]);
    let () = server.command(&["DEL", &key(&format!("msg:{id}"))]);
    nothing_is_lost(&*store, &filled, &[]).await;
}

#[tokio::test]
async fn other_queues_and_other_keys_are_not_looked_at() {
    let (server, store, _) = filled().await;
    for key in [
        "{dp:other}:msg:orphan",
        "dp:q:msg:orphan",
        "{dp:qq}:msg:orphan",
    ] {
        let () = server.command(&["SET", key, "x"]);
    }
    assert_eq!(found(&audit(&*store, false).await), []);
    // Without a hash tag the keys are others.
    let untagged = server.store_with(false).await;
    let report = audit(&*untagged, true).await;
    assert_eq!(found(&report), [(FindingKind::OrphanPayload, 1)]);
    assert_eq!(report.0[0].samples, ["orphan"]);
}

#[tokio::test]
async fn the_list_of_queues_is_looked_at_too() {
    let server = RedisServer::start();
    let store = server.store().await;
    assert_eq!(found(&store.audit_store(true).await.unwrap()), []);
    let () = server.command(&["SET", "dqhost:queues", "x"]);
    let report = store.audit_store(true).await.unwrap();
    assert_eq!(found(&report), [(FindingKind::WrongType, 1)]);
}

/// Much of every kind, in a queue that takes many pages.
#[tokio::test]
async fn a_queue_of_many_pages_is_audited_whole() {
    let server = RedisServer::start();
    let store = server.store().await;
    let (later, now) = (Due::In(LONG), Due::NOW);
    let mut ids = Vec::new();
    for n in 0..12_000 {
        let due = if n % 2 == 0 { later } else { now };
        ids.push(NewMessage {
            due,
            ..NewMessage::new("x")
        });
    }
    for batch in ids.chunks(BATCH_MAX) {
        store.send(&queue(), batch).await.unwrap();
    }
    assert_eq!(found(&audit(&*store, true).await), []);
    let mut pipe = redis::pipe();
    for message in ids.iter().step_by(20) {
        // 600 of those that wait for their time.
        pipe.cmd("ZREM")
            .arg(key("pending"))
            .arg(message.id.as_str());
    }
    for message in ids.iter().skip(1).step_by(40) {
        // 300 of those in line.
        pipe.cmd("LPUSH").arg(key("ready")).arg(message.id.as_str());
    }
    for message in ids.iter().skip(3).step_by(40) {
        pipe.cmd("ZADD")
            .arg(key("dead"))
            .arg(1)
            .arg(message.id.as_str());
    }
    for message in ids.iter().skip(5).step_by(40) {
        pipe.cmd("DEL").arg(payload_key(&message.id));
    }
    for n in 0..3000 {
        pipe.cmd("HSET").arg(key("headers")).arg(n).arg("x");
    }
    let () = pipe.query(&mut server.connection()).unwrap();
    let report = audit(&*store, true).await;
    let expected = [
        (FindingKind::OrphanPayload, 600),
        (FindingKind::OrphanField, 3000),
        (FindingKind::PayloadMissing, 300),
        (FindingKind::TwiceInLine, 300),
        (FindingKind::TwoStates, 300),
    ];
    assert_eq!(found(&report), expected);
    assert!(report.is_repaired());
    assert_eq!(found(&audit(&*store, true).await), []);
    assert_eq!(depths(&*store).await, [5400, 5700, 0, 0, 900]);
}

/// A bit of everything.
fn damage(server: &RedisServer, filled: &Filled) {
    let pick = |state| filled.of(state)[0].as_str();
    change(server, "ZREM", "pending", &[pick(State::Pending)]);
    change(server, "LPUSH", "ready", &[pick(State::Ready)]);
    change(
        server,
        "LPUSH",
        "retry",
        &[filled.of(State::Ready)[1].as_str()],
    );
    change(
        server,
        "ZADD",
        "pending",
        &["99999999999", pick(State::Retry)],
    );
    change(server, "SADD", "garbage", &[pick(State::Dead)]);
    change(server, "HSET", "due", &["ghost", "1"]);
    change(server, "LPUSH", "ready", &[filled.held[0].id.as_str()]);
}

#[tokio::test]
async fn a_repair_that_is_cut_off_anywhere_is_ended_by_another() {
    let server = RedisServer::start();
    let store = server.store().await;
    let mut cuts = 0;
    for polls in 1.. {
        let () = server.command(&["FLUSHALL"]);
        let filled = fill(&*store).await;
        damage(&server, &filled);
        let is_done = {
            let mut repair = pin!(audit(&*store, true));
            let mut left = polls;
            poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                repair.as_mut().poll(context).map(|_| true)
            })
            .await
        };
        assert!(audit(&*store, true).await.is_repaired());
        assert_eq!(found(&audit(&*store, true).await), []);
        nothing_is_lost(&*store, &filled, &[]).await;
        if is_done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 5, "{cuts}");
}

#[tokio::test]
async fn a_server_that_is_away_is_told() {
    let (mut server, store, _) = filled().await;
    server.kill();
    let how = Audit {
        repair: true,
        settling: AT_ONCE,
    };
    let error = store.audit(&queue(), how).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
}
