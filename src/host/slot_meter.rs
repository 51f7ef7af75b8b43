//! What is measured of a queue, so that it gets as many slots as it can use.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Sums since they were read last. Relaxed order: independent counters.
#[derive(Debug, Default)]
pub(super) struct SlotMeter {
    is_short: AtomicBool,
    used: AtomicUsize,
    computed: Sum,
    queued: Sum,
    outside: Sum,
    finished: AtomicU64,
    memory: AtomicU64,
    store: Sum,
    requests: AtomicU64,
}

/// A time in nanoseconds.
#[derive(Debug, Default)]
struct Sum(AtomicU64);

impl Sum {
    fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Relaxed);
    }

    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Relaxed))
    }
}

/// What was measured since the last time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Measurements {
    /// Messages may have waited that had no slot.
    pub is_short: bool,
    /// The most slots in use.
    pub used: usize,
    pub computed: Duration,
    /// Waited for a core.
    pub queued: Duration,
    /// Neither computed nor waited for a core, of runs that ended.
    pub outside: Duration,
    pub finished: u64,
    /// Of a run that ended, bytes; zero if none did.
    pub memory: usize,
    /// Of a request to the store.
    pub store: Option<Duration>,
}

impl SlotMeter {
    /// Messages may wait that have no slot.
    pub(super) fn is_short(&self) {
        self.is_short.store(true, Relaxed);
    }

    /// So many slots are in use.
    pub(super) fn uses(&self, slots: usize) {
        self.used.fetch_max(slots, Relaxed);
    }

    /// A run computed for so long.
    pub(super) fn computed(&self, time: Duration) {
        self.computed.add(time);
    }

    /// A run waited so long for a core.
    pub(super) fn queued(&self, time: Duration) {
        self.queued.add(time);
    }

    /// A run ended that had so much memory. For so long it neither computed nor waited for a core.
    pub(super) fn finished(&self, outside: Duration, memory: usize) {
        self.outside.add(outside);
        self.finished.fetch_add(1, Relaxed);
        self.memory.fetch_add(memory as u64, Relaxed);
    }

    /// The store took so long to answer.
    pub(super) fn asked_store(&self, time: Duration) {
        self.store.add(time);
        self.requests.fetch_add(1, Relaxed);
    }

    /// What was measured since the last call.
    pub(super) fn take(&self) -> Measurements {
        let finished = self.finished.swap(0, Relaxed);
        let memory = self.memory.swap(0, Relaxed) / finished.max(1);
        let requests = self.requests.swap(0, Relaxed);
        let store = self.store.take();
        let requests = u32::try_from(requests).ok();
        Measurements {
            is_short: self.is_short.swap(false, Relaxed),
            used: self.used.swap(0, Relaxed),
            computed: self.computed.take(),
            queued: self.queued.take(),
            outside: self.outside.take(),
            finished,
            memory: usize::try_from(memory).unwrap_or(usize::MAX),
            store: requests.and_then(|requests| store.checked_div(requests)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_counts_once() {
        let (meter, ms) = (SlotMeter::default(), Duration::from_millis);
        meter.is_short();
        meter.uses(3);
        meter.uses(2);
        meter.computed(ms(4));
        meter.queued(ms(5));
        meter.finished(ms(1), 10);
        meter.finished(ms(2), 30);
        meter.asked_store(ms(2));
        meter.asked_store(ms(4));
        let wanted = Measurements {
            is_short: true,
            used: 3,
            computed: ms(4),
            queued: ms(5),
            outside: ms(3),
            finished: 2,
            memory: 20,
            store: Some(ms(3)),
        };
        assert_eq!(meter.take(), wanted);
        assert_eq!(meter.take(), Measurements::default());
    }
}
