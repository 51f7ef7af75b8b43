//! Reads messages, depths and totals for operators, each bounded by its page.

use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value};

use super::decode::{Fields, bytes, decode, record, score_ms, state, text, totals, unexpected};
use super::keys::Keys;
use super::wrong_key::is_wrong_type;
use super::{RedisStore, scripts};
use crate::message::{MessageId, QueueName, Record, State};
use crate::store::{
    BATCH_MAX, Counts, DueAhead, Ended, Inspect, Operation, Overview, Page, StoreResult,
};

pub(super) fn command(name: &str, key: &str) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key);
    command
}

/// How many commands [`count_commands`] are.
pub(super) const COUNTS: usize = 8;

/// What asks for the depths and the totals.
pub(super) fn count_commands(k: &Keys) -> [Cmd; COUNTS] {
    [
        command("ZCARD", &k.pending),
        command("LLEN", &k.ready),
        command("ZCARD", &k.unack),
        command("LLEN", &k.retry),
        command("SCARD", &k.garbage),
        command("ZCARD", &k.dead),
        command("ZCARD", &k.moving),
        command("HGETALL", &k.stats),
    ]
}

/// The answer to TIME, in unix milliseconds.
pub(super) fn unix_ms((seconds, micros): (u64, u64)) -> u64 {
    seconds.saturating_mul(1000).saturating_add(micros / 1000)
}

#[async_trait]
impl Inspect for RedisStore {
    fn describe(&self) -> String {
        self.name.to_string()
    }

    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts> {
        const OPERATION: Operation = Operation::Count;
        let commands = count_commands(&self.keys(queue));
        let answers = self.work.run(OPERATION, &commands).await?;
        self.counted(OPERATION, answers)
    }

    async fn overview(&self, queue: &QueueName) -> StoreResult<Overview> {
        self.read_overview(queue).await
    }

    async fn due_ahead(
        &self,
        queue: &QueueName,
        span: Duration,
        spans: usize,
    ) -> StoreResult<DueAhead> {
        self.read_due_ahead(queue, span, spans).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>> {
        const OPERATION: Operation = Operation::Get;
        let k = self.keys(queue);
        let payload = k.message(id);
        let mut command = scripts::INSPECT.call_ro(&k, &[&payload]);
        command.arg(id.as_str());
        let parts: Vec<Value> = self.one(&self.work, OPERATION, command).await?;
        if parts.is_empty() {
            return Ok(None);
        }
        let [name, at, left, attempts, headers, history, payload] =
            <[Value; 7]>::try_from(parts).map_err(|_| unexpected(&self.name, OPERATION))?;
        let state = state(&text(name)).ok_or_else(|| unexpected(&self.name, OPERATION))?;
        let at: i64 = decode(&self.name, OPERATION, at)?;
        let fields = Fields {
            left: text(left),
            attempts: text(attempts),
            headers: text(headers),
            history: text(history),
        };
        Ok(Some(record(
            id.clone(),
            state,
            u64::try_from(at).ok(),
            &fields,
            bytes(payload),
        )))
    }

    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>> {
        let k = self.keys(queue);
        let limit = page.limit.min(BATCH_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        // No list is so long, and Redis takes no larger number.
        let offset = page.offset.min(usize::MAX >> 2);
        let entries = self.page_entries(&k, state, offset, limit).await?;
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(id, at_ms)| (id, state, at_ms))
            .collect();
        let payloads = self
            .payload_starts(&k, &entries, page.payload_max, true)
            .await?;
        self.records(&k, entries, payloads).await
    }

    async fn result(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Vec<u8>>> {
        let mut get = command("HGET", &self.keys(queue).results);
        get.arg(id.as_str());
        self.one(&self.work, Operation::Get, get).await
    }

    async fn ended(
        &self,
        queue: &QueueName,
        offset: usize,
        limit: usize,
    ) -> StoreResult<Vec<Ended>> {
        self.read_ended(queue, offset, limit).await
    }
}

impl RedisStore {
    /// The answers to [`count_commands`].
    pub(super) fn counted(
        &self,
        operation: Operation,
        mut answers: Vec<Value>,
    ) -> StoreResult<Counts> {
        let stats = answers
            .pop()
            .ok_or_else(|| unexpected(&self.name, operation))?;
        let numbers: Vec<u64> = answers
            .into_iter()
            .map(|answer| decode(&self.name, operation, answer))
            .collect::<StoreResult<_>>()?;
        let [pending, ready, unack, retry, garbage, dead, moving] = numbers[..] else {
            return Err(unexpected(&self.name, operation));
        };
        let totals = totals(decode(&self.name, operation, stats)?);
        Ok(Counts {
            pending,
            ready,
            unack,
            retry,
            dead: dead.saturating_add(garbage),
            moving,
            totals,
        })
    }

    /// What is known of messages whose states, times and payloads are known.
    pub(super) async fn records(
        &self,
        k: &Keys,
        entries: Vec<(MessageId, State, Option<u64>)>,
        payloads: Vec<Option<Vec<u8>>>,
    ) -> StoreResult<Vec<Record>> {
        const OPERATION: Operation = Operation::List;
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = Vec::new();
        for key in [&k.counts, &k.attempts, &k.headers, &k.history] {
            let mut fields = command("HMGET", key);
            for (id, ..) in &entries {
                fields.arg(id.as_str());
            }
            commands.push(fields);
        }
        let mut answers = self.work.run(OPERATION, &commands).await?.into_iter();
        let mut hash = || -> StoreResult<Vec<Value>> {
            let answer = answers
                .next()
                .ok_or_else(|| unexpected(&self.name, OPERATION))?;
            decode(&self.name, OPERATION, answer)
        };
        let (left, attempts, headers, history) = (hash()?, hash()?, hash()?, hash()?);
        let mut payloads = payloads.into_iter();
        let rows = left.into_iter().zip(attempts).zip(headers).zip(history);
        let mut records = Vec::with_capacity(entries.len());
        for ((id, state, at_ms), (((left, attempts), headers), history)) in
            entries.into_iter().zip(rows)
        {
            let fields = Fields {
                left: text(left),
                attempts: text(attempts),
                headers: text(headers),
                history: text(history),
            };
            let payload = payloads.next().flatten();
            records.push(record(id, state, at_ms, &fields, payload));
        }
        Ok(records)
    }

    /// The first bytes of each payload; none where it is missing, and for all when none are wanted.
    /// What is there and no payload is an error, or as good as missing to those who only look.
    pub(super) async fn payload_starts(
        &self,
        k: &Keys,
        entries: &[(MessageId, State, Option<u64>)],
        payload_max: usize,
        only_looks: bool,
    ) -> StoreResult<Vec<Option<Vec<u8>>>> {
        const OPERATION: Operation = Operation::List;
        if payload_max == 0 || entries.is_empty() {
            return Ok(vec![None; entries.len()]);
        }
        let keys: Vec<String> = entries.iter().map(|(id, ..)| k.message(id)).collect();
        let range = |key: &String| {
            let mut range = command("GETRANGE", key);
            range.arg(0).arg(payload_max - 1);
            range
        };
        let ranges: Vec<Cmd> = keys.iter().map(range).collect();
        let mut payloads: Vec<Option<Vec<u8>>> = Vec::with_capacity(keys.len());
        for answer in self.work.run_each(OPERATION, &ranges).await? {
            payloads.push(match answer {
                Ok(payload) => bytes(payload),
                Err(error) if only_looks && is_wrong_type(&error) => None,
                Err(error) => return Err(self.work.error(OPERATION, &error)),
            });
        }
        // Of a payload that is not there the range is empty as well.
        let is_empty = |at: &usize| payloads[*at].as_ref().is_none_or(Vec::is_empty);
        let empty: Vec<usize> = (0..payloads.len()).filter(is_empty).collect();
        if empty.is_empty() {
            return Ok(payloads);
        }
        let exists: Vec<Cmd> = empty
            .iter()
            .map(|&at| command("EXISTS", &keys[at]))
            .collect();
        let answers = self.work.run(OPERATION, &exists).await?;
        for (at, answer) in empty.into_iter().zip(answers) {
            payloads[at] = matches!(answer, Value::Int(1)).then(Vec::new);
        }
        Ok(payloads)
    }

    /// The ids of a page, with their times where the state has one.
    async fn page_entries(
        &self,
        k: &Keys,
        state: State,
        offset: usize,
        limit: usize,
    ) -> StoreResult<Vec<(MessageId, Option<u64>)>> {
        const OPERATION: Operation = Operation::List;
        let sorted = |key: &str, newest_first: bool| {
            let mut c = command("ZRANGE", key);
            c.arg(offset).arg(offset + limit - 1);
            if newest_first {
                c.arg("REV");
            }
            c.arg("WITHSCORES");
            c
        };
        let list = |key: &str| {
            let (from, to) = (offset + limit, offset + 1);
            let mut c = command("LRANGE", key);
            c.arg(format!("-{from}")).arg(format!("-{to}"));
            c
        };
        let query = match state {
            State::Pending => sorted(&k.pending, false),
            State::Unack => sorted(&k.unack, false),
            State::Dead => sorted(&k.dead, true),
            State::Moving => sorted(&k.moving, false),
            State::Ready => list(&k.ready),
            State::Retry => list(&k.retry),
            State::Garbage => {
                // A set has no order but that in which it is kept, which stays as long as it does.
                let mut c = command("SORT_RO", &k.garbage);
                c.arg(&["BY", "nosort", "LIMIT"]).arg(offset).arg(limit);
                c
            }
        };
        let values: Vec<Value> = self.one(&self.work, OPERATION, query).await?;
        let texts: Vec<String> = values.into_iter().map(text).collect();
        Ok(match state {
            State::Pending | State::Unack | State::Dead => texts
                .chunks_exact(2)
                .map(|pair| (MessageId::from(pair[0].as_str()), score_ms(&pair[1])))
                .collect(),
            State::Moving => texts
                .chunks_exact(2)
                .map(|pair| (MessageId::from(pair[0].as_str()), None))
                .collect(),
            State::Ready | State::Retry | State::Garbage => texts
                .into_iter()
                .rev()
                .map(|id| (id.into(), None))
                .collect(),
        })
    }
}
