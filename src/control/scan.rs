//! Looking through the messages of one state, a page at a time.

use std::collections::HashMap;

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

/// Up to `limit` messages that match, after passing over `offset` of them. Without a filter that is
/// one page of the store; with one, at most [`FILTERED_MAX`] messages are looked at.
pub(super) async fn page(
    store: &dyn Store,
    queue: &QueueName,
    state: State,
    (offset, limit): (usize, usize),
    filter: &Filter,
) -> StoreResult<Matching> {
    let page = |offset, limit| Page {
        offset,
        limit,
        payload_max: LISTED_PAYLOAD_MAX,
    };
    if filter.is_empty() {
        // One more than wanted tells whether there are more.
        let mut records = store.list(queue, state, page(offset, limit + 1)).await?;
        let more = records.len() > limit;
        records.truncate(limit);
        return Ok(Matching {
            records,
            more,
            cut: false,
        });
    }
    let (mut records, mut passed, mut looked_at) = (Vec::new(), 0, 0);
    loop {
        let step = store.list(queue, state, page(looked_at, STEP)).await?;
        let last = step.len() < STEP;
        looked_at += step.len();
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
        if last || looked_at >= FILTERED_MAX {
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
    let mut looked_at = 0;
    let cut = loop {
        let payload_max = if filter.reads_payloads() {
            LISTED_PAYLOAD_MAX
        } else {
            0
        };
        let page = Page {
            offset: looked_at,
            limit: STEP,
            payload_max,
        };
        let step = store.list(queue, State::Dead, page).await?;
        let last = step.len() < STEP;
        looked_at += step.len();
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
        if looked_at >= GROUPED_MAX {
            break true;
        }
    };
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    Ok((groups, cut))
}

/// The ids of all dead letters that match now, or of some when `goes_on` says no. What a filter says
/// of payloads is said of the whole of them here, since something will be done to what matches.
pub(super) async fn dead_ids(
    store: &dyn Store,
    queue: &QueueName,
    filter: &Filter,
    goes_on: impl Fn() -> bool,
) -> StoreResult<Vec<MessageId>> {
    let (limit, payload_max) = if filter.reads_payloads() {
        (WHOLE_STEP, WHOLE_PAYLOAD)
    } else {
        (STEP, 0)
    };
    let (mut ids, mut looked_at) = (Vec::new(), 0);
    while goes_on() {
        let page = Page {
            offset: looked_at,
            limit,
            payload_max,
        };
        let step = store.list(queue, State::Dead, page).await?;
        let last = step.len() < limit;
        looked_at += step.len();
        let matching = step.into_iter().filter(|record| filter.matches(record));
        ids.extend(matching.map(|record| record.id));
        if last {
            break;
        }
    }
    Ok(ids)
}
