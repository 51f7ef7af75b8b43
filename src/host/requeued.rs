//! What settlements have put back into a queue.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::Settlement;

/// What settlements have put back into a queue since the loop last looked.
#[derive(Debug, Default)]
pub(super) struct Requeued(Mutex<RequeuedDue>);

/// When what was put back is due.
#[derive(Debug, Default)]
pub(super) struct RequeuedDue {
    /// Some of it waits for a slot already.
    pub waits: bool,
    /// When `advance` has something to do for the earliest of the rest.
    pub due_at: Option<Instant>,
}

impl Requeued {
    /// Notes a settlement that took effect; `last` when no attempt is left after it.
    pub(super) fn settled(&self, settlement: &Settlement, last: bool) {
        let due_in = match settlement {
            Settlement::Ack { .. } => return,
            Settlement::Nack { delay, .. } if !last => delay.unwrap_or_default(),
            // To become a dead letter.
            Settlement::Nack { .. } | Settlement::Reject { .. } => Duration::ZERO,
        };
        let mut requeued = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due_at = Instant::now() + due_in;
        requeued.waits |= due_in.is_zero();
        requeued.due_at = Some(requeued.due_at.map_or(due_at, |at| at.min(due_at)));
    }

    /// Notes a message that was given back: it waits for a slot.
    pub(super) fn released(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waits = true;
    }

    pub(super) fn take(&self) -> RequeuedDue {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
