//! Sends that change what is there under their id.

use std::time::Duration;

use dqhost::message::{
    Delivery, Due, MessageId, NewMessage, OnRepeat, Record, SendOutcome, Sent, State, repeat,
};
use dqhost::store::{Cancelled, Peer, Settled, Settlement, Store};

use super::tools::*;

const REPLACE: OnRepeat = OnRepeat::Replace { max_wait: None };
const EXTEND: OnRepeat = OnRepeat::Extend { max_wait: None };

/// Another message under the same id.
fn again(payload: &str, due: Due, on_repeat: OnRepeat) -> NewMessage {
    NewMessage {
        id: MessageId::of_key("key"),
        due,
        on_repeat,
        ..NewMessage::new(payload)
    }
}

async fn sent(store: &dyn Store, message: NewMessage) -> Sent {
    store.send(&queue(), &[message]).await.unwrap().remove(0)
}

async fn replaced(store: &dyn Store, payload: &str, due: Due) -> SendOutcome {
    sent(store, again(payload, due, REPLACE)).await.outcome
}

async fn extended(store: &dyn Store, payload: &str, due: Due) -> SendOutcome {
    sent(store, again(payload, due, EXTEND)).await.outcome
}

async fn record(store: &dyn Store) -> Record {
    let id = MessageId::of_key("key");
    store.get(&queue(), &id).await.unwrap().unwrap()
}

fn header<'r>(record: &'r Record, name: &str) -> Option<&'r str> {
    let mut found = record.headers.iter().filter(|(key, _)| key == name);
    found.next().map(|(_, value)| value.as_str())
}

fn first_sent_ms(record: &Record) -> u64 {
    let at = header(record, repeat::FIRST_SENT_AT).unwrap();
    at.parse().unwrap()
}

fn payload(delivery: &Delivery) -> &[u8] {
    delivery.payload.as_deref().unwrap()
}

/// How many messages were sent since the queue exists.
async fn sent_in_all(store: &dyn Store) -> u64 {
    store.counts(&queue()).await.unwrap().totals.sent
}

pub(crate) async fn a_repeat_takes_the_place_of_what_waits(store: &dyn Store) {
    let later = Due::In(LONG);
    let first = NewMessage {
        headers: vec![("a".to_owned(), "1".to_owned())],
        ..again("first", later, REPLACE)
    };
    let answer = sent(store, first).await;
    assert_eq!(answer.outcome, SendOutcome::Sent);
    let first_ms = first_sent_ms(&record(store).await);
    assert!(first_ms + 600_000 <= answer.due_at_ms.unwrap() + 1);
    let second = NewMessage {
        headers: vec![("b".to_owned(), "2".to_owned())],
        retries: 7,
        ..again("second", Due::In(LONG * 2), REPLACE)
    };
    let second = second.expiring_in(LONG * 3);
    let answer = sent(store, second).await;
    assert_eq!(answer.outcome, SendOutcome::Replaced);
    let now = record(store).await;
    assert_eq!((now.state, now.at_ms), (State::Pending, answer.due_at_ms));
    assert_eq!(now.payload.as_deref(), Some(&b"second"[..]));
    assert_eq!((now.retries_left, now.attempts), (7, 0));
    assert_eq!((header(&now, "a"), header(&now, "b")), (None, Some("2")));
    assert_eq!(first_sent_ms(&now), first_ms);
    // Due at once, and once more with the same: it keeps its place in line.
    assert_eq!(
        replaced(store, "third", Due::NOW).await,
        SendOutcome::Replaced
    );
    send(store, "behind", Due::NOW, 3).await;
    assert_eq!(
        replaced(store, "fourth", Due::NOW).await,
        SendOutcome::Replaced
    );
    assert_eq!(depths(store).await, [0, 2, 0, 0, 0]);
    assert_eq!(sent_in_all(store).await, 2);
    let deliveries = reserve(store, 10, LONG).await;
    let payloads: Vec<&[u8]> = deliveries.iter().map(payload).collect();
    assert_eq!(payloads, [&b"fourth"[..], b"behind"]);
    assert_eq!((deliveries[0].attempt, deliveries[0].attempts_max), (1, 4));
    assert!(!deliveries[0].expired);
}

pub(crate) async fn what_is_in_line_is_put_off_and_comes_back(store: &dyn Store) {
    send(store, "other", Due::NOW, 3).await;
    replaced(store, "first", Due::NOW).await;
    replaced(store, "second", Due::In(LONG)).await;
    assert_eq!(depths(store).await, [1, 1, 0, 0, 0]);
    extended(store, "third", Due::NOW).await;
    assert_eq!(depths(store).await, [0, 2, 0, 0, 0]);
    assert_eq!(extended(store, "x", Due::NOW).await, SendOutcome::Extended);
    extended(store, "x", Due::In(LONG)).await;
    assert_eq!(depths(store).await, [1, 1, 0, 0, 0]);
    let ids = [MessageId::of_key("key")];
    let cancelled = store.cancel(&queue(), &ids).await.unwrap();
    assert_eq!(cancelled, [Cancelled::Done]);
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
}

pub(crate) async fn a_repeat_moves_the_time_of_what_waits_and_nothing_else(store: &dyn Store) {
    let first = NewMessage {
        headers: vec![("a".to_owned(), "1".to_owned())],
        retries: 5,
        ..again("first", Due::In(LONG), OnRepeat::Ignore)
    };
    sent(store, first).await;
    assert_eq!(header(&record(store).await, repeat::FIRST_SENT_AT), None);
    let answer = sent(store, again("second", Due::In(LONG * 2), EXTEND)).await;
    assert_eq!(answer.outcome, SendOutcome::Extended);
    let now = record(store).await;
    assert_eq!((now.state, now.at_ms), (State::Pending, answer.due_at_ms));
    assert_eq!(now.payload.as_deref(), Some(&b"first"[..]));
    assert_eq!((now.retries_left, header(&now, "a")), (5, Some("1")));
    assert!(first_sent_ms(&now) <= now_ms());
    assert_eq!(sent_in_all(store).await, 1);
    assert_eq!(extended(store, "x", Due::NOW).await, SendOutcome::Extended);
    let delivery = reserve_one(store, LONG).await;
    assert_eq!(payload(&delivery), b"first");
    assert_eq!(delivery.attempts_max, 6);
}

/// Sends a message that fails once and waits for its retry.
async fn failed_once(store: &dyn Store, delay: Option<Duration>) {
    replaced(store, "fails", Due::NOW).await;
    let delivery = reserve_one(store, LONG).await;
    let answer = settle(store, &delivery.claim, nack(delay)).await;
    assert_eq!(answer, Settled::Done);
}

pub(crate) async fn what_is_replaced_after_a_failure_begins_anew(store: &dyn Store) {
    for delay in [None, Some(LONG)] {
        failed_once(store, delay).await;
        assert_eq!(
            replaced(store, "fresh", Due::NOW).await,
            SendOutcome::Replaced
        );
        assert_eq!(depths(store).await, [0, 1, 0, 0, 0], "{delay:?}");
        let now = record(store).await;
        assert_eq!((now.attempts, now.retries_left), (0, 3));
        assert_eq!(now.history, []);
        let delivery = reserve_one(store, LONG).await;
        assert_eq!((delivery.attempt, payload(&delivery)), (1, &b"fresh"[..]));
        settle(store, &delivery.claim, Settlement::ACK).await;
        assert_eq!(depths(store).await, [0; 5]);
    }
}

pub(crate) async fn what_is_extended_after_a_failure_goes_on(store: &dyn Store) {
    for delay in [None, Some(LONG)] {
        failed_once(store, delay).await;
        extended(store, "x", Due::In(LONG * 2)).await;
        assert_eq!(depths(store).await, [1, 0, 0, 0, 0], "{delay:?}");
        extended(store, "x", Due::NOW).await;
        assert_eq!(depths(store).await, [0, 0, 0, 1, 0], "{delay:?}");
        let now = record(store).await;
        assert_eq!((now.attempts, now.retries_left), (1, 2));
        assert_eq!(now.history.len(), 1);
        let delivery = reserve_one(store, LONG).await;
        assert_eq!((delivery.attempt, payload(&delivery)), (2, &b"fails"[..]));
        settle(store, &delivery.claim, Settlement::ACK).await;
    }
}

pub(crate) async fn repeats_put_it_off_no_longer_than_the_longest_wait(store: &dyn Store) {
    for way in [REPLACE, EXTEND] {
        let bounded = |wait| {
            let max_wait = Some(wait);
            match way {
                OnRepeat::Extend { .. } => OnRepeat::Extend { max_wait },
                _ => OnRepeat::Replace { max_wait },
            }
        };
        let first = sent(store, again("a", Due::In(LONG), bounded(LONG))).await;
        let first_ms = first_sent_ms(&record(store).await);
        assert_eq!(first.due_at_ms, Some(first_ms + 600_000));
        let wait = |answer: Sent| answer.due_at_ms.unwrap() - first_ms;
        let far = Due::At(now_ms() + 10_000_000);
        // It counts from the first send, however many came in between.
        for _ in 0..3 {
            let answer = sent(store, again("b", far, bounded(LONG * 2))).await;
            assert_eq!(wait(answer), 1_200_000);
        }
        assert_eq!(first_sent_ms(&record(store).await), first_ms);
        // Who gives none has none.
        assert!(wait(sent(store, again("c", far, way)).await) > 9_000_000);
        // A wait that is over means now.
        while now_ms() <= first_ms + 1 {}
        sent(store, again("d", far, bounded(SHORT))).await;
        assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
        let delivery = reserve_one(store, LONG).await;
        settle(store, &delivery.claim, Settlement::ACK).await;
    }
}

pub(crate) async fn a_repeat_during_a_run_is_run_once_afterwards(store: &dyn Store) {
    replaced(store, "first", Due::NOW).await;
    let delivery = reserve_one(store, LONG).await;
    for payload in ["second", "third", "latest"] {
        let answer = sent(store, again(payload, Due::NOW, REPLACE)).await;
        assert_eq!(answer.outcome, SendOutcome::AfterRunning);
        assert!(answer.due_at_ms.is_some());
    }
    // It runs alone.
    assert_eq!(depths(store).await, [0, 0, 1, 0, 0]);
    assert!(reserve(store, 10, LONG).await.is_empty());
    let answer = settle(store, &delivery.claim, Settlement::ACK).await;
    assert_eq!(answer, Settled::Done);
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    let next = reserve_one(store, LONG).await;
    assert_eq!((next.attempt, payload(&next)), (1, &b"latest"[..]));
    // The claim of the run before is spent.
    for how in [Settlement::ACK, nack(None)] {
        let late = settle(store, &delivery.claim, how).await;
        assert_eq!(late, Settled::LeaseLost);
    }
    assert_eq!(
        settle(store, &next.claim, Settlement::ACK).await,
        Settled::Done
    );
    assert_eq!(depths(store).await, [0; 5]);
    let totals = store.counts(&queue()).await.unwrap().totals;
    assert_eq!((totals.sent, totals.acked), (2, 2));
}

pub(crate) async fn a_time_that_is_moved_during_a_run_is_that_of_one_run_more(store: &dyn Store) {
    extended(store, "first", Due::NOW).await;
    let delivery = reserve_one(store, LONG).await;
    for (payload, due) in [("second", Due::NOW), ("third", Due::In(LONG))] {
        let outcome = extended(store, payload, due).await;
        assert_eq!(outcome, SendOutcome::AfterRunning);
    }
    settle(store, &delivery.claim, Settlement::ACK).await;
    assert_eq!(depths(store).await, [1, 0, 0, 0, 0]);
    let now = record(store).await;
    assert_eq!(now.payload.as_deref(), Some(&b"second"[..]));
    assert!(now.at_ms.unwrap() > now_ms() + 500_000);
    // One that replaces and one that moves are one.
    extended(store, "x", Due::NOW).await;
    let delivery = reserve_one(store, LONG).await;
    replaced(store, "replaced", Due::In(LONG)).await;
    extended(store, "x", Due::NOW).await;
    settle(store, &delivery.claim, Settlement::ACK).await;
    let next = reserve_one(store, LONG).await;
    assert_eq!(payload(&next), b"replaced");
    settle(store, &next.claim, Settlement::ACK).await;
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn a_wait_during_a_run_counts_from_the_first_repeat(store: &dyn Store) {
    replaced(store, "first", Due::NOW).await;
    let delivery = reserve_one(store, LONG).await;
    let before_ms = now_ms();
    let max_wait = Some(LONG);
    let far = Due::At(before_ms + 10_000_000);
    let answer = sent(store, again("second", far, OnRepeat::Replace { max_wait })).await;
    let due_ms = answer.due_at_ms.unwrap();
    assert!(due_ms >= before_ms + 600_000 && due_ms <= now_ms() + 600_001);
    let answer = sent(store, again("third", far, OnRepeat::Replace { max_wait })).await;
    assert_eq!(answer.due_at_ms, Some(due_ms));
    settle(store, &delivery.claim, Settlement::ACK).await;
    let now = record(store).await;
    assert_eq!((now.state, now.at_ms), (State::Pending, Some(due_ms)));
    assert_eq!(first_sent_ms(&now), due_ms - 600_000);
}

pub(crate) async fn a_repeat_during_a_run_that_fails_changes_what_is_tried_again(
    store: &dyn Store,
) {
    for how in [nack(None), nack(Some(LONG)), reject()] {
        for way in [REPLACE, EXTEND] {
            sent(store, again("fails", Due::NOW, way)).await;
            let delivery = reserve_one(store, LONG).await;
            sent(store, again("fresh", Due::NOW, way)).await;
            let answer = settle(store, &delivery.claim, how.clone()).await;
            assert_eq!(answer, Settled::Done);
            let next = reserve_one(store, LONG).await;
            let is_final = matches!(how, Settlement::Reject { .. });
            let expected = match way {
                EXTEND if is_final => (1, &b"fails"[..]),
                EXTEND => (2, &b"fails"[..]),
                _ => (1, &b"fresh"[..]),
            };
            assert_eq!((next.attempt, payload(&next)), expected, "{how:?} {way:?}");
            settle(store, &next.claim, Settlement::ACK).await;
            assert_eq!(depths(store).await, [0; 5], "{how:?} {way:?}");
        }
    }
}

pub(crate) async fn a_repeat_waits_no_longer_for_what_is_released_or_lost(store: &dyn Store) {
    replaced(store, "first", Due::NOW).await;
    let delivery = reserve_one(store, LONG).await;
    replaced(store, "second", Due::NOW).await;
    let released = store.release(&queue(), &[delivery.claim]).await.unwrap();
    assert_eq!(released, [Settled::Done]);
    let delivery = reserve_one(store, SHORT).await;
    assert_eq!((delivery.attempt, payload(&delivery)), (1, &b"second"[..]));
    let outcome = replaced(store, "third", Due::NOW).await;
    assert_eq!(outcome, SendOutcome::AfterRunning);
    advance_until(store, |advanced| advanced.expired > 0).await;
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    let next = reserve_one(store, LONG).await;
    assert_eq!((next.attempt, payload(&next)), (1, &b"third"[..]));
    // The host that was frozen is late, with a result for what is no more.
    let late = settle(store, &delivery.claim, Settlement::ACK).await;
    assert_eq!(late, Settled::LeaseLost);
    assert_eq!(depths(store).await, [0, 0, 1, 0, 0]);
}

pub(crate) async fn a_late_result_is_not_that_of_a_message_sent_anew(store: &dyn Store) {
    let mut claims = Vec::new();
    for _ in 0..3 {
        assert_eq!(replaced(store, "x", Due::NOW).await, SendOutcome::Sent);
        let delivery = reserve_one(store, LONG).await;
        for claim in &claims {
            let late = settle(store, claim, Settlement::ACK).await;
            assert_eq!(late, Settled::LeaseLost);
        }
        settle(store, &delivery.claim, Settlement::ACK).await;
        claims.push(delivery.claim);
    }
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn a_late_result_is_not_that_of_an_id_that_was_killed_and_sent_again(
    store: &dyn Store,
) {
    let once = || NewMessage {
        dedup_window: Duration::from_millis(1),
        ..again("x", Due::NOW, OnRepeat::Ignore)
    };
    sent(store, once()).await;
    let killed = reserve_one(store, LONG).await;
    let id = std::slice::from_ref(&killed.claim.id);
    assert_eq!(store.kill(&queue(), id).await.unwrap(), [Cancelled::Killed]);
    while sent(store, once()).await.outcome == SendOutcome::Repeat {
        tokio::task::yield_now().await;
    }
    let second = reserve_one(store, LONG).await;
    let late = settle(store, &killed.claim, Settlement::ACK).await;
    assert_eq!(late, Settled::LeaseLost);
    let done = settle(store, &second.claim, Settlement::ACK).await;
    assert_eq!(done, Settled::Done);
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn a_repeat_of_a_dead_letter_begins_anew(store: &dyn Store) {
    for is_buried in [false, true] {
        for (way, expected) in [(REPLACE, "new"), (EXTEND, "dies")] {
            let dies = NewMessage {
                headers: vec![("a".to_owned(), "1".to_owned())],
                retries: 0,
                ..again("dies", Due::NOW, way).expiring_in(LONG)
            };
            sent(store, dies).await;
            let delivery = reserve_one(store, LONG).await;
            settle(store, &delivery.claim, reject()).await;
            if is_buried {
                collect_garbage(store).await;
            }
            assert_eq!(depths(store).await, [0, 0, 0, 0, 1]);
            let redriven = store.counts(&queue()).await.unwrap().totals.redriven;
            let answer = sent(store, again("new", Due::In(LONG), way)).await;
            assert!(matches!(
                answer.outcome,
                SendOutcome::Replaced | SendOutcome::Extended
            ));
            assert_eq!(depths(store).await, [1, 0, 0, 0, 0], "{way:?}");
            let totals = store.counts(&queue()).await.unwrap().totals;
            assert_eq!(totals.redriven, redriven + 1);
            let now = record(store).await;
            assert_eq!(now.payload.as_deref(), Some(expected.as_bytes()));
            assert_eq!((now.attempts, now.retries_left), (0, 3));
            assert_eq!(now.history, []);
            assert_eq!(header(&now, dqhost::message::expiry::EXPIRES_AT), None);
            let kept = (way == EXTEND).then_some("1");
            assert_eq!(header(&now, "a"), kept);
            // What is left of it among those that die is nothing.
            store.advance(&queue()).await.unwrap();
            assert_eq!(depths(store).await, [1, 0, 0, 0, 0]);
            sent(store, again("new", Due::NOW, way)).await;
            let delivery = reserve_one(store, LONG).await;
            settle(store, &delivery.claim, Settlement::ACK).await;
            assert_eq!(depths(store).await, [0; 5]);
        }
    }
}

pub(crate) async fn what_is_gone_is_sent_whatever_the_window(store: &dyn Store) {
    for way in [REPLACE, EXTEND] {
        for _ in 0..2 {
            let message = NewMessage {
                dedup_window: LONG,
                ..again("x", Due::NOW, way)
            };
            assert_eq!(sent(store, message).await.outcome, SendOutcome::Sent);
            let delivery = reserve_one(store, LONG).await;
            settle(store, &delivery.claim, Settlement::ACK).await;
        }
    }
    // Whoever changes nothing is told of what is there.
    replaced(store, "x", Due::In(LONG)).await;
    let plain = again("y", Due::NOW, OnRepeat::Ignore);
    let answer = sent(store, plain).await;
    assert_eq!(
        (answer.outcome, answer.due_at_ms),
        (SendOutcome::Repeat, None)
    );
    assert_eq!(depths(store).await, [1, 0, 0, 0, 0]);
}

pub(crate) async fn in_a_batch_each_message_sees_those_before_it(store: &dyn Store) {
    let batch = [
        again("a", Due::In(LONG), OnRepeat::Ignore),
        again("b", Due::In(LONG), REPLACE),
        NewMessage::new("other"),
        again("c", Due::NOW, EXTEND),
        again("d", Due::NOW, OnRepeat::Ignore),
    ];
    let answers = store.send(&queue(), &batch).await.unwrap();
    let outcomes: Vec<SendOutcome> = answers.iter().map(|sent| sent.outcome).collect();
    let expected = [
        SendOutcome::Sent,
        SendOutcome::Replaced,
        SendOutcome::Sent,
        SendOutcome::Extended,
        SendOutcome::Repeat,
    ];
    assert_eq!(outcomes, expected);
    let payloads = reserve(store, 10, LONG).await;
    let payloads: Vec<&[u8]> = payloads.iter().map(payload).collect();
    assert_eq!(payloads, [&b"other"[..], b"b"]);
}

pub(crate) async fn what_moves_to_another_store_is_left_alone(store: &dyn Store) {
    replaced(store, "moves", Due::In(LONG)).await;
    let peer = Peer {
        name: "another store".to_owned(),
        renamed: false,
        run: "run".to_owned(),
    };
    store.begin_transfer(&queue(), &peer).await.unwrap();
    let away = store.export(&queue(), "run", 10).await.unwrap();
    for way in [REPLACE, EXTEND] {
        let answer = sent(store, again("x", Due::NOW, way)).await;
        assert_eq!(
            (answer.outcome, answer.due_at_ms),
            (SendOutcome::Repeat, None)
        );
    }
    let again = store.export(&queue(), "run", 10).await.unwrap();
    assert_eq!(again, away);
}

pub(crate) async fn a_wait_ends_when_a_repeat_makes_it_due(store: &dyn Store) {
    replaced(store, "x", Due::In(LONG)).await;
    super::manage::ends_a_wait(store, async || {
        for due in [Due::NOW, Due::In(LONG)] {
            replaced(store, "x", due).await;
        }
    })
    .await;
}
