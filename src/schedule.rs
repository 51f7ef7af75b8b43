//! Messages at regular times: which ticks a schedule has, and which of them are to be sent.
//!
//! Nothing here keeps a state. The id of a tick's message is made of queue, schedule and tick, so that any
//! number of hosts may send it: all but the first write nothing.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::message::{Due, Headers, MessageId, NewMessage, QueueName};

/// A tick that is older when a host first looks for it has been missed.
pub const LATE_MAX: Duration = Duration::from_mins(1);

/// The clocks of hosts and store may differ by so much, and a tick is still sent once.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_hours(24);

/// The header that names the schedule.
pub const HEADER_NAME: &str = "dqhost-schedule";

/// The header with the time of the tick, RFC 3339 in UTC.
pub const HEADER_TICK: &str = "dqhost-tick";

/// When a schedule ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timing {
    /// At the times of this pattern, in this time zone.
    Cron(Box<Cron>, TimeZone),
    /// At the multiples of this since 1970, which are the same for every host.
    Every(Duration),
}

/// What becomes of ticks at which no host was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// They are left out.
    Skip,
    /// The latest of them is sent.
    Last,
    /// So many of them are sent, the latest.
    All(usize),
}

/// What becomes of a tick while the message of the tick before has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// It is sent.
    Run,
    /// It is skipped.
    Skip,
}

/// A message for each tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Tells it from the others of its queue.
    pub name: String,
    /// Its ticks.
    pub timing: Timing,
    /// What becomes of missed ticks.
    pub missed: Missed,
    /// How far back missed ticks are looked for.
    pub catch_up: Duration,
    /// Ticks before this time are never sent.
    pub since: Option<Timestamp>,
    /// What becomes of ticks that overlap.
    pub overlap: Overlap,
    /// The message.
    pub payload: String,
    /// Its headers; two more tell schedule and tick.
    pub headers: Headers,
    /// Its retries.
    pub retries: u32,
}

/// The ticks that are to be sent now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DueTicks {
    /// From the earliest on.
    pub ticks: Vec<Timestamp>,
    /// True if others were missed and are left out.
    pub has_skipped: bool,
}

/// Reads a pattern of cron with five fields, or with six, of which the first are seconds.
///
/// # Errors
///
/// What is wrong with it, or that it has no time.
pub fn cron(text: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Optional).build();
    let cron = parser.parse(text).map_err(|error| error.to_string())?;
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    match cron.find_next_occurrence(&now, false) {
        Ok(_) => Ok(cron),
        Err(error) => Err(format!("there is no such time: {error}")),
    }
}

impl Schedule {
    /// The first tick after a time.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.timing {
            Timing::Cron(cron, zone) => {
                let after = after.to_zoned(zone.clone());
                let next = cron.find_next_occurrence(&after, false).ok()?;
                Some(next.timestamp())
            }
            Timing::Every(period) => {
                let period = i64::try_from(period.as_millis()).ok()?.max(1);
                let ticks = after.as_millisecond().div_euclid(period).checked_add(1)?;
                Timestamp::from_millisecond(ticks.checked_mul(period)?).ok()
            }
        }
    }

    /// The last tick before a time.
    fn previous(&self, before: Timestamp) -> Option<Timestamp> {
        match &self.timing {
            Timing::Cron(cron, zone) => {
                let before = before.to_zoned(zone.clone());
                let previous = cron.find_previous_occurrence(&before, false).ok()?;
                Some(previous.timestamp())
            }
            Timing::Every(period) => {
                let period = i64::try_from(period.as_millis()).ok()?.max(1);
                // A whole millisecond is not before itself.
                let before = before.as_nanosecond() - 1;
                let before = i64::try_from(before.div_euclid(1_000_000)).ok()?;
                Timestamp::from_millisecond(before.div_euclid(period).checked_mul(period)?).ok()
            }
        }
    }

    /// The ticks that are to be sent at `now` by a host that has looked at those until `looked_at`; none
    /// for one that has just begun. Those until `resumed`, the end of a pause, were missed.
    #[must_use]
    pub fn due(
        &self,
        looked_at: Option<Timestamp>,
        resumed: Option<Timestamp>,
        now: Timestamp,
    ) -> DueTicks {
        let back = |by: Duration| {
            let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
            now.checked_sub(by).unwrap_or(Timestamp::MIN)
        };
        // A clock that was set back: what was sent is known by its id.
        let looked_at = looked_at.filter(|looked_at| *looked_at <= now);
        let late = back(LATE_MAX).max(resumed.unwrap_or(Timestamp::MIN));
        let start = looked_at
            .unwrap_or(Timestamp::MIN)
            .max(back(self.catch_up.max(LATE_MAX)));
        let before_since = |since: Timestamp| since.checked_sub(SignedDuration::from_nanos(1)).ok();
        let start = start.max(self.since.and_then(before_since).unwrap_or(Timestamp::MIN));
        let room = match self.missed {
            Missed::Skip => 0,
            Missed::Last => 1,
            Missed::All(max) => max,
        };
        let mut due = DueTicks::default();
        let (mut missed, mut before) = (
            0,
            now.checked_add(SignedDuration::from_nanos(1))
                .unwrap_or(now),
        );
        while let Some(tick) = self.previous(before).filter(|tick| *tick > start) {
            if tick <= late {
                missed += 1;
                if missed > room {
                    // A host that has just begun cannot know of those that others have sent.
                    due.has_skipped = looked_at.is_some();
                    break;
                }
            }
            due.ticks.push(tick);
            before = tick;
        }
        due.ticks.reverse();
        due
    }

    /// The message of a tick. It is sent once, whichever host sends it and however often.
    #[must_use]
    pub fn message(&self, queue: &QueueName, tick: Timestamp) -> NewMessage {
        let at_ms = u64::try_from(tick.as_millisecond()).unwrap_or(0);
        NewMessage {
            // No producer's key begins like this.
            id: MessageId::of_key(&format!("\0tick\0{queue}\0{}\0{at_ms}", self.name)),
            due: Due::At(at_ms),
            dedup_window: self
                .catch_up
                .max(LATE_MAX)
                .saturating_add(CLOCKS_DIFFER_MAX),
            ..self.message_now(tick)
        }
    }

    /// The message that an operator asks for beside the ticks.
    #[must_use]
    pub fn message_now(&self, now: Timestamp) -> NewMessage {
        let own = [
            (HEADER_NAME, self.name.clone()),
            (HEADER_TICK, now.to_string()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        NewMessage {
            retries: self.retries,
            headers: self.headers.iter().cloned().chain(own).collect(),
            ..NewMessage::new(self.payload.clone())
        }
    }

    /// When it ticks, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.timing {
            Timing::Cron(cron, zone) => {
                let zone = zone.iana_name().unwrap_or("UTC");
                format!("{} ({zone})", cron.describe().trim_end_matches('.'))
            }
            Timing::Every(period) => {
                let period = SignedDuration::try_from(*period).unwrap_or(SignedDuration::MAX);
                format!("Every {period:#}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn every(period: Duration) -> Schedule {
        Schedule {
            name: "s".to_owned(),
            timing: Timing::Every(period),
            missed: Missed::Skip,
            catch_up: Duration::from_hours(1),
            since: None,
            overlap: Overlap::Run,
            payload: String::new(),
            headers: Vec::new(),
            retries: 3,
        }
    }

    fn at_times(pattern: &str, zone: &str) -> Schedule {
        let zone = TimeZone::get(zone).unwrap();
        Schedule {
            timing: Timing::Cron(Box::new(cron(pattern).unwrap()), zone),
            ..every(Duration::ZERO)
        }
    }

    fn next_ones(schedule: &Schedule, after: &str, number: usize) -> Vec<String> {
        let first = schedule.next(at(after));
        let ticks = std::iter::successors(first, |tick| schedule.next(*tick));
        ticks.take(number).map(|tick| tick.to_string()).collect()
    }

    #[test]
    fn ticks_of_patterns_and_periods() {
        for (schedule, after, expected) in [
            (
                at_times("*/15 * * * *", "UTC"),
                "2026-01-01T00:14:59.5Z",
                ["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"],
            ),
            (
                at_times("*/20 * * * * *", "UTC"),
                "2026-01-01T00:00:40Z",
                ["2026-01-01T00:01:00Z", "2026-01-01T00:01:20Z"],
            ),
            (
                at_times("0 9 * * MON", "America/New_York"),
                "2026-01-01T00:00:00Z",
                ["2026-01-05T14:00:00Z", "2026-01-12T14:00:00Z"],
            ),
            (
                at_times("0 0 29 2 *", "UTC"),
                "2026-01-01T00:00:00Z",
                ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"],
            ),
            (
                every(Duration::from_secs(90)),
                "2026-01-01T00:01:30Z",
                ["2026-01-01T00:03:00Z", "2026-01-01T00:04:30Z"],
            ),
        ] {
            assert_eq!(next_ones(&schedule, after, 2), expected, "{schedule:?}");
        }
        for bad in [
            "",
            "* * * *",
            "61 * * * *",
            "0 0 30 2 *",
            "soon",
            "* * * * * * * *",
        ] {
            assert!(cron(bad).is_err(), "{bad}");
        }
    }

    /// In Berlin the clock goes from 2:00 to 3:00 on 29 March 2026, and from 3:00 to 2:00 on 25 October.
    #[test]
    fn a_time_that_a_clock_change_leaves_out_or_repeats_is_one_tick() {
        let daily = at_times("30 2 * * *", "Europe/Berlin");
        assert_eq!(
            next_ones(&daily, "2026-03-28T12:00:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            next_ones(&daily, "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        // What is repeated all day goes on by the time that passes.
        let hourly = at_times("30 * * * *", "Europe/Berlin");
        assert_eq!(
            next_ones(&hourly, "2026-10-24T23:40:00Z", 3),
            [
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:30:00Z",
                "2026-10-25T02:30:00Z"
            ]
        );
        assert_eq!(
            next_ones(&hourly, "2026-03-29T00:00:00Z", 3),
            [
                "2026-03-29T00:30:00Z",
                "2026-03-29T01:30:00Z",
                "2026-03-29T02:30:00Z"
            ]
        );
    }

    #[test]
    fn missed_ticks_are_skipped_or_made_up_for() {
        let now = at("2026-01-01T12:00:30Z");
        let due = |missed, looked_at: Option<&str>, since: Option<&str>| {
            let schedule = Schedule {
                missed,
                since: since.map(at),
                ..every(Duration::from_mins(10))
            };
            let due = schedule.due(looked_at.map(at), None, now);
            let ticks = due
                .ticks
                .iter()
                .map(|tick| tick.to_string()[11..16].to_owned());
            (ticks.collect::<Vec<_>>().join(" "), due.has_skipped)
        };
        let told = |ticks: &str, has_skipped| (ticks.to_owned(), has_skipped);
        let long_ago = Some("2026-01-01T11:15:00Z");
        assert_eq!(due(Missed::Skip, None, None), told("12:00", false));
        assert_eq!(due(Missed::Skip, long_ago, None), told("12:00", true));
        assert_eq!(due(Missed::Last, long_ago, None), told("11:50 12:00", true));
        assert_eq!(
            due(Missed::All(2), long_ago, None),
            told("11:40 11:50 12:00", true)
        );
        assert_eq!(
            due(Missed::All(9), long_ago, None),
            told("11:20 11:30 11:40 11:50 12:00", false)
        );
        // No further back than the catch-up of an hour, and not before the start.
        let day = Some("2025-12-31T12:00:00Z");
        assert_eq!(
            due(Missed::All(99), day, None),
            told("11:10 11:20 11:30 11:40 11:50 12:00", false)
        );
        assert_eq!(
            due(Missed::All(99), None, Some("2026-01-01T11:50:00Z")),
            told("11:50 12:00", false)
        );
        assert_eq!(
            due(Missed::Skip, Some("2026-01-01T12:00:00Z"), None),
            told("", false)
        );
        // Set back by ten minutes: it looks again.
        assert_eq!(
            due(Missed::Skip, Some("2026-01-01T12:10:00Z"), None),
            told("12:00", false)
        );
    }

    #[test]
    fn ticks_of_a_pause_are_missed_ticks() {
        let now = at("2026-01-01T12:00:05Z");
        let due = |missed, looked_at: Option<&str>| {
            let schedule = Schedule {
                missed,
                ..every(Duration::from_secs(10))
            };
            // Paused from half a minute before.
            let resumed = Some(at("2026-01-01T11:59:55Z"));
            let ticks = schedule.due(looked_at.map(at), resumed, now).ticks;
            let seconds = ticks.iter().map(|tick| tick.to_string()[14..19].to_owned());
            seconds.collect::<Vec<_>>().join(" ")
        };
        let paused = Some("2026-01-01T11:59:25Z");
        assert_eq!(due(Missed::Skip, paused), "00:00");
        assert_eq!(due(Missed::Last, paused), "59:50 00:00");
        assert_eq!(due(Missed::All(9), paused), "59:30 59:40 59:50 00:00");
        assert_eq!(due(Missed::All(2), paused), "59:40 59:50 00:00");
        // A host that began after the pause knows no more than its end.
        assert_eq!(due(Missed::Skip, None), "00:00");
    }

    #[test]
    fn a_tick_has_one_id_in_its_queue_and_schedule() {
        let queue: QueueName = "q".parse().unwrap();
        let other: QueueName = "other".parse().unwrap();
        let (one, two) = (at("2026-01-01T12:00:00Z"), at("2026-01-01T12:10:00Z"));
        let schedule = every(Duration::from_mins(10));
        let named = Schedule {
            name: "t".to_owned(),
            ..schedule.clone()
        };
        let ids: BTreeSet<String> = [
            schedule.message(&queue, one),
            schedule.message(&queue, one),
            schedule.message(&queue, two),
            schedule.message(&other, one),
            named.message(&queue, one),
        ]
        .map(|message| message.id.to_string())
        .into();
        assert_eq!(ids.len(), 4);
        let message = schedule.message(&queue, one);
        assert_eq!(message.due, Due::At(1_767_268_800_000));
        assert_eq!(
            message.headers,
            [
                ("dqhost-schedule", "s"),
                ("dqhost-tick", "2026-01-01T12:00:00Z")
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    proptest! {
        /// Hosts look at any moments, by clocks that jump within a day, and begin anew at any time. As long
        /// as one of them looks within the catch-up, each tick is sent, and never by two ids.
        #[test]
        fn each_tick_is_sent_whatever_the_clocks_of_hosts_do(
            steps in prop::collection::vec((0..3_usize, 0..600_i64, -80_000..80_000_i64, any::<bool>()), 1..60),
        ) {
            let queue: QueueName = "q".parse().unwrap();
            let schedule = Schedule {
                missed: Missed::All(1_000),
                since: Some(at("2026-01-01T00:00:00Z")),
                ..every(Duration::from_secs(10))
            };
            let mut now = at("2026-01-01T00:00:05Z");
            let mut looked_at = [None; 3];
            let (mut ids, mut ticks) = (BTreeSet::new(), BTreeSet::new());
            for (host, seconds, skew, restarts) in steps {
                now += SignedDuration::from_secs(seconds);
                if restarts {
                    looked_at[host] = None;
                }
                for (host, clock) in [(host, now + SignedDuration::from_secs(skew)), (host, now)] {
                    for tick in schedule.due(looked_at[host], None, clock).ticks {
                        ids.insert(schedule.message(&queue, tick).id.to_string());
                        ticks.insert(tick);
                    }
                    looked_at[host] = Some(clock);
                }
                let past = ticks.range(..=now).count();
                let expected = usize::try_from(now.as_second() / 10 - at("2026-01-01T00:00:00Z").as_second() / 10).unwrap() + 1;
                prop_assert_eq!(past, expected);
            }
            prop_assert_eq!(ids.len(), ticks.len());
        }
    }
}
