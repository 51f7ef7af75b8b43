//! What a host did, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{Settled, Settlement};

/// What a host did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages done.
    pub acked: u64,
    /// Attempts that failed.
    pub nacked: u64,
    /// Messages rejected.
    pub rejected: u64,
    /// Results that came after their lease had expired and changed nothing.
    pub stale: u64,
    /// Handlers stopped because their lease could not be kept.
    pub lost: u64,
    /// Deliveries given back unhandled.
    pub released: u64,
    /// Calls of handlers that were refused: what they are not allowed.
    pub refused: u64,
    /// Ticks of schedules that were skipped, since the last one had not ended.
    pub skipped: u64,
}

/// [`Summary`] in the making. Relaxed order: independent counters.
#[derive(Debug, Default)]
pub(super) struct Totals {
    acked: AtomicU64,
    nacked: AtomicU64,
    rejected: AtomicU64,
    stale: AtomicU64,
    lost: AtomicU64,
    released: AtomicU64,
    refused: AtomicU64,
    skipped: AtomicU64,
}

impl Totals {
    pub(super) fn settled(&self, settlement: &Settlement, answer: Settled) {
        let counter = match (answer, settlement) {
            (Settled::LeaseLost | Settled::Refused, _) => &self.stale,
            (Settled::Done, Settlement::Ack { .. }) => &self.acked,
            (Settled::Done, Settlement::Nack { .. }) => &self.nacked,
            (Settled::Done, Settlement::Reject { .. }) => &self.rejected,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn released(&self, count: u64) {
        self.released.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn refused(&self, count: u64) {
        if count > 0 {
            self.refused.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(super) fn skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn summary(&self) -> Summary {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            acked: get(&self.acked),
            nacked: get(&self.nacked),
            rejected: get(&self.rejected),
            stale: get(&self.stale),
            lost: get(&self.lost),
            released: get(&self.released),
            refused: get(&self.refused),
            skipped: get(&self.skipped),
        }
    }
}
