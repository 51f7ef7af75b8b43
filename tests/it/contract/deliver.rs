//! From pending to ready and in flight, and leases.

use std::time::Duration;

use dqhost::message::{Due, NewMessage, State};
use dqhost::store::{BATCH_MAX, First, Settled, Settlement, Store};

use super::tools::*;
use crate::support::PATIENCE;

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

pub(crate) async fn a_wait_ends_with_a_send(store: &dyn Store) {
    let hints = store.subscribe(&[queue()]);
    // A first wait may end by itself, since something may have happened before it.
    for _ in 0..3 {
        let waited = async {
            tokio::join!(hints.notified(), async {
                // Until it is heard: a hint may be lost before the wait is set up.
                for n in 0..50 {
                    send(store, &n.to_string(), Due::NOW, 3).await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        };
        tokio::time::timeout(PATIENCE, waited)
            .await
            .expect("no wait ended");
    }
    let claims: Vec<_> = reserve(store, 150, LONG).await;
    assert_eq!(claims.len(), 150);
}
