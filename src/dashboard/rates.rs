//! What happened to a queue lately, second by second, from the totals that snapshots bring.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::control::Totals;

/// Readings that are kept: ten minutes at one a second.
const READINGS_MAX: usize = 600;

/// The totals of one queue over the last minutes.
#[derive(Debug, Default)]
pub struct Rates {
    readings: VecDeque<(Instant, Totals)>,
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
        }
    }
}

impl Rates {
    /// Notes what the totals were. A reading that is not newer than the last is passed over.
    pub fn note(&mut self, at: Instant, totals: Totals) {
        if self.readings.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back((at, totals));
    }

    /// Messages a second over the last few readings; none before there are two.
    #[must_use]
    pub fn now(&self, flow: Flow) -> Option<f64> {
        let (last_at, last) = self.readings.back()?;
        let first = self.readings.iter().rev().take(4).next_back()?;
        per_second(flow, first, &(*last_at, *last))
    }

    /// Messages a second in each of the last `count` spans, oldest first; zero where nothing is
    /// known.
    #[must_use]
    pub fn series(&self, flow: Flow, span: Duration, count: usize) -> Vec<f64> {
        let mut series = vec![0.0; count];
        let Some(&(end, _)) = self.readings.back() else {
            return series;
        };
        let at = |back: usize| {
            let back = span.saturating_mul(u32::try_from(back).unwrap_or(u32::MAX));
            let time = end.checked_sub(back)?;
            let known = self.readings.partition_point(|(at, _)| *at <= time);
            self.readings.get(known.checked_sub(1)?)
        };
        for (back, value) in series.iter_mut().rev().enumerate() {
            if let (Some(to), Some(from)) = (at(back), at(back + 1)) {
                *value = per_second(flow, from, to).unwrap_or(0.0);
            }
        }
        series
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate is shown in three digits"
)]
fn per_second(flow: Flow, from: &(Instant, Totals), to: &(Instant, Totals)) -> Option<f64> {
    let seconds = to.0.saturating_duration_since(from.0).as_secs_f64();
    let count = flow.of(&to.1).saturating_sub(flow.of(&from.1));
    (seconds > 0.0).then(|| count as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_of_totals() {
        let mut rates = Rates::default();
        let start = Instant::now();
        assert_eq!(rates.now(Flow::In), None);
        for second in 0..10_u64 {
            let totals = Totals {
                sent: second * 100,
                acked: second * second,
                ..Totals::default()
            };
            rates.note(start + Duration::from_secs(second), totals);
            rates.note(start, Totals::default());
        }
        assert_eq!(rates.now(Flow::In), Some(100.0));
        assert_eq!(rates.now(Flow::Failed), Some(0.0));
        let second = Duration::from_secs(1);
        assert_eq!(rates.series(Flow::Acked, second, 3), [13.0, 15.0, 17.0]);
        assert_eq!(
            rates.series(Flow::Acked, second, 12)[..4],
            [0.0, 0.0, 0.0, 1.0]
        );
        assert_eq!(rates.series(Flow::In, second * 2, 2), [100.0, 100.0]);
    }
}
