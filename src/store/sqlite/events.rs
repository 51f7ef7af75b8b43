//! Tells what happens through a table that only the latest batches are in, and only while somebody listens.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use tokio::time::{Instant, sleep};

use super::SqliteStore;
use super::error::Failure;
use super::queue::{signed, text};
use super::transaction::TxOptions;
use crate::message::QueueName;
use crate::store::events::{ANNOUNCE_EVERY, EventSender, LISTENER_TTL_MS};
use crate::store::{
    EventBuffer, EventStream, Events, Operation, ReportCounts, StoreError, StoreResult,
};

const OPERATION: Operation = Operation::Events;

/// How often a listener reads.
const READ_EVERY: Duration = Duration::from_millis(100);

/// Batches that are kept for listeners, and for how long.
const BATCHES_KEPT: i64 = 256;
const KEPT_MS: u64 = 10_000;

/// Batches that one look reads.
const READ_MAX: i64 = 100;

#[async_trait]
impl Events for SqliteStore {
    fn events(&self) -> &Arc<EventBuffer> {
        &self.events
    }

    async fn listened(&self, queues: &[QueueName]) -> StoreResult<Vec<QueueName>> {
        let (queues, now_ms) = (queues.to_vec(), self.clock.now().ms);
        let look = move |connection: &Connection| listened(connection, queues, now_ms);
        self.read(OPERATION, look).await
    }

    async fn publish_events(&self, queue: &QueueName, batches: &[String]) -> StoreResult<()> {
        let (queue, batches) = (queue.clone(), batches.to_vec());
        let now_ms = self.clock.now().ms;
        let work = move |tx: &Transaction<'_>| publish(tx, &queue, &batches, now_ms);
        self.transact_file(OPERATION, TxOptions::PASSING, work)
            .await
    }

    async fn report_events(&self, _queue: &QueueName, _counts: ReportCounts) -> StoreResult<()> {
        Ok(())
    }

    fn listen(self: Arc<Self>, queues: Vec<QueueName>, _delayqueue: bool) -> EventStream {
        EventStream::start(move |sender| async move {
            if let Err(error) = self.hear(queues, &sender).await {
                sender.fail(error).await;
            }
        })
    }
}

/// What a listener has read.
struct Read {
    last: i64,
    batches: Vec<(i64, String, String)>,
}

impl SqliteStore {
    /// Passes on what is published, until that cannot work.
    async fn hear(&self, queues: Vec<QueueName>, sender: &EventSender) -> StoreResult<()> {
        let mut last = passing(self.read(OPERATION, last_batch).await)?;
        sender.listens();
        let mut announced: Option<Instant> = None;
        loop {
            if announced.is_none_or(|at| at.elapsed() >= ANNOUNCE_EVERY) {
                let (queues, now_ms) = (queues.clone(), self.clock.now().ms);
                let work = move |tx: &Transaction<'_>| announce(tx, &queues, now_ms);
                let said = self.transact_file(OPERATION, TxOptions::PASSING, work);
                passing(said.await)?;
                announced = Some(Instant::now());
            }
            let since = last.unwrap_or_default();
            let look = move |connection: &Connection| read(connection, since);
            if let Some(read) = passing(self.read(OPERATION, look).await)? {
                if last.is_some() {
                    tell(&read, since, &queues, sender);
                }
                last = Some(read.last);
            }
            sleep(READ_EVERY).await;
        }
    }
}

/// Nothing, if it may work the next time.
fn passing<T>(answer: StoreResult<T>) -> StoreResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(StoreError::Unreachable { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn tell(read: &Read, since: i64, queues: &[QueueName], sender: &EventSender) {
    let mut expected = since.saturating_add(1);
    for (seq, queue, lines) in &read.batches {
        if *seq != expected {
            sender.gap();
        }
        expected = seq.saturating_add(1);
        if let Some(queue) = queues.iter().find(|one| one.as_str() == queue) {
            sender.batch(queue, lines.as_bytes());
        }
    }
}

fn listened(
    connection: &Connection,
    queues: Vec<QueueName>,
    now_ms: u64,
) -> rusqlite::Result<Vec<QueueName>> {
    let mut query =
        connection.prepare_cached("SELECT 1 FROM listeners WHERE queue = ?1 AND until_ms > ?2")?;
    let mut listened = Vec::new();
    for queue in queues {
        if query.exists(params![queue.as_str(), signed(now_ms)])? {
            listened.push(queue);
        }
    }
    Ok(listened)
}

fn announce(tx: &Transaction<'_>, queues: &[QueueName], now_ms: u64) -> Result<(), Failure> {
    tx.prepare_cached("DELETE FROM listeners WHERE until_ms <= ?1")?
        .execute([signed(now_ms)])?;
    let mut insert =
        tx.prepare_cached("INSERT OR REPLACE INTO listeners (queue, until_ms) VALUES (?1, ?2)")?;
    for queue in queues {
        let until_ms = now_ms.saturating_add(LISTENER_TTL_MS);
        insert.execute(params![queue.as_str(), signed(until_ms)])?;
    }
    Ok(())
}

fn publish(
    tx: &Transaction<'_>,
    queue: &QueueName,
    batches: &[String],
    now_ms: u64,
) -> Result<(), Failure> {
    let mut insert =
        tx.prepare_cached("INSERT INTO events (queue, at_ms, lines) VALUES (?1, ?2, ?3)")?;
    for batch in batches {
        insert.execute(params![queue.as_str(), signed(now_ms), batch])?;
    }
    let last = tx.last_insert_rowid();
    tx.prepare_cached("DELETE FROM events WHERE seq <= ?1 OR at_ms < ?2")?
        .execute(params![
            last.saturating_sub(BATCHES_KEPT),
            signed(now_ms.saturating_sub(KEPT_MS))
        ])?;
    Ok(())
}

/// The number of the latest batch that ever was.
fn last_batch(connection: &Connection) -> rusqlite::Result<i64> {
    let last = connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or_default())
}

fn read(connection: &Connection, since: i64) -> rusqlite::Result<Read> {
    let mut query = connection.prepare_cached(
        "SELECT seq, queue, lines FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    )?;
    let mut rows = query.query([since, READ_MAX])?;
    let mut read = Read {
        last: since,
        batches: Vec::new(),
    };
    while let Some(row) = rows.next()? {
        read.last = row.get(0)?;
        read.batches.push((read.last, text(row, 1)?, text(row, 2)?));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::store::sqlite::SqliteOptions;
    use crate::store::{Event, EventKind};

    async fn next(stream: &mut EventStream) -> (EventKind, Option<u64>) {
        let event = stream.next().await.unwrap().unwrap().event;
        (event.event, event.count)
    }

    #[tokio::test]
    async fn what_is_gone_before_it_was_read_is_a_gap() {
        let store = Arc::new(SqliteStore::open(&SqliteOptions::memory()).await.unwrap());
        let queue: QueueName = "q".parse().unwrap();
        let batch = |n: u64| serde_json::json!(Event::gap(Some(n))).to_string();
        store.publish_events(&queue, &[batch(0)]).await.unwrap();
        let mut stream = Arc::clone(&store).listen(vec![queue.clone()], false);
        while store.listened(from_ref(&queue)).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        // In one transaction, so that nobody reads in between. What was there before is not told.
        let kept = u64::try_from(BATCHES_KEPT).unwrap();
        let batches: Vec<String> = (1..=kept + 3).map(batch).collect();
        store.publish_events(&queue, &batches).await.unwrap();
        assert_eq!(next(&mut stream).await, (EventKind::Gap, None));
        for n in 4..=kept + 3 {
            assert_eq!(next(&mut stream).await, (EventKind::Gap, Some(n)));
        }
        let other: QueueName = "other".parse().unwrap();
        assert!(store.listened(&[other]).await.unwrap().is_empty());
    }
}
