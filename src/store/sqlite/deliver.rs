//! Reserves messages for a host, and extends their leases.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Row, params};

use super::error::Failure;
use super::queue::{QueueTx, code, count, signed, text, unsigned};
use super::settle::Held;
use super::transaction::TxOptions;
use super::{SqliteStore, advance, settle};
use crate::message::{Claim, Delivery, QueueName, State, Token, expiry};
use crate::store::common::{headers, ms};
use crate::store::{
    Advanced, BATCH_MAX, Deliver, First, LimitedReservation, Limits, Operation, Reservation,
    Settled, StoreResult, Subscription,
};

/// A transaction writes about eight pages whatever it brings, on cores that handlers could use: it takes 20 us, and
/// 2 us more for each message.
const RESERVATION_WORTH: usize = 64;

#[async_trait]
impl Deliver for SqliteStore {
    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>> {
        const OPERATION: Operation = Operation::Reserve;
        let work = move |tx: &mut QueueTx<'_>| reserve(tx, wanted);
        let done = self
            .transact(OPERATION, queue, TxOptions::PASSING, work)
            .await?;
        Ok(done.unwrap_or_default())
    }

    async fn advance_and_reserve(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<(Advanced, Vec<Delivery>)> {
        let work = move |tx: &mut QueueTx<'_>| advance_and_reserve_in(tx, wanted);
        let done = self
            .transact(Operation::Reserve, queue, TxOptions::PASSING, work)
            .await?;
        Ok(done.unwrap_or_default())
    }

    async fn reserve_limited(
        &self,
        queue: &QueueName,
        wanted: Reservation,
        limits: &Limits,
    ) -> StoreResult<LimitedReservation> {
        let limits = limits.clone();
        let work = move |tx: &mut QueueTx<'_>| super::limits::reserve(tx, wanted, &limits);
        let done = self
            .transact(Operation::Reserve, queue, TxOptions::PASSING, work)
            .await?;
        Ok(done.unwrap_or_default())
    }

    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>> {
        let work = move |tx: &mut QueueTx<'_>, claims: &[Claim]| extend(tx, claims, lease);
        self.transact_each((Operation::Extend, TxOptions::PASSING), queue, claims, work)
            .await
    }

    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>> {
        let work = |tx: &mut QueueTx<'_>, some: &[Claim]| settle::release(tx, some);
        self.transact_each((Operation::Release, TxOptions::CHANGE), queue, claims, work)
            .await
    }

    fn reservation_worth(&self) -> usize {
        RESERVATION_WORTH
    }

    fn subscribe(&self, queues: &[QueueName]) -> Subscription {
        self.wake.subscribe(queues)
    }
}

fn advance_and_reserve_in(
    tx: &mut QueueTx<'_>,
    wanted: Reservation,
) -> Result<(Advanced, Vec<Delivery>), Failure> {
    let promoted = advance::promote(tx)?;
    let deliveries = reserve(tx, wanted)?;
    Ok((advance::after_promotion(tx, promoted)?, deliveries))
}

/// ready, retry -> unack.
pub(super) fn reserve(tx: &mut QueueTx<'_>, wanted: Reservation) -> Result<Vec<Delivery>, Failure> {
    if tx.row.paused {
        return Ok(Vec::new());
    }
    let states = match wanted.first {
        First::Ready => [State::Ready, State::Retry],
        First::Retry => [State::Retry, State::Ready],
    };
    let lease_end = signed(tx.now.ceil_ms.saturating_add(ms(wanted.lease)));
    let max = wanted.max.min(BATCH_MAX);
    let mut deliveries = Vec::new();
    for from in states {
        if deliveries.len() == max || tx.row.depth(from) == 0 {
            continue;
        }
        let found = in_line(tx, from, max - deliveries.len())?;
        deliveries.extend(to_unack(tx, from, found, lease_end)?);
    }
    Ok(deliveries)
}

/// What [`in_line`] has found -> unack.
pub(super) fn to_unack(
    tx: &mut QueueTx<'_>,
    from: State,
    found: Vec<(i64, Delivery)>,
    lease_end: i64,
) -> Result<Vec<Delivery>, Failure> {
    let mut update = tx
        .tx
        .prepare_cached("UPDATE messages SET state = 4, place = ?2, token = ?3 WHERE seq = ?1")?;
    let mut deliveries = Vec::with_capacity(found.len());
    for (seq, mut delivery) in found {
        let token = tx.next_token();
        update.execute(params![seq, lease_end, token])?;
        tx.moved(Some(from), Some(State::Unack));
        delivery.claim.token = Token(format!("{seq}/{token}"));
        deliveries.push(delivery);
    }
    Ok(deliveries)
}

/// The first in line of a state, with their sequence numbers; without tokens yet.
pub(super) fn in_line(
    tx: &QueueTx<'_>,
    state: State,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, Delivery)>> {
    tx.tx
        .prepare_cached(
            "SELECT seq, id, payload, headers, failed, retries_left, due_ms FROM messages
             WHERE queue = ?1 AND state = ?2 ORDER BY place, seq LIMIT ?3",
        )?
        .query_map(
            params![tx.row.id, code(state), signed(limit as u64)],
            |row| read(row, tx.now.ms),
        )?
        .collect()
}

/// A message as `in_line` selects it; without a token yet.
fn read(row: &Row<'_>, now_ms: u64) -> rusqlite::Result<(i64, Delivery)> {
    let headers = headers(&text(row, 3)?);
    let attempt = count(row.get(4)?).saturating_add(1);
    let delivery = Delivery {
        claim: Claim {
            id: text(row, 1)?.into(),
            token: Token(String::new()),
        },
        payload: row.get(2)?,
        expired: expiry::is_expired(&headers, now_ms),
        headers,
        attempt,
        attempts_max: attempt.saturating_add(count(row.get(5)?)),
        due_at_ms: row.get::<_, Option<i64>>(6)?.map(unsigned),
    };
    Ok((row.get(0)?, delivery))
}

/// One message that waits -> unack. What was set aside has no due time of its own.
pub(super) fn take(
    tx: &mut QueueTx<'_>,
    seq: i64,
    from: State,
    lease_end: i64,
) -> Result<Delivery, Failure> {
    let token = tx.next_token();
    tx.tx
        .prepare_cached(
            "UPDATE messages SET due_ms = CASE WHEN state = 2 THEN NULL ELSE due_ms END,
             state = 4, place = ?2, token = ?3 WHERE seq = ?1",
        )?
        .execute(params![seq, lease_end, token])?;
    tx.moved(Some(from), Some(State::Unack));
    let (_, mut delivery) = tx
        .tx
        .prepare_cached(
            "SELECT seq, id, payload, headers, failed, retries_left, due_ms FROM messages
             WHERE seq = ?1",
        )?
        .query_row([seq], |row| read(row, tx.now.ms))?;
    delivery.claim.token = Token(format!("{seq}/{token}"));
    Ok(delivery)
}

/// unack -> unack, with a later end.
pub(super) fn extend(
    tx: &mut QueueTx<'_>,
    claims: &[Claim],
    lease: Duration,
) -> Result<Vec<Settled>, Failure> {
    let lease_end = signed(tx.now.ceil_ms.saturating_add(ms(lease)));
    let mut update = tx
        .tx
        .prepare_cached("UPDATE messages SET place = ?2 WHERE seq = ?1")?;
    let mut seen = HashSet::new();
    let mut answers = Vec::with_capacity(claims.len());
    for claim in claims {
        // As in Redis: what is named twice counts once.
        let held = Held::by(tx, claim)?.filter(|held| seen.insert(held.seq));
        answers.push(match held {
            Some(held) => {
                update.execute(params![held.seq, lease_end])?;
                Settled::Done
            }
            None => Settled::LeaseLost,
        });
    }
    Ok(answers)
}
