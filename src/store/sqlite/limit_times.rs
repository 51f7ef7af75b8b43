//! What the limits of a queue remember: times by their names.

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Failure;
use super::queue::{QueueTx, signed, unsigned};

pub(super) fn kept(
    connection: &Connection,
    queue: i64,
    name: &str,
) -> rusqlite::Result<Option<u64>> {
    let at_us: Option<i64> = connection
        .prepare_cached("SELECT at_us FROM limits WHERE queue = ?1 AND name = ?2")?
        .query_row(params![queue, name], |row| row.get(0))
        .optional()?;
    Ok(at_us.map(unsigned))
}

pub(super) fn keep(tx: &QueueTx<'_>, name: &str, at_us: u64) -> Result<(), Failure> {
    tx.tx
        .prepare_cached("INSERT OR REPLACE INTO limits (queue, name, at_us) VALUES (?1, ?2, ?3)")?
        .execute(params![tx.row.id, name, signed(at_us)])?;
    Ok(())
}
