//! A message in the hands of a program.

use std::time::Duration;

use super::{Queue, QueueError};
use crate::clock::Clock;
use crate::message::{Attempt, Delivery, Headers, MessageId};
use crate::store::{Settled, Settlement};

/// A message in flight. It is delivered again when its lease expires before it was settled, so dropping
/// it loses nothing.
pub struct Received {
    pub(super) queue: Queue,
    pub(super) delivery: Delivery,
    pub(super) payload: Vec<u8>,
}

impl Received {
    /// Its id, the same at each attempt.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.delivery.claim.id
    }

    /// As it was sent.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// As they were sent.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.delivery.headers
    }

    /// 1 on the first delivery.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.delivery.attempt
    }

    /// The number of the last attempt that the message has.
    #[must_use]
    pub fn attempts_max(&self) -> u32 {
        self.delivery.attempts_max
    }

    /// Unix milliseconds at which this attempt became due; none when it never waited for a time.
    #[must_use]
    pub fn due_at_ms(&self) -> Option<u64> {
        self.delivery.due_at_ms
    }

    /// Makes the lease end a whole lease from now. [`Settled::LeaseLost`] says that it had ended: the
    /// message is another's, or will be.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn extend(&self) -> Result<Settled, QueueError> {
        let inner = &self.queue.inner;
        let claims = [self.delivery.claim.clone()];
        Ok(only(
            &inner
                .store
                .extend(&inner.name, &claims, inner.lease)
                .await?,
        ))
    }

    /// It was handled: the message is removed.
    ///
    /// # Errors
    ///
    /// Those of the store. Then it is not known whether it was removed; if not, it is delivered
    /// again.
    pub async fn ack(self) -> Result<Settled, QueueError> {
        self.settle(Settlement::ACK).await
    }

    /// It was not handled: one retry less, after the delay or at once, or dead when none is left.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn nack(self, reason: &str, delay: Option<Duration>) -> Result<Settled, QueueError> {
        self.end("nacked", reason, delay, false).await
    }

    /// It will never be handled: dead, whatever retries are left.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn reject(self, reason: &str) -> Result<Settled, QueueError> {
        self.end("rejected", reason, None, true).await
    }

    /// Gives it back, next in line, without costing an attempt.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn release(self) -> Result<Settled, QueueError> {
        let inner = &self.queue.inner;
        let claims = [self.delivery.claim.clone()];
        Ok(only(&inner.store.release(&inner.name, &claims).await?))
    }

    pub(super) async fn end(
        self,
        class: &str,
        reason: &str,
        delay: Option<Duration>,
        is_final: bool,
    ) -> Result<Settled, QueueError> {
        let attempt = Attempt {
            attempt: self.delivery.attempt,
            at_ms: Clock::System.now().ms,
            class: class.to_owned(),
            reason: reason.to_owned(),
            duration_ms: None,
            host: String::new(),
            handler: String::new(),
            log: String::new(),
        };
        self.settle(if is_final {
            Settlement::Reject { attempt }
        } else {
            Settlement::Nack { delay, attempt }
        })
        .await
    }

    async fn settle(self, how: Settlement) -> Result<Settled, QueueError> {
        let inner = &self.queue.inner;
        let settlements = [(self.delivery.claim.clone(), how)];
        let answer = only(&inner.store.settle(&inner.name, &settlements).await?);
        // It may wait again, or be on its way to the dead letters; and there may be room.
        inner.schedule().hinted();
        inner.turn.notify_one();
        inner.room.notify_one();
        Ok(answer)
    }
}

/// The answer for the one that was asked about.
fn only(answers: &[Settled]) -> Settled {
    answers.first().copied().unwrap_or(Settled::LeaseLost)
}
