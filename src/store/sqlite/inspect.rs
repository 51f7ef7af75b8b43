//! Reads messages, depths and totals for operators.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::queue::{QueueRow, code, count, signed, state, text, unsigned};
use super::{SqliteStore, ended, overview};
use crate::message::{MessageId, QueueName, Record, State};
use crate::store::common::{headers, history};
use crate::store::{
    BATCH_MAX, Counts, DueAhead, Ended, Inspect, Operation, Overview, Page, StoreResult,
};

#[async_trait]
impl Inspect for SqliteStore {
    fn describe(&self) -> String {
        self.name.to_string()
    }

    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts> {
        let counts = self.read_queue(Operation::Count, queue, |_, row| Ok(row.counts()));
        Ok(counts.await?.unwrap_or_default())
    }

    async fn overview(&self, queue: &QueueName) -> StoreResult<Overview> {
        let now_ms = self.clock.now().ms;
        let overview = self.read_queue(Operation::Overview, queue, move |connection, row| {
            overview::read(connection, row, now_ms)
        });
        Ok(overview.await?.unwrap_or_else(|| Overview {
            now_ms,
            ..Overview::default()
        }))
    }

    async fn due_ahead(
        &self,
        queue: &QueueName,
        span: Duration,
        spans: usize,
    ) -> StoreResult<DueAhead> {
        const OPERATION: Operation = Operation::Overview;
        let now_ms = self.clock.now().ms;
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut ahead = DueAhead::empty(now_ms, spans);
        let start = |at: usize| now_ms.saturating_add(span_ms.saturating_mul(at as u64));
        for (at, span) in ahead.spans.iter_mut().enumerate() {
            let from = if at == 0 { 0 } else { start(at) };
            let within = from..start(at + 1);
            // One by one, so that what a host reads waits for none but one of them.
            let count = self.read_queue(OPERATION, queue, move |connection, row| {
                overview::due_within(connection, row, within)
            });
            (span.count, span.is_more) = count.await?.unwrap_or_default();
        }
        let failed = self.read_queue(OPERATION, queue, overview::due_again);
        let (failed, partial) = failed.await?.unwrap_or_default();
        ahead.partial = partial;
        ahead.add_failed(failed, span_ms);
        Ok(ahead)
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>> {
        let id = id.clone();
        let record = self.read_queue(Operation::Get, queue, move |connection, row| {
            get(connection, row, &id)
        });
        Ok(record.await?.flatten())
    }

    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>> {
        let records = self.read_queue(Operation::List, queue, move |connection, row| {
            list(connection, row, state, page)
        });
        Ok(records.await?.unwrap_or_default())
    }

    async fn ended(
        &self,
        queue: &QueueName,
        offset: usize,
        limit: usize,
    ) -> StoreResult<Vec<Ended>> {
        let limit = limit.min(BATCH_MAX);
        let ended = self.read_queue(Operation::List, queue, move |connection, row| {
            ended::list(connection, row, offset, limit)
        });
        Ok(ended.await?.unwrap_or_default())
    }
}

/// The columns that [`record`] reads; the payload comes last.
const RECORD: &str = "id, state, place, failed, retries_left, headers, history";

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let state = state(row.get(1)?);
    let place: i64 = row.get(2)?;
    let has_time = matches!(state, State::Pending | State::Unack | State::Dead);
    Ok(Record {
        id: text(row, 0)?.into(),
        state,
        at_ms: has_time.then(|| unsigned(place)),
        attempts: count(row.get(3)?),
        retries_left: count(row.get(4)?),
        headers: headers(&text(row, 5)?),
        history: history(&text(row, 6)?),
        payload: row.get(7)?,
    })
}

pub(super) fn get(
    connection: &Connection,
    row: &QueueRow,
    id: &MessageId,
) -> rusqlite::Result<Option<Record>> {
    connection
        .prepare_cached(&format!(
            "SELECT {RECORD}, payload FROM messages WHERE queue = ?1 AND id = ?2"
        ))?
        .query_row(params![row.id, id.as_str()], record)
        .optional()
}

pub(super) fn list(
    connection: &Connection,
    row: &QueueRow,
    state: State,
    page: Page,
) -> rusqlite::Result<Vec<Record>> {
    let order = if state == State::Dead {
        "place DESC, seq DESC"
    } else {
        "place, seq"
    };
    connection
        .prepare_cached(&format!(
            // Of no bytes `substr` makes NULL, which would be a payload that is missing.
            "SELECT {RECORD},
               CASE WHEN ?5 > 0 AND length(payload) > 0 THEN substr(payload, 1, ?5)
                    WHEN ?5 > 0 THEN payload END
             FROM messages
             WHERE queue = ?1 AND state = ?2 ORDER BY {order} LIMIT ?3 OFFSET ?4"
        ))?
        .query_map(
            params![
                row.id,
                code(state),
                signed(page.limit.min(BATCH_MAX) as u64),
                signed(page.offset as u64),
                signed(page.payload_max as u64),
            ],
            record,
        )?
        .collect()
}
