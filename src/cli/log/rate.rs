//! How many lines handlers may add to the log, all of them together.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a line takes of the time: 1,000 lines a second, each of up to so many bytes.
const LINE_TIME: Duration = Duration::from_millis(1);
const LINE_BYTES: usize = 1024;

/// How far lines may be ahead of that.
const AHEAD_MAX: Duration = Duration::from_secs(5);

/// How often it is told that lines were left out.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What all handlers of a process have written. A std mutex: nothing is awaited while it is held.
#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    /// When all that was written will have taken its time.
    paid_at: Option<Instant>,
    left_out: u64,
    told_at: Option<Instant>,
}

impl Rate {
    /// True if a line of this length may be written now; counts it otherwise.
    pub(super) fn admit(&self, bytes: usize, now: Instant) -> bool {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = written.paid_at.map_or(now, |at| at.max(now));
        if from.duration_since(now) > AHEAD_MAX {
            written.left_out += 1;
            return false;
        }
        let lines = u32::try_from(bytes.div_ceil(LINE_BYTES)).unwrap_or(u32::MAX);
        written.paid_at = from.checked_add(LINE_TIME.saturating_mul(lines));
        true
    }

    /// The lines that were left out since it was last told, if it is time to tell.
    pub(super) fn left_out(&self, now: Instant) -> Option<String> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = |told: Instant| now.duration_since(told) < TOLD_EVERY;
        if written.left_out == 0 || written.told_at.is_some_and(is_early) {
            return None;
        }
        written.told_at = Some(now);
        Some(told(std::mem::take(&mut written.left_out)))
    }

    /// The same at the end.
    pub(super) fn end(&self) -> Option<String> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut written.left_out);
        (lines > 0).then(|| told(lines))
    }
}

fn told(lines: u64) -> String {
    format!("{lines} lines of handlers were left out, since there were too many at a time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_handlers_have_a_rate_and_what_is_left_out_is_told() {
        let (rate, start) = (Rate::default(), Instant::now());
        let admitted = |now, bytes| (0..20_000).filter(|_| rate.admit(bytes, now)).count();
        assert_eq!(admitted(start, 100), 5001);
        assert_eq!(rate.left_out(start), Some(told(14_999)));
        assert_eq!(admitted(start + Duration::from_millis(500), 100), 500);
        assert_eq!(rate.left_out(start + Duration::from_millis(500)), None);
        let later = start + Duration::from_secs(2);
        assert_eq!(rate.left_out(later), Some(told(19_500)));
        // A long one counts as many.
        assert_eq!(admitted(later, 10 * LINE_BYTES), 150);
        assert_eq!(rate.end(), Some(told(19_850)));
        assert_eq!(rate.end(), None);
    }
}
