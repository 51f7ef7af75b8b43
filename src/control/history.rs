//! What happened lately: how the latest messages of a queue ended, and what each handler did.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::ended::{as_record, ended_matches};
use super::{Filter, group_of};
use crate::message::QueueName;
use crate::store::{BATCH_MAX, End, Ended, Store, StoreResult};

/// Messages that are looked at for one answer.
pub const HISTORY_MAX: usize = 5 * BATCH_MAX;

/// How the latest messages of a queue ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Those that match, latest first.
    pub lines: Vec<EndedLine>,
    /// How many were looked at.
    pub looked_at: usize,
    /// True if older ones may be kept.
    pub is_more: bool,
    /// What each handler did, whether it matches or not. The one that ran last comes first.
    pub handlers: Vec<HandlerHistory>,
}

/// A message that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLine {
    /// What tells it from all others: an id may end twice.
    pub key: String,
    /// How it ended.
    pub ended: Ended,
}

/// What one handler did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerHistory {
    /// Its SHA-256.
    pub digest: String,
    /// Messages that ended with it.
    pub count: u64,
    /// Those of them that it acked.
    pub acked: u64,
    /// When the first of them ended, and when the latest did: unix milliseconds.
    pub first_ms: u64,
    /// See above.
    pub latest_ms: u64,
    /// Half of them took at most so long.
    pub p50: Duration,
    /// And 99 in a hundred.
    pub p99: Duration,
    /// Why most of the others died, as a [template](group_of), and how many.
    pub failure: Option<(String, u64)>,
}

impl History {
    /// Of these, latest first.
    #[must_use]
    pub fn of(latest: Vec<Ended>, is_more: bool, filter: &Filter) -> Self {
        let looked_at = latest.len();
        let handlers = by_handler(&latest);
        let matching = latest
            .into_iter()
            .filter(|ended| filter.is_empty() || ended_matches(filter, ended));
        let line = |ended: Ended| EndedLine {
            key: key(&ended),
            ended,
        };
        Self {
            lines: matching.map(line).collect(),
            looked_at,
            is_more,
            handlers,
        }
    }

    /// How many of those that were looked at were acked.
    #[must_use]
    pub fn acked(&self) -> u64 {
        let acked = self.handlers.iter().map(|handler| handler.acked);
        acked.fold(0, u64::saturating_add)
    }
}

fn key(ended: &Ended) -> String {
    format!("{} {}", ended.at_ms, ended.id)
}

/// Reads as many as [`HISTORY_MAX`].
pub(super) async fn read(
    store: &dyn Store,
    queue: &QueueName,
    filter: &Filter,
) -> StoreResult<History> {
    let (mut latest, mut known) = (Vec::new(), HashSet::new());
    let mut is_more = true;
    for offset in (0..HISTORY_MAX).step_by(BATCH_MAX) {
        let page = store.ended(queue, offset, BATCH_MAX).await?;
        is_more = page.len() == BATCH_MAX;
        // What ends between two pages pushes the others on.
        latest.extend(page.into_iter().filter(|ended| known.insert(key(ended))));
        if !is_more {
            break;
        }
    }
    Ok(History::of(latest, is_more, filter))
}

fn by_handler(latest: &[Ended]) -> Vec<HandlerHistory> {
    let mut handlers: Vec<(&str, Vec<&Ended>)> = Vec::new();
    let mut places = HashMap::new();
    for ended in latest {
        let place = *places.entry(ended.handler.as_str()).or_insert_with(|| {
            handlers.push((&ended.handler, Vec::new()));
            handlers.len() - 1
        });
        handlers[place].1.push(ended);
    }
    let one = |(digest, of): (&str, Vec<&Ended>)| {
        let mut took: Vec<u64> = of.iter().map(|ended| ended.duration_ms).collect();
        took.sort_unstable();
        let quantile = |percent: usize| {
            let at = (took.len() * percent).div_ceil(100).saturating_sub(1);
            Duration::from_millis(took.get(at).copied().unwrap_or(0))
        };
        let times = || of.iter().map(|ended| ended.at_ms);
        HandlerHistory {
            digest: digest.to_owned(),
            count: of.len() as u64,
            acked: of.iter().filter(|ended| ended.end == End::Acked).count() as u64,
            first_ms: times().min().unwrap_or(0),
            latest_ms: times().max().unwrap_or(0),
            p50: quantile(50),
            p99: quantile(99),
            failure: most_frequent(&of),
        }
    };
    handlers.into_iter().map(one).collect()
}

fn most_frequent(of: &[&Ended]) -> Option<(String, u64)> {
    let mut reasons = BTreeMap::<String, u64>::new();
    for ended in of.iter().filter(|ended| ended.end == End::Died) {
        *reasons.entry(group_of(&as_record(ended))).or_default() += 1;
    }
    reasons.into_iter().max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(n: u64, handler: &str, reason: &str) -> Ended {
        let is_acked = reason.is_empty();
        Ended {
            id: format!("m{n}").as_str().into(),
            at_ms: 1000 - n,
            end: if is_acked { End::Acked } else { End::Died },
            attempt: 1,
            duration_ms: n,
            due_at_ms: None,
            host: "h1".to_owned(),
            handler: handler.to_owned(),
            class: if is_acked { "" } else { "nacked" }.to_owned(),
            reason: reason.to_owned(),
            has_result: false,
        }
    }

    #[test]
    fn handlers_are_compared_by_what_they_did() {
        let new = (1..=100).map(|n| ended(n, "new", if n % 50 == 0 { "no" } else { "" }));
        let old = [
            ended(200, "old", "HTTP 503"),
            ended(201, "old", "order 7 is gone"),
            ended(202, "old", "order 8 is gone"),
            ended(203, "old", ""),
        ];
        let filter = Filter::parse("class:nacked").unwrap();
        let history = History::of(new.chain(old).collect(), false, &filter);
        assert_eq!((history.looked_at, history.lines.len()), (104, 5));
        assert_eq!(history.acked(), 99);
        let [new, old] = &history.handlers[..] else {
            panic!("{:?}", history.handlers);
        };
        assert_eq!(
            (new.digest.as_str(), new.count, new.acked),
            ("new", 100, 98)
        );
        let ms = Duration::from_millis;
        assert_eq!((new.p50, new.p99), (ms(50), ms(99)));
        assert_eq!(new.failure, Some(("nacked: no".to_owned(), 2)));
        assert_eq!((new.first_ms, new.latest_ms), (900, 999));
        assert_eq!((old.count, old.acked), (4, 1));
        assert_eq!(old.failure, Some(("nacked: order # is gone".to_owned(), 2)));
        // Whoever looks for a handler or a host finds what it did.
        let filter = Filter::parse("old h1").unwrap();
        assert_eq!(
            History::of(vec![ended(1, "old", "")], false, &filter)
                .lines
                .len(),
            1
        );
        assert_eq!(
            History::of(vec![ended(1, "new", "")], false, &filter)
                .lines
                .len(),
            0
        );
    }
}
