//! The schedules of a queue: `[[queue.NAME.schedule]]`.

use std::time::Duration;

use clap::{Args, Command, FromArgMatches, ValueEnum};
use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::keys::{self, Key, Setting};
use super::with_defaults;
use crate::cli::send::header;
use crate::cli::{number, payload, time};
use crate::message::{PAYLOAD_MAX_DEFAULT, QueueName, RETRIES_MAX, expiry};
use crate::schedule::{self, Missed, Overlap, Schedule, Timing};

/// The shortest period. What has to happen more often is not worth a message.
const PERIOD_MIN: Duration = Duration::from_millis(50);

/// A schedule as it stands in the file. It is parsed like flags, so that its keys are checked, described
/// and shown as all others.
#[derive(Debug, Clone, Args)]
pub(super) struct ScheduleArgs {
    /// Name the schedule; a name occurs once in a queue
    ///
    /// The ids of its messages are made of it.
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Send at the times of this pattern: [second] minute hour day month weekday
    #[arg(long, value_name = "PATTERN", value_parser = cron)]
    cron: Option<Cron>,
    /// Send once in this time
    #[arg(long, value_name = "DURATION", value_parser = period)]
    every: Option<Duration>,
    /// Read the pattern in this time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    timezone: TimeZone,
    /// Send this payload
    #[arg(long, value_name = "TEXT", default_value = "")]
    payload: String,
    /// Add these headers
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Deliver again so often after a first failure [default: as the queue]
    #[arg(long, value_name = "N", value_parser = number::from::<u32>(0..=RETRIES_MAX.into()))]
    retries: Option<u32>,
    /// Make a message a dead letter if it has not begun so long after it was sent
    #[arg(long, value_name = "DURATION", value_parser = time::some_duration)]
    expires_in: Option<Duration>,
    /// Choose what becomes of ticks at which no host ran
    #[arg(long, value_name = "POLICY", default_value = "skip")]
    missed: MissedArg,
    /// Send at most so many missed ticks
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number::from::<usize>(1..=1000))]
    missed_max: usize,
    /// Look back so far for missed ticks
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = catch_up)]
    catch_up: Duration,
    /// Send no tick before this time
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Choose what becomes of a tick while the last one has not ended
    #[arg(long, value_name = "POLICY", default_value = "run")]
    overlap: OverlapArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OverlapArg {
    Run,
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MissedArg {
    Skip,
    Last,
    All,
}

fn name(text: &str) -> Result<String, String> {
    // The same characters as in the name of a queue.
    match text.parse::<QueueName>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("use 1 to 64 letters, digits, dots, underscores and dashes".to_owned()),
    }
}

/// The fields of a pattern, and what each takes. The first may be left out.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day", "1-31"),
    ("month", "1-12 or JAN-DEC"),
    ("weekday", "0-7 or SUN-SAT"),
];

fn cron(text: &str) -> Result<Cron, String> {
    schedule::cron(text).map_err(|_| mistake_in_pattern(text))
}

/// What is wrong with a pattern. The library names neither the field nor what it takes.
fn mistake_in_pattern(text: &str) -> String {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let known = FIELDS.get(FIELDS.len().saturating_sub(fields.len())..);
    let known = known.filter(|_| (5..=6).contains(&fields.len()));
    let Some(known) = known else {
        return "write 5 fields, or 6 with seconds: [second] minute hour day month weekday"
            .to_owned();
    };
    for (at, ((name, takes), field)) in known.iter().zip(fields.iter().copied()).enumerate() {
        let mut alone = vec!["*"; fields.len()];
        alone[at] = field;
        if schedule::cron(&alone.join(" ")).is_err() {
            return format!("its {name} must be {takes} or *, not {field:?}");
        }
    }
    "this pattern never comes: no month of it has such a day".to_owned()
}

fn period(text: &str) -> Result<Duration, String> {
    let period = time::duration(text)?;
    if period < PERIOD_MIN {
        return Err(format!("it must be at least {PERIOD_MIN:?}"));
    }
    Ok(period)
}

fn zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|_| {
        "there is no such time zone; use a name of the IANA database, as in Europe/Berlin"
            .to_owned()
    })
}

fn catch_up(text: &str) -> Result<Duration, String> {
    let catch_up = time::duration(text)?;
    if catch_up > Duration::from_hours(24 * 31) {
        return Err("it must not be more than 31d".to_owned());
    }
    Ok(catch_up)
}

fn since(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "not a time with its zone: use 2026-12-31T14:00:00Z".to_owned())
}

/// The keys of a schedule.
pub(super) fn of_schedule() -> Vec<Key> {
    keys::keys(&ScheduleArgs::augment_args(Command::new("schedule")))
}

impl ScheduleArgs {
    /// From values that were checked.
    ///
    /// # Errors
    ///
    /// Which keys are missing, or do not go together.
    pub(super) fn of(settings: &[Setting]) -> Result<Self, String> {
        let command = ScheduleArgs::augment_args(Command::new("schedule").no_binary_name(true));
        let settings: Vec<&Setting> = settings.iter().collect();
        let command = with_defaults(command, &[], &settings);
        let matches = command.try_get_matches_from(std::iter::empty::<&str>());
        let parsed = matches.and_then(|matches| Self::from_arg_matches(&matches));
        let args = parsed.map_err(|error| error.to_string())?;
        if args.name.is_none() {
            return Err("this schedule has no `name`".to_owned());
        }
        match (&args.cron, args.every) {
            (Some(_), Some(_)) => {
                return Err("`cron` and `every` exclude each other: remove one".to_owned());
            }
            (None, None) => {
                return Err("this schedule has no time: give `cron` or `every`".to_owned());
            }
            _ => {}
        }
        if args.missed != MissedArg::Skip && args.since.is_none() {
            return Err(
                "`missed` needs `since`, such as since = \"2026-12-31T14:00:00Z\": ticks before that \
                 time are not sent"
                    .to_owned(),
            );
        }
        payload::check(args.payload.as_bytes(), &args.header, PAYLOAD_MAX_DEFAULT)?;
        expiry::check(&args.header)?;
        Ok(args)
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The schedule of a queue whose messages have so many retries by default.
    pub(super) fn schedule(&self, retries: u32) -> Schedule {
        let every = self.every.unwrap_or(PERIOD_MIN);
        let mut headers = self.header.clone();
        if let Some(time) = self.expires_in {
            expiry::set(&mut headers, time);
        }
        let timing = match &self.cron {
            Some(cron) => Timing::Cron(Box::new(cron.clone()), self.timezone.clone()),
            None => Timing::Every(every),
        };
        Schedule {
            name: self.name().to_owned(),
            timing,
            missed: match self.missed {
                MissedArg::Skip => Missed::Skip,
                MissedArg::Last => Missed::Last,
                MissedArg::All => Missed::All(self.missed_max),
            },
            catch_up: self.catch_up,
            since: self.since,
            overlap: match self.overlap {
                OverlapArg::Run => Overlap::Run,
                OverlapArg::Skip => Overlap::Skip,
            },
            payload: self.payload.clone(),
            headers,
            retries: self.retries.unwrap_or(retries),
        }
    }
}
