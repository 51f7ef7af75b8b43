//! Ids that count as there for a while after their messages are gone, so that a send which is repeated
//! late writes nothing. After a crash they are as the send left them, with which they were written; those
//! of which the time is over are taken out by later sends.

use rusqlite::params;

use super::queue::{Change, signed};

/// Those whose time is over go so many at a time with each that comes, so that they become fewer.
const FORGOTTEN_STEP: i64 = 2;

pub(super) fn is_there(change: &Change<'_>, id: &str) -> rusqlite::Result<bool> {
    change
        .tx
        .prepare_cached("SELECT 1 FROM dedup WHERE queue = ?1 AND id = ?2 AND until_ms > ?3")?
        .exists(params![change.row.id, id, signed(change.now.ms)])
}

pub(super) fn keep(change: &Change<'_>, id: &str, until_ms: u64) -> rusqlite::Result<()> {
    let queue = change.row.id;
    change
        .tx
        .prepare_cached(
            "DELETE FROM dedup WHERE queue = ?1 AND id IN (SELECT id FROM dedup
             WHERE queue = ?1 AND until_ms <= ?2 ORDER BY until_ms LIMIT ?3)",
        )?
        .execute(params![queue, signed(change.now.ms), FORGOTTEN_STEP])?;
    change
        .tx
        .prepare_cached("INSERT OR REPLACE INTO dedup (queue, id, until_ms) VALUES (?1, ?2, ?3)")?
        .execute(params![queue, id, signed(until_ms)])?;
    Ok(())
}
