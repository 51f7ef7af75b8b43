//! Looking through the messages of one state, a page at a time.

use std::collections::{HashMap, HashSet};

use super::{FILTERED_MAX, Filter, GROUPED_MAX, Group, LISTED_PAYLOAD_MAX, group_of};
use crate::message::{MessageId, QueueName, Record, State};
use crate::store::{Page, Store, StoreResult};

/// Messages that one look at the store brings.
const STEP: usize = 500;

/// The same with whole payloads, and what is more than any of them has.
const WHOLE_STEP: usize = 50;
const WHOLE_PAYLOAD: usize = 1 << 30;

/// A page of what matches.
#[derive(Debug)]
pub(super) struct Matching {
    pub records: Vec<Record>,
    /// True when there are more behind it, or may be.
    pub more: bool,
    /// True when the filter has stopped looking before the end.
    pub cut: bool,
}

/// A list read in steps. Dead letters are listed latest first, so one that dies between two steps pushes
/// the others on: each message comes once all the same. What dies meanwhile may come or not.
struct Steps<'s> {
    store: &'s dyn Store,
    queue: &'s QueueName,
    state: State,
    /// The next step.
    page: Page,
    result: HashSet<MessageId>,
}

impl<'s> Steps<'s> {
    fn new(
        store: &'s dyn Store,
        queue: &'s QueueName,
        state: State,
        (limit, payload_max): (usize, usize),
    ) -> Self {
        Self {
            store,
            queue,
            state,
            page: Page {
                offset: 0,
                limit,
                payload_max,
            },
            result: HashSet::new(),
        }
    }

    /// The messages of the next step that were in none before, and whether it was the last.
    async fn next(&mut self) -> StoreResult<(Vec<Record>, bool)> {
        let mut records = self.store.list(self.queue, self.state, self.page).await?;
        let last = records.len() < self.page.limit;
        self.page.offset += records.len();
        records.retain(|record| self.result.insert(record.id.clone()));
        Ok((records, last))
    }

    fn looked_at(&self) -> usize {
        self.page.offset
    }
}

/// Up to `limit` messages that match, after passing over `offset` of them. Without a filter that is
/// one page of the store; with one, at most [`FILTERED_MAX`] messages are looked at.
pub(super) async fn page(
    store: &dyn Store,
    queue: &QueueName,
    state: State,
    (offset, limit): (usize, usize),
    filter: &Filter,
) -> StoreResult<Matching> {
    if filter.is_empty() {
        let page = Page {
            offset,
            // One more than wanted tells whether there are more.
            limit: limit + 1,
            payload_max: LISTED_PAYLOAD_MAX,
        };
        let mut records = store.list(queue, state, page).await?;
        let more = records.len() > limit;
        records.truncate(limit);
        return Ok(Matching {
            records,
            more,
            cut: false,
        });
    }
    let mut steps = Steps::new(store, queue, state, (STEP, LISTED_PAYLOAD_MAX));
    let (mut records, mut passed) = (Vec::new(), 0);
    loop {
        let (step, last) = steps.next().await?;
        for record in step.into_iter().filter(|record| filter.matches(record)) {
            if passed < offset {
                passed += 1;
            } else if records.len() == limit {
                return Ok(Matching {
                    records,
                    more: true,
                    cut: false,
                });
            } else {
                records.push(record);
            }
        }
        if last || steps.looked_at() >= FILTERED_MAX {
            return Ok(Matching {
                records,
                more: !last,
                cut: !last,
            });
        }
    }
}

/// The dead letters that match, by reason, the most frequent first; and whether only the latest
/// [`GROUPED_MAX`] were looked at.
pub(super) async fn groups(
    store: &dyn Store,
    queue: &QueueName,
    filter: &Filter,
) -> StoreResult<(Vec<Group>, bool)> {
    let mut groups: HashMap<String, Group> = HashMap::new();
    let payload_max = if filter.reads_payloads() {
        LISTED_PAYLOAD_MAX
    } else {
        0
    };
    let mut steps = Steps::new(store, queue, State::Dead, (STEP, payload_max));
    let cut = loop {
        let (step, last) = steps.next().await?;
        for record in step.iter().filter(|record| filter.matches(record)) {
            let reason = group_of(record);
            let group = groups.entry(reason.clone()).or_insert(Group {
                reason,
                count: 0,
                latest_ms: 0,
            });
            group.count += 1;
            group.latest_ms = group.latest_ms.max(record.at_ms.unwrap_or(0));
        }
        if last {
            break false;
        }
        if steps.looked_at() >= GROUPED_MAX {
            break true;
        }
    };
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    Ok((groups, cut))
}

/// The ids of all dead letters that match now, each once, or of some when `goes_on` says no. What a filter says
/// of payloads is said of the whole of them here, since something will be done to what matches.
pub async fn dead_ids(
    store: &dyn Store,
    queue: &QueueName,
    filter: &Filter,
    goes_on: impl Fn() -> bool,
) -> StoreResult<Vec<MessageId>> {
    let size = if filter.reads_payloads() {
        (WHOLE_STEP, WHOLE_PAYLOAD)
    } else {
        (STEP, 0)
    };
    let mut steps = Steps::new(store, queue, State::Dead, size);
    let mut ids = Vec::new();
    while goes_on() {
        let (step, last) = steps.next().await?;
        let matching = step.into_iter().filter(|record| filter.matches(record));
        ids.extend(matching.map(|record| record.id));
        if last {
            break;
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    use super::*;
    use crate::message::{Attempt, NewMessage};
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    use crate::store::{First, Reservation, Settlement};

    fn queue() -> QueueName {
        "q".parse().unwrap()
    }

    /// Makes so many dead letters, the reason of which is this.
    async fn die(store: &dyn Store, number: usize, reason: &str) {
        let messages: Vec<NewMessage> = (0..number).map(|_| NewMessage::new("x")).collect();
        store.send(&queue(), &messages).await.unwrap();
        let wanted = Reservation {
            max: number,
            lease: Duration::from_mins(10),
            first: First::Ready,
            retries_default: 0,
        };
        let attempt = Attempt {
            attempt: 1,
            at_ms: 1,
            class: "rejected".to_owned(),
            reason: reason.to_owned(),
            duration_ms: None,
            host: String::new(),
            handler: String::new(),
            log: String::new(),
        };
        let ended: Vec<_> = (store.reserve(&queue(), wanted).await.unwrap())
            .into_iter()
            .map(|delivery| {
                let attempt = attempt.clone();
                (delivery.claim, Settlement::Reject { attempt })
            })
            .collect();
        store.settle(&queue(), &ended).await.unwrap();
        while store.advance(&queue()).await.unwrap().dead_lettered > 0 {}
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_death_between_two_steps_shows_no_dead_letter_twice() {
        let options = SqliteOptions::memory();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&options).await.unwrap());
        for _ in 0..3 {
            die(&*store, 1000, "old").await;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let others = tokio::spawn({
            let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
            async move {
                let mut new = 0;
                // Not so many that the old ones are too old to be looked at.
                while !is_over.load(SeqCst) && new < (GROUPED_MAX - 3000) / 2 {
                    die(&*store, 10, "new").await;
                    new += 10;
                }
            }
        });
        let old = Filter::parse("reason:old").unwrap();
        for _ in 0..5 {
            let ids = dead_ids(&*store, &queue(), &old, || true).await.unwrap();
            let unique: HashSet<&MessageId> = ids.iter().collect();
            assert_eq!((unique.len(), ids.len()), (3000, 3000));
            let (groups, _) = groups(&*store, &queue(), &old).await.unwrap();
            assert_eq!(groups[0].count, 3000);
            let found = page(&*store, &queue(), State::Dead, (0, 3000), &old).await;
            let found = found.unwrap().records;
            let unique: HashSet<&MessageId> = found.iter().map(|record| &record.id).collect();
            assert_eq!(unique.len(), found.len());
        }
        is_over.store(true, SeqCst);
        others.await.unwrap();
    }
}
