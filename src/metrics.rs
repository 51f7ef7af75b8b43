//! How often something took how long since the process began, for a scrape of `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest times of the buckets, in seconds.
pub const BOUNDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Times, counted by their length. Relaxed order: independent counters.
#[derive(Debug, Default)]
pub struct Buckets {
    counts: [AtomicU64; BOUNDS.len() + 1],
    /// The sum of all, in microseconds.
    micros: AtomicU64,
}

/// What [`Buckets`] have counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// For each bound in seconds, and for what is above all of them (`f64::INFINITY`), how many were in its
    /// bucket and in no lower one.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all, in seconds.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
}

impl Buckets {
    /// With nothing counted.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BOUNDS.len() + 1],
            micros: AtomicU64::new(0),
        }
    }

    /// Something took so long.
    pub fn record(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// What was counted by now.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let micros = self.micros.load(Ordering::Relaxed);
        Distribution {
            sum: Duration::from_micros(micros).as_secs_f64(),
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_of_the_next_bound() {
        let buckets = Buckets::new();
        for millis in [0, 1, 2, 300_000, 300_001, 86_400_000] {
            buckets.record(Duration::from_millis(millis));
        }
        let read = buckets.read();
        let of = |bound: f64| {
            read.buckets
                .iter()
                .find(|(other, _)| *other >= bound)
                .unwrap()
                .1
        };
        assert_eq!((of(0.001), of(0.0025), of(0.005)), (2, 1, 0));
        assert_eq!((of(300.0), of(f64::INFINITY), read.count), (1, 2, 6));
        assert!((read.sum - 87_000.004).abs() < 0.001, "{}", read.sum);
    }
}
