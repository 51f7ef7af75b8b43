//! What an attempt ends with. What an ack sends along is in `settle/outbox.rs`.

use std::time::Duration;

use dqhost::message::{Claim, Due, HistoryEntry, State};
use dqhost::store::{Settled, Settlement, Store};

use super::tools::*;

pub(crate) mod outbox;

/// Everything that a host can say of a delivery that is not its own any more.
async fn say_everything(store: &dyn Store, stale: &Claim) {
    for _ in 0..2 {
        for how in [Settlement::ACK, nack(None), nack(Some(LONG)), reject()] {
            assert_eq!(settle(store, stale, how).await, Settled::LeaseLost);
        }
        let claims = [stale.clone()];
        assert_eq!(
            store.extend(&queue(), &claims, LONG).await.unwrap(),
            [Settled::LeaseLost]
        );
        assert_eq!(
            store.release(&queue(), &claims).await.unwrap(),
            [Settled::LeaseLost]
        );
    }
}

pub(crate) async fn an_ack_leaves_nothing(store: &dyn Store) {
    let id = send(store, "a", Due::In(SHORT), 3).await;
    advance_until(store, |advanced| advanced.promoted == 1).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    let claim = reserve_one(store, LONG).await.claim;
    assert_eq!(settle(store, &claim, Settlement::ACK).await, Settled::Done);
    assert_eq!(depths(store).await, [0; 5]);
    assert_eq!(store.get(&queue(), &id).await.unwrap(), None);
    let totals = store.counts(&queue()).await.unwrap().totals;
    assert_eq!((totals.sent, totals.acked, totals.nacked), (1, 1, 1));
}

pub(crate) async fn a_nack_without_delay_waits_in_retry(store: &dyn Store) {
    let id = send(store, "a", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    assert_eq!(settle(store, &claim, nack(None)).await, Settled::Done);
    assert_eq!(depths(store).await, [0, 0, 0, 1, 0]);
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.attempts, record.retries_left),
        (State::Retry, 1, 2)
    );
    assert_eq!(record.history, [HistoryEntry::Attempt(attempt("not now"))]);
    let delivery = reserve_one(store, LONG).await;
    assert_eq!((delivery.attempt, delivery.attempts_max), (2, 4));
    assert_ne!(delivery.claim.token, claim.token);
}

pub(crate) async fn a_nack_with_a_delay_waits_in_pending_and_comes_back_as_a_retry(
    store: &dyn Store,
) {
    let id = send(store, "a", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    let delay = Duration::from_millis(30);
    assert_eq!(
        settle(store, &claim, nack(Some(delay))).await,
        Settled::Done
    );
    assert_eq!(depths(store).await, [1, 0, 0, 0, 0]);
    assert!(reserve(store, 1, LONG).await.is_empty());
    advance_until(store, |advanced| advanced.promoted == 1).await;
    assert_eq!(depths(store).await, [0, 0, 0, 1, 0]);
    let delivery = reserve_one(store, LONG).await;
    assert_eq!((delivery.claim.id, delivery.attempt), (id, 2));
    assert!(delivery.due_at_ms.is_some());
}

pub(crate) async fn a_message_runs_as_often_as_its_retries_and_once_more(store: &dyn Store) {
    for retries in [0, 2] {
        let id = send(store, "fails", Due::NOW, retries).await;
        for number in 1..=retries + 1 {
            let delivery = reserve_one(store, LONG).await;
            assert_eq!(
                (delivery.attempt, delivery.attempts_max),
                (number, retries + 1)
            );
            assert_eq!(
                settle(store, &delivery.claim, nack(None)).await,
                Settled::Done
            );
        }
        collect_garbage(store).await;
        assert!(reserve(store, 1, LONG).await.is_empty());
        let record = store.get(&queue(), &id).await.unwrap().unwrap();
        assert_eq!((record.state, record.attempts), (State::Dead, retries + 1));
    }
}

pub(crate) async fn a_stale_claim_changes_nothing(store: &dyn Store) {
    let id = send(store, "a", Due::NOW, 3).await;
    let stale = reserve_one(store, SHORT).await.claim;
    advance_until(store, |advanced| advanced.expired == 1).await;
    say_everything(store, &stale).await;
    assert_eq!(depths(store).await, [0, 0, 0, 1, 0]);
    let current = reserve_one(store, LONG).await.claim;
    let before = store.get(&queue(), &id).await.unwrap();
    say_everything(store, &stale).await;
    assert_eq!(store.get(&queue(), &id).await.unwrap(), before);
    assert_eq!(
        settle(store, &current, Settlement::ACK).await,
        Settled::Done
    );
    say_everything(store, &stale).await;
    say_everything(store, &current).await;
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn a_claim_is_settled_once(store: &dyn Store) {
    for how in [Settlement::ACK, nack(None), nack(Some(LONG)), reject()] {
        send(store, "a", Due::NOW, 3).await;
        let claim = reserve_one(store, LONG).await.claim;
        // Twice in one batch, then again.
        let twice = [(claim.clone(), how.clone()), (claim.clone(), how)];
        let answers = store.settle(&queue(), &twice).await.unwrap();
        assert_eq!(answers, [Settled::Done, Settled::LeaseLost]);
        let before = depths(store).await;
        say_everything(store, &claim).await;
        assert_eq!(depths(store).await, before);
        for delivery in reserve(store, 1, LONG).await {
            settle(store, &delivery.claim, Settlement::ACK).await;
        }
    }
}

pub(crate) async fn a_stale_claim_in_a_batch_hides_no_current_one(store: &dyn Store) {
    send(store, "a", Due::NOW, 9).await;
    for way in 0..3 {
        let stale = reserve_one(store, LONG).await.claim;
        settle(store, &stale, nack(None)).await;
        let current = reserve_one(store, LONG).await.claim;
        let both = [stale, current];
        let answers = match way {
            0 => store.extend(&queue(), &both, LONG).await,
            1 => store.release(&queue(), &both).await,
            _ => {
                let acks = both.clone().map(|claim| (claim, Settlement::ACK));
                store.settle(&queue(), &acks).await
            }
        };
        assert_eq!(answers.unwrap(), [Settled::LeaseLost, Settled::Done]);
        if way == 0 {
            store.release(&queue(), &both[1..]).await.unwrap();
        }
    }
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn a_mixed_batch_is_answered_in_order(store: &dyn Store) {
    for n in 0..5 {
        send(store, &n.to_string(), Due::NOW, 3).await;
    }
    let claims: Vec<Claim> = reserve(store, 5, LONG)
        .await
        .into_iter()
        .map(|d| d.claim)
        .collect();
    settle(store, &claims[2], Settlement::ACK).await;
    let how = [
        Settlement::ACK,
        reject(),
        nack(None),
        nack(None),
        Settlement::ACK,
    ];
    let batch: Vec<_> = claims.into_iter().zip(how).collect();
    let answers = store.settle(&queue(), &batch).await.unwrap();
    assert_eq!(
        answers,
        [
            Settled::Done,
            Settled::Done,
            Settled::LeaseLost,
            Settled::Done,
            Settled::Done
        ]
    );
    assert!(store.settle(&queue(), &[]).await.unwrap().is_empty());
    assert_eq!(depths(store).await, [0, 0, 0, 1, 1]);
}

pub(crate) async fn a_reject_is_final(store: &dyn Store) {
    let id = send(store, "bad", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    assert_eq!(settle(store, &claim, reject()).await, Settled::Done);
    // Counted as dead at once, whether or not it is one yet.
    assert_eq!(depths(store).await, [0, 0, 0, 0, 1]);
    collect_garbage(store).await;
    assert_eq!(depths(store).await, [0, 0, 0, 0, 1]);
    assert_eq!(state_of(store, &id).await, Some(State::Dead));
    assert!(reserve(store, 1, LONG).await.is_empty());
    let totals = store.counts(&queue()).await.unwrap().totals;
    assert_eq!((totals.rejected, totals.dead), (1, 1));
}

pub(crate) async fn the_history_is_bounded(store: &dyn Store) {
    let id = send(store, "a", Due::NOW, 40).await;
    for n in 0..30 {
        let claim = reserve_one(store, LONG).await.claim;
        let how = Settlement::Nack {
            delay: None,
            attempt: attempt(&n.to_string()),
        };
        settle(store, &claim, how).await;
    }
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    // The first, and the latest.
    let expected: Vec<_> = [0]
        .into_iter()
        .chain(11..30)
        .map(|n: i32| HistoryEntry::Attempt(attempt(&n.to_string())))
        .collect();
    assert_eq!(record.history, expected);
    assert_eq!(record.attempts, 30);
    // By size as well: of long attempts fewer are kept, and always the first and the last.
    let long = |n: usize| attempt(&format!("{n} {}", "x".repeat(1500)));
    for n in 0..5 {
        let claim = reserve_one(store, LONG).await.claim;
        let how = Settlement::Nack {
            delay: None,
            attempt: long(n),
        };
        settle(store, &claim, how).await;
    }
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    let kept = record.history.len();
    assert!((2..5).contains(&kept), "{kept}");
    let latest = (6 - kept..5).map(|n| HistoryEntry::Attempt(long(n)));
    let first = HistoryEntry::Attempt(attempt("0"));
    let expected: Vec<_> = [first].into_iter().chain(latest).collect();
    assert_eq!(record.history, expected);
}
