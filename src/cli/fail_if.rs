//! Conditions of `dqhost stats --fail-if`: what a script or a monitor must not find.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::format::time;
use crate::store::Overview;
use crate::text::{human_duration, printable};

/// What a condition looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    Pending,
    Ready,
    Unack,
    Retry,
    Dead,
    Moving,
    Hosts,
    Lag,
}

const FIGURES: [(&str, Figure); 8] = [
    ("pending", Figure::Pending),
    ("ready", Figure::Ready),
    ("unack", Figure::Unack),
    ("retry", Figure::Retry),
    ("dead", Figure::Dead),
    ("moving", Figure::Moving),
    ("hosts", Figure::Hosts),
    ("lag", Figure::Lag),
];

/// How a figure is compared. The longer signs come first, since the others begin like them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    AtLeast,
    AtMost,
    More,
    Less,
    Equal,
}

const SIGNS: [(&str, Comparison); 5] = [
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    (">", Comparison::More),
    ("<", Comparison::Less),
    ("=", Comparison::Equal),
];

/// One condition, such as `dead>0` or `lag>60s`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    text: String,
    figure: Figure,
    comparison: Comparison,
    /// A number of messages or hosts, or milliseconds of a lag.
    bound: u64,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "use NAME>VALUE with >, >=, <, <= or =, such as dead>0 or lag>60s";
        let text: String = text.split_whitespace().collect();
        let sign = text.find(['<', '>', '=']).ok_or(FORM)?;
        let (name, rest) = text.split_at(sign);
        let figure = FIGURES.iter().find(|(known, _)| *known == name);
        let (_, figure) = figure.ok_or_else(|| {
            let names: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
            format!("{name:?} is no figure of a queue: use {}", names.join(", "))
        })?;
        let comparison = SIGNS
            .iter()
            .find_map(|(sign, comparison)| Some((rest.strip_prefix(sign)?, *comparison)));
        let (value, comparison) = comparison.ok_or(FORM)?;
        let bound = match figure {
            Figure::Lag => {
                let lag = time::duration(value).map_err(|error| format!("{text}: {error}"))?;
                millis(lag)
            }
            _ => value
                .parse()
                .map_err(|_| format!("{text}: {value:?} is no whole number"))?,
        };
        Ok(Self {
            figure: *figure,
            comparison,
            bound,
            text,
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Condition {
    /// What the figure is, in words, if the condition holds.
    pub(super) fn met(&self, overview: &Overview, hosts: usize) -> Option<String> {
        let c = overview.counts;
        let figure = match self.figure {
            Figure::Pending => c.pending,
            Figure::Ready => c.ready,
            Figure::Unack => c.unack,
            Figure::Retry => c.retry,
            Figure::Dead => c.dead,
            Figure::Moving => c.moving,
            Figure::Hosts => hosts as u64,
            Figure::Lag => overview
                .oldest_ready_ms
                .map_or(0, |since| overview.now_ms.saturating_sub(since)),
        };
        let holds = match self.comparison {
            Comparison::AtLeast => figure >= self.bound,
            Comparison::AtMost => figure <= self.bound,
            Comparison::More => figure > self.bound,
            Comparison::Less => figure < self.bound,
            Comparison::Equal => figure == self.bound,
        };
        let name = FIGURES.iter().find(|(_, figure)| *figure == self.figure);
        let (name, _) = name.unwrap_or(&FIGURES[0]);
        holds.then(|| match self.figure {
            Figure::Lag => format!(
                "{name} is {}",
                human_duration(Duration::from_millis(figure))
            ),
            _ => format!("{name} is {figure}"),
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Counts;
    use proptest::prelude::*;

    fn met(text: &str) -> Option<String> {
        let overview = Overview {
            counts: Counts {
                dead: 3,
                ready: 7,
                ..Counts::default()
            },
            now_ms: 100_000,
            oldest_ready_ms: Some(39_000),
            ..Overview::default()
        };
        text.parse::<Condition>().unwrap().met(&overview, 2)
    }

    #[test]
    fn a_condition_holds_or_does_not_and_says_what_it_found() {
        assert_eq!(met("dead>0"), Some("dead is 3".to_owned()));
        assert_eq!(met("lag > 60s"), Some("lag is 1m 01s".to_owned()));
        for holds in [
            "dead>=3",
            "dead<=3",
            "dead=3",
            "dead<4",
            "hosts<3",
            "pending=0",
            "lag<=61s",
        ] {
            assert!(met(holds).is_some(), "{holds}");
        }
        for not in [
            "dead>3", "dead<3", "dead=4", "lag>61s", "lag<1m", "unack>0", "hosts=0",
        ] {
            assert_eq!(met(not), None, "{not}");
        }
        for (wrong, says) in [
            ("", "use NAME>VALUE"),
            ("dead", "use NAME>VALUE"),
            ("dead!3", "use NAME>VALUE"),
            ("died>0", "use pending, ready"),
            (">0", "use pending, ready"),
            ("dead>", "no whole number"),
            ("dead>-1", "no whole number"),
            ("dead=>1", "no whole number"),
            ("lag>60", "with a unit"),
        ] {
            let error = wrong.parse::<Condition>().unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_condition_is_a_panic(text in "(dead|lag)[<>=]{1,2}[0-9]{1,21}s?|.*") {
            if let Ok(condition) = text.parse::<Condition>() {
                let _ = condition.met(&Overview::default(), 0);
            }
        }
    }
}
