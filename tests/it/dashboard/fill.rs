//! Fills stores with many messages, without a host.

use std::time::Duration;

use dqhost::message::{Attempt, NewMessage, QueueName};
use dqhost::store::{BATCH_MAX, First, Reservation, Settlement, Store};

/// Makes dead letters with these payloads, which are rejected.
pub(crate) async fn dead(store: &dyn Store, queue: &QueueName, payloads: Vec<String>) {
    for step in payloads.chunks(BATCH_MAX) {
        let messages: Vec<NewMessage> = step
            .iter()
            .map(|payload| NewMessage::new(payload.as_str()))
            .collect();
        store.send(queue, &messages).await.unwrap();
        let wanted = Reservation {
            max: step.len(),
            lease: Duration::from_mins(10),
            first: First::Ready,
            retries_default: 0,
        };
        let ended: Vec<_> = (store.reserve(queue, wanted).await.unwrap())
            .into_iter()
            .map(|delivery| {
                let attempt = Attempt {
                    attempt: 1,
                    at_ms: 1,
                    class: "rejected".to_owned(),
                    reason: "no".to_owned(),
                    duration_ms: None,
                    host: String::new(),
                    handler: String::new(),
                    log: String::new(),
                };
                (delivery.claim, Settlement::Reject { attempt })
            })
            .collect();
        assert_eq!(ended.len(), step.len());
        store.settle(queue, &ended).await.unwrap();
        while store.advance(queue).await.unwrap().dead_lettered > 0 {}
    }
}

/// Sends these messages, as many at once as a store takes.
pub(crate) async fn waiting(
    store: &dyn Store,
    queue: &QueueName,
    messages: impl Iterator<Item = NewMessage>,
) {
    let mut messages = messages.peekable();
    while messages.peek().is_some() {
        let step: Vec<NewMessage> = messages.by_ref().take(BATCH_MAX).collect();
        // A busy machine may answer too late. What was accepted then is not sent twice.
        let mut sent = store.send(queue, &step).await;
        for _ in 0..10 {
            if sent.is_err() {
                sent = store.send(queue, &step).await;
            }
        }
        assert_eq!(sent.unwrap().len(), step.len());
    }
}
