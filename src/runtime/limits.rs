//! The ceilings of one run: time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wasmtime::ResourceLimiter;

/// What one run of a handler may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until it is stopped, unless it asks for more.
    pub time: Duration,
    /// The most that it is granted when it asks for more; at least `time`.
    pub time_max: Duration,
    /// Linear memory, all of a component's together, in bytes.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let time = Duration::from_secs(30);
        Self {
            time,
            time_max: time,
            memory: 64 * 1024 * 1024,
        }
    }
}

/// The moment at which a run is stopped. Shared by what enforces it (the epoch callback, the timer)
/// and what moves it (the guest's `extend`).
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    start: Instant,
    /// Microseconds after `start`. Relaxed order suffices: it is one number, and a late reader
    /// only stops the guest a tick later or grants it again.
    at_us: Arc<AtomicU64>,
    max: Duration,
}

impl Deadline {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            start: Instant::now(),
            at_us: Arc::new(AtomicU64::new(micros(limits.time))),
            max: limits.time_max.max(limits.time),
        }
    }

    pub(super) fn at(&self) -> Instant {
        self.start + Duration::from_micros(self.at_us.load(Ordering::Relaxed))
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.at()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.at().saturating_duration_since(Instant::now())
    }

    /// The limit that applied in the end, counted from the start.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_micros(self.at_us.load(Ordering::Relaxed))
    }

    /// Moves the limit to `wanted` from now, at most to the maximum. Returns what is granted.
    pub(super) fn extend(&self, wanted: Duration) -> Duration {
        let end = self.start.elapsed().saturating_add(wanted).min(self.max);
        self.at_us.store(micros(end), Ordering::Relaxed);
        self.remaining()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Counts the memory of one store and refuses what goes over the ceiling. Refusing traps the
/// guest: a guest that is told that its allocation failed mostly aborts anyway, without a word of
/// why.
#[derive(Debug)]
pub(super) struct Ceiling {
    pub memory: usize,
    pub used: usize,
    pub exceeded: bool,
}

/// Elements that one table may have. A component of a Rust guest has some hundreds; large language
/// runtimes some tens of thousands.
pub(super) const TABLE_ELEMENTS_MAX: usize = 200_000;

impl Ceiling {
    pub(super) fn new(memory: usize) -> Self {
        Self {
            memory,
            used: 0,
            exceeded: false,
        }
    }
}

impl ResourceLimiter for Ceiling {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = self.used.saturating_sub(current).saturating_add(desired);
        if wanted > self.memory {
            self.exceeded = true;
            return Err(wasmtime::format_err!("memory limit reached"));
        }
        self.used = wanted;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_moves_its_limit_no_further_than_the_maximum() {
        let limits = Limits {
            time: Duration::from_secs(10),
            time_max: Duration::from_mins(1),
            ..Limits::default()
        };
        let deadline = Deadline::new(limits);
        assert!(deadline.extend(Duration::from_secs(30)) > Duration::from_secs(29));
        assert!(deadline.extend(Duration::MAX) <= Duration::from_mins(1));
        assert_eq!(deadline.limit(), Duration::from_mins(1));
        deadline.extend(Duration::ZERO);
        assert!(deadline.is_over());
    }

    #[test]
    fn memory_is_counted_over_all_memories_of_a_store() {
        let mut ceiling = Ceiling::new(100);
        assert!(ceiling.memory_growing(0, 60, None).unwrap());
        assert!(ceiling.memory_growing(0, 30, None).unwrap());
        assert!(ceiling.memory_growing(30, 41, None).is_err());
        assert!(ceiling.exceeded);
        assert_eq!(ceiling.used, 90);
    }
}
