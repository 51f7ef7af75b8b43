//! How deliveries end.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};

use super::error::Failure;
use super::queue::{QueueTx, code, signed, text, waiting_state};
use super::transaction::TxOptions;
use super::{DiskReserve, SqliteStore, ended, send};
use crate::message::{Attempt, Claim, MessageId, Outgoing, QueueName, State};
use crate::store::common::{append_history, by_queue, ms, settle_steps};
use crate::store::{BATCH_MAX, Ended, Operation, Settle, Settled, Settlement, StoreResult};

/// A message in unack whose lease is the asker's.
pub(super) struct Held {
    pub seq: i64,
    failed: i64,
    retries_left: i64,
    history: String,
}

/// How a delivery failed.
pub(super) struct Failed<'a> {
    /// Wait so long; none for at once.
    pub delay: Option<Duration>,
    /// Dead, whatever retries are left.
    pub is_final: bool,
    pub attempt: &'a Attempt,
}

/// The sequence number and the token that a claim's token names.
fn parts(claim: &Claim) -> Option<(i64, i64)> {
    let (seq, token) = claim.token.0.split_once('/')?;
    Some((seq.parse().ok()?, token.parse().ok()?))
}

impl Held {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            failed: row.get(1)?,
            retries_left: row.get(2)?,
            history: text(row, 3)?,
        })
    }

    /// The message that a claim holds; none when its lease is lost.
    pub(super) fn by(tx: &QueueTx<'_>, claim: &Claim) -> rusqlite::Result<Option<Self>> {
        let Some((seq, token)) = parts(claim) else {
            return Ok(None);
        };
        tx.tx
            .prepare_cached(
                "SELECT seq, failed, retries_left, history FROM messages
                 WHERE seq = ?1 AND token = ?2 AND queue = ?3 AND id = ?4 AND state = 4",
            )?
            .query_row(
                params![seq, token, tx.row.id, claim.id.as_str()],
                Self::read,
            )
            .optional()
    }

    /// A message whose lease has expired.
    pub(super) fn of_expired(connection: &Connection, seq: i64) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached(
                "SELECT seq, failed, retries_left, history FROM messages
                 WHERE seq = ?1 AND state = 4",
            )?
            .query_row([seq], Self::read)
            .optional()
    }

    /// unack -> pending (a delay), retry (at once), or garbage (no retries left, or final).
    pub(super) fn fail(self, tx: &mut QueueTx<'_>, how: &Failed<'_>) -> Result<(), Failure> {
        let is_over = how.is_final || self.retries_left <= 0;
        let (to, place) = match how.delay {
            _ if is_over => (State::Garbage, 0),
            Some(delay) => {
                let due_ms = tx.now.ceil_ms.saturating_add(ms(delay));
                (State::Pending, signed(due_ms))
            }
            None => (State::Retry, tx.last_place()),
        };
        let line = serde_json::json!(how.attempt).to_string();
        tx.tx
            .prepare_cached(
                "UPDATE messages SET state = ?2, place = ?3, due_ms = ?7, failed = ?4,
                 retries_left = ?5, history = ?6 WHERE seq = ?1",
            )?
            .execute(params![
                self.seq,
                code(to),
                place,
                self.failed.saturating_add(1),
                self.retries_left - i64::from(!is_over),
                append_history(&self.history, &line),
                (to == State::Pending).then_some(place),
            ])?;
        tx.moved(Some(State::Unack), Some(to));
        Ok(())
    }
}

pub(super) fn settle(
    tx: &mut QueueTx<'_>,
    settlements: &[(Claim, Settlement)],
    room: Option<&DiskReserve>,
) -> Result<Vec<Settled>, Failure> {
    let mut answers = Vec::with_capacity(settlements.len());
    // Looked up once: most of a batch are acks.
    let mut ack_statement = tx.tx.prepare_cached(ACK)?;
    for (claim, settlement) in settlements {
        let failed = match settlement {
            Settlement::Ack { outbox } => {
                if !outbox.is_empty()
                    && let Some(refusal) = send_along(tx, claim, outbox, room)?
                {
                    answers.push(refusal);
                    continue;
                }
                answers.push(ack(tx, &mut ack_statement, claim)?);
                continue;
            }
            Settlement::Nack { delay, attempt } => Failed {
                delay: *delay,
                is_final: false,
                attempt,
            },
            Settlement::Reject { attempt } => Failed {
                delay: None,
                is_final: true,
                attempt,
            },
        };
        let Some(held) = Held::by(tx, claim)? else {
            answers.push(Settled::LeaseLost);
            continue;
        };
        held.fail(tx, &failed)?;
        let totals = &mut tx.row.totals;
        *(if failed.is_final {
            &mut totals.rejected
        } else {
            &mut totals.nacked
        }) += 1;
        answers.push(Settled::Done);
    }
    Ok(answers)
}

/// A message in unack, whose lease is the asker's, is gone.
const ACK: &str = "DELETE FROM messages
     WHERE seq = ?1 AND token = ?2 AND queue = ?3 AND id = ?4 AND state = 4";

/// unack -> (nowhere), by the statement [`ACK`].
fn ack(
    tx: &mut QueueTx<'_>,
    statement: &mut Statement<'_>,
    claim: &Claim,
) -> Result<Settled, Failure> {
    let Some((seq, token)) = parts(claim) else {
        return Ok(Settled::LeaseLost);
    };
    let deleted = statement.execute(params![seq, token, tx.row.id, claim.id.as_str()])?;
    if deleted == 0 {
        return Ok(Settled::LeaseLost);
    }
    tx.moved(Some(State::Unack), None);
    tx.row.totals.acked += 1;
    Ok(Settled::Done)
}

/// What goes with an ack: each new message (nowhere) -> ready when already due, else -> pending. Sent before the
/// acked one is gone, so that its id is not taken for a free one. Returns why nothing was sent, and nothing is to be
/// acked; none if all was.
fn send_along(
    tx: &mut QueueTx<'_>,
    claim: &Claim,
    outbox: &[Outgoing],
    room: Option<&DiskReserve>,
) -> Result<Option<Settled>, Failure> {
    if Held::by(tx, claim)?.is_none() {
        return Ok(Some(Settled::LeaseLost));
    }
    match room.map_or(Ok(()), DiskReserve::check) {
        Err(Failure::NoRoom { .. }) => return Ok(Some(Settled::Refused)),
        checked => checked?,
    }
    for (queue, messages) in by_queue(outbox) {
        tx.with(queue, |to| send::send(to, messages))?;
    }
    Ok(None)
}

/// unack -> ready, or retry for what failed before; first in line in both.
pub(super) fn release(tx: &mut QueueTx<'_>, claims: &[Claim]) -> Result<Vec<Settled>, Failure> {
    let mut answers = Vec::with_capacity(claims.len());
    for claim in claims {
        let Some(held) = Held::by(tx, claim)? else {
            answers.push(Settled::LeaseLost);
            continue;
        };
        let to = waiting_state(held.failed);
        let place = tx.first_place();
        tx.tx
            .prepare_cached(
                "UPDATE messages SET state = ?2, place = ?3, due_ms = NULL WHERE seq = ?1",
            )?
            .execute(params![held.seq, code(to), place])?;
        tx.moved(Some(State::Unack), Some(to));
        tx.row.totals.released += 1;
        tx.wake = true;
        answers.push(Settled::Done);
    }
    Ok(answers)
}

#[async_trait]
impl Settle for SqliteStore {
    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        let mut answers = Vec::with_capacity(settlements.len());
        for step in settle_steps(settlements) {
            let room = self.room.clone();
            let work = move |tx: &mut QueueTx<'_>, some: &[(Claim, Settlement)]| {
                settle(tx, some, room.as_ref())
            };
            answers.extend(
                self.transact_each((Operation::Settle, TxOptions::CHANGE), queue, step, work)
                    .await?,
            );
        }
        Ok(answers)
    }

    async fn keep_ended(
        &self,
        queue: &QueueName,
        ended: &[(Ended, Duration)],
        keep: usize,
    ) -> StoreResult<()> {
        if keep == 0 {
            return Ok(());
        }
        for step in ended.chunks(BATCH_MAX) {
            let step = step.to_vec();
            let work = move |tx: &mut QueueTx<'_>| ended::keep(tx, &step, keep);
            self.transact(Operation::KeepEnded, queue, TxOptions::PASSING, work)
                .await?;
        }
        Ok(())
    }

    async fn keep_results(
        &self,
        queue: &QueueName,
        results: &[(MessageId, Vec<u8>)],
        bytes_max: usize,
    ) -> StoreResult<()> {
        if bytes_max == 0 {
            return Ok(());
        }
        for step in results.chunks(BATCH_MAX) {
            let step = step.to_vec();
            let work = move |tx: &mut QueueTx<'_>| ended::keep_results(tx, &step, bytes_max);
            self.transact(Operation::KeepEnded, queue, TxOptions::PASSING, work)
                .await?;
        }
        Ok(())
    }

    fn can_send_along(&self, _from: &QueueName, _to: &QueueName) -> bool {
        true
    }
}
