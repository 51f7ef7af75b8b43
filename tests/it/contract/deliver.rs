//! The way of a message through a host's hands.

use std::time::Duration;

use dqhost::message::{Claim, Due, HistoryEntry, NewMessage, State};
use dqhost::store::{BATCH_MAX, First, Settled, Settlement, Store};

use super::tools::*;

pub(crate) async fn messages_are_promoted_when_due_and_never_before(store: &dyn Store) {
    let delay = Duration::from_millis(40);
    let id = send(store, "soon", Due::In(delay), 3).await;
    let due = store
        .get(&queue(), &id)
        .await
        .unwrap()
        .unwrap()
        .at_ms
        .unwrap();
    advance_until(store, |advanced| advanced.promoted == 1).await;
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    let delivery = reserve_one(store, LONG).await;
    assert_eq!(delivery.due_at_ms, Some(due));
    // The store's clock has passed the due time: what is sent now is due later.
    let now = NewMessage::new("now");
    let sent = store.send(&queue(), &[now]).await.unwrap();
    assert!(sent[0].due_at_ms.unwrap() >= due);
}

pub(crate) async fn the_store_tells_when_there_is_something_to_do(store: &dyn Store) {
    assert_eq!(store.advance(&queue()).await.unwrap().next_in, None);
    send(store, "later", Due::In(Duration::from_hours(2)), 3).await;
    let next = store.advance(&queue()).await.unwrap().next_in.unwrap();
    assert!(
        next > Duration::from_hours(1) && next <= Duration::from_mins(121),
        "{next:?}"
    );
    send(store, "now", Due::NOW, 3).await;
    reserve(store, 1, Duration::from_mins(30)).await;
    let next = store.advance(&queue()).await.unwrap().next_in.unwrap();
    assert!(
        next > Duration::from_mins(20) && next <= Duration::from_mins(31),
        "{next:?}"
    );
}

pub(crate) async fn messages_are_reserved_oldest_first(store: &dyn Store) {
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(send(store, &n.to_string(), Due::NOW, 3).await);
    }
    let mut got = Vec::new();
    for max in [2, 1, 10] {
        got.extend(
            reserve(store, max, LONG)
                .await
                .into_iter()
                .map(|d| d.claim.id),
        );
    }
    assert_eq!(got, ids);
}

pub(crate) async fn retries_can_be_reserved_first(store: &dyn Store) {
    let failed = send(store, "failed", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    let fresh = send(store, "fresh", Due::NOW, 3).await;
    let first = reserve_first(store, 1, LONG, First::Retry).await;
    assert_eq!(first[0].claim.id, failed);
    settle(store, &first[0].claim, nack(None)).await;
    let both = reserve_first(store, 2, LONG, First::Ready).await;
    assert_eq!(
        both.iter().map(|d| &d.claim.id).collect::<Vec<_>>(),
        [&fresh, &failed]
    );
}

pub(crate) async fn nothing_is_reserved_twice(store: &dyn Store) {
    for n in 0..100 {
        send(store, &n.to_string(), Due::NOW, 3).await;
    }
    let calls = (0..10).map(|_| reserve(store, 30, LONG));
    let got = futures_util::future::join_all(calls).await.concat();
    let mut ids: Vec<_> = got.iter().map(|d| d.claim.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((got.len(), ids.len()), (100, 100));
    assert!(reserve(store, 0, LONG).await.is_empty());
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

pub(crate) async fn a_lease_that_ended_costs_an_attempt(store: &dyn Store) {
    let id = send(store, "a", Due::NOW, 3).await;
    reserve_one(store, SHORT).await;
    advance_until(store, |advanced| advanced.expired == 1).await;
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.attempts, record.retries_left),
        (State::Retry, 1, 2)
    );
    assert_eq!(record.last_attempt().unwrap().class, "lease-ended");
    assert_eq!(reserve_one(store, LONG).await.attempt, 2);
    assert_eq!(store.counts(&queue()).await.unwrap().totals.expired, 1);
}

pub(crate) async fn a_message_whose_leases_keep_ending_dies(store: &dyn Store) {
    let id = send(store, "kills its host", Due::NOW, 1).await;
    for _ in 0..2 {
        reserve_one(store, SHORT).await;
        advance_until(store, |advanced| advanced.expired == 1).await;
    }
    while state_of(store, &id).await != Some(State::Dead) {
        store.advance(&queue()).await.unwrap();
    }
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    assert_eq!((record.attempts, record.history.len()), (2, 2));
    assert_eq!(record.payload.unwrap(), b"kills its host");
}

pub(crate) async fn an_extended_lease_does_not_end(store: &dyn Store) {
    send(store, "kept", Due::NOW, 3).await;
    send(store, "lost", Due::NOW, 3).await;
    let deliveries = reserve(store, 2, Duration::from_millis(50)).await;
    let kept = deliveries[0].claim.clone();
    assert_eq!(
        store.extend(&queue(), &[kept.clone()], LONG).await.unwrap(),
        [Settled::Done]
    );
    advance_until(store, |advanced| advanced.expired == 1).await;
    assert_eq!(depths(store).await, [0, 0, 1, 1, 0]);
    assert_eq!(settle(store, &kept, Settlement::ACK).await, Settled::Done);
}

pub(crate) async fn a_release_gives_the_attempt_back_and_goes_first(store: &dyn Store) {
    let fresh = send(store, "fresh", Due::NOW, 3).await;
    send(store, "behind", Due::NOW, 3).await;
    let delivery = reserve(store, 1, LONG).await.remove(0);
    let released = store
        .release(&queue(), &[delivery.claim.clone()])
        .await
        .unwrap();
    assert_eq!(released, [Settled::Done]);
    assert_eq!(depths(store).await, [0, 2, 0, 0, 0]);
    let again = reserve(store, 1, LONG).await.remove(0);
    assert_eq!((&again.claim.id, again.attempt), (&fresh, 1));
    // Its first delivery cannot settle it any more, although no attempt was spent.
    assert_ne!(again.claim.token, delivery.claim.token);
    assert_eq!(
        settle(store, &delivery.claim, Settlement::ACK).await,
        Settled::LeaseLost
    );
    // One that failed before goes back among those.
    settle(store, &again.claim, nack(None)).await;
    let third = reserve_first(store, 1, LONG, First::Retry).await.remove(0);
    store
        .release(&queue(), &[third.claim.clone()])
        .await
        .unwrap();
    assert_eq!(depths(store).await, [0, 1, 0, 1, 0]);
    let fourth = reserve_first(store, 1, LONG, First::Retry).await.remove(0);
    assert_eq!((&fourth.claim.id, fourth.attempt), (&fresh, 2));
    assert_eq!(
        settle(store, &third.claim, nack(None)).await,
        Settled::LeaseLost
    );
    assert_eq!(
        settle(store, &fourth.claim, Settlement::ACK).await,
        Settled::Done
    );
}

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

pub(crate) async fn one_step_moves_a_bounded_number(store: &dyn Store) {
    let count = 8 * BATCH_MAX + 1;
    let batch: Vec<NewMessage> = (0..count)
        .map(|n| NewMessage {
            due: Due::In(SHORT),
            retries: 0,
            ..NewMessage::new(n.to_string())
        })
        .collect();
    store.send(&queue(), &batch).await.unwrap();
    let (mut promoted, mut expired, mut dead_lettered) = (0, 0, 0);
    while promoted < count {
        let advanced = advance_until(store, |advanced| advanced.promoted > 0).await;
        assert!(advanced.promoted <= BATCH_MAX);
        promoted += advanced.promoted;
    }
    while !reserve(store, BATCH_MAX, SHORT).await.is_empty() {}
    while dead_lettered < count {
        let advanced = advance_until(store, |a| a.expired + a.dead_lettered > 0).await;
        assert!(advanced.expired <= BATCH_MAX && advanced.dead_lettered <= BATCH_MAX);
        expired += advanced.expired;
        dead_lettered += advanced.dead_lettered;
    }
    assert_eq!((promoted, expired, dead_lettered), (count, count, count));
    assert_eq!(depths(store).await, [0, 0, 0, 0, count as u64]);
}
