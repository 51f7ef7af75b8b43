//! How long to leave a store alone after an error.

use std::time::{Duration, Instant};

/// The first backoff, and the longest.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Doubling pauses with full jitter, so that many hosts do not come back in step.
#[derive(Debug, Default)]
pub(super) struct ErrorBackoff {
    /// Errors in a row.
    errors: u32,
    until: Option<Instant>,
}

impl ErrorBackoff {
    /// Notes an error. True for the first in a row, which is the one to log.
    pub(super) fn failed(&mut self) -> bool {
        let ceiling = FIRST.saturating_mul(1 << self.errors.min(16)).min(LONGEST);
        self.until = Some(Instant::now() + ceiling.mul_f64(fastrand::f64()).max(FIRST / 5));
        self.errors = self.errors.saturating_add(1);
        self.errors == 1
    }

    /// Notes a success. True when it ends a row of errors.
    pub(super) fn succeeded(&mut self) -> bool {
        self.until = None;
        std::mem::take(&mut self.errors) > 0
    }

    /// What is left of the backoff.
    pub(super) fn remaining(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ends_of_a_row_of_errors_are_told() {
        let mut backoff = ErrorBackoff::default();
        assert!(!backoff.succeeded());
        assert!(backoff.failed());
        for _ in 0..40 {
            assert!(!backoff.failed());
            assert!(backoff.remaining() <= LONGEST);
        }
        assert!(backoff.succeeded());
        assert_eq!(backoff.remaining(), Duration::ZERO);
    }
}
