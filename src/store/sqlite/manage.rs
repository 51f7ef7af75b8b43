//! Manages messages and queues for operators: cancel, reschedule, pause, dead letters.

use std::slice::from_ref;

use async_trait::async_trait;
use rusqlite::{OptionalExtension, params};

use super::error::Failure;
use super::queue::{QueueTx, code, due_ms, first_place_in, signed, state, text, waiting_state};
use super::transaction::TxOptions;
use super::{DiskReserve, SqliteStore, retention};
use crate::message::{Due, HistoryEntry, MessageId, NewMessage, QueueName, State};
use crate::store::common::without_expiry;
use crate::store::{
    Cancelled, Manage, Operation, Redrive, Redriven, Rescheduled, Retention, StoreResult,
};

impl SqliteStore {
    /// Cancels messages, also those in flight if `kill`.
    async fn take_back(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        kill: bool,
    ) -> StoreResult<Vec<Cancelled>> {
        let work = move |tx: &mut QueueTx<'_>, some: &[MessageId]| cancel(tx, some, kill);
        let answers = self
            .transact_each((Operation::Cancel, TxOptions::CHANGE), queue, ids, work)
            .await?;
        self.events.cancelled(queue, ids, &answers);
        Ok(answers)
    }
}

#[async_trait]
impl Manage for SqliteStore {
    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        self.take_back(queue, ids, false).await
    }

    async fn kill(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        self.take_back(queue, ids, true).await
    }

    async fn reschedule(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        due: Due,
    ) -> StoreResult<Vec<Rescheduled>> {
        let work = move |tx: &mut QueueTx<'_>, some: &[MessageId]| reschedule(tx, some, due);
        let answers = self
            .transact_each((Operation::Reschedule, TxOptions::CHANGE), queue, ids, work)
            .await?;
        self.events.rescheduled(queue, ids, &answers);
        Ok(answers)
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<()> {
        let work = move |tx: &mut QueueTx<'_>| {
            set_paused(tx, paused);
            Ok(())
        };
        self.transact(Operation::Pause, queue, TxOptions::CREATE, work)
            .await?;
        self.events.paused(queue, paused);
        Ok(())
    }

    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        how: Redrive,
    ) -> StoreResult<Vec<Redriven>> {
        let work = move |tx: &mut QueueTx<'_>, some: &[MessageId]| redrive(tx, some, how);
        let answers = self
            .transact_each((Operation::Redrive, TxOptions::CHANGE), queue, ids, work)
            .await?;
        self.events.redriven(queue, ids, &answers);
        Ok(answers)
    }

    async fn redrive_edited(
        &self,
        queue: &QueueName,
        id: &MessageId,
        payload: &[u8],
        retries: Option<u32>,
    ) -> StoreResult<Redriven> {
        let (of, payload, room) = (id.clone(), payload.to_vec(), self.room.clone());
        let work = move |tx: &mut QueueTx<'_>| {
            room.as_ref().map_or(Ok(()), DiskReserve::check)?;
            redrive_edited(tx, &of, &payload, retries)
        };
        let done = self
            .transact(Operation::Redrive, queue, TxOptions::CHANGE, work)
            .await?;
        let answer = done.unwrap_or(Redriven::Unknown);
        self.events.redriven(queue, from_ref(id), from_ref(&answer));
        Ok(answer)
    }

    async fn past_retention(
        &self,
        queue: &QueueName,
        retention: Retention,
    ) -> StoreResult<Vec<MessageId>> {
        let now_ms = self.clock.now().ms;
        let ids = self.read_queue(Operation::List, queue, move |connection, row| {
            retention::past_retention(connection, row, retention, now_ms)
        });
        Ok(ids.await?.unwrap_or_default())
    }

    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>> {
        let work = |tx: &mut QueueTx<'_>, some: &[MessageId]| delete_dead(tx, some);
        let answers = self
            .transact_each((Operation::DeleteDead, TxOptions::CHANGE), queue, ids, work)
            .await?;
        self.events.deleted(queue, ids, &answers);
        Ok(answers)
    }
}

/// pending, ready, retry -> (nowhere); unack -> (nowhere) if `kill`.
fn cancel(tx: &mut QueueTx<'_>, ids: &[MessageId], kill: bool) -> Result<Vec<Cancelled>, Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(match find(tx, id)? {
            Some((seq, from @ (State::Pending | State::Ready | State::Retry))) => {
                remove(tx, seq, from)?;
                tx.row.totals.cancelled += 1;
                Cancelled::Done
            }
            Some((seq, State::Unack)) if kill => {
                remove(tx, seq, State::Unack)?;
                tx.row.totals.cancelled += 1;
                tx.runs.killed = true;
                Cancelled::Killed
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
                (waiting_state(failed), tx.last_place())
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
    how: Redrive,
) -> Result<Vec<Redriven>, Failure> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(redrive_one(tx, id, how)?);
    }
    Ok(answers)
}

fn redrive_one(tx: &mut QueueTx<'_>, id: &MessageId, how: Redrive) -> Result<Redriven, Failure> {
    let Some(dead) = DeadLetter::find(tx, id)? else {
        return Ok(Redriven::Unknown);
    };
    if dead.is_missing {
        return Ok(Redriven::PayloadMissing);
    }
    if how.refuses(dead.redrives) {
        return Ok(Redriven::TooOften(dead.redrives));
    }
    let seq = dead.seq;
    let new = dead.send_again(tx, id, None, how.retries)?;
    remove(tx, seq, State::Dead)?;
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
    headers: String,
    /// There is no payload.
    is_missing: bool,
    /// How often it was redriven.
    redrives: u32,
}

/// How often a message with this history was redriven: its first line says so, if it is an origin.
fn redrives_of(history: &str) -> u32 {
    match history.lines().next().map(serde_json::from_str) {
        Some(Ok(HistoryEntry::Redriven { redrives, .. })) => redrives,
        _ => 0,
    }
}

impl DeadLetter {
    fn find(tx: &QueueTx<'_>, id: &MessageId) -> rusqlite::Result<Option<Self>> {
        tx.tx
            .prepare_cached(
                "SELECT seq, failed, retries_left, headers, payload IS NULL, history FROM messages
                 WHERE queue = ?1 AND id = ?2 AND state = 7",
            )?
            .query_row(params![tx.row.id, id.as_str()], |row| {
                Ok(Self {
                    seq: row.get(0)?,
                    failed: row.get(1)?,
                    retries_left: row.get(2)?,
                    headers: text(row, 3)?,
                    is_missing: row.get(4)?,
                    redrives: redrives_of(&text(row, 5)?),
                })
            })
            .optional()
    }

    /// Makes a new message of it, with its own payload or another.
    fn send_again(
        self,
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
            redrives: self.redrives.saturating_add(1),
        };
        let place = tx.last_place();
        tx.tx
            .prepare_cached(
                "INSERT INTO messages
                   (queue, id, state, place, retries_left, headers, history, payload)
                 SELECT queue, ?2, 3, ?3, ?4, ?7, ?5, coalesce(?6, payload)
                 FROM messages WHERE seq = ?1",
            )?
            .execute(params![
                self.seq,
                new.as_str(),
                place,
                budget,
                serde_json::json!(origin).to_string(),
                payload,
                without_expiry(self.headers),
            ])?;
        tx.moved(None, Some(State::Ready));
        tx.row.totals.redriven += 1;
        tx.wake = true;
        Ok(new)
    }
}
