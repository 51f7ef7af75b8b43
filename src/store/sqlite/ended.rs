//! Keeps and tells how messages ended. A row has all that a host tells of at a time, so that it costs little
//! beside what it tells of. After a crash nothing is to be repaired: it is only shown.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Failure;
use super::queue::{QueueRow, QueueTx, signed, text};
use crate::message::MessageId;
use crate::store::common::ms;
use crate::store::{BATCH_MAX, Ended};

/// One step: these, oldest first, each with how long ago it ended.
pub(super) fn keep(
    tx: &mut QueueTx<'_>,
    ended: &[(Ended, Duration)],
    keep: usize,
) -> Result<(), Failure> {
    let before: Option<i64> = tx
        .tx
        .prepare_cached("SELECT max(last) FROM ended WHERE queue = ?1")?
        .query_row([tx.row.id], |row| row.get(0))?;
    let last = before
        .unwrap_or(0)
        .saturating_add(signed(ended.len() as u64));
    let line = |(ended, ago): &(Ended, Duration)| {
        let at_ms = tx.now.ms.saturating_sub(ms(*ago));
        format!("{at_ms} {}", ended.json())
    };
    let lines: Vec<String> = ended.iter().map(line).collect();
    tx.tx
        .prepare_cached("INSERT OR REPLACE INTO ended (queue, last, lines) VALUES (?1, ?2, ?3)")?
        .execute(params![tx.row.id, last, lines.join("\n")])?;
    tx.tx
        .prepare_cached("DELETE FROM ended WHERE queue = ?1 AND last <= ?2")?
        .execute(params![tx.row.id, last.saturating_sub(signed(keep as u64))])?;
    Ok(())
}

/// The latest first.
pub(super) fn list(
    connection: &Connection,
    row: &QueueRow,
    offset: usize,
    limit: usize,
) -> rusqlite::Result<Vec<Ended>> {
    let mut query =
        connection.prepare_cached("SELECT lines FROM ended WHERE queue = ?1 ORDER BY last DESC")?;
    let mut rows = query.query([row.id])?;
    let (mut passed, mut found) = (0, Vec::new());
    while let Some(row) = rows.next()? {
        for line in text(row, 0)?.lines().rev() {
            if passed < offset {
                passed += 1;
                continue;
            }
            if found.len() == limit {
                return Ok(found);
            }
            found.extend(Ended::parse(line));
        }
    }
    Ok(found)
}

/// One step: these, oldest first.
pub(super) fn keep_results(
    tx: &mut QueueTx<'_>,
    results: &[(MessageId, Vec<u8>)],
    bytes_max: usize,
) -> Result<(), Failure> {
    let mut insert = tx
        .tx
        .prepare_cached("INSERT INTO results (queue, id, bytes) VALUES (?1, ?2, ?3)")?;
    for (id, bytes) in results {
        insert.execute(params![tx.row.id, id.as_str(), bytes])?;
    }
    let mut sizes = tx.tx.prepare_cached(
        "SELECT seq, length(bytes) FROM results WHERE queue = ?1 ORDER BY seq DESC",
    )?;
    let mut rows = sizes.query([tx.row.id])?;
    let (mut count, mut left) = (0, bytes_max);
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        let size = usize::try_from(row.get::<_, i64>(1)?).unwrap_or(usize::MAX);
        count += 1;
        if size > left || count > BATCH_MAX {
            drop(rows);
            tx.tx
                .prepare_cached("DELETE FROM results WHERE queue = ?1 AND seq <= ?2")?
                .execute(params![tx.row.id, seq])?;
            break;
        }
        left -= size;
    }
    Ok(())
}

/// What the handler of a message returned.
pub(super) fn result(
    connection: &Connection,
    row: &QueueRow,
    id: &MessageId,
) -> rusqlite::Result<Option<Vec<u8>>> {
    connection
        .prepare_cached(
            "SELECT bytes FROM results WHERE queue = ?1 AND id = ?2 ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(params![row.id, id.as_str()], |row| row.get(0))
        .optional()
}
