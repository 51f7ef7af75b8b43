//! The way to another store and from one. Each half is a transaction, and what is moving is in no
//! host's reach, so a copy that is interrupted anywhere is ended by another.

use async_trait::async_trait;
use rusqlite::{OptionalExtension, params};

use super::error::Failure;
use super::queue::{QueueTx, code, count, signed, state, text, unsigned};
use super::transaction::TxOptions;
use super::{DiskReserve, SqliteStore, inspect, manage};
use crate::message::{Attempt, MessageId, QueueName, Record, State};
use crate::store::common::{
    OTHER_RUN, append_history, headers_json, history_lines, import_steps, third_store,
};
use crate::store::move_queue::mark_as_host;
use crate::store::{BATCH_MAX, Operation, Peer, StoreResult, Transfer};

/// The states that are left, in this order; unack is not, for a host has those in flight.
const LEAVING: [State; 5] = [
    State::Ready,
    State::Retry,
    State::Pending,
    State::Garbage,
    State::Dead,
];

/// Notes the other store, or refuses it when messages are moving to or from a third.
pub(super) fn begin_transfer(tx: &mut QueueTx<'_>, peer: Peer) -> Result<(), Failure> {
    match &tx.row.peer {
        Some(known) if tx.row.depth(State::Moving) > 0 && *known != peer.name && !peer.renamed => {
            Err(Failure::Refused(third_store(known)))
        }
        _ => {
            tx.row.peer = Some(peer.name);
            tx.row.run = Some(peer.run);
            Ok(())
        }
    }
}

/// Refuses what does not come from the copy that began last.
fn check(tx: &QueueTx<'_>, run: &str) -> Result<(), Failure> {
    if tx.row.run.as_deref() == Some(run) {
        Ok(())
    } else {
        Err(Failure::Refused(OTHER_RUN.to_owned()))
    }
}

pub(super) fn export(tx: &mut QueueTx<'_>, run: &str, max: usize) -> Result<Vec<Record>, Failure> {
    let max = max.min(BATCH_MAX);
    check(tx, run)?;
    if tx.row.depth(State::Moving) == 0 {
        let mut left = max;
        for from in LEAVING {
            left -= take_out(tx, from, left)?;
        }
    }
    let records = tx
        .tx
        .prepare_cached(
            "SELECT id, was, place, failed, retries_left, headers, history, payload, due_ms
             FROM messages WHERE queue = ?1 AND state = 8 ORDER BY place, seq LIMIT ?2",
        )?
        .query_map(params![tx.row.id, signed(max as u64)], |row| {
            let state = state(row.get(1)?);
            let mut record = inspect::record(row)?;
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
fn take_out(tx: &mut QueueTx<'_>, from: State, max: usize) -> Result<usize, Failure> {
    if max == 0 || tx.row.depth(from) == 0 {
        return Ok(0);
    }
    let taken = tx
        .tx
        .prepare_cached(
            "UPDATE messages SET state = 8, was = ?2 WHERE seq IN
               (SELECT seq FROM messages WHERE queue = ?1 AND state = ?2
                ORDER BY place, seq LIMIT ?3)",
        )?
        .execute(params![tx.row.id, code(from), signed(max as u64)])?;
    for _ in 0..taken {
        tx.moved(Some(from), Some(State::Moving));
    }
    Ok(taken)
}

/// (nowhere) -> moving.
pub(super) fn import(tx: &mut QueueTx<'_>, run: &str, records: &[Record]) -> Result<(), Failure> {
    check(tx, run)?;
    for record in records {
        let at_ms = record.at_ms.map(signed);
        let (place, due_ms) = match record.state {
            State::Pending => (at_ms.unwrap_or(0), Some(at_ms.unwrap_or(0))),
            State::Dead => (at_ms.unwrap_or(0), None),
            State::Ready | State::Retry => (tx.last_place(), at_ms),
            _ => (0, None),
        };
        let written = tx
            .tx
            .prepare_cached(
                "INSERT INTO messages (queue, id, state, was, place, due_ms, failed,
                 retries_left, headers, history, payload)
                 VALUES (?1, ?2, 8, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (queue, id) DO NOTHING",
            )?
            .execute(params![
                tx.row.id,
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
            tx.moved(None, Some(State::Moving));
        }
    }
    Ok(())
}

/// moving -> (nowhere).
pub(super) fn remove_exported(
    tx: &mut QueueTx<'_>,
    run: &str,
    ids: &[MessageId],
) -> Result<(), Failure> {
    check(tx, run)?;
    for id in ids {
        if let Some((seq, State::Moving)) = manage::find(tx, id)? {
            manage::remove(tx, seq, State::Moving)?;
        }
    }
    Ok(())
}

/// moving -> the state before.
pub(super) fn commit_import(
    tx: &mut QueueTx<'_>,
    run: &str,
    ids: &[MessageId],
) -> Result<(), Failure> {
    check(tx, run)?;
    for id in ids {
        let moving: Option<(i64, i64, i64, bool)> = tx
            .tx
            .prepare_cached(
                "SELECT seq, was, place, payload IS NULL FROM messages
                 WHERE queue = ?1 AND id = ?2 AND state = 8",
            )?
            .query_row(params![tx.row.id, id.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        let Some((seq, was, place, is_missing)) = moving else {
            continue;
        };
        let (to, place) = match state(was) {
            // Nothing can be made of a message without a payload but a dead letter.
            to if is_missing && to != State::Dead => {
                note_missing_payload(tx, seq)?;
                (State::Garbage, 0)
            }
            to @ (State::Ready | State::Retry) => (to, tx.last_place()),
            to => (to, place),
        };
        tx.tx
            .prepare_cached(
                "UPDATE messages SET state = ?2, was = NULL, place = ?3 WHERE seq = ?1",
            )?
            .execute(params![seq, code(to), place])?;
        tx.moved(Some(State::Moving), Some(to));
        tx.wake = true;
    }
    Ok(())
}

/// Notes why a message that arrived without its payload becomes a dead letter.
fn note_missing_payload(tx: &QueueTx<'_>, seq: i64) -> rusqlite::Result<()> {
    let (failed, lines): (i64, String) = tx
        .tx
        .prepare_cached("SELECT failed, history FROM messages WHERE seq = ?1")?
        .query_row([seq], |row| Ok((row.get(0)?, text(row, 1)?)))?;
    let attempt = Attempt {
        attempt: count(failed),
        at_ms: tx.now.ms,
        class: "payload-missing".to_owned(),
        reason: "its store had lost the payload before it was copied here".to_owned(),
        duration_ms: None,
        host: String::new(),
        handler: String::new(),
        log: String::new(),
    };
    let line = serde_json::json!(attempt).to_string();
    tx.tx
        .prepare_cached("UPDATE messages SET history = ?2 WHERE seq = ?1")?
        .execute(params![seq, append_history(&lines, &line)])?;
    Ok(())
}

#[async_trait]
impl Transfer for SqliteStore {
    async fn begin_transfer(&self, queue: &QueueName, peer: &Peer) -> StoreResult<()> {
        let peer = peer.clone();
        let work = move |tx: &mut QueueTx<'_>| begin_transfer(tx, peer);
        self.transact(Operation::BeginTransfer, queue, TxOptions::CREATE, work)
            .await?;
        Ok(())
    }

    async fn export(&self, queue: &QueueName, run: &str, max: usize) -> StoreResult<Vec<Record>> {
        let run = run.to_owned();
        let work = move |tx: &mut QueueTx<'_>| export(tx, &run, max);
        let done = self
            .transact(Operation::Export, queue, TxOptions::CHANGE, work)
            .await?;
        Ok(done.unwrap_or_default())
    }

    async fn import(&self, queue: &QueueName, run: &str, records: &[Record]) -> StoreResult<()> {
        for step in import_steps(records) {
            let (run, step, room) = (run.to_owned(), step.to_vec(), self.room.clone());
            let work = move |tx: &mut QueueTx<'_>| {
                room.as_ref().map_or(Ok(()), DiskReserve::check)?;
                import(tx, &run, &step)
            };
            self.transact(Operation::Import, queue, TxOptions::CREATE, work)
                .await?;
        }
        Ok(())
    }

    async fn remove_exported(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        let (run, ids) = (run.to_owned(), ids.to_vec());
        let work = move |tx: &mut QueueTx<'_>| remove_exported(tx, &run, &ids);
        self.transact(Operation::RemoveExported, queue, TxOptions::CHANGE, work)
            .await?;
        Ok(())
    }

    async fn commit_import(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        let (run, ids) = (run.to_owned(), ids.to_vec());
        let work = move |tx: &mut QueueTx<'_>| commit_import(tx, &run, &ids);
        self.transact(Operation::CommitImport, queue, TxOptions::CHANGE, work)
            .await?;
        Ok(())
    }

    async fn mark(&self, queue: &QueueName, mark: &str, is_put: bool) -> StoreResult<bool> {
        mark_as_host(self, queue, mark, is_put).await
    }
}
