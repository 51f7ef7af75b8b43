//! The clock of a store that has none of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where an embedded store has the time from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// This machine's wall clock, which all processes that share a file agree on.
    #[default]
    System,
    /// Time that passes only when told to, for tests of what depends on it.
    Manual(ManualClock),
}

/// Unix milliseconds that only [`ManualClock::pass`] moves. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at this time, in unix milliseconds.
    #[must_use]
    pub fn at(unix_ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(unix_ms)))
    }

    /// Lets time pass; parts of a millisecond are dropped.
    pub fn pass(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    /// The time, in unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// One reading of a clock, in unix time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds, rounded down: what is compared with it is never due early.
    pub ms: u64,
    /// Milliseconds, rounded up: what is added to it never ends early.
    pub ceil_ms: u64,
    /// Microseconds: what sleeps for the rest of a millisecond is on time.
    pub us: u64,
}

impl Clock {
    /// A time before 1970 reads as 1970.
    pub(crate) fn now(&self) -> Now {
        match self {
            Self::System => {
                let since = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default();
                let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
                Now {
                    ms,
                    ceil_ms: ms + u64::from(!since.subsec_nanos().is_multiple_of(1_000_000)),
                    us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
                }
            }
            Self::Manual(clock) => {
                let ms = clock.now_ms();
                Now {
                    ms,
                    ceil_ms: ms,
                    us: ms.saturating_mul(1000),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_when_told_to() {
        let manual = ManualClock::at(1000);
        let clock = Clock::Manual(manual.clone());
        manual.pass(Duration::from_micros(2500));
        assert_eq!(
            clock.now(),
            Now {
                ms: 1002,
                ceil_ms: 1002,
                us: 1_002_000
            }
        );
    }

    #[test]
    fn the_two_readings_enclose_the_time() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = Clock::System.now();
        assert!(u128::from(now.ceil_ms) >= before.as_millis());
        assert!(now.ceil_ms - now.ms <= 1);
        assert_eq!(now.us / 1000, now.ms);
    }
}
