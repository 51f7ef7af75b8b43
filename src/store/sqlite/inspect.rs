//! Reads messages, depths and totals for operators.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::queue::{QueueRow, code, count, signed, state, text, unsigned};
use super::{SqliteStore, ended, overview};
use crate::message::{MessageId, QueueName, Record, State};
use crate::store::common::{headers, history};
use crate::store::{
    BATCH_MAX, Counts, DueAhead, Ended, Inspect, Operation, Overview, Page, PageEnd, StoreResult,
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
        Ok(self.list_behind(queue, state, (None, page)).await?.0)
    }

    async fn list_behind(
        &self,
        queue: &QueueName,
        state: State,
        (behind, page): (Option<PageEnd>, Page),
    ) -> StoreResult<(Vec<Record>, Option<PageEnd>)> {
        let listed = self.read_queue(Operation::List, queue, move |connection, row| {
            list(connection, row, state, (behind, page))
        });
        Ok(listed.await?.unwrap_or_default())
    }

    async fn result(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Vec<u8>>> {
        let id = id.clone();
        let result = self.read_queue(Operation::Get, queue, move |connection, row| {
            ended::result(connection, row, &id)
        });
        Ok(result.await?.flatten())
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

/// Which messages of a state a statement reads.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// All of them, from an offset on.
    All,
    /// Those in the same place as the end of a page, and behind it.
    SamePlace,
    /// Those in the places behind it.
    Behind,
}

impl Part {
    /// How many parameters its statement has.
    fn parameters(self) -> usize {
        match self {
            Self::All => 5,
            Self::Behind => 6,
            Self::SamePlace => 7,
        }
    }
}

/// What reads a page of a list. Behind an end it begins at a place, which an index finds at once: with an offset
/// alone, each page would cost as much as all before it. (Of a comparison of pairs SQLite would look for the
/// first halves only, and many messages may be in one place.)
fn list_query(state: State, part: Part) -> String {
    let (behind, order) = if state == State::Dead {
        ("<", "place DESC, seq DESC")
    } else {
        (">", "place, seq")
    };
    let which = match part {
        Part::All => String::new(),
        Part::SamePlace => format!("AND place = ?6 AND seq {behind} ?7"),
        Part::Behind => format!("AND place {behind} ?6"),
    };
    // Of no bytes `substr` makes NULL, which would be a payload that is missing.
    format!(
        "SELECT {RECORD},
           CASE WHEN ?5 > 0 AND length(payload) > 0 THEN substr(payload, 1, ?5)
                WHEN ?5 > 0 THEN payload END,
           seq
         FROM messages
         WHERE queue = ?1 AND state = ?2 {which} ORDER BY {order} LIMIT ?3 OFFSET ?4"
    )
}

fn list(
    connection: &Connection,
    row: &QueueRow,
    state: State,
    (behind, page): (Option<PageEnd>, Page),
) -> rusqlite::Result<(Vec<Record>, Option<PageEnd>)> {
    let limit = page.limit.min(BATCH_MAX);
    let (parts, offset) = match behind {
        None => (&[Part::All][..], page.offset),
        Some(_) => (&[Part::SamePlace, Part::Behind][..], 0),
    };
    let (mut records, mut end) = (Vec::new(), None);
    for part in parts {
        let left = limit - records.len();
        if left == 0 {
            break;
        }
        let parameters: [i64; 7] = [
            row.id,
            code(state),
            signed(left as u64),
            signed(offset as u64),
            signed(page.payload_max as u64),
            behind.map_or(0, |end| end.place),
            behind.map_or(0, |end| end.seq),
        ];
        let mut select = connection.prepare_cached(&list_query(state, *part))?;
        let mut rows = select.query(params_from_iter(&parameters[..part.parameters()]))?;
        while let Some(row) = rows.next()? {
            records.push(record(row)?);
            end = Some(PageEnd {
                place: row.get(2)?,
                seq: row.get(8)?,
            });
        }
    }
    Ok((records, end))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::super::SqliteOptions;
    use super::*;
    use crate::message::{Due, NewMessage};
    use crate::store::prelude::*;

    const PARTS: [Part; 3] = [Part::All, Part::SamePlace, Part::Behind];

    /// Walks through a list page by page. Returns the messages, and the steps of SQLite's machine.
    fn walk(connection: &Connection, row: &QueueRow, state: State) -> (Vec<MessageId>, i64) {
        let page = Page {
            offset: 0,
            limit: 100,
            payload_max: 10,
        };
        let (mut ids, mut behind) = (Vec::new(), None);
        loop {
            let (records, end) = list(connection, row, state, (behind, page)).unwrap();
            if records.is_empty() {
                assert_eq!(end, None);
                let steps = PARTS.map(|part| {
                    let select = connection.prepare_cached(&list_query(state, part));
                    i64::from(select.unwrap().get_status(StatementStatus::VmStep))
                });
                return (ids, steps.iter().sum());
            }
            ids.extend(records.into_iter().map(|record| record.id));
            behind = end;
        }
    }

    fn queue() -> QueueName {
        "q".parse().unwrap()
    }

    async fn with_messages(number: usize, due: Due) -> (SqliteStore, Vec<MessageId>) {
        let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
        let messages: Vec<NewMessage> = (0..number)
            .map(|_| NewMessage {
                due,
                ..NewMessage::new("x")
            })
            .collect();
        store.send(&queue(), &messages).await.unwrap();
        let ids = messages.into_iter().map(|message| message.id).collect();
        (store, ids)
    }

    /// Those that fall due at one time are in one place, and each that is ready has its own.
    const DUES: [(State, Due); 2] = [
        (State::Pending, Due::At(4_000_000_000_000)),
        (State::Ready, Due::NOW),
    ];

    #[tokio::test]
    async fn a_walk_costs_as_much_for_each_page_wherever_it_is() {
        let queue = queue();
        for (state, due) in DUES {
            let mut steps = Vec::new();
            for number in [1000, 8000] {
                let (store, ids) = with_messages(number, due).await;
                let work =
                    move |connection: &Connection, row: &QueueRow| Ok(walk(connection, row, state));
                let walked = store.read_queue(Operation::List, &queue, work);
                let (listed, taken) = walked.await.unwrap().unwrap();
                assert!(listed == ids, "{state:?}");
                steps.push(taken);
            }
            let [few, many] = steps[..] else {
                panic!("two walks")
            };
            assert!(few > 1000 && many < few * 9, "{state:?}: {steps:?}");
        }
    }

    #[tokio::test]
    async fn a_page_is_found_by_an_index_and_not_sorted() {
        let (queue, (store, _)) = (queue(), with_messages(1, Due::NOW).await);
        for (state, behind) in [(State::Pending, ">"), (State::Dead, "<")] {
            for (part, by) in [
                (Part::All, String::new()),
                (Part::SamePlace, format!(" AND place=? AND rowid{behind}?")),
                (Part::Behind, format!(" AND place{behind}?")),
            ] {
                let plan = move |connection: &Connection, _: &QueueRow| {
                    let explain = format!("EXPLAIN QUERY PLAN {}", list_query(state, part));
                    let mut explain = connection.prepare(&explain)?;
                    let parameters = params_from_iter(vec![0; part.parameters()]);
                    let rows = explain.query_map(parameters, |row| row.get(3))?;
                    rows.collect::<rusqlite::Result<Vec<String>>>()
                };
                let plan = store.read_queue(Operation::List, &queue, plan);
                let plan = plan.await.unwrap().unwrap().join("\n");
                let index = "SEARCH messages USING INDEX messages_in_line";
                assert_eq!(plan, format!("{index} (queue=? AND state=?{by})"));
            }
        }
    }
}
