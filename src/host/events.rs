//! What a host tells those who listen. If nobody does, nothing of this is made.

use std::iter::once_with;

use super::ServedQueue;
use super::finished::Finished;
use crate::clock::Clock;
use crate::message::{Attempt, Claim, Delivery, Due, Outgoing, QueueName};
use crate::store::{Advanced, Event, EventKind, Settled, Settlement, Store};

/// What time has brought.
pub(super) fn advanced(store: &dyn Store, queue: &QueueName, advanced: &Advanced) {
    let counts = [
        (EventKind::Promoted, advanced.promoted),
        (EventKind::Expired, advanced.expired),
        (EventKind::DeadLettered, advanced.dead_lettered),
    ];
    let events = counts.into_iter();
    let events = events.filter_map(|(kind, count)| Event::to_many(kind, count));
    store.events().note(queue, events);
}

/// An attempt begins.
pub(super) fn started(served: &ServedQueue, delivery: &Delivery) {
    let event = || Event {
        attempt: Some(delivery.attempt),
        ..Event::of(EventKind::Started, &delivery.claim.id)
    };
    let events = served.shared.store.events();
    events.note(&served.queue, once_with(event));
}

fn ended(kind: EventKind, finished: &Finished) -> Event {
    let took = finished.report.duration.as_millis();
    Event {
        attempt: Some(finished.attempt),
        duration_ms: u64::try_from(took).ok(),
        ..Event::of(kind, &finished.claim.id)
    }
}

fn failed(kind: EventKind, finished: &Finished, attempt: &Attempt) -> Event {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Event {
        class: some(&attempt.class),
        reason: some(&attempt.reason),
        ..ended(kind, finished)
    }
}

/// A settlement has taken effect, and what its handler sent was accepted with it.
pub(super) fn settled(served: &ServedQueue, finished: &Finished, settlement: &Settlement) {
    let is_last = finished.attempt >= finished.attempts_max;
    let event = || match settlement {
        Settlement::Ack { .. } => ended(EventKind::Acked, finished),
        Settlement::Nack { delay, attempt } if !is_last => {
            let event = failed(EventKind::Retried, finished, attempt);
            let delay_ms = delay.and_then(|delay| u64::try_from(delay.as_millis()).ok());
            Event {
                due_at_ms: delay_ms.map(|delay_ms| event.at_ms.saturating_add(delay_ms)),
                ..event
            }
        }
        Settlement::Nack { attempt, .. } | Settlement::Reject { attempt } => {
            failed(EventKind::Dead, finished, attempt)
        }
    };
    let events = served.shared.store.events();
    events.note(&served.queue, once_with(event));
    if let Settlement::Ack { outbox } = settlement {
        for Outgoing { queue, message } in outbox {
            let due_at_ms = || match message.due {
                Due::At(at_ms) => at_ms,
                Due::In(delay) => {
                    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                    Clock::System.now().ms.saturating_add(delay_ms)
                }
            };
            let event = || Event::sent(message, Some(due_at_ms()));
            events.note(queue, once_with(event));
        }
    }
}

/// A message was given back.
pub(super) fn released(served: &ServedQueue, finished: &Finished) {
    let events = served.shared.store.events();
    let event = || ended(EventKind::Released, finished);
    events.note(&served.queue, once_with(event));
}

/// Messages were given back whose handlers were stopped.
pub(super) fn given_back(served: &ServedQueue, claims: &[Claim], answers: &[Settled]) {
    let done = claims.iter().zip(answers);
    let done = done.filter(|(_, answer)| **answer == Settled::Done);
    let events = done.map(|(claim, _)| Event::of(EventKind::Released, &claim.id));
    served.shared.store.events().note(&served.queue, events);
}
