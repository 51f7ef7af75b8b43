//! What people ask for: what is where, dead letters, hosts.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::dedup;
use super::deliver::{due_ms, first_place_in, waiting};
use super::error::Failure;
use super::queue::{QueueRow, QueueTx, code, count, signed, state, text, unsigned};
use crate::message::{Due, HistoryEntry, MessageId, NewMessage, QueueName, Record, State};
use crate::store::common::{headers, history, ms};
use crate::store::{BATCH_MAX, Cancelled, HostInfo, Page, Redriven, Rescheduled, SeenHost};

/// The columns that [`record`] reads; the payload comes last.
const RECORD: &str = "id, state, place, failed, retries_left, headers, history";

pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let state = state(row.get(1)?);
    let place: i64 = row.get(2)?;
    let has_time = matches!(state, State::Pending | State::Unack | State::Dead);
    Ok(Record {
        id: text(row, 0)?.into(),
        state,
        at_ms: has_time.then(|| unsigned(place)),
        attempts: count(row.get(3)?),
        retries_left: count(row.get(4)?),
        headers: headers(&text(row, 5)?),
        history: history(&text(row, 6)?),
        payload: row.get(7)?,
    })
}

pub(super) fn get(
    connection: &Connection,
    row: &QueueRow,
    id: &MessageId,
) -> rusqlite::Result<Option<Record>> {
    connection
        .prepare_cached(&format!(
            "SELECT {RECORD}, payload FROM messages WHERE queue = ?1 AND id = ?2"
        ))?
        .query_row(params![row.id, id.as_str()], record)
        .optional()
}

pub(super) fn list(
    connection: &Connection,
    row: &QueueRow,
    state: State,
    page: Page,
) -> rusqlite::Result<Vec<Record>> {
    let order = if state == State::Dead {
        "place DESC, seq DESC"
    } else {
        "place, seq"
    };
    connection
        .prepare_cached(&format!(
            // Of no bytes `substr` makes NULL, which would be a payload that is missing.
            "SELECT {RECORD},
               CASE WHEN ?5 > 0 AND length(payload) > 0 THEN substr(payload, 1, ?5)
                    WHEN ?5 > 0 THEN payload END
             FROM messages
             WHERE queue = ?1 AND state = ?2 ORDER BY {order} LIMIT ?3 OFFSET ?4"
        ))?
        .query_map(
            params![
                row.id,
                code(state),
                signed(page.limit.min(BATCH_MAX) as u64),
                signed(page.offset as u64),
                signed(page.payload_max as u64),
            ],
            record,
        )?
        .collect()
}

/// pending, ready, retry -> (nowhere).
pub(super) fn cancel(tx: &mut QueueTx<'_>, ids: &[MessageId]) -> Result<Vec<Cancelled>, Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(match find(tx, id)? {
            Some((seq, from @ (State::Pending | State::Ready | State::Retry))) => {
                remove(tx, seq, from)?;
                tx.row.totals.cancelled += 1;
                Cancelled::Done
            }
            Some((_, State::Unack)) => Cancelled::InFlight,
            _ => Cancelled::Unknown,
        });
    }
    Ok(answers)
}

/// pending -> ready, or retry for what failed before (due now); pending, ready, retry -> pending
/// (due later).
pub(super) fn reschedule(
    tx: &mut QueueTx<'_>,
    ids: &[MessageId],
    due: Due,
) -> Result<Vec<Rescheduled>, Failure> {
    let due_ms = due_ms(due, tx.now);
    let is_now = due_ms <= tx.now.ms;
    let head = first_place_in(tx.tx, tx.row.id, State::Pending)?;
    let mut find = tx
        .tx
        .prepare_cached("SELECT seq, state, failed FROM messages WHERE queue = ?1 AND id = ?2")?;
    let mut update = tx
        .tx
        .prepare_cached("UPDATE messages SET state = ?2, place = ?3, due_ms = ?4 WHERE seq = ?1")?;
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let found: Option<(i64, i64, i64)> = find
            .query_row(params![tx.row.id, id.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let found = found.map(|(seq, from, failed)| (seq, state(from), failed));
        let (seq, from, failed) = match found {
            Some(found @ (_, State::Pending | State::Ready | State::Retry, _)) => found,
            Some((_, State::Unack, _)) => {
                answers.push(Rescheduled::InFlight);
                continue;
            }
            _ => {
                answers.push(Rescheduled::Unknown);
                continue;
            }
        };
        if !is_now || from == State::Pending {
            let (to, place) = if is_now {
                (waiting(failed), tx.last_place())
            } else {
                (State::Pending, signed(due_ms))
            };
            update.execute(params![seq, code(to), place, signed(due_ms)])?;
            tx.moved(Some(from), Some(to));
            tx.wake |= is_now || head.is_none_or(|head| place < head);
        }
        answers.push(Rescheduled::At(due_ms));
    }
    Ok(answers)
}

/// Hosts learn of it with their next reservation; those that sleep are woken when it ends.
pub(super) fn set_paused(tx: &mut QueueTx<'_>, paused: bool) {
    tx.row.paused = paused;
    tx.wake = !paused;
}

/// Where a message is.
pub(super) fn find(tx: &QueueTx<'_>, id: &MessageId) -> rusqlite::Result<Option<(i64, State)>> {
    tx.tx
        .prepare_cached("SELECT seq, state FROM messages WHERE queue = ?1 AND id = ?2")?
        .query_row(params![tx.row.id, id.as_str()], |row| {
            Ok((row.get(0)?, state(row.get(1)?)))
        })
        .optional()
}

/// Takes a message out of the queue.
pub(super) fn remove(tx: &mut QueueTx<'_>, seq: i64, from: State) -> rusqlite::Result<()> {
    tx.tx
        .prepare_cached("DELETE FROM messages WHERE seq = ?1")?
        .execute([seq])?;
    tx.moved(Some(from), None);
    Ok(())
}

/// dead letter -> (nowhere).
pub(super) fn delete_dead(tx: &mut QueueTx<'_>, ids: &[MessageId]) -> Result<Vec<bool>, Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let dead = find(tx, id)?.filter(|(_, state)| *state == State::Dead);
        if let Some((seq, _)) = dead {
            remove(tx, seq, State::Dead)?;
            tx.row.totals.deleted += 1;
        }
        answers.push(dead.is_some());
    }
    Ok(answers)
}

/// dead letter -> ready, under a new id.
pub(super) fn redrive(
    tx: &mut QueueTx<'_>,
    ids: &[MessageId],
    retries: Option<u32>,
) -> Result<Vec<Redriven>, Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(redrive_one(tx, id, retries)?);
    }
    Ok(answers)
}

fn redrive_one(
    tx: &mut QueueTx<'_>,
    id: &MessageId,
    retries: Option<u32>,
) -> Result<Redriven, Failure> {
    let Some(dead) = DeadLetter::find(tx, id)? else {
        return Ok(Redriven::Unknown);
    };
    if dead.is_missing {
        return Ok(Redriven::PayloadMissing);
    }
    let new = dead.send_again(tx, id, None, retries)?;
    remove(tx, dead.seq, State::Dead)?;
    Ok(Redriven::As(new))
}

/// dead letter -> ready, under a new id, and the dead letter stays.
pub(super) fn redrive_edited(
    tx: &mut QueueTx<'_>,
    id: &MessageId,
    payload: &[u8],
    retries: Option<u32>,
) -> Result<Redriven, Failure> {
    Ok(match DeadLetter::find(tx, id)? {
        Some(dead) => Redriven::As(dead.send_again(tx, id, Some(payload), retries)?),
        None => Redriven::Unknown,
    })
}

/// What is asked of a dead letter that is to be sent again.
struct DeadLetter {
    seq: i64,
    failed: i64,
    retries_left: i64,
    /// There is no payload.
    is_missing: bool,
}

impl DeadLetter {
    fn find(tx: &QueueTx<'_>, id: &MessageId) -> rusqlite::Result<Option<Self>> {
        tx.tx
            .prepare_cached(
                "SELECT seq, failed, retries_left, payload IS NULL FROM messages
                 WHERE queue = ?1 AND id = ?2 AND state = 7",
            )?
            .query_row(params![tx.row.id, id.as_str()], |row| {
                Ok(Self {
                    seq: row.get(0)?,
                    failed: row.get(1)?,
                    retries_left: row.get(2)?,
                    is_missing: row.get(3)?,
                })
            })
            .optional()
    }

    /// Makes a new message of it, with its own payload or another.
    fn send_again(
        &self,
        tx: &mut QueueTx<'_>,
        id: &MessageId,
        payload: Option<&[u8]>,
        retries: Option<u32>,
    ) -> Result<MessageId, Failure> {
        let budget = match retries {
            Some(retries) => i64::from(retries),
            None if self.failed > 0 => (self.failed - 1).saturating_add(self.retries_left),
            None => i64::from(NewMessage::RETRIES_DEFAULT),
        };
        let new = MessageId::new();
        let origin = HistoryEntry::Redriven {
            redriven_from: id.to_string(),
            at_ms: tx.now.ms,
        };
        let place = tx.last_place();
        tx.tx
            .prepare_cached(
                "INSERT INTO messages
                   (queue, id, state, place, retries_left, headers, history, payload)
                 SELECT queue, ?2, 3, ?3, ?4, headers, ?5, coalesce(?6, payload)
                 FROM messages WHERE seq = ?1",
            )?
            .execute(params![
                self.seq,
                new.as_str(),
                place,
                budget,
                serde_json::json!(origin).to_string(),
                payload,
            ])?;
        tx.moved(None, Some(State::Ready));
        tx.row.totals.redriven += 1;
        tx.wake = true;
        Ok(new)
    }
}

pub(super) fn queues(connection: &Connection) -> rusqlite::Result<Vec<QueueName>> {
    let names: Vec<String> = connection
        .prepare_cached("SELECT name FROM queues")?
        .query_map([], |row| text(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut queues: Vec<QueueName> = names.iter().filter_map(|name| name.parse().ok()).collect();
    queues.sort();
    Ok(queues)
}

pub(super) fn heartbeat(
    tx: &mut QueueTx<'_>,
    host: &HostInfo,
    silence: Duration,
) -> Result<(), Failure> {
    forget_silent(tx, tx.now.ms.saturating_sub(ms(silence)))?;
    dedup::forget(tx, dedup::FORGOTTEN_PER_HEARTBEAT)?;
    tx.tx
        .prepare_cached(
            "INSERT OR REPLACE INTO hosts (queue, host, beat_ms, info) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            tx.row.id,
            host.id,
            signed(tx.now.ms),
            serde_json::json!(host).to_string(),
        ])?;
    Ok(())
}

/// A host that dies without leave is forgotten by the next heartbeat of any other.
fn forget_silent(tx: &QueueTx<'_>, until_ms: u64) -> rusqlite::Result<()> {
    tx.tx
        .prepare_cached("DELETE FROM hosts WHERE queue = ?1 AND beat_ms <= ?2")?
        .execute(params![tx.row.id, signed(until_ms)])?;
    Ok(())
}

pub(super) fn leave(tx: &mut QueueTx<'_>, host_id: &str) -> Result<(), Failure> {
    tx.tx
        .prepare_cached("DELETE FROM hosts WHERE queue = ?1 AND host = ?2")?
        .execute(params![tx.row.id, host_id])?;
    Ok(())
}

pub(super) fn hosts(
    connection: &Connection,
    row: &QueueRow,
    now_ms: u64,
    silence: Duration,
) -> rusqlite::Result<Vec<SeenHost>> {
    let since_ms = now_ms.saturating_sub(ms(silence));
    let beats: Vec<(String, i64)> = connection
        .prepare_cached(
            "SELECT info, beat_ms FROM hosts WHERE queue = ?1 AND beat_ms >= ?2 ORDER BY host",
        )?
        .query_map(params![row.id, signed(since_ms)], |row| {
            Ok((text(row, 0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let seen = |(info, beat_ms): (String, i64)| {
        Some(SeenHost {
            info: serde_json::from_str(&info).ok()?,
            seen_ms_ago: now_ms.saturating_sub(unsigned(beat_ms)),
        })
    };
    Ok(beats.into_iter().filter_map(seen).collect())
}
