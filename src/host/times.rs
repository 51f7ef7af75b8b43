//! How long handlers took, and how late they were.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::metrics::{Buckets, Distribution};
use crate::verdict::Outcome;

/// How long a window of measurements lasts. What is shown covers the last window and the current
/// one.
const WINDOW: Duration = Duration::from_secs(30);

/// The longest time that is told from longer ones.
const LONGEST: Duration = Duration::from_hours(24);

/// How long something took lately; zero when there was nothing to measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Measurements.
    pub count: u64,
    /// Half of them took no longer.
    pub p50: Duration,
    /// All but one in a hundred took no longer.
    pub p99: Duration,
}

/// How long things took: over the last window and the current one, and since the host began.
#[derive(Debug)]
pub(super) struct Times {
    windows: Mutex<Windows>,
    /// Runs by the place of their class in [`Outcome::CLASSES`].
    ended: [AtomicU64; Outcome::CLASSES.len()],
    took: Buckets,
    late: Buckets,
}

#[derive(Debug)]
struct Windows {
    began: Instant,
    /// Handlers, then lateness; microseconds; the current window, then the one before.
    took: [Histogram<u64>; 2],
    late: [Histogram<u64>; 2],
}

impl Default for Times {
    fn default() -> Self {
        let empty = || {
            let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
            Histogram::new_with_max(longest, 2).expect("the bounds are those that it takes")
        };
        Self {
            windows: Mutex::new(Windows {
                began: Instant::now(),
                took: [empty(), empty()],
                late: [empty(), empty()],
            }),
            ended: Default::default(),
            took: Buckets::new(),
            late: Buckets::new(),
        }
    }
}

impl Times {
    fn lock(&self) -> MutexGuard<'_, Windows> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let age = windows.began.elapsed();
        if age >= WINDOW {
            let Windows { took, late, .. } = &mut *windows;
            for pair in [took, late] {
                pair.swap(0, 1);
                pair[0].reset();
                if age >= WINDOW * 2 {
                    pair[1].reset();
                }
            }
            windows.began = Instant::now();
        }
        windows
    }

    /// A handler has ended.
    pub(super) fn ended(&self, outcome: &Outcome, duration: Duration) {
        let class = outcome.class();
        if let Some(at) = Outcome::CLASSES.iter().position(|other| *other == class) {
            self.ended[at].fetch_add(1, Ordering::Relaxed);
        }
        if *outcome == Outcome::Expired {
            // Nothing ran that took a time.
            return;
        }
        self.took.record(duration);
        self.lock().took[0].saturating_record(micros(duration));
    }

    /// Messages were reserved so long after they were due.
    pub(super) fn were_late(&self, by: impl Iterator<Item = Duration>) {
        let mut windows = self.lock();
        for by in by {
            self.late.record(by);
            windows.late[0].saturating_record(micros(by));
        }
    }

    /// How often runs of each class have ended.
    pub(super) fn ended_by_class(&self) -> Vec<(&'static str, u64)> {
        let counts = self.ended.iter().map(|count| count.load(Ordering::Relaxed));
        Outcome::CLASSES.into_iter().zip(counts).collect()
    }

    /// How long handlers took, since the host began.
    pub(super) fn took(&self) -> Distribution {
        self.took.read()
    }

    /// How late they were, since the host began.
    pub(super) fn late(&self) -> Distribution {
        self.late.read()
    }

    /// Lately: how long handlers took, and how late they were.
    pub(super) fn quantiles(&self) -> (Quantiles, Quantiles) {
        let windows = self.lock();
        (quantiles(&windows.took), quantiles(&windows.late))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn quantiles([now, before]: &[Histogram<u64>; 2]) -> Quantiles {
    let mut both = now.clone();
    // The two have the same bounds, so nothing is left out.
    let _ = both.add(before);
    let at = |quantile| Duration::from_micros(both.value_at_quantile(quantile));
    Quantiles {
        count: both.len(),
        p50: at(0.5),
        p99: at(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_before_counts_and_older_ones_do_not() {
        let times = Times::default();
        times.ended(&Outcome::Acked, Duration::from_millis(10));
        let turn = |by| {
            let mut windows = times.windows.lock().unwrap();
            windows.began = windows.began.checked_sub(by).unwrap();
        };
        turn(WINDOW);
        times.ended(&Outcome::Stopped, Duration::from_millis(30));
        let (took, late) = times.quantiles();
        assert_eq!((took.count, late.count), (2, 0));
        assert!(
            took.p50.as_millis() == 10 && took.p99.as_millis() >= 30,
            "{took:?}"
        );
        turn(WINDOW);
        assert_eq!(times.quantiles().0.count, 1);
        turn(WINDOW * 2);
        assert_eq!(times.quantiles().0.count, 0);
    }

    #[test]
    fn every_end_is_counted_under_its_class() {
        let times = Times::default();
        let reason = String::new;
        let ends = [
            Outcome::Acked,
            Outcome::Nacked {
                delay: None,
                reason: reason(),
            },
            Outcome::Rejected { reason: reason() },
            Outcome::Trapped { reason: reason() },
            Outcome::Exited {
                ok: true,
                last_words: reason(),
            },
            Outcome::TimedOut {
                limit: Duration::ZERO,
            },
            Outcome::OutOfMemory { limit: 1 },
            Outcome::OutOfStack { limit: 1 },
            Outcome::OverLimit { what: reason() },
            Outcome::SendsRefused,
            Outcome::Stopped,
            Outcome::PayloadMissing,
            Outcome::Expired,
            Outcome::HostBusy { what: "x" },
            Outcome::HostFault { reason: reason() },
        ];
        for end in &ends {
            times.ended(end, Duration::ZERO);
        }
        assert!(
            times
                .ended
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 1)
        );
        assert_eq!(times.took.read().count, ends.len() as u64 - 1);
    }
}
