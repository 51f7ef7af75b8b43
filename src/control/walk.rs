//! Reads all messages of one state, a page at a time, while hosts and producers go on.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::{Filter, LISTED_PAYLOAD_MAX};
use crate::message::{MessageId, QueueName, Record, State};
use crate::store::{Page, PageEnd, Store, StoreResult};

/// Messages that one page brings.
const PAGE: usize = 500;

/// The same with whole payloads, and more bytes than any payload has.
const WHOLE_PAGE: usize = 50;
/// See above.
pub const WHOLE_PAYLOAD: usize = usize::MAX >> 1;

/// Messages of the last page that the next one begins with, if nothing has changed.
const OVERLAP: usize = 8;

/// A list that is read page by page, each message once.
///
/// A store may tell where a page has ended; the next one begins there. Else it begins at an offset: what is
/// added in front of the last page pushes messages on, so that they come again; those are left out. What
/// leaves there lets messages move up: each page has to begin with a message that was seen, else the walk
/// goes back.
#[derive(Debug)]
pub struct Walk {
    state: State,
    /// The next page, but for its overlap.
    page: Page,
    /// Where the last one has ended, if the store tells it.
    end: Option<PageEnd>,
    /// Hashes of the ids that came. That two are the same is as good as impossible.
    seen: HashSet<u64>,
    hashes: RandomState,
    /// Messages that the state had at the beginning.
    total: u64,
    is_over: bool,
}

impl Walk {
    /// Begins a walk for what a filter means. Whole payloads are read if the filter looks into them, else
    /// `payload_max` bytes of each.
    pub async fn begin(
        store: &dyn Store,
        queue: &QueueName,
        state: State,
        (filter, payload_max): (&Filter, usize),
    ) -> StoreResult<Self> {
        let payload_max = if filter.reads_payloads() {
            WHOLE_PAYLOAD
        } else {
            payload_max
        };
        let limit = if payload_max > LISTED_PAYLOAD_MAX {
            WHOLE_PAGE
        } else {
            PAGE
        };
        Ok(Self {
            state,
            page: Page {
                offset: 0,
                limit,
                payload_max,
            },
            end: None,
            seen: HashSet::new(),
            hashes: RandomState::new(),
            total: store.counts(queue).await?.of(state),
            is_over: false,
        })
    }

    /// Messages that were looked at.
    #[must_use]
    pub fn looked_at(&self) -> usize {
        self.seen.len()
    }

    /// Messages that the state had when the walk began.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// True when there is nothing more to look at. So that it ends however many arrive, a walk reads up to
    /// four times as many messages as there were.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let most = self.total.saturating_mul(4).saturating_add(PAGE as u64);
        self.is_over || self.page.offset.max(self.seen.len()) as u64 > most
    }

    /// The messages of the next page that have not come before.
    pub async fn next(&mut self, store: &dyn Store, queue: &QueueName) -> StoreResult<Vec<Record>> {
        let mut back = OVERLAP;
        while self.end.is_none() {
            let offset = self.page.offset.saturating_sub(back);
            let page = Page {
                offset,
                ..self.page
            };
            let listed = store.list_behind(queue, self.state, (None, page));
            let (records, end) = listed.await?;
            let first = records.first().map(|record| self.hash(record));
            let is_joined = offset == 0 || first.is_some_and(|first| self.seen.contains(&first));
            if !is_joined {
                back = back.saturating_mul(4);
                continue;
            }
            self.page.offset = offset;
            return Ok(self.take(records, end));
        }
        let page = Page {
            offset: 0,
            ..self.page
        };
        let listed = store.list_behind(queue, self.state, (self.end, page));
        let (records, end) = listed.await?;
        Ok(self.take(records, end))
    }

    /// Those of a page that have not come before.
    fn take(&mut self, mut records: Vec<Record>, end: Option<PageEnd>) -> Vec<Record> {
        self.page.offset += records.len();
        self.end = end.or(self.end);
        self.is_over = records.len() < self.page.limit;
        records.retain(|record| self.seen.insert(self.hashes.hash_one(record.id.as_str())));
        records
    }

    fn hash(&self, record: &Record) -> u64 {
        self.hashes.hash_one(record.id.as_str())
    }
}

/// A message that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Its id.
    pub id: MessageId,
    /// Where it was.
    pub state: State,
    /// True when no byte of its payload was read, though some were asked for.
    pub is_missing: bool,
    /// How often it was redriven.
    pub redrives: u32,
}

impl From<&Record> for Match {
    fn from(record: &Record) -> Self {
        Self {
            id: record.id.clone(),
            state: record.state,
            is_missing: record.payload.is_none(),
            redrives: record.redrives(),
        }
    }
}

/// All messages in these states that match now, each once, or some of them when `goes_on` says no. It
/// is asked after each page with how many were looked at and how many match.
///
/// What a filter says of payloads is said of the whole of them here, since something will be done to what
/// matches. What arrives or moves on meanwhile may come or not.
pub async fn matching(
    store: &dyn Store,
    (queue, states): (&QueueName, &[State]),
    (filter, payload_max): (&Filter, usize),
    mut goes_on: impl FnMut(usize, usize) -> bool,
) -> StoreResult<Vec<Match>> {
    let (mut found, mut ids) = (Vec::new(), HashSet::new());
    let mut before = 0;
    for &state in states {
        let mut walk = Walk::begin(store, queue, state, (filter, payload_max)).await?;
        loop {
            let records = walk.next(store, queue).await?;
            let matching = records.iter().filter(|record| filter.matches(record));
            for record in matching {
                // It may have moved on into the next state.
                if states.len() == 1 || ids.insert(record.id.clone()) {
                    found.push(Match::from(record));
                }
            }
            if !goes_on(before + walk.looked_at(), found.len()) {
                return Ok(found);
            }
            if walk.is_over() {
                break;
            }
        }
        before += walk.looked_at();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Due, NewMessage};
    use crate::store::prelude::*;
    use crate::store::sqlite::{SqliteOptions, SqliteStore};
    use std::time::Duration;

    fn queue() -> QueueName {
        "q".parse().unwrap()
    }

    async fn with_messages(number: usize) -> (SqliteStore, Vec<MessageId>) {
        let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
        let messages: Vec<NewMessage> = (0..number)
            .map(|n| NewMessage {
                due: Due::In(Duration::from_hours(1) + Duration::from_millis(n as u64)),
                ..NewMessage::new("x")
            })
            .collect();
        store.send(&queue(), &messages).await.unwrap();
        let ids = messages.into_iter().map(|message| message.id).collect();
        (store, ids)
    }

    /// Walks to the end, and lets something happen after the first page.
    async fn walked(store: &SqliteStore, between: impl AsyncFnOnce()) -> Vec<MessageId> {
        let all = (&Filter::default(), 0);
        let mut walk = Walk::begin(store, &queue(), State::Pending, all)
            .await
            .unwrap();
        let mut ids = Vec::new();
        let mut between = Some(between);
        while !walk.is_over() {
            let records = walk.next(store, &queue()).await.unwrap();
            ids.extend(records.into_iter().map(|record| record.id));
            // A file finds the place again. An offset would count through all before it.
            assert!(walk.end.is_some() || ids.is_empty());
            if let Some(between) = between.take() {
                between().await;
            }
        }
        ids
    }

    #[tokio::test]
    async fn a_walk_over_a_list_at_rest_sees_each_once_and_in_order() {
        for number in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE] {
            let (store, ids) = with_messages(number).await;
            assert!(walked(&store, async || ()).await == ids, "{number}");
        }
    }

    #[tokio::test]
    async fn what_leaves_in_front_hides_nothing_behind_it() {
        for gone in [1, OVERLAP, 300, PAGE] {
            let (store, ids) = with_messages(2000).await;
            let leave = async || {
                store.cancel(&queue(), &ids[..gone]).await.unwrap();
            };
            assert!(walked(&store, leave).await == ids, "{gone}");
        }
    }

    #[tokio::test]
    async fn what_arrives_in_front_brings_nothing_twice_and_the_walk_ends() {
        let (store, ids) = with_messages(2000).await;
        let arrive = async || {
            let messages: Vec<NewMessage> = (0..700)
                .map(|_| NewMessage {
                    due: Due::In(Duration::from_mins(1)),
                    ..NewMessage::new("x")
                })
                .collect();
            store.send(&queue(), &messages).await.unwrap();
        };
        let found = walked(&store, arrive).await;
        let unique: HashSet<&MessageId> = found.iter().collect();
        assert_eq!(unique.len(), found.len());
        assert!(ids.iter().all(|id| unique.contains(id)));
        // However many there are, it reads a few times as many as there were.
        let all = (&Filter::default(), 0);
        let mut walk = Walk::begin(&store, &queue(), State::Ready, all)
            .await
            .unwrap();
        let mut looks = 0;
        while !walk.is_over() {
            let messages: Vec<NewMessage> = (0..2 * PAGE).map(|_| NewMessage::new("x")).collect();
            store.send(&queue(), &messages).await.unwrap();
            walk.next(&store, &queue()).await.unwrap();
            looks += 1;
            assert!(looks < 10);
        }
    }
}
