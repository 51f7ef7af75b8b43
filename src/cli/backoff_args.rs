//! The flags that say when a failed message is tried again.

use std::time::Duration;

use clap::Args;

use super::{Usage, number, time};
use crate::text::human_duration;
use crate::verdict::{Backoff, Delays};

/// More delays than this are a mistake.
const LIST_MAX: usize = 1000;

#[derive(Debug, Clone, Args)]
pub(super) struct BackoffArgs {
    /// Wait so long after a first failed attempt
    ///
    /// The delay doubles after each further failure: 1s is the same as exponential:1s. With linear:10s it
    /// grows by 10 s each time, and with fixed:30s it stays. A list such as 10s,1m,10m names each delay,
    /// and the last one repeats. A handler may name another delay.
    #[arg(long, value_name = "DELAYS", default_value = "1s", value_parser = delays,
        env = "DQHOST_BACKOFF")]
    backoff: Delays,
    /// Wait at most so long after a failed attempt
    ///
    /// This also limits the delay that a handler names.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = time::duration,
        env = "DQHOST_BACKOFF_MAX")]
    backoff_max: Duration,
    /// Make each delay up to so many percent shorter or longer
    ///
    /// So messages that failed together do not come back together. A delay that a handler names is kept.
    #[arg(long, value_name = "PERCENT", default_value_t = Backoff::JITTER_PERCENT_DEFAULT,
        env = "DQHOST_BACKOFF_JITTER", value_parser = number::from::<u32>(0..=100))]
    backoff_jitter: u32,
    /// Give a message up so long after its first attempt
    ///
    /// A message whose next retry would be due later is dead at once, with the class gave-up, whatever
    /// retries it has left.
    #[arg(long, value_name = "DURATION", value_parser = time::some_duration,
        env = "DQHOST_GIVE_UP_AFTER")]
    pub give_up_after: Option<Duration>,
}

impl BackoffArgs {
    /// The delays and their maximum, which must not be shorter than a delay that is named.
    pub(super) fn backoff(&self) -> Result<Backoff, Usage> {
        let named = match &self.backoff {
            Delays::Fixed(delay) => Some(delay),
            Delays::List(delays) => delays.iter().max(),
            Delays::Linear(_) | Delays::Exponential(_) => None,
        };
        if let Some(longest) = named.filter(|longest| **longest > self.backoff_max) {
            return Err(Usage(format!(
                "--backoff has a delay of {}, and --backoff-max allows {}: raise --backoff-max, or \
                 shorten the delay",
                human_duration(*longest),
                human_duration(self.backoff_max)
            )));
        }
        Ok(Backoff {
            delays: self.backoff.clone(),
            max: self.backoff_max,
            jitter_percent: self.backoff_jitter,
        })
    }
}

/// `1s`, `exponential:1s`, `linear:10s`, `fixed:30s`, or `10s,1m,10m`.
fn delays(text: &str) -> Result<Delays, String> {
    if let Some((shape, delay)) = text.split_once(':') {
        let shape = match shape.trim() {
            "fixed" => Delays::Fixed,
            "linear" => Delays::Linear,
            "exponential" => Delays::Exponential,
            _ => {
                return Err(
                    "before the colon comes fixed, linear or exponential, as in fixed:30s"
                        .to_owned(),
                );
            }
        };
        if delay.contains(',') {
            return Err("a list of delays has no word before it, as in 10s,1m,10m".to_owned());
        }
        return time::duration(delay).map(shape);
    }
    if ["fixed", "linear", "exponential"].contains(&text.trim()) {
        return Err(format!(
            "a colon and a delay are missing, as in {}:30s",
            text.trim()
        ));
    }
    if !text.contains(',') {
        return time::duration(text).map(Delays::Exponential);
    }
    let list: Vec<&str> = text.split(',').collect();
    if list.len() > LIST_MAX {
        return Err(format!("a list has at most {LIST_MAX} delays"));
    }
    let delays = list.iter().map(|delay| {
        let delay = delay.trim();
        if delay.is_empty() {
            return Err("a delay is missing before or after a comma".to_owned());
        }
        time::duration(delay).map_err(|error| format!("{delay:?}: {error}"))
    });
    delays.collect::<Result<_, _>>().map(Delays::List)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn delays_are_read_as_they_are_written() {
        let seconds = Duration::from_secs;
        for (text, expected) in [
            ("1s", Delays::Exponential(seconds(1))),
            ("exponential:2s", Delays::Exponential(seconds(2))),
            ("linear: 10s", Delays::Linear(seconds(10))),
            ("fixed:0s", Delays::Fixed(Duration::ZERO)),
            ("1m 30s", Delays::Exponential(seconds(90))),
            (
                "10s, 1m,1h 30m",
                Delays::List(vec![seconds(10), seconds(60), seconds(5400)]),
            ),
        ] {
            assert_eq!(delays(text), Ok(expected), "{text}");
        }
        for (text, says) in [
            ("10", "not a duration"),
            ("", "not a duration"),
            ("-1s", "negative"),
            ("fixed", "as in fixed:30s"),
            ("fixed:", "not a duration"),
            ("fast:1s", "fixed, linear or exponential"),
            ("fixed:1s,2s", "no word before it"),
            ("1s,,2s", "a delay is missing"),
            ("1s,", "a delay is missing"),
            ("1s,2", "\"2\": not a duration"),
            ("1s,fixed:2s", "before the colon"),
        ] {
            let error = delays(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(delays(&"1s,".repeat(1000)).unwrap_err().contains("1000"));
    }

    #[test]
    fn a_named_delay_over_the_maximum_is_refused() {
        let args = |backoff| BackoffArgs {
            backoff,
            backoff_max: Duration::from_mins(1),
            backoff_jitter: 0,
            give_up_after: None,
        };
        let long = Duration::from_secs(61);
        let list = vec![Duration::ZERO, long, Duration::ZERO];
        for refused in [Delays::Fixed(long), Delays::List(list)] {
            let Usage(error) = args(refused).backoff().unwrap_err();
            assert!(error.contains("raise --backoff-max"), "{error}");
        }
        for taken in [Delays::Linear(long), Delays::Exponential(long)] {
            assert!(args(taken).backoff().is_ok());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(fixed|linear|exponential)?:?([0-9]{1,12}(ms|s|d|y),? ?){0,4}|.*") {
            let _ = delays(&text);
        }
    }
}
