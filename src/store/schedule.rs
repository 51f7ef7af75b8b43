//! When to ask a store again what there is to do.

use std::time::{Duration, Instant};

use super::{Advanced, First};

/// When whoever serves a queue looks at it next: the host's queue worker or the library's queue. The
/// fallback poll repairs every hint that was lost.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// The longest time between two looks.
    poll: Duration,
    /// When `advance` may have something to do.
    advance_at: Instant,
    /// True if `advance_at` is a known deadline or a hint; false if it is only the fallback poll.
    deadline_known: bool,
    /// Counts hints, so that an answer which may not know of the latest does not hide it.
    hints: u64,
    reservations: u32,
}

impl Schedule {
    /// The first look is due at once.
    pub(crate) fn new(poll: Duration) -> Self {
        Self {
            poll,
            advance_at: Instant::now(),
            deadline_known: true,
            hints: 0,
            reservations: 0,
        }
    }

    pub(crate) fn advance_at(&self) -> Instant {
        self.advance_at
    }

    pub(crate) fn is_due(&self) -> bool {
        self.advance_at <= Instant::now()
    }

    pub(crate) fn deadline_known(&self) -> bool {
        self.deadline_known
    }

    /// Something may have happened that the caller does not know of.
    pub(crate) fn hinted(&mut self) {
        self.hints = self.hints.wrapping_add(1);
        self.advance_at = Instant::now();
        self.deadline_known = true;
    }

    /// The queue has something to do at this time, or earlier.
    pub(crate) fn due_by(&mut self, at: Instant) {
        if at < self.advance_at {
            self.advance_at = at;
            self.deadline_known = true;
        }
    }

    /// The store failed: the next look is a poll, as soon as the caller asks again.
    pub(crate) fn failed(&mut self) {
        self.advance_at = Instant::now();
        self.deadline_known = false;
    }

    /// The hints so far, for [`advanced`](Self::advanced).
    pub(crate) fn hints(&self) -> u64 {
        self.hints
    }

    /// Notes the answer of an `advance` that was asked after so many hints.
    pub(crate) fn advanced(&mut self, advanced: &Advanced, hints: u64) {
        if self.hints != hints {
            return;
        }
        let next_in = if advanced.more {
            Some(Duration::ZERO)
        } else {
            advanced.next_in
        };
        let next_in = next_in.filter(|due| *due < self.poll);
        self.deadline_known = next_in.is_some();
        self.advance_at = Instant::now() + next_in.unwrap_or(self.poll);
    }

    /// Where the next reservation looks first.
    pub(crate) fn first(&mut self) -> First {
        self.reservations = self.reservations.wrapping_add(1);
        First::in_turn(self.reservations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_secs(100);

    fn next_in(next_in: Duration) -> Advanced {
        Advanced {
            next_in: Some(next_in),
            ..Advanced::default()
        }
    }

    #[test]
    fn a_hint_is_not_hidden_by_an_answer_that_may_not_know_of_it() {
        let mut schedule = Schedule::new(POLL);
        let hints = schedule.hints();
        schedule.hinted();
        schedule.advanced(&Advanced::default(), hints);
        assert!(schedule.is_due());
        schedule.advanced(&Advanced::default(), schedule.hints());
        assert!(!schedule.is_due());
        schedule.hinted();
        assert!(schedule.is_due() && schedule.deadline_known());
    }

    #[test]
    fn the_earliest_deadline_counts_and_the_poll_is_none() {
        let mut schedule = Schedule::new(POLL);
        schedule.advanced(&next_in(POLL * 2), 0);
        assert!(!schedule.is_due() && !schedule.deadline_known());
        schedule.advanced(&next_in(POLL / 2), 0);
        let at = schedule.advance_at();
        assert!(schedule.deadline_known());
        schedule.due_by(at + POLL);
        assert_eq!(schedule.advance_at(), at);
        let earlier = at.checked_sub(POLL / 4).unwrap();
        schedule.due_by(earlier);
        assert_eq!(schedule.advance_at(), earlier);
        let more = Advanced {
            more: true,
            ..next_in(POLL)
        };
        schedule.advanced(&more, 0);
        assert!(schedule.is_due());
    }
}
