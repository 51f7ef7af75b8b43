//! How long to wait after a failed attempt, and when to give up. Pure.

use std::time::Duration;

use crate::message::HistoryEntry;

/// How the delays of a message grow from attempt to attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delays {
    /// The same after each attempt.
    Fixed(Duration),
    /// This after the first attempt, and so much more after each further one.
    Linear(Duration),
    /// This after the first attempt, doubled after each further one.
    Exponential(Duration),
    /// One after the other; the last one repeats. Without any there is no delay.
    List(Vec<Duration>),
}

impl Delays {
    /// The delay after the given attempt, 1 for the first; without jitter and maximum.
    #[must_use]
    pub fn after(&self, attempt: u32) -> Duration {
        let earlier = attempt.saturating_sub(1);
        match self {
            Self::Fixed(delay) => *delay,
            Self::Linear(step) => step.saturating_mul(earlier.saturating_add(1)),
            Self::Exponential(base) => base.saturating_mul(1 << earlier.min(31)),
            Self::List(delays) => {
                let at = usize::try_from(earlier).unwrap_or(usize::MAX);
                let delay = delays.get(at).or(delays.last());
                delay.copied().unwrap_or_default()
            }
        }
    }
}

/// How long to wait after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// Where the handler named no delay.
    pub delays: Delays,
    /// The longest, for the handler's own delays too.
    pub max: Duration,
    /// By how much a delay is spread to either side, in percent of it; at most 100. So messages that
    /// failed together do not come back together. A delay that the handler named is not spread.
    pub jitter_percent: u32,
}

impl Backoff {
    /// What holds unless said otherwise.
    pub const JITTER_PERCENT_DEFAULT: u32 = 20;

    /// The delay after the given attempt (1 for the first). `random` is a number from 0 to 1.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let delay = self.delays.after(attempt).min(self.max);
        if self.jitter_percent == 0 {
            return delay;
        }
        let share = f64::from(self.jitter_percent.min(100)) / 100.0;
        let factor = 1.0 - share + 2.0 * share * random.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(delay.as_secs_f64() * factor)
            .unwrap_or(delay)
            .min(self.max)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            delays: Delays::Exponential(Duration::from_secs(1)),
            max: Duration::from_hours(1),
            jitter_percent: Self::JITTER_PERCENT_DEFAULT,
        }
    }
}

/// When the first attempt of a message began, as far as its history tells, unix milliseconds. If its
/// first attempt is not in the history, what is first in there counts.
#[must_use]
pub fn first_began_ms(history: &[HistoryEntry]) -> Option<u64> {
    let first_attempt = history.iter().find_map(|entry| match entry {
        HistoryEntry::Attempt(attempt) if attempt.attempt == 1 => Some(began_ms(entry)),
        _ => None,
    });
    first_attempt.or_else(|| history.first().map(began_ms))
}

fn began_ms(entry: &HistoryEntry) -> u64 {
    match entry {
        HistoryEntry::Attempt(attempt) => attempt
            .at_ms
            .saturating_sub(attempt.duration_ms.unwrap_or(0)),
        HistoryEntry::Redriven { at_ms, .. } => *at_ms,
    }
}

/// True if a retry after this delay would begin later than `limit` after the first attempt began, `age`
/// ago.
#[must_use]
pub fn is_too_late(age: Duration, delay: Option<Duration>, limit: Duration) -> bool {
    age.saturating_add(delay.unwrap_or_default()) > limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Attempt;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn delays_of(delays: Delays) -> Vec<u64> {
        let backoff = Backoff {
            delays,
            max: SECOND * 20,
            jitter_percent: 0,
        };
        let attempts = [1, 2, 3, 4, 6, u32::MAX];
        attempts
            .map(|attempt| backoff.delay(attempt, 0.3).as_secs())
            .into()
    }

    #[test]
    fn delays_grow_as_they_are_told_to() {
        let list = vec![SECOND * 9, SECOND, SECOND * 5];
        for (delays, expected) in [
            (Delays::Fixed(SECOND * 3), [3, 3, 3, 3, 3, 3]),
            (Delays::Linear(SECOND * 3), [3, 6, 9, 12, 18, 20]),
            (Delays::Exponential(SECOND), [1, 2, 4, 8, 20, 20]),
            (Delays::List(list), [9, 1, 5, 5, 5, 5]),
            (Delays::List(Vec::new()), [0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(delays_of(delays.clone()), expected, "{delays:?}");
        }
    }

    #[test]
    fn jitter_spreads_to_either_side_and_never_over_the_maximum() {
        let backoff = Backoff {
            delays: Delays::Fixed(SECOND * 10),
            max: SECOND * 11,
            jitter_percent: 30,
        };
        let at = |random| backoff.delay(1, random).as_millis();
        assert_eq!([at(0.0), at(0.5), at(1.0)], [7000, 10_000, 11_000]);
    }

    fn failed(attempt: u32, at_ms: u64, duration_ms: Option<u64>) -> HistoryEntry {
        HistoryEntry::Attempt(Attempt {
            attempt,
            at_ms,
            class: "nacked".to_owned(),
            reason: String::new(),
            duration_ms,
            host: String::new(),
            handler: String::new(),
            log: String::new(),
        })
    }

    #[test]
    fn the_first_attempt_says_since_when_a_message_fails() {
        let redriven = HistoryEntry::Redriven {
            redriven_from: "x".to_owned(),
            redrives: 1,
            at_ms: 50,
        };
        let (first, second) = (failed(1, 1000, Some(100)), failed(2, 3000, None));
        for (history, began) in [
            (vec![], None),
            (vec![first.clone(), second.clone()], Some(900)),
            (vec![redriven.clone(), first, second.clone()], Some(900)),
            (vec![redriven, second.clone()], Some(50)),
            (vec![second], Some(3000)),
            (vec![failed(1, 5, Some(9))], Some(0)),
        ] {
            assert_eq!(first_began_ms(&history), began, "{history:?}");
        }
    }

    #[test]
    fn a_retry_at_the_limit_is_not_too_late() {
        assert!(!is_too_late(SECOND, Some(SECOND), SECOND * 2));
        assert!(is_too_late(SECOND, Some(SECOND * 2), SECOND * 2));
        assert!(!is_too_late(SECOND, None, SECOND));
        assert!(is_too_late(SECOND * 2, None, SECOND));
        assert!(is_too_late(Duration::MAX, Some(Duration::MAX), SECOND));
    }

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            (0u64..1 << 50).prop_map(Duration::from_millis),
        ]
    }

    fn any_growing() -> impl Strategy<Value = Delays> {
        prop_oneof![
            any_duration().prop_map(Delays::Fixed),
            any_duration().prop_map(Delays::Linear),
            any_duration().prop_map(Delays::Exponential),
            prop::collection::vec(any_duration(), 0..9).prop_map(|mut list| {
                list.sort();
                Delays::List(list)
            }),
        ]
    }

    proptest! {
        #[test]
        fn no_delay_is_over_the_maximum(
            delays in any_growing(), max in any_duration(), attempt: u32, random: f64,
            jitter_percent: u32,
        ) {
            let backoff = Backoff { delays, max, jitter_percent };
            prop_assert!(backoff.delay(attempt, random) <= max);
        }

        #[test]
        fn without_jitter_delays_never_shrink(
            delays in any_growing(), max in any_duration(), one: u32, other: u32, random: f64,
        ) {
            let backoff = Backoff { delays, max, jitter_percent: 0 };
            let [earlier, later] = [one.min(other), one.max(other)];
            prop_assert!(backoff.delay(earlier, random) <= backoff.delay(later, random));
        }

        #[test]
        fn a_list_is_followed(list in prop::collection::vec(0u64..1 << 40, 1..20), attempt in 1u32..40) {
            let list: Vec<Duration> = list.into_iter().map(Duration::from_millis).collect();
            let at = (attempt as usize - 1).min(list.len() - 1);
            let expected = list[at];
            let backoff = Backoff { delays: Delays::List(list), max: Duration::MAX, jitter_percent: 0 };
            prop_assert_eq!(backoff.delay(attempt, 0.9), expected);
        }
    }
}
