//! What happened to a queue lately, from the counts that snapshots bring.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::control::{Counts, Totals};

/// Readings that are kept: ten minutes at one a second.
const READINGS_MAX: usize = 600;

/// The time over which a depth is said to rise or to fall.
const TREND: Duration = Duration::from_secs(10);

/// The counts of one queue over the last minutes.
#[derive(Debug, Default)]
pub struct Rates {
    readings: VecDeque<(Instant, Counts)>,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Messages accepted, redriven ones too.
    In,
    /// Messages acked.
    Acked,
    /// Attempts that failed.
    Failed,
    /// Messages that became dead letters.
    Dead,
}

impl Flow {
    fn of(self, totals: &Totals) -> u64 {
        match self {
            Self::In => totals.sent.saturating_add(totals.redriven),
            Self::Acked => totals.acked,
            Self::Failed => totals
                .nacked
                .saturating_add(totals.rejected)
                .saturating_add(totals.expired),
            Self::Dead => totals.dead,
        }
    }
}

impl Rates {
    /// Notes what the counts were. A reading that is not newer than the last is passed over.
    pub fn note(&mut self, at: Instant, counts: Counts) {
        if self.readings.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back((at, counts));
    }

    /// Messages a second over the last few readings; none before there are two.
    #[must_use]
    pub fn now(&self, flow: Flow) -> Option<f64> {
        let (last_at, last) = self.readings.back()?;
        let (first_at, first) = self.readings.iter().rev().take(4).next_back()?;
        let seconds = last_at.saturating_duration_since(*first_at).as_secs_f64();
        (seconds > 0.0).then(|| grown(flow, first, last) / seconds)
    }

    /// Deliveries that began a second over the last few readings: those that have ended, and by how
    /// much more are in flight.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is shown in three digits"
    )]
    pub fn started(&self) -> Option<f64> {
        let (last_at, last) = self.readings.back()?;
        let (first_at, first) = self.readings.iter().rev().take(4).next_back()?;
        let seconds = last_at.saturating_duration_since(*first_at).as_secs_f64();
        let ended = |counts: &Counts| {
            let totals = &counts.totals;
            let ends = [
                totals.acked,
                totals.nacked,
                totals.rejected,
                totals.expired,
                totals.released,
            ];
            ends.into_iter().fold(0, u64::saturating_add)
        };
        let ended = ended(last).saturating_sub(ended(first)) as f64;
        let more = last.unack as f64 - first.unack as f64;
        (seconds > 0.0).then(|| ((ended + more) / seconds).max(0.0))
    }

    /// Whether a depth has risen or fallen over the last seconds.
    #[must_use]
    pub fn trend(&self, depth: impl Fn(&Counts) -> u64) -> Ordering {
        let (_, before, now) = self.lately(depth).unwrap_or_default();
        now.cmp(&before)
    }

    /// In how long nothing is left of a depth that falls, if it goes on as in the last seconds.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a forecast is shown in two units"
    )]
    pub fn empty_in(&self, depth: impl Fn(&Counts) -> u64) -> Option<Duration> {
        let (time, before, now) = self.lately(depth)?;
        let fallen = before.checked_sub(now).filter(|fallen| *fallen > 0)?;
        Duration::try_from_secs_f64(time.as_secs_f64() * now as f64 / fallen as f64).ok()
    }

    /// A depth some seconds ago and now, and how many.
    fn lately(&self, depth: impl Fn(&Counts) -> u64) -> Option<(Duration, u64, u64)> {
        let (last_at, last) = self.readings.back()?;
        let since = |at: &Instant| last_at.saturating_duration_since(*at);
        let recent = self.readings.iter().rev();
        let (first_at, first) = recent.take_while(|(at, _)| since(at) <= TREND).last()?;
        Some((since(first_at), depth(first), depth(last)))
    }

    /// Messages a second in each of the last `count` spans, oldest first; none where nothing is
    /// known. A span that begins or ends between two readings has its share of what lies between them.
    #[must_use]
    pub fn series(&self, flow: Flow, span: Duration, count: usize) -> Vec<Option<f64>> {
        let mut series = vec![None; count];
        let Some(&(end, _)) = self.readings.back() else {
            return series;
        };
        let at = |back: usize| {
            let back = span.saturating_mul(u32::try_from(back).unwrap_or(u32::MAX));
            self.sum_at(flow, end.checked_sub(back)?)
        };
        let mut to = at(0);
        for (back, value) in series.iter_mut().rev().enumerate() {
            let from = at(back + 1);
            *value = to
                .zip(from)
                .map(|(to, from)| (to - from).max(0.0) / span.as_secs_f64());
            to = from;
        }
        series
    }

    /// What has flowed since the first reading until this time, as if it flowed evenly between two
    /// readings; none before the first.
    fn sum_at(&self, flow: Flow, time: Instant) -> Option<f64> {
        let (_, first) = self.readings.front()?;
        let known = self.readings.partition_point(|(at, _)| *at <= time);
        let (before_at, before) = self.readings.get(known.checked_sub(1)?)?;
        let sum = grown(flow, first, before);
        let Some((after_at, after)) = self.readings.get(known) else {
            return Some(sum);
        };
        let gap = after_at.saturating_duration_since(*before_at).as_secs_f64();
        let part = time.saturating_duration_since(*before_at).as_secs_f64() / gap;
        Some(sum + grown(flow, before, after) * part)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate is shown in three digits"
)]
fn grown(flow: Flow, from: &Counts, to: &Counts) -> f64 {
    flow.of(&to.totals).saturating_sub(flow.of(&from.totals)) as f64
}

/// What rates are told per.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Per {
    /// A second.
    #[default]
    Second,
    /// A minute.
    Minute,
}

impl Per {
    /// A rate a second in this unit.
    #[must_use]
    pub fn of(self, rate: f64) -> f64 {
        match self {
            Self::Second => rate,
            Self::Minute => rate * 60.0,
        }
    }

    /// Behind a number.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Second => "/s",
            Self::Minute => "/m",
        }
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "a second",
            Self::Minute => "a minute",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sent: u64, acked: u64) -> Counts {
        Counts {
            pending: sent,
            totals: Totals {
                sent,
                acked,
                ..Totals::default()
            },
            ..Counts::default()
        }
    }

    #[test]
    fn rates_are_differences_of_totals() {
        let mut rates = Rates::default();
        let start = Instant::now();
        assert_eq!(rates.now(Flow::In), None);
        for second in 0..10_u64 {
            let at = start + Duration::from_secs(second);
            rates.note(at, counts(second * 100, second * second));
            rates.note(start, Counts::default());
        }
        assert_eq!(rates.now(Flow::In), Some(100.0));
        assert_eq!(rates.now(Flow::Failed), Some(0.0));
        let second = Duration::from_secs(1);
        let series = |flow, span, count| rates.series(flow, span, count);
        assert_eq!(
            series(Flow::Acked, second, 3),
            [Some(13.0), Some(15.0), Some(17.0)]
        );
        assert_eq!(
            series(Flow::Acked, second, 12)[..4],
            [None, None, None, Some(1.0)]
        );
        assert_eq!(series(Flow::In, second * 2, 2), [Some(100.0), Some(100.0)]);
        assert_eq!(rates.trend(|counts| counts.pending), Ordering::Greater);
        assert_eq!(rates.trend(|counts| counts.dead), Ordering::Equal);
        assert_eq!(rates.empty_in(|counts| counts.pending), None);
        let left = |counts: &Counts| 10_000 - counts.pending;
        let in_91_s = Duration::from_secs(91);
        assert_eq!(rates.empty_in(left), Some(in_91_s));
    }

    /// With more than two queues each is read every other second only.
    #[test]
    fn a_steady_flow_that_is_read_seldom_has_no_stripes() {
        let mut rates = Rates::default();
        let start = Instant::now();
        for second in (0..60).step_by(2) {
            let late = Duration::from_millis(second * 37 % 90);
            let at = start + Duration::from_secs(second) + late;
            let sent = u64::try_from((at - start).as_millis()).unwrap() / 10;
            rates.note(at, counts(sent, 0));
        }
        let series = rates.series(Flow::In, Duration::from_secs(1), 40);
        for value in series {
            let value = value.unwrap();
            assert!((90.0..110.0).contains(&value), "{value}");
        }
    }
}
