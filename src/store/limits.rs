//! How many messages of a queue may begin in a time, and run at a time, over all hosts; and whose turn it is.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Delivery, Headers};

/// The longest name of a header in a [`LimitBy`], in bytes.
const HEADER_BYTES_MAX: usize = 256;

/// The most of a [`Rate::count`] and of a [`Rate::burst`].
const COUNT_MAX: u32 = 100_000;

/// Without another burst, a rate lets the worth of a second go at once, divided by this. So a host that
/// comes some milliseconds late to a high rate loses nothing of it.
const BURSTS_PER_SECOND: u64 = 10;

/// What an operator allows to a queue. Limits hold for all hosts together, by the store's clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// How many messages may begin in a time.
    pub rate: Option<Rate>,
    /// How many messages may be in flight.
    pub max_running: Option<NonZeroU32>,
    /// Both are for each value of a header, and not for the queue as a whole. Then `max_running` is at
    /// most [`KEY_RUNNING_MAX`].
    pub by: Option<LimitBy>,
    /// The values of a header take turns. The other limits are for the queue as a whole then; if `by` is
    /// set, there are no turns.
    pub fair_by: Option<LimitBy>,
    /// How many turns each of them has while the others have one.
    pub fair_weights: FairWeights,
}

/// The most of [`Limits::max_running`] if it is for each key.
pub const KEY_RUNNING_MAX: u32 = 100;

impl Limits {
    /// No limit.
    pub const NONE: Self = Self {
        rate: None,
        max_running: None,
        by: None,
        fair_by: None,
        fair_weights: FairWeights::EQUAL,
    };

    /// True when nothing is limited, and no keys take turns.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.rate.is_none() && self.max_running.is_none() && self.fair_by.is_none()
    }

    /// Whose values take turns.
    #[must_use]
    pub fn fair_by(&self) -> Option<&LimitBy> {
        self.fair_by.as_ref().filter(|_| self.by.is_none())
    }

    /// True if some keys may have to wait while others go.
    #[must_use]
    pub fn are_by_key(&self) -> bool {
        self.by.is_some() || self.fair_by.is_some()
    }

    /// The most that may run of a key, and of a queue; none for any number.
    pub(super) fn running_max(&self) -> Option<u32> {
        let max = self.max_running?.get();
        Some(if self.by.is_some() {
            max.min(KEY_RUNNING_MAX)
        } else {
            max
        })
    }
}

/// What divides the messages of a queue into keys: `header:NAME`. Messages without the header share one
/// key, which is that of an empty value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitBy(Arc<String>);

impl LimitBy {
    /// The name of the header.
    #[must_use]
    pub fn header(&self) -> &str {
        &self.0
    }

    /// The key of a message with these headers.
    pub(super) fn key_of<'h>(&self, headers: &'h Headers) -> &'h str {
        let found = headers.iter().find(|(name, _)| *name == *self.0);
        found.map_or("", |(_, value)| value)
    }
}

impl FromStr for LimitBy {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let name = text.strip_prefix("header:");
        let name = name.filter(|name| {
            (1..=HEADER_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
        });
        name.map(|name| Self(Arc::new(name.to_owned())))
            .ok_or(LimitError::By)
    }
}

impl fmt::Display for LimitBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "header:{}", self.0)
    }
}

/// The weights of keys that take turns; any other has the weight 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FairWeights(BTreeMap<String, u32>);

/// The most keys that have a weight, since each reservation reads them.
const WEIGHTS_MAX: usize = 100;

impl FairWeights {
    /// Each key has the weight 1.
    pub const EQUAL: Self = Self(BTreeMap::new());

    /// The largest weight. Virtual time is a whole number: up to 20 it is exact to a hundredth, and here to a
    /// twentieth.
    pub const MAX: u32 = 100;

    /// Gives keys their weights.
    ///
    /// # Errors
    ///
    /// When a key has two weights, or one that is not from 1 to [`MAX`](Self::MAX), or there are too many.
    pub fn new(weights: impl IntoIterator<Item = (String, u32)>) -> Result<Self, LimitError> {
        let mut all = BTreeMap::new();
        for (key, weight) in weights {
            if !(1..=Self::MAX).contains(&weight) {
                return Err(LimitError::Weight);
            }
            if let Some(known) = all.insert(key.clone(), weight) {
                return Err(LimitError::Weights(key, known, weight));
            }
        }
        if all.len() > WEIGHTS_MAX {
            return Err(LimitError::ManyWeights(all.len()));
        }
        Ok(Self(all))
    }

    /// The weight of a key.
    pub(super) fn of(&self, key: &str) -> u32 {
        self.0.get(key).copied().unwrap_or(1)
    }

    /// As `lua/fair_to_unack.lua` takes them.
    pub(super) fn json(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let pairs: Vec<(&String, &u32)> = self.0.iter().collect();
        serde_json::json!(pairs).to_string()
    }
}

/// So many deliveries in each second, minute, hour or day, written as `100/s`, `5/m`, `20/h` or `1/d`.
///
/// In any time `t`, at most `t` times the rate and the burst may begin. It is the generic cell rate
/// algorithm (GCRA, ITU-T I.371), so deliveries are spread over the time and do not wait for the next
/// full second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Per,
    burst: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Per {
    Second,
    Minute,
    Hour,
    Day,
}

impl Per {
    const ALL: [(Self, &str, u64); 4] = [
        (Self::Second, "s", 1),
        (Self::Minute, "m", 60),
        (Self::Hour, "h", 3600),
        (Self::Day, "d", 86400),
    ];

    fn parts(self) -> (&'static str, u64) {
        let found = Self::ALL.iter().find(|(per, _, _)| *per == self);
        found.map_or(("s", 1), |(_, unit, seconds)| (unit, *seconds))
    }
}

/// Why a text or a number is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No rate.
    #[error(
        "{0:?} is no rate: give a number from 1 to 100000 and a unit, as in 100/s, 5/m, 20/h or 1/d"
    )]
    Rate(String),
    /// No burst.
    #[error("a burst is a number from 1 to 100000")]
    Burst,
    /// No [`LimitBy`].
    #[error("give the name of a header, as in header:customer")]
    By,
    /// No weight.
    #[error("a weight is a number from 1 to 100")]
    Weight,
    /// Two weights of one key.
    #[error("{0:?} has two weights, {1} and {2}: give one")]
    Weights(String, u32, u32),
    /// More keys with weights than one reservation may read.
    #[error("{0} keys have weights, and at most 100 may: leave those with the weight 1 out")]
    ManyWeights(usize),
}

impl FromStr for Rate {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let parsed = || {
            let (count, unit) = text.split_once('/')?;
            if !count.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let count = count.parse().ok().filter(|n| (1..=COUNT_MAX).contains(n))?;
            let (per, _, _) = Per::ALL.iter().find(|(_, name, _)| *name == unit)?;
            Some((count, *per))
        };
        let (count, per) = parsed().ok_or_else(|| LimitError::Rate(text.to_owned()))?;
        let (_, seconds) = per.parts();
        let burst = u64::from(count).div_ceil(seconds * BURSTS_PER_SECOND);
        Ok(Self {
            count,
            per,
            burst: u32::try_from(burst).unwrap_or(COUNT_MAX),
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per.parts().0)
    }
}

impl Rate {
    /// The same rate with another burst: how many may begin at once after a quiet time. Without it, the
    /// burst is the worth of 100 ms, at least 1.
    ///
    /// # Errors
    ///
    /// When it is 0 or above 100,000.
    pub fn with_burst(self, burst: u32) -> Result<Self, LimitError> {
        if (1..=COUNT_MAX).contains(&burst) {
            Ok(Self { burst, ..self })
        } else {
            Err(LimitError::Burst)
        }
    }

    /// Deliveries in each time of [`per_us`](Self::per_us).
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }

    /// The time in which [`count`](Self::count) deliveries may begin, in microseconds.
    #[must_use]
    pub fn per_us(self) -> u64 {
        self.per.parts().1 * 1_000_000
    }

    /// How many may begin at once after a quiet time.
    #[must_use]
    pub fn burst(self) -> u32 {
        self.burst
    }

    /// The time `number` deliveries take by the rate, in microseconds, rounded up.
    fn worth_us(self, number: u64) -> u64 {
        number
            .saturating_mul(self.per_us())
            .div_ceil(self.count.into())
    }

    // The same arithmetic as in lua/include/gcra.lua.

    /// The theoretical arrival time (TAT) from which to go on: `kept` is that of the last delivery. One
    /// that is further ahead than a burst can bring it comes from a clock that was set back, or from
    /// another rate.
    pub(super) fn tat_now(self, kept: Option<u64>, now_us: u64) -> u64 {
        let most = now_us.saturating_add(self.worth_us(self.burst.into()));
        kept.unwrap_or(now_us).min(most).max(now_us)
    }

    /// What is left of the burst, in microseconds times [`count`](Self::count); negative if nothing may
    /// go.
    fn slack(self, tat: u64, now_us: u64) -> i128 {
        let ahead = i128::from(tat.saturating_sub(now_us)) * i128::from(self.count);
        i128::from(self.burst - 1) * i128::from(self.per_us()) - ahead
    }

    /// How many may go now.
    pub(super) fn allowed(self, tat: u64, now_us: u64) -> usize {
        let slack = self.slack(tat, now_us);
        if slack < 0 {
            return 0;
        }
        usize::try_from(slack / i128::from(self.per_us()) + 1).unwrap_or(0)
    }

    /// The TAT after so many have gone. Rounded up, so that the rate is never exceeded.
    pub(super) fn tat_after(self, tat: u64, number: usize) -> u64 {
        tat.saturating_add(self.worth_us(number as u64))
    }

    /// Time until one may go.
    pub(super) fn wait(self, tat: u64, now_us: u64) -> Duration {
        let short = u128::try_from(-self.slack(tat, now_us)).unwrap_or(0);
        let us = short.div_ceil(self.count.into());
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }
}

/// When the limits of a queue let its next message go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NextAllowed {
    /// Nothing is held back.
    #[default]
    Now,
    /// In so much time, by the rate.
    In(Duration),
    /// Once a message in flight is settled, or its lease has expired.
    WhenSettled,
    /// Some keys are over their limits, or it is not their turn; the messages of others may go. The time is
    /// that until the store has something to do for those keys; none if each waits for a message in flight.
    OtherKeys(Option<Duration>),
}

/// What a reservation within limits brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitedReservation {
    /// As of [`Deliver::reserve`](super::Deliver::reserve).
    pub deliveries: Vec<Delivery>,
    /// When there is more to reserve.
    pub next: NextAllowed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        for (text, per_us, burst) in [
            ("100/s", 1_000_000, 10),
            ("1/s", 1_000_000, 1),
            ("15/s", 1_000_000, 2),
            ("100000/s", 1_000_000, 10_000),
            ("5/m", 60_000_000, 1),
            ("20/h", 3_600_000_000, 1),
            ("1/d", 86_400_000_000, 1),
        ] {
            let rate = rate(text);
            assert_eq!((rate.per_us(), rate.burst()), (per_us, burst), "{text}");
            assert_eq!(rate.to_string(), text);
        }
        for bad in [
            "",
            "100",
            "/s",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "100001/s",
            "1/",
            "1/ms",
            "1/S",
            " 1/s",
            "1 / s",
            "99999999999/s",
            "1/s/s",
        ] {
            assert!(bad.parse::<Rate>().is_err(), "{bad:?}");
        }
        assert_eq!(rate("1/s").with_burst(0), Err(LimitError::Burst));
        assert_eq!(rate("1/s").with_burst(100_001), Err(LimitError::Burst));
        assert_eq!(rate("1/s").with_burst(7).unwrap().burst(), 7);
    }

    #[test]
    fn a_clock_that_is_set_back_delays_by_one_burst_at_most() {
        let rate = rate("10/s").with_burst(5).unwrap();
        let tat = rate.tat_now(Some(5_000_000_000), 1_000_000_000);
        assert_eq!(rate.wait(tat, 1_000_000_000), Duration::from_millis(100));
        assert_eq!(tat - 1_000_000_000, 500_000);
    }

    #[test]
    fn weights_are_few_and_each_key_has_one() {
        let weights = |all: &[(&str, u32)]| {
            FairWeights::new(all.iter().map(|(key, weight)| ((*key).to_owned(), *weight)))
        };
        let some = weights(&[("big", 3), ("a\"b", 100)]).unwrap();
        assert_eq!((some.of("big"), some.of("a\"b"), some.of("x")), (3, 100, 1));
        assert_eq!(some.json(), r#"[["a\"b",100],["big",3]]"#);
        assert_eq!(FairWeights::EQUAL.json(), "");
        for bad in [0, 101] {
            assert_eq!(weights(&[("a", bad)]), Err(LimitError::Weight));
        }
        let twice = weights(&[("a", 1), ("a", 2)]);
        assert_eq!(twice, Err(LimitError::Weights("a".to_owned(), 1, 2)));
        let many = FairWeights::new((0..101).map(|n| (n.to_string(), 1)));
        assert_eq!(many, Err(LimitError::ManyWeights(101)));
    }

    #[test]
    fn a_key_is_the_value_of_a_header() {
        let by: LimitBy = "header:customer".parse().unwrap();
        assert_eq!(
            (by.header(), by.to_string()),
            ("customer", "header:customer".to_owned())
        );
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = vec![pair("x", "1"), pair("customer", "7"), pair("customer", "8")];
        assert_eq!(by.key_of(&headers), "7");
        assert_eq!(by.key_of(&vec![]), "");
        let long = format!("header:{}", "x".repeat(257));
        for bad in ["", "customer", "header:", "Header:x", "header:a\nb", &long] {
            assert_eq!(bad.parse::<LimitBy>(), Err(LimitError::By), "{bad:?}");
        }
    }

    /// A bucket of `burst` tokens that fills by the rate, in exact numbers: a token is `per_us` drops,
    /// and `count` drops fall each microsecond.
    struct Bucket {
        rate: Rate,
        drops: u128,
        at_us: u64,
    }

    impl Bucket {
        fn tokens(&mut self, now_us: u64) -> u128 {
            let full = u128::from(self.rate.burst()) * u128::from(self.rate.per_us());
            let fallen = u128::from(now_us - self.at_us) * u128::from(self.rate.count());
            self.drops = (self.drops + fallen).min(full);
            self.at_us = now_us;
            self.drops / u128::from(self.rate.per_us())
        }

        fn take(&mut self, number: usize) {
            self.drops -= number as u128 * u128::from(self.rate.per_us());
        }
    }

    fn rates() -> impl Strategy<Value = Rate> {
        (
            prop_oneof![1_u32..200, 1_u32..=COUNT_MAX],
            prop::sample::select(vec!["s", "m", "h", "d"]),
            prop_oneof![1_u32..5, 1_u32..500, 1_u32..=COUNT_MAX],
        )
            .prop_map(|(count, unit, burst)| {
                rate(&format!("{count}/{unit}")).with_burst(burst).unwrap()
            })
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_rate_and_the_burst(
            rate in rates(),
            steps in prop::collection::vec((0_u64..3_000_000, 0_usize..300), 1..60),
        ) {
            let mut now = 1_795_000_000_000_000_u64;
            let mut kept = None;
            let mut bucket = Bucket { rate, drops: u128::MAX / 4, at_us: now };
            let mut went: Vec<(u64, u64)> = Vec::new();
            for (calls, (pass, wanted)) in steps.into_iter().enumerate() {
                now += pass;
                let tat = rate.tat_now(kept, now);
                let allowed = rate.allowed(tat, now);
                // Each call rounds up by less than a microsecond, which is less than `count` drops.
                let tokens = bucket.tokens(now);
                let rounding = (calls as u128 * u128::from(rate.count()))
                    .div_ceil(u128::from(rate.per_us()));
                prop_assert!(allowed as u128 <= tokens);
                prop_assert!(allowed as u128 + rounding >= tokens, "{allowed} of {tokens}");
                prop_assert_eq!(allowed == 0, !rate.wait(tat, now).is_zero());
                let number = allowed.min(wanted);
                bucket.take(number);
                kept = Some(rate.tat_after(tat, number));
                went.push((now, number as u64));
                for (from, _) in &went {
                    let number: u64 = went.iter().filter(|(at, _)| at >= from).map(|(_, n)| n).sum();
                    let window = u128::from(now - from) * u128::from(rate.count());
                    let most = window / u128::from(rate.per_us()) + u128::from(rate.burst());
                    prop_assert!(u128::from(number) <= most, "{number} in {}us", now - from);
                }
            }
        }

        #[test]
        fn who_waits_as_told_gets_the_whole_rate(
            rate in rates(),
            batch in 1_usize..50,
            rounds in 20_u64..200,
        ) {
            let start = 1_795_000_000_000_000_u64;
            let (mut now, mut kept, mut number) = (start, None, 0);
            for _ in 0..rounds {
                let tat = rate.tat_now(kept, now);
                let some = rate.allowed(tat, now).min(batch);
                prop_assert!(some > 0, "it was told that one may go");
                number += some as u64;
                let tat = rate.tat_after(tat, some);
                kept = Some(tat);
                now += u64::try_from(rate.wait(tat, now).as_micros()).unwrap();
            }
            // All of the time is used: what has gone is the burst and the rate, but for roundings.
            let worth = u128::from(now - start) * u128::from(rate.count());
            let by_rate = worth / u128::from(rate.per_us());
            let rounding = u128::from(rounds) * u128::from(rate.count()) / u128::from(rate.per_us());
            prop_assert!(u128::from(number) + rounding + 1 >= by_rate, "{number} of {by_rate}");
        }

        #[test]
        fn rates_of_any_form_are_read_or_refused(text in "[0-9]{0,7}/?[smhd]?|.*") {
            if let Ok(rate) = text.parse::<Rate>() {
                prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
            }
        }
    }
}
