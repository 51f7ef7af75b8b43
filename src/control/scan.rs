//! Looking through the messages of one state, a page at a time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::groups::Groups;
use super::{Filter, LISTED_PAYLOAD_MAX, Query, QueryResult, SEARCHED_MAX, Searched, matching};
use crate::message::{MessageId, QueueName, Record, State};
use crate::store::{Page, PageEnd, Store, StoreResult};

/// Messages that one look at the store brings.
const STEP: usize = 500;

/// A list read in steps. Dead letters are listed latest first, so one that dies between two steps pushes
/// the others on: each message comes once all the same. What dies meanwhile may come or not.
#[derive(Debug)]
struct Steps {
    state: State,
    /// The next step.
    page: Page,
    /// Where the last one has ended, if the store tells it.
    end: Option<PageEnd>,
    /// Hashes of the ids that came. That two are the same is as good as impossible.
    seen: HashSet<u64>,
    hashes: RandomState,
}

impl Steps {
    fn new(state: State, limit: usize, payload_max: usize) -> Self {
        Self {
            state,
            page: Page {
                offset: 0,
                limit,
                payload_max,
            },
            end: None,
            seen: HashSet::new(),
            hashes: RandomState::new(),
        }
    }

    /// The messages of the next step that were in none before, with their places in the list, and whether
    /// it was the last.
    async fn next(
        &mut self,
        store: &dyn Store,
        queue: &QueueName,
    ) -> StoreResult<(Vec<(usize, Record)>, bool)> {
        let page = Page {
            offset: self.end.map_or(self.page.offset, |_| 0),
            ..self.page
        };
        let listed = store.list_behind(queue, self.state, (self.end, page));
        let (records, end) = listed.await?;
        self.end = end.or(self.end);
        let last = records.len() < self.page.limit;
        let begin = self.page.offset;
        self.page.offset += records.len();
        let records = (begin..)
            .zip(records)
            .filter(|(_, record)| self.seen.insert(self.hashes.hash_one(record.id.as_str())));
        Ok((records.collect(), last))
    }

    fn looked_at(&self) -> usize {
        self.page.offset
    }
}

/// One page of the store, and whether there are more messages behind it.
pub(super) async fn page(
    store: &dyn Store,
    queue: &QueueName,
    state: State,
    (offset, limit): (usize, usize),
) -> StoreResult<(Vec<Record>, bool)> {
    let page = Page {
        offset,
        // One more than wanted tells whether there are more.
        limit: limit + 1,
        payload_max: LISTED_PAYLOAD_MAX,
    };
    let mut records = store.list(queue, state, page).await?;
    let more = records.len() > limit;
    records.truncate(limit);
    Ok((records, more))
}

/// A search for what a query wants, which goes on where it has stopped.
#[derive(Debug)]
pub(super) struct Search {
    queue: QueueName,
    filter: Filter,
    steps: Steps,
    found: Found,
    is_over: bool,
    took: Duration,
}

#[derive(Debug)]
enum Found {
    Messages(Vec<Record>),
    /// Dead letters by reason.
    Groups(Groups),
}

impl Search {
    /// The search for a query; none for one that needs none.
    pub(super) fn of(query: &Query) -> Option<Self> {
        let (queue, state, filter, found) = match query {
            Query::Messages {
                queue,
                state,
                filter,
                ..
            } if !filter.is_empty() => (queue, *state, filter, Found::Messages(Vec::new())),
            Query::Groups { queue, filter } => {
                (queue, State::Dead, filter, Found::Groups(Groups::default()))
            }
            _ => return None,
        };
        let reads_payloads = matches!(found, Found::Messages(_)) || filter.reads_payloads();
        let payload_max = if reads_payloads {
            LISTED_PAYLOAD_MAX
        } else {
            0
        };
        Some(Self {
            queue: queue.clone(),
            filter: filter.clone(),
            steps: Steps::new(state, STEP, payload_max),
            found,
            is_over: false,
            took: Duration::ZERO,
        })
    }

    /// True when what was found is of use for this query, which may be about another page.
    pub(super) fn is_for(&self, query: &Query) -> bool {
        match (query, &self.found) {
            (
                Query::Messages {
                    queue,
                    state,
                    filter,
                    ..
                },
                Found::Messages(_),
            ) => (queue, *state, filter) == (&self.queue, self.steps.state, &self.filter),
            (Query::Groups { queue, filter }, Found::Groups(_)) => {
                (queue, filter) == (&self.queue, &self.filter)
            }
            _ => false,
        }
    }

    /// True when nothing more has to be looked at for this query.
    pub(super) fn has_enough(&self, query: &Query) -> bool {
        let is_page_full = match (query, &self.found) {
            (Query::Messages { offset, limit, .. }, Found::Messages(found)) => {
                // One more tells whether there are more.
                found.len() > offset.saturating_add(*limit)
            }
            _ => false,
        };
        self.is_over || is_page_full
    }

    /// Looks at up to [`SEARCHED_MAX`] more messages.
    pub(super) async fn go_on(&mut self, store: &dyn Store, query: &Query) -> StoreResult<()> {
        let begin = Instant::now();
        let until = self.steps.looked_at() + SEARCHED_MAX;
        while !self.has_enough(query) && self.steps.looked_at() < until {
            let (step, last) = self.steps.next(store, &self.queue).await?;
            let matching = step
                .into_iter()
                .filter(|(_, record)| self.filter.matches(record));
            match &mut self.found {
                Found::Messages(found) => found.extend(matching.map(|(_, record)| record)),
                Found::Groups(groups) => {
                    matching.for_each(|(at, record)| groups.count(&record, at));
                }
            }
            self.is_over = last;
        }
        if let Found::Groups(groups) = &mut self.found {
            groups.read_examples(store, &self.queue).await?;
        }
        self.took += begin.elapsed();
        Ok(())
    }

    /// How long the search should rest before it is made anew: much longer than it takes.
    pub(super) fn rest(&self) -> Duration {
        self.took * 10
    }

    /// What was found so far.
    pub(super) fn result(&self, query: &Query) -> QueryResult {
        let looked_at = self.steps.looked_at();
        let searched = if self.is_over {
            Searched::All
        } else if self.has_enough(query) {
            Searched::Enough(looked_at)
        } else {
            Searched::SoFar(looked_at)
        };
        let all = match &self.found {
            Found::Messages(found) => found,
            Found::Groups(groups) => {
                return QueryResult::Groups {
                    query: query.clone(),
                    groups: Arc::new(groups.sorted()),
                    searched,
                };
            }
        };
        let (offset, limit) = match query {
            Query::Messages { offset, limit, .. } => (*offset, *limit),
            _ => (0, 0),
        };
        let behind = all.get(offset..).unwrap_or_default();
        QueryResult::Messages {
            query: query.clone(),
            records: Arc::new(behind.iter().take(limit).cloned().collect()),
            more: behind.len() > limit,
            searched,
        }
    }
}

/// The ids of all dead letters that match now, each once, or of some when `goes_on` says no. What a filter says
/// of payloads is said of the whole of them here, since something will be done to what matches.
pub async fn dead_ids(
    store: &dyn Store,
    queue: &QueueName,
    filter: &Filter,
    goes_on: impl Fn() -> bool,
) -> StoreResult<Vec<MessageId>> {
    let dead = (queue, &[State::Dead][..]);
    let found = matching(store, dead, (filter, 0), |_, _| goes_on()).await?;
    Ok(found.into_iter().map(|found| found.id).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

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

    /// What a search for this finds, once it has looked at everything.
    async fn searched(store: &dyn Store, query: &Query) -> QueryResult {
        let mut search = Search::of(query).unwrap();
        while !search.has_enough(query) {
            search.go_on(store, query).await.unwrap();
        }
        search.result(query)
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
                while !is_over.load(SeqCst) && new < (SEARCHED_MAX - 3000) / 2 {
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
            let by_reason = Query::Groups {
                queue: queue(),
                filter: old.clone(),
            };
            let QueryResult::Groups { groups, .. } = searched(&*store, &by_reason).await else {
                panic!("no groups");
            };
            assert_eq!(groups[0].count, 3000);
            let page = Query::Messages {
                queue: queue(),
                state: State::Dead,
                offset: 0,
                limit: 3000,
                filter: old.clone(),
            };
            let QueryResult::Messages { records: found, .. } = searched(&*store, &page).await
            else {
                panic!("no messages");
            };
            let unique: HashSet<&MessageId> = found.iter().map(|record| &record.id).collect();
            assert_eq!(unique.len(), found.len());
        }
        is_over.store(true, SeqCst);
        others.await.unwrap();
    }

    #[tokio::test]
    async fn a_search_stops_where_a_page_is_full_and_goes_on_for_the_next() {
        let store: Arc<dyn Store> =
            Arc::new(SqliteStore::open(&SqliteOptions::memory()).await.unwrap());
        let messages: Vec<NewMessage> = (0..2 * SEARCHED_MAX + 100)
            .map(|n| NewMessage::new(if n % 4000 == 3999 { "needle" } else { "hay" }))
            .collect();
        store.send(&queue(), &messages).await.unwrap();
        let page = |offset| Query::Messages {
            queue: queue(),
            state: State::Ready,
            offset,
            limit: 1,
            filter: Filter::parse("needle").unwrap(),
        };
        let (first, last) = (page(0), page(1));
        let mut search = Search::of(&first).unwrap();
        let mut seen = Vec::new();
        for query in [&first, &first, &last, &last] {
            assert!(search.is_for(query));
            search.go_on(&*store, query).await.unwrap();
            let QueryResult::Messages {
                records,
                more,
                searched,
                ..
            } = search.result(query)
            else {
                panic!("no messages");
            };
            seen.push((records.len(), more, searched));
        }
        let all = 2 * SEARCHED_MAX + 100;
        let expected = [
            (1, false, Searched::SoFar(SEARCHED_MAX)),
            // The second one was found: there are more than the page has room for.
            (1, true, Searched::Enough(8000)),
            (1, false, Searched::All),
            (1, false, Searched::All),
        ];
        assert_eq!(
            (seen.as_slice(), search.steps.looked_at()),
            (&expected[..], all)
        );
        // A file finds the place again. An offset would count through all before it.
        assert!(search.steps.end.is_some());
        assert!(!search.is_for(&Query::Nothing));
    }
}
