//! How much so many slots get done, and how long their handlers wait outside.

use std::time::Duration;

use super::real;

/// Fewer runs say little.
const RUNS_MIN: u64 = 16;

/// No shorter time is measured: what finishes comes in bursts.
const TIME_MIN: f64 = 0.5;

/// What a cycle has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Runs that end in a second.
    pub rate: f64,
    /// Seconds that one waits outside.
    pub outside: f64,
}

/// A time in which most slots were used twice.
#[derive(Debug, Clone, Default)]
pub(super) struct Cycle {
    elapsed: f64,
    finished: u64,
    outside: f64,
}

impl Cycle {
    /// Adds an interval. Returns what a cycle has shown if this was the end of one.
    pub(super) fn add(
        &mut self,
        elapsed: Duration,
        finished: u64,
        outside: Duration,
    ) -> Option<Measured> {
        self.elapsed += elapsed.as_secs_f64();
        self.finished += finished;
        self.outside += outside.as_secs_f64();
        let mean = self.mean()?;
        if self.elapsed < TIME_MIN.max(2.0 * mean) {
            return None;
        }
        let measured = Measured {
            rate: real(self.finished) / self.elapsed,
            outside: mean,
        };
        *self = Self::default();
        Some(measured)
    }

    /// How long the runs so far have waited outside, if they are enough.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.finished >= RUNS_MIN).then(|| self.outside / real(self.finished))
    }
}
