//! Keeps and tells how messages ended. A row has all that a host tells of at a time, so that it costs little
//! beside what it tells of. After a crash nothing is to be repaired: it is only shown.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::error::Failure;
use super::queue::{QueueRow, QueueTx, signed, text};
use crate::store::Ended;
use crate::store::common::ms;

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
