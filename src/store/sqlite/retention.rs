//! Dead letters that are to be kept no longer.

use rusqlite::{Connection, params};

use super::queue::{QueueRow, code, signed, text};
use crate::message::{MessageId, State};
use crate::store::common::ms;
use crate::store::{BATCH_MAX, Retention};

/// The ids of dead letters that are to be kept no longer, of one kind or of the other.
pub(super) fn past_retention(
    connection: &Connection,
    row: &QueueRow,
    Retention { age, number }: Retention,
    now_ms: u64,
) -> rusqlite::Result<Vec<MessageId>> {
    let ids = |more: &str, value: u64| -> rusqlite::Result<Vec<MessageId>> {
        connection
            .prepare_cached(&format!(
                "SELECT id FROM messages WHERE queue = ?1 AND state = ?2 {more}"
            ))?
            .query_map(
                params![
                    row.id,
                    code(State::Dead),
                    signed(value),
                    signed(BATCH_MAX as u64)
                ],
                |row| text(row, 0).map(MessageId::from),
            )?
            .collect()
    };
    let mut found = Vec::new();
    if let Some(age) = age {
        let until = now_ms.saturating_sub(ms(age));
        found = ids("AND place <= ?3 ORDER BY place LIMIT ?4", until)?;
    }
    if let (Some(number), []) = (number, &found[..]) {
        let latest_first = "ORDER BY place DESC, seq DESC LIMIT ?4 OFFSET ?3";
        found = ids(latest_first, number.into())?;
    }
    Ok(found)
}
