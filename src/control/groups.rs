//! Dead letters by reason: how many, since when, and when.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{LISTED_PAYLOAD_MAX, group_of, reason_of};
use crate::message::{QueueName, Record, State};
use crate::store::{Page, Store, StoreResult};
use crate::text::cut;

/// The shortest span of a trend, milliseconds.
const SPAN_MIN: u64 = 1000;

/// Spans with something in them that a trend keeps at most.
const SPANS_MAX: usize = 64;

/// Reasons of which one dead letter is read, the most frequent first.
const EXAMPLES_MAX: usize = 24;

/// Bytes of a reason that are kept.
const REASON_MAX: usize = 400;

/// Dead letters with one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Class and reason as a template: [`group_of`] them all.
    pub reason: String,
    /// Class and reason to the letter, if all have the same.
    pub text: Option<String>,
    /// How many.
    pub count: u64,
    /// When the first died, unix milliseconds.
    pub first_ms: u64,
    /// When the latest died, unix milliseconds.
    pub latest_ms: u64,
    /// When all of them died.
    pub trend: Trend,
    /// One of them, with the beginning of its payload.
    pub example: Option<Arc<Record>>,
}

/// How many died when, in spans that grow with the time between the first and the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trend {
    span_ms: u64,
    counts: BTreeMap<u64, u64>,
}

impl Trend {
    /// Counts one.
    pub fn add(&mut self, at_ms: u64) {
        self.span_ms = self.span_ms.max(SPAN_MIN);
        *self.counts.entry(at_ms / self.span_ms).or_default() += 1;
        while self.counts.len() > SPANS_MAX {
            self.span_ms = self.span_ms.saturating_mul(2);
            let narrow = std::mem::take(&mut self.counts);
            for (at, count) in narrow {
                *self.counts.entry(at / 2).or_default() += count;
            }
        }
    }

    /// The counts of so many spans up to a time. What is later is in the last of them.
    #[must_use]
    pub fn spans(&self, span_ms: u64, spans: usize, until_ms: u64) -> Vec<u64> {
        let mut shown = vec![0_u64; spans];
        let last = until_ms / span_ms.max(1);
        for (at, count) in &self.counts {
            let at = at.saturating_mul(self.span_ms) / span_ms.max(1);
            let back = usize::try_from(last.saturating_sub(at)).unwrap_or(usize::MAX);
            if let Some(span) = spans.checked_sub(1).and_then(|end| end.checked_sub(back)) {
                shown[span] = shown[span].saturating_add(*count);
            }
        }
        shown
    }
}

/// Counts dead letters by their reasons.
#[derive(Debug, Default)]
pub(super) struct Groups(HashMap<String, Counted>);

#[derive(Debug)]
struct Counted {
    group: Group,
    /// Where in the list the latest of them was.
    at: usize,
    is_read: bool,
}

impl Groups {
    /// Counts a dead letter, which was at this place of the list.
    pub(super) fn count(&mut self, record: &Record, at: usize) {
        let (reason, text) = (group_of(record), reason_of(record));
        let text = cut(&text, REASON_MAX);
        let died_ms = record.at_ms.unwrap_or(0);
        let counted = self.0.entry(reason).or_insert_with_key(|reason| Counted {
            group: Group {
                reason: reason.clone(),
                text: Some(text.clone().into_owned()),
                count: 0,
                first_ms: died_ms,
                latest_ms: died_ms,
                trend: Trend::default(),
                example: None,
            },
            at,
            is_read: false,
        });
        let group = &mut counted.group;
        if group.text.as_deref().is_some_and(|known| known != text) {
            group.text = None;
        }
        group.count += 1;
        group.first_ms = group.first_ms.min(died_ms);
        group.latest_ms = group.latest_ms.max(died_ms);
        group.trend.add(died_ms);
    }

    /// Reads one dead letter of each reason. One that has moved on in the list is left out.
    pub(super) async fn read_examples(
        &mut self,
        store: &dyn Store,
        queue: &QueueName,
    ) -> StoreResult<()> {
        let mut groups: Vec<&mut Counted> = self.0.values_mut().collect();
        groups.sort_by_key(|counted| std::cmp::Reverse(counted.group.count));
        let missing = groups.into_iter().take(EXAMPLES_MAX);
        for counted in missing.filter(|counted| !counted.is_read) {
            let page = Page {
                offset: counted.at,
                limit: 1,
                payload_max: LISTED_PAYLOAD_MAX,
            };
            counted.is_read = true;
            let found = store.list(queue, State::Dead, page).await?.pop();
            let found = found.filter(|record| group_of(record) == counted.group.reason);
            counted.group.example = found.map(Arc::new);
        }
        Ok(())
    }

    /// The most frequent first.
    pub(super) fn sorted(&self) -> Vec<Group> {
        let groups = self.0.values().map(|counted| counted.group.clone());
        let mut groups: Vec<Group> = groups.collect();
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_keeps_every_count_however_long_it_is() {
        let mut trend = Trend::default();
        for at in 0..1000 {
            trend.add(at * 60_000);
        }
        assert!(trend.counts.len() <= SPANS_MAX);
        let end = 999 * 60_000;
        let spans = trend.spans(60_000 * 128, 8, end);
        assert_eq!(spans.iter().sum::<u64>(), 1000);
        assert!(spans.iter().all(|count| *count > 60), "{spans:?}");
        // What is older than all spans is not there, and what is later is in the last.
        let mut trend = Trend::default();
        for at in [1_000, 50_000, 61_000, u64::MAX] {
            trend.add(at);
        }
        assert_eq!(trend.spans(10_000, 2, 60_000), [1, 2]);
        assert!(trend.spans(10_000, 0, 60_000).is_empty());
    }
}
