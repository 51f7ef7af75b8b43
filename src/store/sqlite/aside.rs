//! Messages that are set aside: pending with a due time of their own, and with a place in the line of their
//! key. As `lua/include/aside.lua`.

use rusqlite::{OptionalExtension, params};

use super::queue::{QueueTx, state};
use crate::message::State;

/// A message that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub seq: i64,
    pub id: String,
    pub from: State,
}

/// The sequence number, state and place of a message.
pub(super) fn message(tx: &QueueTx<'_>, id: &str) -> rusqlite::Result<Option<(i64, State, i64)>> {
    tx.tx
        .prepare_cached("SELECT seq, state, place FROM messages WHERE queue = ?1 AND id = ?2")?
        .query_row(params![tx.row.id, id], |row| {
            Ok((row.get(0)?, state(row.get(1)?), row.get(2)?))
        })
        .optional()
}

/// Forgets the place of a message.
pub(super) fn forget(tx: &QueueTx<'_>, id: &str) -> rusqlite::Result<()> {
    tx.tx
        .prepare_cached("DELETE FROM limited WHERE queue = ?1 AND id = ?2")?
        .execute(params![tx.row.id, id])?;
    Ok(())
}

/// ready, retry -> pending. A message that has a place in the line of this key keeps it.
pub(super) fn set_aside(
    tx: &mut QueueTx<'_>,
    message: &Waiting,
    (key, place): (&str, i64),
    due_ms: i64,
) -> rusqlite::Result<()> {
    tx.tx
        .prepare_cached(
            "INSERT INTO limited (queue, id, key, place, due_ms) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (queue, id) DO UPDATE SET due_ms = ?5,
             place = CASE WHEN key = ?3 THEN place ELSE ?4 END, key = ?3",
        )?
        .execute(params![tx.row.id, message.id, key, place, due_ms])?;
    tx.tx
        .prepare_cached("UPDATE messages SET state = 2, place = ?2, due_ms = ?2 WHERE seq = ?1")?
        .execute(params![message.seq, due_ms])?;
    tx.moved(Some(message.from), Some(State::Pending));
    Ok(())
}

/// Whether anything is aside, of any key or of this one.
pub(super) fn is_any(tx: &QueueTx<'_>, key: Option<&str>) -> rusqlite::Result<bool> {
    match key {
        Some(key) => tx
            .tx
            .prepare_cached("SELECT 1 FROM limited WHERE queue = ?1 AND key = ?2 LIMIT 1")?
            .exists(params![tx.row.id, key]),
        None => tx
            .tx
            .prepare_cached("SELECT 1 FROM limited WHERE queue = ?1 LIMIT 1")?
            .exists([tx.row.id]),
    }
}
