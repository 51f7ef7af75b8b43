//! Durations and times as people write them.

use std::time::Duration;

use jiff::civil;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp, Zoned};

use crate::message::DELAY_MS_MAX;

/// A duration with a unit: `1500ms`, `30s`, `2h`, `1d`, `1h 30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let help = "use a number with a unit, as in 1500ms, 30s, 2h or 1d";
    let span: Span = text
        .trim()
        .parse()
        .map_err(|_| format!("not a duration: {help}"))?;
    let duration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("not a fixed length of time: {help}"))?;
    let duration =
        Duration::try_from(duration).map_err(|_| format!("it must not be negative: {help}"))?;
    if duration > Duration::from_millis(DELAY_MS_MAX) {
        return Err("it must not be longer than 100 years".to_owned());
    }
    Ok(duration)
}

/// A duration above zero.
pub(crate) fn some_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// A lease: long enough for the round trips that renew it.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if lease < Duration::from_millis(500) {
        return Err(
            "a lease must be at least 500ms, or it ends before it can be renewed".to_owned(),
        );
    }
    Ok(lease)
}

/// A time as unix milliseconds: RFC 3339 with a zone, or a date and time or a time of day in the
/// zone of this machine. A time of day that has passed is tomorrow's.
pub(crate) fn at(text: &str) -> Result<u64, String> {
    at_from(text.trim(), &Zoned::now())
}

fn at_from(text: &str, now: &Zoned) -> Result<u64, String> {
    let help = "use 2026-12-31T14:00:00Z, \"2026-12-31 14:00\" or 14:00";
    let zone: &TimeZone = now.time_zone();
    let outside = |_| format!("that time does not exist: {help}");
    let timestamp = if let Ok(timestamp) = text.parse::<Timestamp>() {
        timestamp
    } else if let Ok(datetime) = text.parse::<civil::DateTime>() {
        datetime
            .to_zoned(zone.clone())
            .map_err(outside)?
            .timestamp()
    } else if let Ok(time) = text.parse::<civil::Time>() {
        let today = now
            .date()
            .to_datetime(time)
            .to_zoned(zone.clone())
            .map_err(outside)?;
        if today > *now {
            today.timestamp()
        } else {
            let tomorrow = now.date().tomorrow().map_err(outside)?;
            tomorrow
                .to_datetime(time)
                .to_zoned(zone.clone())
                .map_err(outside)?
                .timestamp()
        }
    } else {
        return Err(format!("not a time: {help}"));
    };
    let at_ms = u64::try_from(timestamp.as_millisecond())
        .map_err(|_| format!("it is before 1970: {help}"))?;
    if !is_within_bounds(at_ms, now.timestamp()) {
        return Err("it must not be more than 100 years away".to_owned());
    }
    Ok(at_ms)
}

/// True for a time, unix milliseconds, that is at most 100 years away.
pub(crate) fn is_allowed(at_ms: u64) -> bool {
    is_within_bounds(at_ms, Timestamp::now())
}

fn is_within_bounds(at_ms: u64, now: Timestamp) -> bool {
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    at_ms <= now_ms + DELAY_MS_MAX
}

/// Unix milliseconds as RFC 3339 in UTC.
pub(crate) fn rfc3339(at_ms: u64) -> String {
    i64::try_from(at_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| format!("{at_ms} ms"), |timestamp| timestamp.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_have_units_and_bounds() {
        for (text, ms) in [
            ("1500ms", 1500),
            ("30s", 30_000),
            ("1.5s", 1500),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("1h 30m"), Ok(Duration::from_mins(90)));
        for bad in [
            "",
            "5",
            "-5s",
            "5 parsecs",
            "200 years",
            "99999999999999999999s",
            "1 month",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(some_duration("0s").is_err() && lease("100ms").is_err() && lease("1s").is_ok());
    }

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        let now: Zoned = "2026-11-21T12:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let ms = |text: &str| at_from(text, &now);
        let utc = |text: &str| {
            u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond())
                .map_err(|_| String::new())
        };
        assert_eq!(ms("2026-12-31T14:00:00Z"), utc("2026-12-31T14:00:00Z"));
        assert_eq!(ms("2026-12-31 14:00"), utc("2026-12-31T13:00:00Z"));
        assert_eq!(ms("14:00"), utc("2026-11-21T13:00:00Z"));
        assert_eq!(ms("11:00"), utc("2026-11-22T10:00:00Z"));
        for bad in [
            "",
            "soon",
            "25:00",
            "1960-01-01T00:00:00Z",
            "2999-01-01T00:00:00Z",
        ] {
            assert!(ms(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_is_within_bounds(
            text in "-?[0-9]{1,22}(\\.[0-9]{1,3})? ?(ms|s|m|h|d|w|mo|y|ns|us)?( [0-9]{1,20}[a-z]{1,2})?|P[0-9TYMDHS.]{1,9}|.*",
        ) {
            if let Ok(duration) = duration(&text) {
                prop_assert!(duration <= Duration::from_millis(DELAY_MS_MAX));
            }
            prop_assert!(!some_duration(&text).is_ok_and(|d| d.is_zero()));
        }

        #[test]
        fn times_of_any_kind_are_taken_or_refused(
            text in "-?[0-9]{1,6}-[0-9]{1,2}-[0-9]{1,2}[T ]?([0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}(\\.[0-9]{1,12})?)?)?(Z|[+-][0-9]{2}:?[0-9]{0,2}|\\[[A-Za-z/]{1,9}\\])?|[0-9]{1,3}:[0-9]{1,3}|.*",
        ) {
            // About the ends of what a calendar holds as well.
            for now in ["2026-11-21T12:00:00+01:00[Europe/Berlin]", "9999-12-30T22:00:00Z[UTC]", "-009999-01-02T01:59:59Z[UTC]"] {
                let now: Zoned = now.parse().unwrap();
                let _ = at_from(&text, &now);
            }
        }

        #[test]
        fn every_time_is_shown(at_ms: u64) {
            prop_assert!(rfc3339(at_ms).len() < 40);
        }
    }
}
