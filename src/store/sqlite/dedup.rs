//! Ids that count as there for a while after their messages are gone, so that a send which is repeated late
//! writes nothing. After a crash they are as the send left them, with which they were written. Those of
//! which the time is over are removed by later sends and by the heartbeats of hosts.

use rusqlite::params;

use super::queue::{QueueTx, signed};

/// So many whose time is over go with each that comes, so that they become fewer.
const FORGOTTEN_PER_SEND: i64 = 2;

/// And so many with each heartbeat.
pub(super) const FORGOTTEN_PER_HEARTBEAT: i64 = 1000;

pub(super) fn is_there(tx: &QueueTx<'_>, id: &str) -> rusqlite::Result<bool> {
    tx.tx
        .prepare_cached("SELECT 1 FROM dedup WHERE queue = ?1 AND id = ?2 AND until_ms > ?3")?
        .exists(params![tx.row.id, id, signed(tx.now.ms)])
}

pub(super) fn keep(tx: &QueueTx<'_>, id: &str, until_ms: u64) -> rusqlite::Result<()> {
    forget(tx, FORGOTTEN_PER_SEND)?;
    tx.tx
        .prepare_cached("INSERT OR REPLACE INTO dedup (queue, id, until_ms) VALUES (?1, ?2, ?3)")?
        .execute(params![tx.row.id, id, signed(until_ms)])?;
    Ok(())
}

/// Takes out up to `max` whose time is over.
pub(super) fn forget(tx: &QueueTx<'_>, max: i64) -> rusqlite::Result<()> {
    tx.tx
        .prepare_cached(
            "DELETE FROM dedup WHERE queue = ?1 AND id IN (SELECT id FROM dedup
             WHERE queue = ?1 AND until_ms <= ?2 ORDER BY until_ms LIMIT ?3)",
        )?
        .execute(params![tx.row.id, signed(tx.now.ms), max])?;
    Ok(())
}
