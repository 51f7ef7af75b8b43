//! The way to another store and from one. Each half is a transaction, and what is moving is in no
//! host's reach, so a copy that is interrupted anywhere is ended by another.

use rusqlite::{OptionalExtension, params};

use super::error::Failure;
use super::people;
use super::queue::{Change, code, count, signed, state, text, unsigned};
use crate::message::{Attempt, MessageId, Record, State};
use crate::store::common::{OTHER_RUN, append_history, headers_json, history_lines, third_store};
use crate::store::{BATCH_MAX, Peer};

/// The states that are left, in this order; unack is not, for a host has those in hand.
const LEAVING: [State; 5] = [
    State::Ready,
    State::Retry,
    State::Pending,
    State::Garbage,
    State::Dead,
];

/// Notes the other store, or refuses it when messages are moving to or from a third.
pub(super) fn meet(change: &mut Change<'_>, peer: Peer) -> Result<(), Failure> {
    match &change.row.peer {
        Some(known)
            if change.row.depth(State::Moving) > 0 && *known != peer.name && !peer.renamed =>
        {
            Err(Failure::Refused(third_store(known)))
        }
        _ => {
            change.row.peer = Some(peer.name);
            change.row.run = Some(peer.run);
            Ok(())
        }
    }
}

/// Refuses what does not come from the copy that began last.
fn check(change: &Change<'_>, run: &str) -> Result<(), Failure> {
    if change.row.run.as_deref() == Some(run) {
        Ok(())
    } else {
        Err(Failure::Refused(OTHER_RUN.to_owned()))
    }
}

pub(super) fn export(
    change: &mut Change<'_>,
    run: &str,
    max: usize,
) -> Result<Vec<Record>, Failure> {
    let max = max.min(BATCH_MAX);
    check(change, run)?;
    if change.row.depth(State::Moving) == 0 {
        let mut left = max;
        for from in LEAVING {
            left -= take_out(change, from, left)?;
        }
    }
    let records = change
        .tx
        .prepare_cached(
            "SELECT id, was, place, failed, retries_left, headers, history, payload, due_ms
             FROM messages WHERE queue = ?1 AND state = 8 ORDER BY place, seq LIMIT ?2",
        )?
        .query_map(params![change.row.id, signed(max as u64)], |row| {
            let state = state(row.get(1)?);
            let mut record = people::record(row)?;
            // What cannot be named exactly could not be removed once it has been moved.
            record.id = row.get::<_, String>(0)?.into();
            record.state = state;
            record.at_ms = match state {
                State::Pending | State::Dead => Some(unsigned(row.get(2)?)),
                _ => row.get::<_, Option<i64>>(8)?.map(unsigned),
            };
            Ok(record)
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(records)
}

/// The first of a state -> moving. Returns how many.
fn take_out(change: &mut Change<'_>, from: State, max: usize) -> Result<usize, Failure> {
    if max == 0 || change.row.depth(from) == 0 {
        return Ok(0);
    }
    let taken = change
        .tx
        .prepare_cached(
            "UPDATE messages SET state = 8, was = ?2 WHERE seq IN
               (SELECT seq FROM messages WHERE queue = ?1 AND state = ?2
                ORDER BY place, seq LIMIT ?3)",
        )?
        .execute(params![change.row.id, code(from), signed(max as u64)])?;
    for _ in 0..taken {
        change.moved(Some(from), Some(State::Moving));
    }
    Ok(taken)
}

/// (nowhere) -> moving.
pub(super) fn import(
    change: &mut Change<'_>,
    run: &str,
    records: &[Record],
) -> Result<(), Failure> {
    check(change, run)?;
    for record in records {
        let at_ms = record.at_ms.map(signed);
        let (place, due_ms) = match record.state {
            State::Pending => (at_ms.unwrap_or(0), Some(at_ms.unwrap_or(0))),
            State::Dead => (at_ms.unwrap_or(0), None),
            State::Ready | State::Retry => (change.last_place(), at_ms),
            _ => (0, None),
        };
        let written = change
            .tx
            .prepare_cached(
                "INSERT INTO messages (queue, id, state, was, place, due_ms, failed,
                 retries_left, headers, history, payload)
                 VALUES (?1, ?2, 8, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (queue, id) DO NOTHING",
            )?
            .execute(params![
                change.row.id,
                record.id.as_str(),
                code(record.state),
                place,
                due_ms,
                record.attempts,
                record.retries_left,
                headers_json(&record.headers),
                history_lines(&record.history),
                record.payload,
            ])?;
        if written == 1 {
            change.moved(None, Some(State::Moving));
        }
    }
    Ok(())
}

/// moving -> (nowhere).
pub(super) fn discard(
    change: &mut Change<'_>,
    run: &str,
    ids: &[MessageId],
) -> Result<(), Failure> {
    check(change, run)?;
    for id in ids {
        if let Some((seq, State::Moving)) = people::find(change, id)? {
            people::remove(change, seq, State::Moving)?;
        }
    }
    Ok(())
}

/// moving -> the state before.
pub(super) fn admit(change: &mut Change<'_>, run: &str, ids: &[MessageId]) -> Result<(), Failure> {
    check(change, run)?;
    for id in ids {
        let moving: Option<(i64, i64, i64, bool)> = change
            .tx
            .prepare_cached(
                "SELECT seq, was, place, payload IS NULL FROM messages
                 WHERE queue = ?1 AND id = ?2 AND state = 8",
            )?
            .query_row(params![change.row.id, id.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        let Some((seq, was, place, is_missing)) = moving else {
            continue;
        };
        let (to, place) = match state(was) {
            // Nothing can be made of a message without a payload but a dead letter.
            to if is_missing && to != State::Dead => {
                note_missing_payload(change, seq)?;
                (State::Garbage, 0)
            }
            to @ (State::Ready | State::Retry) => (to, change.last_place()),
            to => (to, place),
        };
        change
            .tx
            .prepare_cached(
                "UPDATE messages SET state = ?2, was = NULL, place = ?3 WHERE seq = ?1",
            )?
            .execute(params![seq, code(to), place])?;
        change.moved(Some(State::Moving), Some(to));
        change.wake = true;
    }
    Ok(())
}

/// Notes why a message that arrived without its payload becomes a dead letter.
fn note_missing_payload(change: &Change<'_>, seq: i64) -> rusqlite::Result<()> {
    let (failed, lines): (i64, String) = change
        .tx
        .prepare_cached("SELECT failed, history FROM messages WHERE seq = ?1")?
        .query_row([seq], |row| Ok((row.get(0)?, text(row, 1)?)))?;
    let attempt = Attempt {
        attempt: count(failed),
        at_ms: change.now.ms,
        class: "payload-missing".to_owned(),
        reason: "its store had lost the payload before it was copied here".to_owned(),
        duration_ms: None,
        host: String::new(),
        handler: String::new(),
        log: String::new(),
    };
    let line = serde_json::json!(attempt).to_string();
    change
        .tx
        .prepare_cached("UPDATE messages SET history = ?2 WHERE seq = ?1")?
        .execute(params![seq, append_history(&lines, &line)])?;
    Ok(())
}
