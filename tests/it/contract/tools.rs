//! Steps that several cases share.

use std::time::Duration;

use dqhost::message::{Attempt, Claim, Delivery, Due, MessageId, NewMessage, QueueName, State};
use dqhost::store::{
    Advanced, End, Ended, First, Overview, Reservation, Settled, Settlement, Store,
};

use crate::support::PATIENCE;

/// A lease that does not end within a test.
pub(crate) const LONG: Duration = Duration::from_mins(10);

/// A lease that ends at once.
pub(crate) const SHORT: Duration = Duration::from_millis(1);

pub(crate) fn queue() -> QueueName {
    "q".parse().unwrap()
}

/// Unix milliseconds by this machine's clock, which is that of the stores, too.
pub(crate) fn now_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Sends a message and returns its id.
pub(crate) async fn send(store: &dyn Store, payload: &str, due: Due, retries: u32) -> MessageId {
    let message = NewMessage {
        due,
        retries,
        ..NewMessage::new(payload)
    };
    let sent = store.send(&queue(), &[message]).await.unwrap();
    assert!(sent[0].due_at_ms.is_some());
    sent[0].id.clone()
}

pub(crate) async fn reserve(store: &dyn Store, max: usize, lease: Duration) -> Vec<Delivery> {
    reserve_first(store, max, lease, First::Ready).await
}

pub(crate) async fn reserve_first(
    store: &dyn Store,
    max: usize,
    lease: Duration,
    first: First,
) -> Vec<Delivery> {
    let wanted = Reservation {
        max,
        lease,
        first,
        retries_default: 3,
    };
    store.reserve(&queue(), wanted).await.unwrap()
}

/// Reserves the one message that waits.
pub(crate) async fn reserve_one(store: &dyn Store, lease: Duration) -> Delivery {
    let mut deliveries = reserve(store, 10, lease).await;
    assert_eq!(deliveries.len(), 1, "{deliveries:?}");
    deliveries.remove(0)
}

pub(crate) async fn settle(store: &dyn Store, claim: &Claim, how: Settlement) -> Settled {
    store
        .settle(&queue(), &[(claim.clone(), how)])
        .await
        .unwrap()[0]
}

pub(crate) fn attempt(reason: &str) -> Attempt {
    Attempt {
        attempt: 1,
        at_ms: 1_795_228_395_123,
        class: "nacked".to_owned(),
        reason: reason.to_owned(),
        duration_ms: Some(5),
        host: "host".to_owned(),
        handler: "ab12".to_owned(),
        log: "one\ntwo".to_owned(),
    }
}

pub(crate) fn nack(delay: Option<Duration>) -> Settlement {
    Settlement::Nack {
        delay,
        attempt: attempt("not now"),
    }
}

/// How a message ended, as a host says it.
pub(crate) fn ended(id: &str, end: End) -> Ended {
    Ended {
        id: id.into(),
        at_ms: 0,
        end,
        attempt: 2,
        duration_ms: 12,
        due_at_ms: None,
        host: "host".to_owned(),
        handler: "ab12".to_owned(),
        class: String::new(),
        reason: String::new(),
        has_result: false,
    }
}

pub(crate) fn reject() -> Settlement {
    Settlement::Reject {
        attempt: attempt("never"),
    }
}

/// Advances until `done`, sleeping only as long as the store says that there is nothing to do.
pub(crate) async fn advance_until(store: &dyn Store, done: impl Fn(&Advanced) -> bool) -> Advanced {
    let work = async {
        loop {
            let advanced = store.advance(&queue()).await.unwrap();
            if done(&advanced) {
                return advanced;
            }
            tokio::time::sleep(advanced.next_in.unwrap_or_default()).await;
        }
    };
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("the store never came to that")
}

/// Buries what is in garbage.
pub(crate) async fn collect_garbage(store: &dyn Store) {
    advance_until(store, |advanced| advanced.dead_lettered > 0).await;
}

pub(crate) async fn state_of(store: &dyn Store, id: &MessageId) -> Option<State> {
    store
        .get(&queue(), id)
        .await
        .unwrap()
        .map(|record| record.state)
}

/// Pending, ready, unack, retry, dead.
pub(crate) async fn depths(store: &dyn Store) -> [u64; 5] {
    let counts = store.counts(&queue()).await.unwrap();
    [
        counts.pending,
        counts.ready,
        counts.unack,
        counts.retry,
        counts.dead,
    ]
}

/// A message that is rejected and dead-lettered.
pub(crate) async fn dead_letter(store: &dyn Store, payload: &str, retries: u32) -> MessageId {
    let id = send(store, payload, Due::NOW, retries).await;
    let claim = reserve_one(store, LONG).await.claim;
    assert_eq!(settle(store, &claim, reject()).await, Settled::Done);
    collect_garbage(store).await;
    id
}

pub(crate) async fn overview(store: &dyn Store) -> Overview {
    store.overview(&queue()).await.unwrap()
}

pub(crate) async fn pause(store: &dyn Store, paused: bool) {
    store.set_paused(&queue(), paused).await.unwrap();
}

/// Sends a message that then fails once, and says when it runs again.
pub(crate) async fn send_failing(
    store: &dyn Store,
    retries: u32,
    delay: Option<Duration>,
) -> MessageId {
    let id = send(store, "failing", Due::NOW, retries).await;
    let delivery = reserve(store, 1, LONG).await.remove(0);
    assert_eq!(delivery.claim.id, id);
    settle(store, &delivery.claim, nack(delay)).await;
    id
}

/// Due, as the store lists it.
pub(crate) async fn due_of(store: &dyn Store, id: &MessageId) -> u64 {
    let record = store.get(&queue(), id).await.unwrap().unwrap();
    assert_eq!(record.state, State::Pending);
    record.at_ms.unwrap()
}
