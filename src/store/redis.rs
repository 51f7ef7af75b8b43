//! The pipeline in Redis 7 or later: one Lua script a transition (`lua/`), in the key layout of
//! HDT3213/delayqueue.
//!
//! Two connections, so that renewals and settlements never queue behind reservations and their
//! payloads, and a third that listens for wake-ups. No blocking command, no transaction that spans
//! round trips: a crash between two calls leaves every message in one state.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, ConnectionAddr, IntoConnectionInfo, Value};

use self::decode::{bytes, decode, settled, text, unexpected};
use self::keys::Keys;
use self::link::Link;
use self::scripts::Script;
use self::wake::Wake;
use super::{
    Advanced, BATCH_MAX, Cancelled, Counts, First, HostInfo, Page, Redriven, Reservation, Settled,
    Settlement, Store, StoreError, StoreResult,
};
use crate::message::{
    Claim, Delivery, Due, MessageId, NewMessage, QueueName, Record, Sent, State, Token,
};

mod decode;
mod keys;
mod link;
mod open;
mod read;
mod scripts;
mod wake;

pub use open::RedisOptions;

/// The most payload bytes that one send script takes, so that it stays in the low milliseconds.
const SEND_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A queue store in one Redis server.
pub struct RedisStore {
    /// Everything but what follows.
    work: Link,
    /// Renewals and settlements.
    leases: Link,
    wake: Wake,
    /// How people and errors name it; without secrets.
    name: Arc<str>,
    hash_tag: bool,
    /// Queues that this process has put into the list of queues. A std mutex: nothing is awaited
    /// while it is held.
    registered: Mutex<HashSet<QueueName>>,
}

/// An EVALSHA of one script; the keys are those that its header lists, in that order.
fn evalsha<'a>(script: &Script, keys: impl IntoIterator<Item = &'a str>) -> Cmd {
    let keys: Vec<&str> = keys.into_iter().collect();
    let mut command = redis::cmd("EVALSHA");
    command.arg(&script.hash).arg(keys.len()).arg(keys);
    command
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Appends a claim as the scripts take it: id, retries left, "failed:released".
fn add_claim(command: &mut Cmd, claim: &Claim) {
    let (left, attempts) = claim
        .token
        .0
        .split_once('/')
        .unwrap_or((&claim.token.0, ""));
    command.arg(claim.id.as_str()).arg(left).arg(attempts);
}

/// Splits messages where a step would have too many of them or too many bytes.
fn send_steps(messages: &[NewMessage]) -> Vec<&[NewMessage]> {
    let mut steps = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, message) in messages.iter().enumerate() {
        let size = message.payload.len();
        if index > start && (index - start == BATCH_MAX || bytes + size > SEND_BYTES_MAX) {
            steps.push(&messages[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < messages.len() {
        steps.push(&messages[start..]);
    }
    steps
}

impl RedisStore {
    fn keys(&self, queue: &QueueName) -> Keys {
        Keys::new(queue, self.hash_tag)
    }

    fn is_registered(&self, queue: &QueueName) -> bool {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(queue)
    }

    /// Puts the queue into the list of queues, once a process. Only people read that list.
    async fn register(&self, queue: &QueueName) -> StoreResult<()> {
        if self.is_registered(queue) {
            return Ok(());
        }
        let mut command = redis::cmd("SADD");
        command.arg(keys::QUEUES).arg(queue.as_str());
        self.work.run("naming the queue", &[command]).await?;
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(queue.clone());
        Ok(())
    }

    /// One command, one answer.
    async fn one<T: redis::FromRedisValue>(
        &self,
        link: &Link,
        operation: &'static str,
        command: Cmd,
    ) -> StoreResult<T> {
        let mut answers = link.run(operation, &[command]).await?;
        let answer = answers
            .pop()
            .ok_or_else(|| unexpected(&self.name, operation))?;
        decode(&self.name, operation, answer)
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
}

/// True for an id that no dqhost made, by the same sign as `lua/pending_to_ready.lua`.
fn is_foreign(id: &MessageId) -> bool {
    id.as_str().as_bytes().get(14) != Some(&b'7')
}

fn persist(keys: &Keys, id: &MessageId) -> Cmd {
    let mut command = redis::cmd("PERSIST");
    command.arg(keys.message(id));
    command
}

#[async_trait]
impl Store for RedisStore {
    fn describe(&self) -> String {
        self.name.to_string()
    }

    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>> {
        const OPERATION: &str = "send";
        self.register(queue).await?;
        let keys = self.keys(queue);
        let mut sent = Vec::with_capacity(messages.len());
        for step in send_steps(messages) {
            let payload_keys: Vec<String> = step.iter().map(|m| keys.message(&m.id)).collect();
            let fixed = [
                &keys.pending,
                &keys.ready,
                &keys.counts,
                &keys.headers,
                &keys.stats,
            ];
            let all = fixed.into_iter().chain(&payload_keys).map(String::as_str);
            let mut command = evalsha(&scripts::SEND, all);
            command.arg(&keys.wake);
            for message in step {
                command
                    .arg(message.id.as_str())
                    .arg(message.payload.as_slice());
                match message.due {
                    Due::In(delay) => command.arg(format!("+{}", ms(delay))),
                    Due::At(at_ms) => command.arg(at_ms),
                };
                command.arg(message.retries);
                match message.headers.as_slice() {
                    [] => command.arg(""),
                    headers => command.arg(serde_json::json!(headers).to_string()),
                };
            }
            let dues: Vec<u64> = self.one(&self.work, OPERATION, command).await?;
            if dues.len() != step.len() {
                return Err(unexpected(&self.name, OPERATION));
            }
            sent.extend(step.iter().zip(dues).map(|(message, due)| Sent {
                id: message.id.clone(),
                due_at_ms: (due != 0).then_some(due),
            }));
        }
        Ok(sent)
    }

    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced> {
        const OPERATION: &str = "advance";
        let k = self.keys(queue);
        let step = |script, keys: &[&String]| {
            let mut command = evalsha(script, keys.iter().map(|key| key.as_str()));
            command.arg(BATCH_MAX);
            command
        };
        let commands = [
            step(
                &scripts::PENDING_TO_READY,
                &[&k.pending, &k.ready, &k.retry, &k.attempts, &k.due],
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
            ),
            step(
                &scripts::COLLECT_GARBAGE,
                &[&k.garbage, &k.dead, &k.counts, &k.attempts, &k.stats],
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
            more: promoted.max(expired).max(buried) >= BATCH_MAX,
            next_in: next.map(|at| Duration::from_millis((at - now).max(0).unsigned_abs())),
        })
    }

    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>> {
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
                headers: decode::headers(&headers),
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
        let payloads = self.payloads(&k, &ids).await?;
        for (delivery, payload) in deliveries.iter_mut().zip(payloads) {
            delivery.payload = payload;
        }
        Ok(deliveries)
    }

    async fn extend(
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

    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        const OPERATION: &str = "settle";
        let k = self.keys(queue);
        let mut result = vec![Settled::LeaseLost; settlements.len()];
        for start in (0..settlements.len()).step_by(BATCH_MAX) {
            let step = &settlements[start..settlements.len().min(start + BATCH_MAX)];
            let (commands, places) = settle_commands(&k, step);
            let answers = self.leases.run(OPERATION, &commands).await?;
            for (answer, places) in answers.into_iter().zip(places) {
                let codes: Vec<i64> = decode(&self.name, OPERATION, answer)?;
                if codes.len() != places.len() {
                    return Err(unexpected(&self.name, OPERATION));
                }
                for (place, code) in places.into_iter().zip(codes) {
                    result[start + place] = settled(code);
                }
            }
        }
        Ok(result)
    }

    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>> {
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

    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        let k = self.keys(queue);
        let mut result = Vec::with_capacity(ids.len());
        for id in ids {
            let payload = k.message(id);
            let keys = [
                &k.pending,
                &k.ready,
                &k.retry,
                &k.unack,
                &k.counts,
                &k.attempts,
                &k.due,
                &k.headers,
                &k.history,
                &k.stats,
                &payload,
            ];
            let mut command = evalsha(&scripts::CANCEL, keys.map(String::as_str));
            command.arg(id.as_str());
            result.push(
                match self.one::<i64>(&self.work, "cancel", command).await? {
                    1 => Cancelled::Done,
                    2 => Cancelled::InHand,
                    _ => Cancelled::Unknown,
                },
            );
        }
        Ok(result)
    }

    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts> {
        self.read_counts(queue).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>> {
        self.read_message(queue, id).await
    }

    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>> {
        self.read_page(queue, state, page).await
    }

    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        retries: Option<u32>,
    ) -> StoreResult<Vec<Redriven>> {
        const OPERATION: &str = "redrive";
        let k = self.keys(queue);
        let mut result = Vec::with_capacity(ids.len());
        for step in ids.chunks(BATCH_MAX) {
            let pairs: Vec<(&MessageId, MessageId)> =
                step.iter().map(|old| (old, MessageId::new())).collect();
            let payloads: Vec<String> = pairs
                .iter()
                .flat_map(|(old, new)| [k.message(old), k.message(new)])
                .collect();
            let fixed = [
                &k.dead,
                &k.ready,
                &k.counts,
                &k.attempts,
                &k.headers,
                &k.history,
                &k.stats,
            ];
            let all = fixed.into_iter().chain(&payloads).map(String::as_str);
            let mut command = evalsha(&scripts::REDRIVE, all);
            command.arg(&k.wake);
            command.arg(retries.map_or(String::new(), |n| n.to_string()));
            command.arg(NewMessage::RETRIES_DEFAULT);
            for (old, new) in &pairs {
                command.arg(old.as_str()).arg(new.as_str());
            }
            let codes: Vec<i64> = self.one(&self.work, OPERATION, command).await?;
            if codes.len() != step.len() {
                return Err(unexpected(&self.name, OPERATION));
            }
            result.extend(
                pairs
                    .into_iter()
                    .zip(codes)
                    .map(|((_, new), code)| match code {
                        1 => Redriven::As(new),
                        2 => Redriven::PayloadMissing,
                        _ => Redriven::Unknown,
                    }),
            );
        }
        Ok(result)
    }

    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>> {
        const OPERATION: &str = "deleting dead letters";
        let k = self.keys(queue);
        let mut result = Vec::with_capacity(ids.len());
        for step in ids.chunks(BATCH_MAX) {
            let payloads: Vec<String> = step.iter().map(|id| k.message(id)).collect();
            let fixed = [&k.dead, &k.attempts, &k.headers, &k.history, &k.stats];
            let all = fixed.into_iter().chain(&payloads).map(String::as_str);
            let mut command = evalsha(&scripts::DELETE_DEAD, all);
            for id in step {
                command.arg(id.as_str());
            }
            let codes: Vec<i64> = self.one(&self.work, OPERATION, command).await?;
            result.extend(codes.into_iter().map(|code| code == 1));
        }
        Ok(result)
    }

    async fn queues(&self) -> StoreResult<Vec<QueueName>> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(keys::QUEUES);
        let names: Vec<Value> = self.one(&self.work, "listing the queues", command).await?;
        let mut queues: Vec<QueueName> = names
            .into_iter()
            .filter_map(|name| text(name).parse().ok())
            .collect();
        queues.sort();
        Ok(queues)
    }

    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()> {
        self.register(queue).await?;
        let info = serde_json::json!(host).to_string();
        self.beat(queue, &host.id, &info, silence).await
    }

    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()> {
        self.beat(queue, host_id, "", Duration::from_hours(1)).await
    }

    async fn hosts(&self, queue: &QueueName) -> StoreResult<Vec<HostInfo>> {
        self.read_hosts(queue).await
    }

    async fn wait(&self, queues: &[QueueName]) {
        let channels: Vec<String> = queues.iter().map(|queue| self.keys(queue).wake).collect();
        self.wake.heard(channels.iter().map(String::as_str)).await;
    }
}

impl RedisStore {
    async fn beat(
        &self,
        queue: &QueueName,
        host_id: &str,
        info: &str,
        silence: Duration,
    ) -> StoreResult<()> {
        let k = self.keys(queue);
        let keys = [&k.hosts, &k.hosts_info];
        let mut command = evalsha(&scripts::HEARTBEAT, keys.map(String::as_str));
        command.arg(host_id).arg(info).arg(ms(silence));
        self.one::<i64>(&self.work, "heartbeat", command).await?;
        Ok(())
    }
}

/// The scripts that settle up to [`BATCH_MAX`] deliveries, and for each script the places of its
/// answers.
fn settle_commands(k: &Keys, step: &[(Claim, Settlement)]) -> (Vec<Cmd>, Vec<Vec<usize>>) {
    let place = |wanted: fn(&Settlement) -> bool| -> Vec<usize> {
        (0..step.len())
            .filter(|&index| wanted(&step[index].1))
            .collect()
    };
    let acks = place(|s| matches!(s, Settlement::Ack));
    let nacks = place(|s| matches!(s, Settlement::Nack { .. }));
    let rejects = place(|s| matches!(s, Settlement::Reject { .. }));

    let payloads: Vec<String> = acks
        .iter()
        .map(|&index| k.message(&step[index].0.id))
        .collect();
    let ack_keys = [
        &k.unack,
        &k.counts,
        &k.attempts,
        &k.headers,
        &k.history,
        &k.stats,
    ];
    let mut ack = evalsha(
        &scripts::ACK,
        ack_keys.into_iter().chain(&payloads).map(String::as_str),
    );
    let nack_keys = [
        &k.unack,
        &k.counts,
        &k.attempts,
        &k.history,
        &k.pending,
        &k.retry,
        &k.garbage,
        &k.stats,
    ];
    let mut nack = evalsha(&scripts::NACK, nack_keys.map(String::as_str));
    let reject_keys = [
        &k.unack,
        &k.counts,
        &k.attempts,
        &k.history,
        &k.retry,
        &k.garbage,
        &k.stats,
    ];
    let mut reject = evalsha(&scripts::REJECT, reject_keys.map(String::as_str));

    for (claim, settlement) in step {
        match settlement {
            Settlement::Ack => add_claim(&mut ack, claim),
            Settlement::Nack { delay, attempt } => {
                add_claim(&mut nack, claim);
                nack.arg(delay.map_or(String::new(), |delay| ms(delay).to_string()));
                nack.arg(serde_json::json!(attempt).to_string());
            }
            Settlement::Reject { attempt } => {
                add_claim(&mut reject, claim);
                reject.arg(serde_json::json!(attempt).to_string());
            }
        }
    }
    [(ack, acks), (nack, nacks), (reject, rejects)]
        .into_iter()
        .filter(|(_, places)| !places.is_empty())
        .unzip()
}
