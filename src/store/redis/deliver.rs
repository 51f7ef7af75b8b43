//! The way of a message through this host's hands: due, reserved, kept, settled.

use std::time::Duration;

use redis::{Cmd, Value};

use super::decode::{self, bytes, decode, settled, text, unexpected};
use super::keys::Keys;
use super::{
    Advanced, BATCH_MAX, Claim, Delivery, First, MessageId, QueueName, RedisStore, Reservation,
    Settled, StoreResult, Token, evalsha, ms, scripts,
};
use crate::store::common;

/// Messages that each script of an `advance` moves at most. Promoting 1,000 takes 4.6 ms when the
/// lists are a million long (`make bench`), and on a busy machine Redis may be kept from its core for
/// several more; a quarter of that leaves others their turn.
const ADVANCE_STEP: usize = 250;

/// Messages whose history a script rewrites at most: each may be 6 KiB.
pub(super) const FAIL_STEP: usize = 100;

/// Payloads that are read in one request, so that it ends well within a request's time limit.
const PAYLOADS_STEP: usize = 64;

/// Appends a claim as the scripts take it: id, retries left, "failed:released".
pub(super) fn add_claim(command: &mut Cmd, claim: &Claim) {
    let (left, attempts) = claim
        .token
        .0
        .split_once('/')
        .unwrap_or((&claim.token.0, ""));
    command.arg(claim.id.as_str()).arg(left).arg(attempts);
}

/// True for an id that no dqhost made, by the same sign as `lua/pending_to_ready.lua`.
pub(super) fn is_foreign(id: &MessageId) -> bool {
    id.as_str().as_bytes().get(14) != Some(&b'7')
}

pub(super) fn persist(keys: &Keys, id: &MessageId) -> Cmd {
    let mut command = redis::cmd("PERSIST");
    command.arg(keys.message(id));
    command
}

impl RedisStore {
    pub(super) async fn advance_queue(&self, queue: &QueueName) -> StoreResult<Advanced> {
        const OPERATION: &str = "advance";
        let k = self.keys(queue);
        let step = |script, keys: &[&String], limit: usize| {
            let mut command = evalsha(script, keys.iter().map(|key| key.as_str()));
            command.arg(limit);
            command
        };
        let commands = [
            step(
                &scripts::PENDING_TO_READY,
                &[&k.pending, &k.ready, &k.retry, &k.attempts, &k.due],
                ADVANCE_STEP,
            ),
            step(
                &scripts::UNACK_TO_RETRY,
                &[
                    &k.unack,
                    &k.counts,
                    &k.attempts,
                    &k.history,
                    &k.retry,
                    &k.garbage,
                    &k.stats,
                ],
                FAIL_STEP,
            ),
            step(
                &scripts::COLLECT_GARBAGE,
                &[&k.garbage, &k.dead, &k.counts, &k.attempts, &k.stats],
                ADVANCE_STEP,
            ),
        ];
        let answers = self.work.run(OPERATION, &commands).await?;
        let [promoted, expired, buried] =
            <[Value; 3]>::try_from(answers).map_err(|_| unexpected(&self.name, OPERATION))?;
        let promoted: Vec<Value> = decode(&self.name, OPERATION, promoted)?;
        let (expired, lease_end): (usize, i64) = decode(&self.name, OPERATION, expired)?;
        let buried: usize = decode(&self.name, OPERATION, buried)?;
        let [
            Value::Int(moved),
            Value::Int(due),
            Value::Int(now),
            foreign @ ..,
        ] = promoted.as_slice()
        else {
            return Err(unexpected(&self.name, OPERATION));
        };
        if !foreign.is_empty() {
            let ids = foreign.iter().map(|id| MessageId::from(text(id.clone())));
            let commands: Vec<Cmd> = ids.map(|id| persist(&k, &id)).collect();
            self.work.run(OPERATION, &commands).await?;
        }
        let promoted = usize::try_from(*moved).unwrap_or(0);
        let next = [*due, lease_end].into_iter().filter(|at| *at >= 0).min();
        Ok(Advanced {
            promoted,
            expired,
            buried,
            more: promoted.max(buried) >= ADVANCE_STEP || expired >= FAIL_STEP,
            next_in: next.map(|at| Duration::from_millis((at - now).max(0).unsigned_abs())),
        })
    }

    pub(super) async fn reserve_messages(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<Vec<Delivery>> {
        const OPERATION: &str = "reserve";
        if wanted.max == 0 {
            return Ok(Vec::new());
        }
        let k = self.keys(queue);
        let (one, other) = match wanted.first {
            First::Ready => (&k.ready, &k.retry),
            First::Retry => (&k.retry, &k.ready),
        };
        let keys = [
            one,
            other,
            &k.unack,
            &k.counts,
            &k.attempts,
            &k.due,
            &k.headers,
            &k.paused,
        ];
        let mut command = evalsha(&scripts::READY_TO_UNACK, keys.map(String::as_str));
        command
            .arg(wanted.max.min(BATCH_MAX))
            .arg(ms(wanted.lease))
            .arg(wanted.retries_default);
        let mut fields: Vec<Value> = self.one(&self.work, OPERATION, command).await?;
        let mut deliveries = Vec::with_capacity(fields.len() / 5);
        for parts in fields.chunks_exact_mut(5) {
            let mut part = |index: usize| text(std::mem::replace(&mut parts[index], Value::Nil));
            let (id, left, attempts, due, headers) = (part(0), part(1), part(2), part(3), part(4));
            let failed = decode::failed(&attempts);
            deliveries.push(Delivery {
                claim: Claim {
                    id: id.into(),
                    token: Token(format!("{left}/{attempts}")),
                },
                payload: None,
                headers: common::headers(&headers),
                attempt: failed.saturating_add(1),
                attempts_max: failed
                    .saturating_add(1)
                    .saturating_add(left.parse::<u32>().unwrap_or(0)),
                due_at_ms: due.parse().ok(),
            });
        }
        if deliveries.is_empty() {
            return Ok(deliveries);
        }
        let ids: Vec<MessageId> = deliveries.iter().map(|d| d.claim.id.clone()).collect();
        let mut payloads = Vec::with_capacity(ids.len());
        for step in ids.chunks(PAYLOADS_STEP) {
            match self.payloads(&k, step).await {
                Ok(some) => payloads.extend(some),
                Err(error) => {
                    // Nothing runs without its payload, so nothing is to cost an attempt. If this
                    // fails too, the leases end.
                    let claims: Vec<Claim> = deliveries.into_iter().map(|d| d.claim).collect();
                    let _ = self.release_deliveries(queue, &claims).await;
                    return Err(error);
                }
            }
        }
        for (delivery, payload) in deliveries.iter_mut().zip(payloads) {
            delivery.payload = payload;
        }
        Ok(deliveries)
    }

    /// The payloads of reserved messages. A TTL that a delayqueue producer put on one is taken
    /// off: a message in hand must not vanish.
    async fn payloads(&self, keys: &Keys, ids: &[MessageId]) -> StoreResult<Vec<Option<Vec<u8>>>> {
        let mut mget = redis::cmd("MGET");
        for id in ids {
            mget.arg(keys.message(id));
        }
        let mut commands = vec![mget];
        commands.extend(
            ids.iter()
                .filter(|id| is_foreign(id))
                .map(|id| persist(keys, id)),
        );
        let operation = "reading payloads";
        match self
            .work
            .run(operation, &commands)
            .await?
            .into_iter()
            .next()
        {
            Some(Value::Array(values)) if values.len() == ids.len() => {
                Ok(values.into_iter().map(bytes).collect())
            }
            _ => Err(unexpected(&self.name, operation)),
        }
    }

    /// Runs a script that answers 1 or 0 for each claim, in steps.
    async fn each_claim(
        &self,
        operation: &'static str,
        claims: &[Claim],
        base: impl Fn() -> Cmd,
    ) -> StoreResult<Vec<Settled>> {
        let mut result = Vec::with_capacity(claims.len());
        for step in claims.chunks(BATCH_MAX) {
            let mut command = base();
            for claim in step {
                add_claim(&mut command, claim);
            }
            let codes: Vec<i64> = self.one(&self.leases, operation, command).await?;
            if codes.len() != step.len() {
                return Err(unexpected(&self.name, operation));
            }
            result.extend(codes.into_iter().map(settled));
        }
        Ok(result)
    }

    pub(super) async fn extend_leases(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>> {
        let k = self.keys(queue);
        let base = || {
            let keys = [&k.unack, &k.counts, &k.attempts];
            let mut command = evalsha(&scripts::EXTEND, keys.map(String::as_str));
            command.arg(ms(lease));
            command
        };
        self.each_claim("extend", claims, base).await
    }

    pub(super) async fn release_deliveries(
        &self,
        queue: &QueueName,
        claims: &[Claim],
    ) -> StoreResult<Vec<Settled>> {
        let k = self.keys(queue);
        let base = || {
            let keys = [
                &k.unack,
                &k.counts,
                &k.attempts,
                &k.ready,
                &k.retry,
                &k.stats,
            ];
            let mut command = evalsha(&scripts::RELEASE, keys.map(String::as_str));
            command.arg(&k.wake);
            command
        };
        self.each_claim("release", claims, base).await
    }
}
