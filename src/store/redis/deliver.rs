//! The way of a message through this host's hands: reserved, kept, settled.

use crate::store::Operation;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::advance::{ADVANCE, promote, since};
use super::decode::{self, bytes, decode, settled, text, unexpected};
use super::foreign::{is_foreign, persist};
use super::keys::Keys;
use super::{
    Advanced, BATCH_MAX, Claim, Delivery, First, MessageId, QueueName, RedisStore, Reservation,
    Settled, StoreResult, Token, evalsha, ms, scripts,
};
use crate::store::common;

/// Messages whose history a script rewrites at most: each may be 6 KiB.
pub(super) const FAIL_STEP: usize = 100;

const RESERVE: Operation = Operation::Reserve;

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

fn reservation(k: &Keys, wanted: Reservation, guesses: &[MessageId]) -> Cmd {
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
    let payloads: Vec<String> = guesses.iter().map(|id| k.message(id)).collect();
    let keys = keys.into_iter().chain(&payloads).map(String::as_str);
    let mut command = evalsha(&scripts::READY_TO_UNACK, keys);
    command
        .arg(wanted.max.min(BATCH_MAX))
        .arg(ms(wanted.lease))
        .arg(wanted.retries_default);
    for id in guesses {
        command.arg(id.as_str());
    }
    command
}

/// What a reservation brought.
#[derive(Debug)]
struct Reserved {
    deliveries: Vec<Delivery>,
    /// Those of them that had no retries on record.
    bare: Vec<MessageId>,
}

/// What `ready_to_unack` answers, with the payloads of those that were guessed.
fn reserved(mut fields: Vec<Value>, guesses: &[MessageId]) -> Reserved {
    let payloads = fields.split_off(fields.len().saturating_sub(guesses.len()));
    let mut deliveries = Vec::with_capacity(fields.len() / 6);
    let mut bare = Vec::new();
    for parts in fields.chunks_exact_mut(6) {
        let mut part = |index: usize| text(std::mem::replace(&mut parts[index], Value::Nil));
        let (id, left, attempts, due, headers) = (part(0), part(1), part(2), part(3), part(4));
        let failed = decode::failed(&attempts);
        let id = MessageId::from(id);
        if parts[5] == Value::Int(1) {
            bare.push(id.clone());
        }
        deliveries.push(Delivery {
            claim: Claim {
                id,
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
    for (id, payload) in guesses.iter().zip(payloads) {
        if let Some(delivery) = deliveries.iter_mut().find(|d| d.claim.id == *id) {
            delivery.payload = bytes(payload);
        }
    }
    Reserved { deliveries, bare }
}

impl RedisStore {
    pub(super) async fn reserve_messages(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<Vec<Delivery>> {
        if wanted.max == 0 {
            return Ok(Vec::new());
        }
        let k = self.keys(queue);
        let guesses = self.guesses.take(&k.wake);
        let command = reservation(&k, wanted, &guesses);
        let answer = self.one(&self.work, RESERVE, command).await?;
        self.with_payloads(queue, &k, reserved(answer, &guesses))
            .await
    }

    /// Both in one round trip, and one more for the payloads that were not guessed.
    pub(super) async fn advance_and_reserve_messages(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<(Advanced, Vec<Delivery>)> {
        let k = self.keys(queue);
        let guesses = self.guesses.take(&k.wake);
        let commands = [
            promote(&k, self.walks.next(&k.wake)),
            reservation(&k, wanted, &guesses),
        ];
        let answers = self.work.run_each(RESERVE, &commands).await?;
        let answered = Instant::now();
        let [promoted, answer] =
            <[_; 2]>::try_from(answers).map_err(|_| unexpected(&self.name, RESERVE))?;
        let advanced = async {
            let promoted = promoted.map_err(|error| self.work.error(ADVANCE, &error))?;
            let promoted = decode(&self.name, ADVANCE, promoted)?;
            self.after_promotion(queue, &k, promoted).await
        };
        // Each is seen to, whatever came of the other.
        let advanced = advanced.await;
        let reserved = answer
            .map_err(|error| self.work.error(RESERVE, &error))
            .and_then(|answer| decode(&self.name, RESERVE, answer))
            .map(|fields| reserved(fields, &guesses));
        match (advanced, reserved) {
            (Ok(advanced), Ok(reserved)) => {
                let deliveries = self.with_payloads(queue, &k, reserved).await?;
                Ok((since(answered, advanced), deliveries))
            }
            (Err(error), Ok(reserved)) => {
                self.give_back(queue, reserved.deliveries).await;
                Err(error)
            }
            (Err(error), Err(_)) | (Ok(_), Err(error)) => Err(error),
        }
    }

    /// Nothing of these has run, so nothing is to cost an attempt. If this fails too, the leases end.
    async fn give_back(&self, queue: &QueueName, deliveries: Vec<Delivery>) {
        let claims: Vec<Claim> = deliveries.into_iter().map(|d| d.claim).collect();
        let _ = self.release_deliveries(queue, &claims).await;
    }

    async fn with_payloads(
        &self,
        queue: &QueueName,
        k: &Keys,
        reserved: Reserved,
    ) -> StoreResult<Vec<Delivery>> {
        let Reserved {
            mut deliveries,
            bare,
        } = reserved;
        if deliveries.iter().all(|delivery| delivery.payload.is_some()) {
            return Ok(deliveries);
        }
        for from in (0..deliveries.len()).step_by(PAYLOADS_STEP) {
            let step = from..deliveries.len().min(from + PAYLOADS_STEP);
            match self.payloads(k, &deliveries[step.clone()]).await {
                Ok(payloads) => {
                    for (delivery, payload) in deliveries[step].iter_mut().zip(payloads) {
                        delivery.payload = payload;
                    }
                }
                Err(error) => {
                    self.give_back(queue, deliveries).await;
                    return Err(error);
                }
            }
        }
        let is_empty = |d: &Delivery| d.payload.is_none() && bare.contains(&d.claim.id);
        if bare.is_empty() || !deliveries.iter().any(is_empty) {
            return Ok(deliveries);
        }
        let empty: Vec<Claim> = deliveries
            .iter()
            .filter(|d| is_empty(d))
            .map(|d| d.claim.clone())
            .collect();
        match self.drop_empty(queue, k, &empty).await {
            Ok(others) => {
                deliveries.retain(|d| !is_empty(d) || others.contains(&d.claim.id));
                Ok(deliveries)
            }
            Err(error) => {
                self.give_back(queue, deliveries).await;
                Err(error)
            }
        }
    }

    /// The payloads of reserved messages. A TTL that a delayqueue producer put on one is taken
    /// off: a message in hand must not vanish.
    async fn payloads(
        &self,
        keys: &Keys,
        deliveries: &[Delivery],
    ) -> StoreResult<Vec<Option<Vec<u8>>>> {
        let mut mget = redis::cmd("MGET");
        let ids = || deliveries.iter().map(|delivery| &delivery.claim.id);
        for id in ids() {
            mget.arg(keys.message(id));
        }
        let mut commands = vec![mget];
        let foreign = ids().filter(|id| is_foreign(id));
        let foreign: Vec<&[u8]> = foreign.map(|id| id.as_str().as_bytes()).collect();
        if !foreign.is_empty() {
            commands.push(persist(keys, &foreign, false));
        }
        let operation = Operation::ReadPayloads;
        match self
            .work
            .run(operation, &commands)
            .await?
            .into_iter()
            .next()
        {
            Some(Value::Array(values)) if values.len() == deliveries.len() => {
                Ok(values.into_iter().map(bytes).collect())
            }
            _ => Err(unexpected(&self.name, operation)),
        }
    }

    /// Runs a script that answers 1 or 0 for each claim, in steps.
    async fn each_claim(
        &self,
        operation: Operation,
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
        self.each_claim(Operation::Extend, claims, base).await
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
        self.each_claim(Operation::Release, claims, base).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reserved_messages_of_any_form_are_read(
            fields in prop::collection::vec(
                prop_oneof![
                    Just(Value::Nil),
                    any::<i64>().prop_map(Value::Int),
                    "[0-9]{1,12}(:[0-9]{1,12}){0,2}".prop_map(|text| Value::BulkString(text.into())),
                    any::<Vec<u8>>().prop_map(Value::BulkString),
                ],
                0..24,
            ),
            guesses in 0_usize..3,
        ) {
            let guesses: Vec<MessageId> = (0..guesses).map(|n| n.to_string().into()).collect();
            let (count, guessed) = (fields.len(), guesses.len());
            let read = reserved(fields, &guesses).deliveries;
            prop_assert_eq!(read.len(), count.saturating_sub(guessed) / 6);
            for delivery in read {
                prop_assert!(delivery.attempt >= 1 && delivery.attempt <= delivery.attempts_max);
                let mut command = redis::cmd("X");
                add_claim(&mut command, &delivery.claim);
                prop_assert_eq!(command.args_iter().len(), 4);
            }
        }
    }
}
