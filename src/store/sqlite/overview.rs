//! How a queue stands and when its messages fall due, at a cost that does not grow with it.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, params};

use super::limits;
use super::queue::{QueueRow, code, count, first_place_in, signed, text, unsigned};
use crate::message::{MessageId, State};
use crate::store::report::Failing;
use crate::store::{FAILED_SAMPLE_MAX, FailedSample, Overview};

pub(super) fn read(
    connection: &Connection,
    row: &QueueRow,
    now_ms: u64,
) -> rusqlite::Result<Overview> {
    Ok(Overview {
        counts: row.counts(),
        paused: row.paused,
        limited: limits::held_back(connection, row, now_ms)?,
        now_ms,
        next_due_ms: first_place_in(connection, row.id, State::Pending)?.map(unsigned),
        oldest_ready_ms: oldest_ready_ms(connection, row)?,
        failed: failed(connection, row)?,
    })
}

/// Messages of one span that are counted at most: about a millisecond.
const DUE_MAX: u64 = 10_000;

/// How many pending messages are due within these times, and whether there are more.
pub(super) fn due_within(
    connection: &Connection,
    row: &QueueRow,
    within: Range<u64>,
) -> rusqlite::Result<(u64, bool)> {
    let found: i64 = connection
        .prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM messages
             WHERE queue = ?1 AND state = ?2 AND place >= ?3 AND place < ?4 LIMIT ?5)",
        )?
        .query_row(
            params![
                row.id,
                code(State::Pending),
                signed(within.start),
                signed(within.end),
                signed(DUE_MAX + 1),
            ],
            |row| row.get(0),
        )?;
    let found = unsigned(found);
    Ok((found.min(DUE_MAX), found > DUE_MAX))
}

/// When pending messages that have failed are due, and whether there are more of them.
pub(super) fn due_again(
    connection: &Connection,
    row: &QueueRow,
) -> rusqlite::Result<(Vec<u64>, bool)> {
    let mut due: Vec<u64> = connection
        .prepare_cached(
            "SELECT place FROM messages INDEXED BY messages_failed
             WHERE queue = ?1 AND state = 2 AND failed > 0 LIMIT ?2",
        )?
        .query_map(
            params![row.id, signed(FAILED_SAMPLE_MAX as u64 + 1)],
            |row| row.get(0).map(unsigned),
        )?
        .collect::<rusqlite::Result<_>>()?;
    let partial = due.len() > FAILED_SAMPLE_MAX;
    due.truncate(FAILED_SAMPLE_MAX);
    Ok((due, partial))
}

/// When the first in line in ready became due.
fn oldest_ready_ms(connection: &Connection, row: &QueueRow) -> rusqlite::Result<Option<u64>> {
    let first: Option<(String, Option<i64>)> = connection
        .prepare_cached(
            "SELECT id, due_ms FROM messages
             WHERE queue = ?1 AND state = ?2 ORDER BY place, seq LIMIT 1",
        )?
        .query_row([row.id, code(State::Ready)], |row| {
            Ok((text(row, 0)?, row.get(1)?))
        })
        .optional()?;
    Ok(first.and_then(|(id, due_ms)| {
        due_ms
            .map(unsigned)
            .or_else(|| MessageId::from(id).sent_at_ms())
    }))
}

/// Messages in pending, unack and retry that have failed before.
fn failed(connection: &Connection, row: &QueueRow) -> rusqlite::Result<FailedSample> {
    // The index is named so that a change of either makes this an error and not a walk over all.
    let mut messages: Vec<Failing> = connection
        .prepare_cached(
            "SELECT state, failed, retries_left FROM messages INDEXED BY messages_failed
             WHERE queue = ?1 AND state IN (2, 4, 5) AND failed > 0 LIMIT ?2",
        )?
        .query_map(
            params![row.id, signed(FAILED_SAMPLE_MAX as u64 + 1)],
            |row| {
                Ok(Failing {
                    failed: count(row.get(1)?),
                    is_last: row.get::<_, i64>(2)? == 0,
                    is_backing_off: row.get::<_, i64>(0)? == code(State::Pending),
                })
            },
        )?
        .collect::<rusqlite::Result<_>>()?;
    let partial = messages.len() > FAILED_SAMPLE_MAX;
    messages.truncate(FAILED_SAMPLE_MAX);
    Ok(FailedSample::of(messages, partial))
}
