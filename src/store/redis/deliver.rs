//! The way of a message through this host's hands: reserved, kept, settled.

use crate::store::{Deliver, LimitedReservation, Limits, NextAllowed, Operation, Subscription};
use async_trait::async_trait;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::advance::{ADVANCE, promote, since};
use super::args::add_claim;
use super::decode::{REPEATED, bytes, decode, settled, unexpected};
use super::foreign::{is_foreign, persist};
use super::keys::Keys;
use super::reserved::{Reserved, limited, reservation, reserved};
use super::{
    Advanced, BATCH_MAX, Claim, Delivery, MessageId, QueueName, RedisStore, Reservation, Settled,
    StoreResult, ms, scripts,
};

const RESERVE: Operation = Operation::Reserve;

/// Payloads that are read in one request, so that it ends well within a request's time limit.
const PAYLOADS_STEP: usize = 64;

/// Reservations in a row, while ids are removed instead of given out.
const REFILLS_MAX: usize = 100;

#[async_trait]
impl Deliver for RedisStore {
    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>> {
        let k = self.keys(queue);
        self.fill(queue, &k, wanted, Vec::new()).await
    }

    async fn advance_and_reserve(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<(Advanced, Vec<Delivery>)> {
        let k = self.keys(queue);
        let prefetch = self.prefetch.take(&k.wake);
        let commands = [
            promote(&k, self.walks.next(&k.wake)),
            reservation(&k, wanted, &prefetch),
        ];
        let answers = self.work.run_each(RESERVE, &commands).await?;
        let answered = Instant::now();
        let [promoted, answer] =
            <[_; 2]>::try_from(answers).map_err(|_| unexpected(&self.name, RESERVE))?;
        let advanced = async {
            let promoted = promoted.map_err(|error| self.work.error(ADVANCE, &error))?;
            let promoted = decode(&self.name, ADVANCE, promoted)?;
            self.after_promotion(queue, &k, promoted, answered).await
        };
        // Each is seen to, whatever came of the other.
        let advanced = advanced.await;
        let known = Instant::now();
        let reserved = answer
            .map_err(|error| self.work.error(RESERVE, &error))
            .and_then(|answer| decode(&self.name, RESERVE, answer))
            .map(|fields| reserved(fields, &prefetch));
        match (advanced, reserved) {
            (Ok(advanced), Ok(reserved)) => {
                let taken = reserved.taken;
                let mut deliveries = self.with_payloads(queue, &k, reserved).await?;
                if deliveries.len() < taken {
                    deliveries = self.fill(queue, &k, wanted, deliveries).await?;
                }
                Ok((since(known, advanced), deliveries))
            }
            // What goes wrong with some messages must not keep the others from being handled. The error
            // is the caller's when nothing is reserved.
            (Err(error), Ok(reserved)) if !reserved.deliveries.is_empty() => {
                if !self.has_logged_advance.swap(true, Relaxed) {
                    tracing::warn!(%queue, "{error}; messages are delivered all the same");
                }
                let deliveries = self.with_payloads(queue, &k, reserved).await?;
                Ok((Advanced::default(), deliveries))
            }
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    }

    async fn reserve_limited(
        &self,
        queue: &QueueName,
        wanted: Reservation,
        limits: &Limits,
    ) -> StoreResult<LimitedReservation> {
        let k = self.keys(queue);
        let mut done = LimitedReservation::default();
        for refill in 0..REFILLS_MAX {
            let max = wanted.max.saturating_sub(done.deliveries.len());
            // With turns, who asks for none wants what is in line to be sorted.
            if max == 0 && (refill > 0 || limits.fair_by().is_none()) {
                break;
            }
            let wanted = Reservation { max, ..wanted };
            match self.reserve_limited_once(queue, &k, wanted, limits).await {
                Ok((more, next, is_whole)) => {
                    done.deliveries.extend(more);
                    done.next = next;
                    if is_whole {
                        break;
                    }
                }
                Err(error) if done.deliveries.is_empty() => return Err(error),
                // The next reservation meets it again.
                Err(_) => break,
            }
        }
        Ok(done)
    }

    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>> {
        let k = self.keys(queue);
        let base = || {
            let mut command = scripts::EXTEND.call(&k, scripts::NO_MORE);
            command.arg(ms(lease));
            command
        };
        let codes = self.each_claim(Operation::Extend, claims, base).await?;
        Ok(codes.into_iter().map(settled).collect())
    }

    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>> {
        let k = self.keys(queue);
        let base = || {
            let mut command = scripts::RELEASE.call(&k, scripts::NO_MORE);
            command.arg(&k.wake);
            command
        };
        let codes = self.each_claim(Operation::Release, claims, base).await?;
        let again = claims
            .iter()
            .zip(&codes)
            .filter(|(_, code)| **code == REPEATED);
        let again: Vec<MessageId> = again.map(|(claim, _)| claim.id.clone()).collect();
        if !again.is_empty() {
            self.after_runs(Operation::Release, queue, again).await;
        }
        Ok(codes.into_iter().map(settled).collect())
    }

    fn reservation_worth(&self) -> usize {
        // What a request costs is mostly time in which the host does something else: with 16 in place of 1, a drain
        // of no-ops in 256 slots is 12 % slower.
        1
    }

    fn subscribe(&self, queues: &[QueueName]) -> Subscription {
        let channels = queues.iter().map(|queue| self.keys(queue).wake.clone());
        self.wake.subscribe(channels.collect())
    }
}

impl RedisStore {
    /// Reserves until there are as many as wanted or nothing more waits: what is removed instead of
    /// given out leaves room for others.
    async fn fill(
        &self,
        queue: &QueueName,
        k: &Keys,
        wanted: Reservation,
        mut deliveries: Vec<Delivery>,
    ) -> StoreResult<Vec<Delivery>> {
        for _ in 0..REFILLS_MAX {
            let max = wanted.max.saturating_sub(deliveries.len());
            if max == 0 {
                break;
            }
            match self
                .reserve_once(queue, k, Reservation { max, ..wanted })
                .await
            {
                Ok((more, is_whole)) => {
                    deliveries.extend(more);
                    if is_whole {
                        break;
                    }
                }
                Err(error) if deliveries.is_empty() => return Err(error),
                // The next reservation meets it again.
                Err(_) => break,
            }
        }
        Ok(deliveries)
    }

    /// One reservation, and whether each id that left its list is among the deliveries.
    async fn reserve_once(
        &self,
        queue: &QueueName,
        k: &Keys,
        wanted: Reservation,
    ) -> StoreResult<(Vec<Delivery>, bool)> {
        let prefetch = self.prefetch.take(&k.wake);
        let command = reservation(k, wanted, &prefetch);
        let answer = self.one(&self.work, RESERVE, command).await?;
        let reserved = reserved(answer, &prefetch);
        let taken = reserved.taken;
        let deliveries = self.with_payloads(queue, k, reserved).await?;
        let is_whole = deliveries.len() >= taken;
        Ok((deliveries, is_whole))
    }

    /// The same within limits, and when they let the next message go.
    async fn reserve_limited_once(
        &self,
        queue: &QueueName,
        k: &Keys,
        wanted: Reservation,
        limits: &Limits,
    ) -> StoreResult<(Vec<Delivery>, NextAllowed, bool)> {
        let prefetch = self.prefetch.take(&k.wake);
        let command = limited(k, wanted, limits, &prefetch);
        let (wait_us, answer) = self.one(&self.work, RESERVE, command).await?;
        let answered = Instant::now();
        let reserved = reserved(answer, &prefetch);
        let taken = reserved.taken;
        let deliveries = self.with_payloads(queue, k, reserved).await?;
        let wait = u64::try_from(wait_us).ok().map(Duration::from_micros);
        let wait = wait.map(|wait| wait.saturating_sub(answered.elapsed()));
        let next = match (wait_us, wait) {
            (0_i64, _) => NextAllowed::Now,
            (_, wait) if limits.are_by_key() => NextAllowed::OtherKeys(wait),
            (_, Some(wait)) => NextAllowed::In(wait),
            (_, None) => NextAllowed::WhenSettled,
        };
        let is_whole = deliveries.len() >= taken;
        Ok((deliveries, next, is_whole))
    }

    /// Nothing of these has run, so nothing is to cost an attempt. If this fails too, the leases expire.
    async fn give_back(&self, queue: &QueueName, deliveries: Vec<Delivery>) {
        let claims: Vec<Claim> = deliveries.into_iter().map(|d| d.claim).collect();
        let _ = self.release(queue, &claims).await;
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
            ..
        } = reserved;
        let has_all = deliveries.iter().all(|delivery| delivery.payload.is_some());
        if has_all && bare.is_empty() {
            return Ok(deliveries);
        }
        let missing = if has_all { 0 } else { deliveries.len() };
        for from in (0..missing).step_by(PAYLOADS_STEP) {
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
        if bare.is_empty() {
            return Ok(deliveries);
        }
        match self.see_to_bare(queue, k, &mut deliveries, &bare).await {
            Ok(()) => Ok(deliveries),
            Err(error) => {
                self.give_back(queue, deliveries).await;
                Err(error)
            }
        }
    }

    /// Puts the retries of messages on record that had none, and drops what has no payload either. In
    /// this order: what has retries on record is a message, whatever becomes of this host.
    async fn see_to_bare(
        &self,
        queue: &QueueName,
        k: &Keys,
        deliveries: &mut Vec<Delivery>,
        bare: &[MessageId],
    ) -> StoreResult<()> {
        let (mut budgets, mut empty) = (Vec::new(), Vec::new());
        for delivery in deliveries.iter().filter(|d| bare.contains(&d.claim.id)) {
            let claim = &delivery.claim;
            match claim.token.0.split_once('/') {
                _ if delivery.payload.is_none() => empty.push(claim.clone()),
                Some((left, _)) if !left.is_empty() => budgets.push((claim.id.as_str(), left)),
                _ => {}
            }
        }
        if !budgets.is_empty() {
            let mut command = redis::cmd("HSET");
            command.arg(&k.counts);
            for (id, left) in budgets {
                command.arg(id).arg(left);
            }
            self.work.run(Operation::ReadPayloads, &[command]).await?;
        }
        if empty.is_empty() {
            return Ok(());
        }
        let others = self.drop_empty(queue, k, &empty).await?;
        deliveries.retain(|d| {
            let is_empty = d.payload.is_none() && bare.contains(&d.claim.id);
            !is_empty || others.contains(&d.claim.id)
        });
        Ok(())
    }

    /// The payloads of reserved messages. A TTL that a delayqueue producer put on one is taken
    /// off: a message in flight must not vanish.
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

    /// Runs a script that answers a number for each claim, in steps.
    async fn each_claim(
        &self,
        operation: Operation,
        claims: &[Claim],
        base: impl Fn() -> Cmd,
    ) -> StoreResult<Vec<i64>> {
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
            result.extend(codes);
        }
        Ok(result)
    }
}
