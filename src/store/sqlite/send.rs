//! Accepts messages.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::Failure;
use super::queue::{QueueTx, code, signed};
use super::transaction::TxOptions;
use super::{DiskReserve, SqliteStore, dedup};
use crate::clock::Now;
use crate::message::{Due, NewMessage, QueueName, Sent, State, expiry};
use crate::store::common::{headers_json, ms, send_steps};
use crate::store::{Operation, SendMessages, StoreResult};

#[async_trait]
impl SendMessages for SqliteStore {
    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>> {
        let mut sent = Vec::with_capacity(messages.len());
        for step in send_steps(messages) {
            let (step, room) = (step.to_vec(), self.room.clone());
            let work = move |tx: &mut QueueTx<'_>| {
                room.as_ref().map_or(Ok(()), DiskReserve::check)?;
                send(tx, &step)
            };
            let done = self
                .transact(Operation::Send, queue, TxOptions::CREATE, work)
                .await?;
            sent.extend(done.unwrap_or_default());
        }
        self.events.sent(queue, messages, &sent);
        Ok(sent)
    }
}

pub(super) fn send<'m>(
    tx: &mut QueueTx<'_>,
    messages: impl IntoIterator<Item = &'m NewMessage>,
) -> Result<Vec<Sent>, Failure> {
    let head = first_place_in(tx.tx, tx.row.id, State::Pending)?;
    let mut insert = tx.tx.prepare_cached(
        "INSERT INTO messages (queue, id, state, place, retries_left, headers, payload, due_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (queue, id) DO NOTHING",
    )?;
    let mut sent = Vec::new();
    for message in messages {
        let window = message.dedup_window;
        if !window.is_zero() && dedup::is_there(tx, message.id.as_str())? {
            sent.push(Sent {
                id: message.id.clone(),
                due_at_ms: None,
            });
            continue;
        }
        let due_ms = due_ms(message.due, tx.now);
        let (state, place) = if due_ms <= tx.now.ms {
            (State::Ready, tx.last_place())
        } else {
            (State::Pending, signed(due_ms))
        };
        let written = insert.execute(params![
            tx.row.id,
            message.id.as_str(),
            code(state),
            place,
            message.retries,
            headers_json(&expiry::resolved(&message.headers, tx.now.ceil_ms)),
            message.payload,
            (state == State::Pending).then_some(place),
        ])?;
        if written == 1 {
            tx.moved(None, Some(state));
            tx.row.totals.sent += 1;
            tx.wake |= state == State::Ready || head.is_none_or(|head| place < head);
            if !window.is_zero() {
                dedup::keep(tx, message.id.as_str(), due_ms.saturating_add(ms(window)))?;
            }
        }
        sent.push(Sent {
            id: message.id.clone(),
            due_at_ms: (written == 1).then_some(due_ms),
        });
    }
    Ok(sent)
}

pub(super) fn due_ms(due: Due, now: Now) -> u64 {
    match due {
        Due::In(Duration::ZERO) => now.ms,
        Due::In(delay) => now.ceil_ms.saturating_add(ms(delay)),
        Due::At(at_ms) => at_ms.max(now.ms),
    }
}

/// The smallest place of a state.
pub(super) fn first_place_in(
    connection: &Connection,
    queue: i64,
    state: State,
) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(
            "SELECT place FROM messages WHERE queue = ?1 AND state = ?2 ORDER BY place LIMIT 1",
        )?
        .query_row([queue, code(state)], |row| row.get(0))
        .optional()
}
