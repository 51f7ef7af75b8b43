//! Accepts messages.

use async_trait::async_trait;
use rusqlite::params;

use super::error::Failure;
use super::queue::{QueueTx, code, due_ms, first_place_in, signed};
use super::transaction::TxOptions;
use super::{DiskReserve, SqliteStore, dedup, repeats};
use crate::message::{NewMessage, OnRepeat, QueueName, Sent, State, expiry};
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
        if message.on_repeat != OnRepeat::Ignore {
            sent.push(repeats::send_or_change(tx, message)?);
            continue;
        }
        let window = message.window();
        if !window.is_zero() && dedup::is_there(tx, message.id.as_str())? {
            sent.push(Sent::new(message.id.clone(), None));
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
        let due_at_ms = (written == 1).then_some(due_ms);
        sent.push(Sent::new(message.id.clone(), due_at_ms));
    }
    Ok(sent)
}
