//! How messages ended, as hosts have told the store.

use std::time::Duration;

use super::filter::Filter;
use super::prefix::{CANDIDATES_MAX, Candidates, PREFIX_LOOKED_AT_MAX, UUID_LEN};
use crate::message::{Attempt, HistoryEntry, MessageId, QueueName, Record, State};
use crate::store::{BATCH_MAX, End, Ended, Event, EventKind, Heard, Store, StoreResult};
use crate::text::{human_duration, printable};

/// Calls `look` with each page, latest first, until it has what it looks for.
async fn walk<T>(
    store: &dyn Store,
    queue: &QueueName,
    mut look: impl FnMut(Vec<Ended>) -> Option<T>,
) -> StoreResult<Option<T>> {
    for offset in (0..PREFIX_LOOKED_AT_MAX).step_by(BATCH_MAX) {
        let page = store.ended(queue, offset, BATCH_MAX).await?;
        if page.is_empty() {
            break;
        }
        if let Some(found) = look(page) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// How a message ended, if that is still kept.
pub async fn how_ended(
    store: &dyn Store,
    queue: &QueueName,
    id: &MessageId,
) -> StoreResult<Option<Ended>> {
    walk(store, queue, |page| {
        page.into_iter().find(|ended| ended.id == *id)
    })
    .await
}

/// What the handler of a message returned with its ack, if that is still kept.
pub async fn result_of(
    store: &dyn Store,
    queue: &QueueName,
    ended: &Ended,
) -> StoreResult<Option<Vec<u8>>> {
    if !ended.has_result {
        // One of an earlier message with this id may still be there.
        return Ok(None);
    }
    store.result(queue, &ended.id).await
}

/// How the latest messages ended, as events: oldest first, as far as it is kept.
pub async fn ended_events(store: &dyn Store, queue: &QueueName) -> StoreResult<Vec<Heard>> {
    let mut all = store.ended(queue, 0, BATCH_MAX).await?;
    all.reverse();
    let some = |text: String| (!text.is_empty()).then_some(text);
    let event = |ended: Ended| Heard {
        queue: Some(queue.clone()),
        is_delayqueue: false,
        event: Event {
            at_ms: ended.at_ms,
            attempt: Some(ended.attempt),
            host: some(ended.host),
            duration_ms: Some(ended.duration_ms),
            class: some(ended.class),
            reason: some(ended.reason),
            ..Event::of(
                match ended.end {
                    End::Acked => EventKind::Acked,
                    End::Died => EventKind::Dead,
                    End::Cancelled => EventKind::Cancelled,
                },
                &ended.id,
            )
        },
    };
    Ok(all.into_iter().map(event).collect())
}

/// The ids that begin so, which are UUIDs, among those of which it is kept how they ended.
pub async fn ended_candidates(
    store: &dyn Store,
    queue: &QueueName,
    prefix: &str,
) -> StoreResult<Candidates> {
    let mut found = Candidates::default();
    walk(store, queue, |page| {
        for Ended { id, .. } in page {
            let begins_so = id.as_str().len() == UUID_LEN && id.as_str().starts_with(prefix);
            if !begins_so || found.ids.contains(&id) {
                continue;
            }
            if found.ids.len() == CANDIDATES_MAX {
                found.is_more = true;
                return Some(());
            }
            found.ids.push(id);
        }
        None
    })
    .await?;
    Ok(found)
}

/// What of it a filter looks at: the id, the class and the reason, and as headers its `host` and its
/// `handler`. An acked message has the class `acked`, a cancelled one `cancelled`.
#[must_use]
pub fn ended_matches(filter: &Filter, ended: &Ended) -> bool {
    filter.matches(&as_record(ended))
}

/// A dead letter of which as much is known.
pub(super) fn as_record(ended: &Ended) -> Record {
    let class = match ended.end {
        End::Acked | End::Cancelled => ended.end.as_str().to_owned(),
        End::Died => ended.class.clone(),
    };
    let attempt = Attempt {
        attempt: ended.attempt,
        at_ms: ended.at_ms,
        class,
        reason: ended.reason.clone(),
        duration_ms: Some(ended.duration_ms),
        host: ended.host.clone(),
        handler: ended.handler.clone(),
        log: String::new(),
    };
    Record {
        id: ended.id.clone(),
        state: State::Dead,
        at_ms: Some(ended.at_ms),
        attempts: ended.attempt,
        retries_left: 0,
        headers: vec![
            ("host".to_owned(), ended.host.clone()),
            ("handler".to_owned(), ended.handler.clone()),
        ],
        history: vec![HistoryEntry::Attempt(attempt)],
        payload: None,
    }
}

/// How long the handler ran, in whole milliseconds and more.
#[must_use]
pub fn ended_took(ended: &Ended) -> String {
    match ended.duration_ms {
        0 => "under 1ms".to_owned(),
        ms => human_duration(Duration::from_millis(ms)),
    }
}

/// How long ago it ended, by the store's clock.
#[must_use]
pub fn ended_ago(ended: &Ended, now_ms: u64) -> String {
    let ago = Duration::from_millis(now_ms.saturating_sub(ended.at_ms));
    format!("{} ago", human_duration(ago))
}

/// In a sentence: `acked 3.1s ago in 12ms, attempt 1, by host h1`.
#[must_use]
pub fn ended_text(ended: &Ended, now_ms: u64) -> String {
    let (ago, took) = (ended_ago(ended, now_ms), ended_took(ended));
    let (attempt, host) = (ended.attempt, printable(&ended.host));
    match ended.end {
        End::Acked => format!("acked {ago} in {took}, attempt {attempt}, by host {host}"),
        End::Cancelled => {
            format!("cancelled {ago} after {took}, attempt {attempt}, on host {host}")
        }
        End::Died => format!(
            "died {ago} after {took}, attempt {attempt}, by host {host}: {}",
            ended_failure(ended)
        ),
    }
}

/// The class and the reason of what failed; empty if nothing did.
#[must_use]
pub fn ended_failure(ended: &Ended) -> String {
    let (class, reason) = (printable(&ended.class), printable(&ended.reason));
    if reason.is_empty() {
        class.into_owned()
    } else {
        format!("{class}: {reason}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(end: End) -> Ended {
        let (class, reason) = match end {
            End::Acked | End::Cancelled => ("", ""),
            End::Died => ("rejected", "no\x1b such order"),
        };
        Ended {
            id: "019a".into(),
            at_ms: 100_000,
            end,
            attempt: 2,
            duration_ms: 12,
            due_at_ms: None,
            host: "h1".to_owned(),
            handler: "ab".to_owned(),
            class: class.to_owned(),
            reason: reason.to_owned(),
            has_result: false,
        }
    }

    #[test]
    fn a_sentence_says_how_it_ended() {
        let acked = Ended {
            duration_ms: 0,
            ..ended(End::Acked)
        };
        assert_eq!(
            ended_text(&acked, 103_100),
            "acked 3.1s ago in under 1ms, attempt 2, by host h1"
        );
        assert_eq!(
            ended_text(&ended(End::Cancelled), 3_100_000),
            "cancelled 50m 00s ago after 12ms, attempt 2, on host h1"
        );
        assert_eq!(
            ended_text(&ended(End::Died), 0),
            "died 0ms ago after 12ms, attempt 2, by host h1: rejected: no\\u{1b} such order"
        );
    }

    #[test]
    fn a_filter_finds_what_is_known() {
        let matches = |filter: &str, end| {
            let filter = Filter::parse(filter).unwrap();
            ended_matches(&filter, &ended(end))
        };
        assert!(matches("019a class:acked", End::Acked));
        assert!(!matches("class:acked", End::Died));
        assert!(matches("class:cancelled", End::Cancelled));
        assert!(matches("reason:order", End::Died));
        assert!(!matches("payload:x", End::Acked));
    }
}
