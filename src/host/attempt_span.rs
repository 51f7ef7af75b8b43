//! The span of an attempt, and that of its settlement.

use sha2::{Digest, Sha256};

use super::ServedQueue;
use crate::message::{Delivery, QueueName};
use crate::runtime::Report;
use crate::spans::{Ended, Kind, Started, parent_of};
use crate::store::{Settled, Settlement};
use crate::verdict::Outcome;

/// An attempt that is recorded. If it is dropped before it has run to its end, the host gave it up.
pub(super) struct AttemptSpan {
    /// None once it is told of.
    started: Option<Started>,
    ended: Ended,
}

impl AttemptSpan {
    /// Begins it, and makes it what the handler's requests and messages belong to. None if nobody records
    /// it.
    pub(super) fn begin(served: &ServedQueue, delivery: &mut Delivery) -> Option<Self> {
        let spans = &served.shared.config.spans;
        let started = spans.start(&delivery.headers, trace_of(served, delivery))?;
        started.enter(&mut delivery.headers);
        let size = delivery.payload.as_ref().map_or(0, Vec::len);
        let ended = Ended::operation(Kind::Consumer, "process", served.queue.as_str())
            .with("messaging.message.id", delivery.claim.id.as_str())
            .with("messaging.message.body.size", size)
            .with("dqhost.attempt", delivery.attempt)
            .with("dqhost.attempts_max", delivery.attempts_max);
        Some(Self {
            started: Some(started),
            ended,
        })
    }

    /// The handler has ended. What is left begins now: the store is told.
    pub(super) fn ran(mut self, report: &Report, digest: &str) -> Option<Started> {
        let started = self.started.take()?;
        let outcome = &report.outcome;
        let error =
            (*outcome != Outcome::Acked).then(|| (outcome.class().to_owned(), outcome.reason()));
        let settlement = started.part();
        let ended = self.ended.clone().with("dqhost.handler.digest", digest);
        started.end_linked(ended.failed(error));
        Some(settlement)
    }
}

/// The trace of a message that has none: the same in each attempt, on each host.
fn trace_of(served: &ServedQueue, delivery: &Delivery) -> u128 {
    if !served.shared.config.spans.is_on() || parent_of(&delivery.headers).is_some() {
        return 0;
    }
    let mut hash = Sha256::new();
    hash.update(served.queue.as_str());
    hash.update([0]);
    hash.update(delivery.claim.id.as_str());
    let hash = hash.finalize();
    let half = hash.first_chunk().copied().unwrap_or_default();
    u128::from_be_bytes(half)
}

/// The store has answered: what it was told is on record.
pub(super) fn settled(span: Started, queue: &QueueName, what: &'static str, answer: Settled) {
    let error = (answer != Settled::Done).then(|| {
        let why = "the message was not this host's any more".to_owned();
        ("lease-lost".to_owned(), why)
    });
    span.end(Ended::operation(Kind::Client, what, queue.as_str()).failed(error));
}

/// What a settlement is called.
pub(super) fn operation(settlement: &Settlement) -> &'static str {
    match settlement {
        Settlement::Ack { .. } => "ack",
        Settlement::Nack { .. } => "nack",
        Settlement::Reject { .. } => "reject",
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            let why = "the host gave the message up, or it was stopped".to_owned();
            let ended = self.ended.clone();
            started.end_linked(ended.failed(Some(("given-up".to_owned(), why))));
        }
    }
}
