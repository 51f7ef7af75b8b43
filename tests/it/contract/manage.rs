//! What people change: pauses, what waits, dead letters.

use std::time::Duration;

use dqhost::message::{Due, HistoryEntry, MessageId, NewMessage, State};
use dqhost::store::{
    Cancelled, First, Page, Redrive, Redriven, Rescheduled, Retention, Settled, Settlement, Store,
};

use super::tools::*;
use crate::support::PATIENCE;

/// Advances until nothing is pending.
async fn promote_all(store: &dyn Store) {
    while store.counts(&queue()).await.unwrap().pending > 0 {
        advance_until(store, |advanced| advanced.promoted > 0).await;
    }
}

/// Checks that a wait ends when something is done again and again.
pub(super) async fn ends_a_wait(store: &dyn Store, what: impl AsyncFn()) {
    let hints = store.subscribe(&[queue()]);
    // A first wait may end by itself, since something may have happened before it.
    for _ in 0..3 {
        let waited = async {
            tokio::join!(hints.notified(), async {
                // Until it is heard: a hint may be lost before the wait is set up.
                for _ in 0..50 {
                    what().await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        };
        tokio::time::timeout(PATIENCE, waited)
            .await
            .expect("no wait ended");
    }
}

pub(crate) async fn what_waits_can_be_cancelled_and_nothing_else(store: &dyn Store) {
    let in_flight = send(store, "in flight", Due::NOW, 3).await;
    let failed = send(store, "failed", Due::NOW, 3).await;
    for delivery in reserve(store, 2, LONG).await {
        if delivery.claim.id == failed {
            settle(store, &delivery.claim, nack(None)).await;
        }
    }
    let ready = send(store, "ready", Due::NOW, 3).await;
    let pending = send(store, "pending", Due::In(LONG), 3).await;
    let unknown = MessageId::new();
    let ids = [pending, ready, failed, in_flight.clone(), unknown];
    let answers = store.cancel(&queue(), &ids).await.unwrap();
    assert_eq!(
        answers,
        [
            Cancelled::Done,
            Cancelled::Done,
            Cancelled::Done,
            Cancelled::InFlight,
            Cancelled::Unknown
        ]
    );
    assert_eq!(depths(store).await, [0, 0, 1, 0, 0]);
    for id in &ids[..3] {
        assert_eq!(state_of(store, id).await, None);
    }
    assert_eq!(
        store.cancel(&queue(), &ids[..3]).await.unwrap(),
        [Cancelled::Unknown; 3]
    );
    assert_eq!(state_of(store, &in_flight).await, Some(State::Unack));
}

pub(crate) async fn what_is_in_flight_can_be_killed_and_its_result_is_refused(store: &dyn Store) {
    let dead = dead_letter(store, "dead", 3).await;
    let failed = send_failing(store, 3, None).await;
    for payload in ["acked too late", "renewed too late"] {
        send(store, payload, Due::NOW, 3).await;
    }
    let running = reserve(store, 3, LONG).await;
    let claims: Vec<_> = running.into_iter().map(|delivery| delivery.claim).collect();
    assert!(claims.iter().any(|claim| claim.id == failed));
    let pending = send(store, "pending", Due::In(LONG), 3).await;
    let mut ids: Vec<_> = claims.iter().map(|claim| claim.id.clone()).collect();
    ids.extend([pending, dead.clone(), MessageId::new()]);
    let answers = store.kill(&queue(), &ids).await.unwrap();
    assert_eq!(answers[..3], [Cancelled::Killed; 3]);
    assert_eq!(
        answers[3..],
        [Cancelled::Done, Cancelled::Unknown, Cancelled::Unknown]
    );
    assert_eq!(depths(store).await, [0, 0, 0, 0, 1]);
    assert_eq!(state_of(store, &dead).await, Some(State::Dead));
    for id in &ids[..4] {
        assert_eq!(state_of(store, id).await, None);
    }
    let late = store.extend(&queue(), &claims, LONG).await.unwrap();
    assert_eq!(late, [Settled::LeaseLost; 3]);
    for how in [Settlement::ACK, nack(None), reject()] {
        assert_eq!(settle(store, &claims[0], how).await, Settled::LeaseLost);
    }
    let given_back = store.release(&queue(), &claims).await.unwrap();
    assert_eq!(given_back, [Settled::LeaseLost; 3]);
    assert_eq!(depths(store).await, [0, 0, 0, 0, 1]);
    assert_eq!(store.counts(&queue()).await.unwrap().totals.cancelled, 4);
    assert_eq!(
        store.kill(&queue(), &ids[..4]).await.unwrap(),
        [Cancelled::Unknown; 4]
    );
    // Its id is free again.
    let again = NewMessage {
        id: ids[0].clone(),
        ..NewMessage::new("again")
    };
    store.send(&queue(), &[again]).await.unwrap();
    let delivery = reserve_one(store, LONG).await;
    assert_eq!((&delivery.claim.id, delivery.attempt), (&ids[0], 1));
}

pub(crate) async fn whoever_listens_is_told_of_a_kill(store: &dyn Store) {
    let hints = store.subscribe(&[queue()]);
    let kill = async || {
        let id = send(store, "x", Due::NOW, 3).await;
        reserve_one(store, LONG).await;
        let killed = store.kill(&queue(), &[id]).await.unwrap();
        assert_eq!(killed, [Cancelled::Killed]);
    };
    // A first wait may end by itself, since something may have happened before it.
    for _ in 0..3 {
        let told = async {
            tokio::join!(hints.killed(), async {
                // Until it is heard: a hint may be lost before the wait is set up.
                for _ in 0..50 {
                    kill().await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        };
        tokio::time::timeout(PATIENCE, told)
            .await
            .expect("nobody is told");
    }
}

pub(crate) async fn a_paused_queue_gives_nothing_and_goes_on_with_the_rest(store: &dyn Store) {
    send_failing(store, 3, None).await;
    for payload in ["acked", "nacked", "released"] {
        send(store, payload, Due::NOW, 3).await;
    }
    let claims: Vec<_> = reserve(store, 3, LONG)
        .await
        .into_iter()
        .map(|delivery| delivery.claim)
        .collect();
    // A repeat changes nothing.
    for _ in 0..2 {
        pause(store, true).await;
        assert!(overview(store).await.paused);
    }
    send(store, "now", Due::NOW, 3).await;
    send(store, "soon", Due::In(SHORT), 3).await;
    promote_all(store).await;
    assert_eq!(
        store.extend(&queue(), &claims, LONG).await.unwrap(),
        [Settled::Done; 3]
    );
    assert_eq!(
        settle(store, &claims[0], Settlement::ACK).await,
        Settled::Done
    );
    assert_eq!(settle(store, &claims[1], nack(None)).await, Settled::Done);
    assert_eq!(
        store.release(&queue(), &claims[2..]).await.unwrap(),
        [Settled::Done]
    );
    assert_eq!(depths(store).await, [0, 3, 0, 2, 0]);
    for first in [First::Ready, First::Retry] {
        assert!(reserve_first(store, 10, LONG, first).await.is_empty());
    }
    assert_eq!(depths(store).await, [0, 3, 0, 2, 0]);
    for _ in 0..2 {
        pause(store, false).await;
        assert!(!overview(store).await.paused);
    }
    assert_eq!(reserve(store, 10, LONG).await.len(), 5);
}

pub(crate) async fn a_queue_can_be_paused_before_its_first_message(store: &dyn Store) {
    pause(store, true).await;
    assert_eq!(store.queues().await.unwrap(), [queue()]);
    let other = "other".parse().unwrap();
    store
        .send(&other, &[NewMessage::new("elsewhere")])
        .await
        .unwrap();
    send(store, "a", Due::NOW, 3).await;
    assert!(reserve(store, 1, LONG).await.is_empty());
    assert!(!store.overview(&other).await.unwrap().paused);
    pause(store, false).await;
    assert_eq!(
        reserve_one(store, LONG).await.payload.as_deref(),
        Some(b"a".as_slice())
    );
}

pub(crate) async fn a_wait_ends_when_a_queue_is_resumed(store: &dyn Store) {
    ends_a_wait(store, async || {
        pause(store, true).await;
        pause(store, false).await;
    })
    .await;
}

pub(crate) async fn what_waits_can_be_made_due_now(store: &dyn Store) {
    let dead = send(store, "dead", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    let retry = send_failing(store, 3, None).await;
    let backing_off = send_failing(store, 3, Some(LONG)).await;
    let in_flight = send(store, "in flight", Due::NOW, 3).await;
    assert_eq!(reserve(store, 1, LONG).await[0].claim.id, in_flight);
    let ready = send(store, "ready", Due::NOW, 3).await;
    let pending = send(store, "pending", Due::In(LONG), 3).await;
    let unknown = MessageId::new();
    let ids = [
        &pending,
        &backing_off,
        &ready,
        &retry,
        &in_flight,
        &dead,
        &unknown,
    ]
    .map(MessageId::clone);
    let mut told = Vec::new();
    // A time that has passed means now, and a repeat finds all of them in line.
    for due in [Due::NOW, Due::At(1000)] {
        let from = overview(store).await.now_ms;
        let answers = store.reschedule(&queue(), &ids, due).await.unwrap();
        let to = overview(store).await.now_ms;
        for answer in &answers[..4] {
            let Rescheduled::At(at_ms) = answer else {
                panic!("{answers:?}")
            };
            assert!((from..=to).contains(at_ms), "{from} {at_ms} {to}");
            told.push(*at_ms);
        }
        let others = [
            Rescheduled::InFlight,
            Rescheduled::Unknown,
            Rescheduled::Unknown,
        ];
        assert_eq!(answers[4..], others);
        assert_eq!(depths(store).await, [0, 2, 1, 2, 1]);
    }
    // Each is behind those that were in line before it, and is told when it became due.
    let mut deliveries = reserve(store, 10, LONG).await;
    let got: Vec<_> = deliveries.iter().map(|d| &d.claim.id).collect();
    assert_eq!(got, [&ready, &pending, &retry, &backing_off]);
    assert_eq!(
        (deliveries[1].due_at_ms, deliveries[3].due_at_ms),
        (Some(told[0]), Some(told[1]))
    );
    let last = deliveries.remove(3);
    assert_eq!((last.attempt, last.attempts_max), (2, 4));
}

pub(crate) async fn what_waits_can_be_put_off_and_brought_forward(store: &dyn Store) {
    let retry = send_failing(store, 3, None).await;
    let ready = send(store, "ready", Due::NOW, 3).await;
    let pending = send(store, "pending", Due::In(2 * LONG), 3).await;
    let ids = [retry.clone(), ready.clone(), pending.clone()];
    let before = overview(store).await;
    // Twice: a repeat does the same again.
    for _ in 0..2 {
        let answers = store.reschedule(&queue(), &ids, Due::In(LONG)).await;
        let answers = answers.unwrap();
        assert_eq!(depths(store).await, [3, 0, 0, 0, 0]);
        assert!(reserve(store, 1, LONG).await.is_empty());
        let mut dues = Vec::new();
        for (id, answer) in ids.iter().zip(answers) {
            dues.push(due_of(store, id).await);
            assert_eq!(answer, Rescheduled::At(*dues.last().unwrap()));
        }
        assert_eq!(overview(store).await.next_due_ms, dues.into_iter().min());
    }
    let at_ms = before.now_ms + 3_600_000;
    assert_eq!(
        store
            .reschedule(&queue(), &ids[..1], Due::At(at_ms))
            .await
            .unwrap(),
        [Rescheduled::At(at_ms)]
    );
    let record = store.get(&queue(), &retry).await.unwrap().unwrap();
    assert_eq!(
        (record.at_ms, record.attempts, record.retries_left),
        (Some(at_ms), 1, 2)
    );
    store
        .reschedule(&queue(), &ids, Due::In(SHORT))
        .await
        .unwrap();
    promote_all(store).await;
    for (id, state) in [
        (&retry, State::Retry),
        (&ready, State::Ready),
        (&pending, State::Ready),
    ] {
        assert_eq!(state_of(store, id).await, Some(state));
    }
    let deliveries = reserve(store, 10, LONG).await;
    assert_eq!(deliveries.len(), 3);
    assert!(
        deliveries
            .iter()
            .all(|d| d.due_at_ms >= Some(before.now_ms))
    );
}

pub(crate) async fn a_wait_ends_when_a_message_is_brought_forward(store: &dyn Store) {
    let ids = [send(store, "a", Due::In(LONG), 3).await];
    ends_a_wait(store, async || {
        for due in [Due::NOW, Due::In(LONG)] {
            store.reschedule(&queue(), &ids, due).await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn a_redrive_is_a_new_message_with_the_whole_budget(store: &dyn Store) {
    let headers = vec![("k".to_owned(), "v".to_owned())];
    let message = NewMessage {
        retries: 2,
        headers: headers.clone(),
        ..NewMessage::new("again")
    };
    store.send(&queue(), &[message.clone()]).await.unwrap();
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    let ids = [message.id.clone(), message.id.clone(), MessageId::new()];
    let answers = store
        .redrive(&queue(), &ids, Redrive::default())
        .await
        .unwrap();
    let Redriven::As(new) = &answers[0] else {
        panic!("{answers:?}")
    };
    assert_eq!(answers[1..], [Redriven::Unknown, Redriven::Unknown]);
    assert_ne!(*new, message.id);
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(state_of(store, &message.id).await, None);
    let delivery = reserve_one(store, LONG).await;
    assert_eq!(
        (&delivery.claim.id, delivery.attempt, delivery.attempts_max),
        (new, 1, 3)
    );
    assert_eq!(delivery.payload.as_deref(), Some(b"again".as_slice()));
    assert_eq!(delivery.headers, headers);
    let record = store.get(&queue(), new).await.unwrap().unwrap();
    assert!(matches!(&record.history[..],
        [HistoryEntry::Redriven { redriven_from, .. }] if *redriven_from == message.id.as_str()));
    assert_eq!(
        settle(store, &delivery.claim, Settlement::ACK).await,
        Settled::Done
    );
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn a_redrive_can_set_the_retries(store: &dyn Store) {
    let id = dead_letter(store, "a", 3).await;
    let how = Redrive {
        retries: Some(0),
        ..Redrive::default()
    };
    store.redrive(&queue(), &[id], how).await.unwrap();
    assert_eq!(reserve_one(store, LONG).await.attempts_max, 1);
}

pub(crate) async fn an_edited_redrive_is_a_new_message_and_keeps_the_dead_letter(
    store: &dyn Store,
) {
    let headers = vec![("k".to_owned(), "v".to_owned())];
    let message = NewMessage {
        retries: 3,
        headers: headers.clone(),
        ..NewMessage::new("wrong")
    };
    store.send(&queue(), &[message.clone()]).await.unwrap();
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    let dead = store.get(&queue(), &message.id).await.unwrap();
    let id = &message.id;
    let totals = store.counts(&queue()).await.unwrap().totals;
    // The second time as well: another one is sent.
    for (payload, retries, attempts_max) in [("right", None, 4), ("", Some(0), 1)] {
        let answer = store
            .redrive_edited(&queue(), id, payload.as_bytes(), retries)
            .await
            .unwrap();
        let Redriven::As(new) = answer else {
            panic!("{answer:?}")
        };
        assert_ne!(new, *id);
        assert_eq!(depths(store).await, [0, 1, 0, 0, 1]);
        assert_eq!(store.get(&queue(), id).await.unwrap(), dead);
        let record = store.get(&queue(), &new).await.unwrap().unwrap();
        assert!(matches!(&record.history[..],
            [HistoryEntry::Redriven { redriven_from, .. }] if redriven_from == id.as_str()));
        let delivery = reserve_one(store, LONG).await;
        assert_eq!(
            (&delivery.claim.id, delivery.attempt, delivery.attempts_max),
            (&new, 1, attempts_max)
        );
        assert_eq!(delivery.payload.as_deref(), Some(payload.as_bytes()));
        assert_eq!(delivery.headers, headers);
        settle(store, &delivery.claim, Settlement::ACK).await;
    }
    let after = store.counts(&queue()).await.unwrap().totals;
    assert_eq!(
        (after.redriven, after.sent),
        (totals.redriven + 2, totals.sent)
    );
    let live = send(store, "live", Due::NOW, 3).await;
    for id in [&live, &MessageId::new()] {
        let answer = store.redrive_edited(&queue(), id, b"x", None).await;
        assert_eq!(answer.unwrap(), Redriven::Unknown);
    }
    let page = Page {
        offset: 0,
        limit: 10,
        payload_max: 10,
    };
    let listed = store.list(&queue(), State::Dead, page).await.unwrap();
    assert_eq!(listed.len(), 1);
}

pub(crate) async fn a_deleted_dead_letter_is_gone(store: &dyn Store) {
    let id = dead_letter(store, "a", 3).await;
    let live = send(store, "live", Due::NOW, 3).await;
    let ids = [id.clone(), id.clone(), live.clone()];
    assert_eq!(
        store.delete_dead(&queue(), &ids).await.unwrap(),
        [true, false, false]
    );
    assert_eq!(state_of(store, &id).await, None);
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(
        store
            .redrive(&queue(), &[id, live], Redrive::default())
            .await
            .unwrap(),
        [Redriven::Unknown, Redriven::Unknown]
    );
}

pub(crate) async fn dead_letters_past_their_retention_are_named(store: &dyn Store) {
    let past = async |age, number| {
        let retention = Retention { age, number };
        store.past_retention(&queue(), retention).await.unwrap()
    };
    assert_eq!(past(Some(Duration::ZERO), Some(0)).await, []);
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(dead_letter(store, &format!("payload {n}"), 3).await);
    }
    send(store, "alive", Due::NOW, 3).await;
    assert_eq!(past(None, None).await, []);
    assert_eq!(past(Some(LONG), Some(3)).await, []);
    assert_eq!(past(Some(Duration::ZERO), None).await, ids);
    assert_eq!(past(None, Some(2)).await, ids[..1]);
    assert_eq!(past(Some(LONG), Some(2)).await, ids[..1]);
    assert_eq!(past(None, Some(0)).await.len(), 3);
    let other = "other".parse().unwrap();
    let retention = Retention {
        age: Some(Duration::ZERO),
        number: Some(0),
    };
    assert_eq!(store.past_retention(&other, retention).await.unwrap(), []);
}

/// Redrives it, lets it die again, and returns the answer with its id from then on.
async fn redrive_and_die(store: &dyn Store, id: &MessageId, max: Option<u32>) -> MessageId {
    let how = Redrive {
        max_redrives: max,
        ..Redrive::default()
    };
    let answers = store.redrive(&queue(), &[id.clone()], how).await.unwrap();
    let [Redriven::As(new)] = &answers[..] else {
        panic!("{answers:?}")
    };
    let claim = reserve_one(store, LONG).await.claim;
    assert_eq!(claim.id, *new);
    // The origin stays first, whatever comes after it.
    settle(store, &claim, nack(None)).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    new.clone()
}

pub(crate) async fn redrives_are_counted_and_refused_over_a_number(store: &dyn Store) {
    let redrives = async |id: &MessageId| {
        let record = store.get(&queue(), id).await.unwrap().unwrap();
        record.redrives()
    };
    let first = dead_letter(store, "poison", 3).await;
    assert_eq!(redrives(&first).await, 0);
    let once = redrive_and_die(store, &first, Some(1)).await;
    assert_eq!(redrives(&once).await, 1);
    let twice = redrive_and_die(store, &once, None).await;
    assert_eq!(redrives(&twice).await, 2);
    let fresh = dead_letter(store, "fresh", 3).await;
    let how = |max| Redrive {
        max_redrives: Some(max),
        ..Redrive::default()
    };
    let ids = [twice.clone(), MessageId::new()];
    for max in [0, 1, 2] {
        assert_eq!(
            store.redrive(&queue(), &ids, how(max)).await.unwrap(),
            [Redriven::TooOften(2), Redriven::Unknown],
            "{max}"
        );
    }
    let none = store.redrive(&queue(), &[fresh.clone()], how(0)).await;
    assert_eq!(none.unwrap(), [Redriven::TooOften(0)]);
    assert_eq!(depths(store).await, [0, 0, 0, 0, 2]);
    assert_eq!(store.counts(&queue()).await.unwrap().totals.redriven, 2);
    // The others of the same call are redriven.
    let both = [twice.clone(), fresh];
    let answers = store.redrive(&queue(), &both, how(2)).await.unwrap();
    assert_eq!(answers[0], Redriven::TooOften(2));
    assert!(matches!(answers[1], Redriven::As(_)));
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, Settlement::ACK).await;
    // One with another payload counts, too, and is not refused.
    let edited = store.redrive_edited(&queue(), &twice, b"cured", None).await;
    let Redriven::As(edited) = edited.unwrap() else {
        panic!("it is no dead letter")
    };
    assert_eq!(redrives(&edited).await, 3);
    let thrice = store.cancel(&queue(), &[edited]).await.unwrap();
    assert_eq!(thrice, [Cancelled::Done]);
    let thrice = redrive_and_die(store, &twice, Some(3)).await;
    assert_eq!(redrives(&thrice).await, 3);
}
