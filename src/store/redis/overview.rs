//! How a queue stands and when its messages fall due, in two round trips each that cost the same
//! whatever its length.

use std::time::Duration;

use redis::{Cmd, Value};

use super::decode::{bytes, decode, failed, left_at_death, score_ms, text, unexpected};
use super::inspect::{COUNTS, command, count_commands, unix_ms};
use super::keys::Keys;
use super::{MessageId, Overview, QueueName, RedisStore, StoreResult};
use crate::store::report::Failing;
use crate::store::{DueAhead, FAILED_SAMPLE_MAX, FailedSample, Operation};

const OPERATION: Operation = Operation::Overview;

/// What tells which messages have failed, and which one is first in line.
struct First {
    /// The id of the first in line in ready.
    in_line: Option<Vec<u8>>,
    /// Ids of messages that have failed, and how often.
    failed: Vec<HasFailed>,
    /// There are more that have failed.
    partial: bool,
}

/// An id, and how often the message has failed.
type HasFailed = (Vec<u8>, u32);

/// A field of the attempts: the id and the number of a message that has failed and is no dead
/// letter. Those that are about to be one or are moving to another store cannot be told apart.
fn failing(field: &[Value]) -> Option<HasFailed> {
    let [id, attempts] = field else { return None };
    let attempts = text(attempts.clone());
    let failed = failed(&attempts);
    if failed == 0 || left_at_death(&attempts).is_some() {
        return None;
    }
    Some((bytes(id.clone())?, failed))
}

impl RedisStore {
    pub(super) async fn read_overview(&self, queue: &QueueName) -> StoreResult<Overview> {
        let k = self.keys(queue);
        let mut head = command("ZRANGE", &k.pending);
        head.arg(0).arg(0).arg("WITHSCORES");
        let mut in_line = command("LINDEX", &k.ready);
        in_line.arg(-1);
        let mut held_back_until = command("ZSCORE", &k.limits);
        held_back_until.arg("until");
        let mut commands = count_commands(&k).to_vec();
        commands.extend([
            redis::cmd("TIME"),
            command("EXISTS", &k.paused),
            held_back_until,
            command("ZCARD", &k.limited),
            head,
            in_line,
            some_attempts(&k),
        ]);
        let mut answers = self.work.run(OPERATION, &commands).await?;
        let others = answers.split_off(COUNTS.min(answers.len()));
        let [time, paused, until, aside, head, in_line, attempts] =
            <[Value; 7]>::try_from(others).map_err(|_| unexpected(&self.name, OPERATION))?;
        let head: Vec<Value> = decode(&self.name, OPERATION, head)?;
        let (failed, partial) = self.failing(attempts)?;
        let first = First {
            in_line: bytes(in_line),
            failed,
            partial,
        };
        let (oldest_ready_ms, failed) = self.read_details(&k, first).await?;
        let (counts, now_ms) = (
            self.counted(OPERATION, answers)?,
            unix_ms(decode(&self.name, OPERATION, time)?),
        );
        let is_limited = text(until)
            .parse::<u64>()
            .is_ok_and(|until_us| until_us / 1000 > now_ms);
        // By key, what is over a limit is set aside; else it stays in line.
        let limited = match decode(&self.name, OPERATION, aside)? {
            0 => counts.waiting(),
            aside => aside,
        };
        Ok(Overview {
            counts,
            paused: decode(&self.name, OPERATION, paused)?,
            limited: if is_limited { limited } else { 0 },
            now_ms,
            next_due_ms: head
                .into_iter()
                .nth(1)
                .and_then(|score| score_ms(&text(score))),
            oldest_ready_ms,
            failed,
        })
    }

    /// The second round trip, where one is needed: when the first in line became due, and what is
    /// known of those that have failed.
    async fn read_details(
        &self,
        k: &Keys,
        first: First,
    ) -> StoreResult<(Option<u64>, FailedSample)> {
        let mut commands = Vec::new();
        if let Some(id) = &first.in_line {
            let mut due = command("HGET", &k.due);
            due.arg(id.as_slice());
            commands.push(due);
        }
        commands.extend(of_failing("HMGET", &k.counts, &first.failed));
        commands.extend(of_failing("ZMSCORE", &k.pending, &first.failed));
        if commands.is_empty() {
            return Ok((None, FailedSample::of([], first.partial)));
        }
        let mut answers = self.work.run(OPERATION, &commands).await?.into_iter();
        let mut next = || -> StoreResult<Value> {
            answers
                .next()
                .ok_or_else(|| unexpected(&self.name, OPERATION))
        };
        let mut oldest_ready_ms = None;
        if let Some(id) = first.in_line {
            let became_due = text(next()?).parse().ok();
            let id = MessageId::from(text(Value::BulkString(id)));
            oldest_ready_ms = became_due.or_else(|| id.sent_at_ms());
        }
        if first.failed.is_empty() {
            return Ok((oldest_ready_ms, FailedSample::of([], first.partial)));
        }
        let left: Vec<Value> = decode(&self.name, OPERATION, next()?)?;
        let due: Vec<Value> = decode(&self.name, OPERATION, next()?)?;
        let messages = first.failed.into_iter().zip(left.into_iter().zip(due));
        let messages = messages.map(|((_, failed), (left, due))| Failing {
            failed,
            is_last: text(left).parse().unwrap_or(0_u32) == 0,
            is_backing_off: due != Value::Nil,
        });
        Ok((oldest_ready_ms, FailedSample::of(messages, first.partial)))
    }

    /// Two round trips: the clock and what has failed, then a count for each span.
    pub(super) async fn read_due_ahead(
        &self,
        queue: &QueueName,
        span: Duration,
        spans: usize,
    ) -> StoreResult<DueAhead> {
        let k = self.keys(queue);
        let commands = [redis::cmd("TIME"), some_attempts(&k)];
        let answers = self.work.run(OPERATION, &commands).await?;
        let [time, attempts] =
            <[Value; 2]>::try_from(answers).map_err(|_| unexpected(&self.name, OPERATION))?;
        let now_ms = unix_ms(decode(&self.name, OPERATION, time)?);
        let (failed, partial) = self.failing(attempts)?;
        let mut ahead = DueAhead::empty(now_ms, spans);
        ahead.partial = partial;
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
        let score = |at: usize| {
            let ms = now_ms.saturating_add(span_ms.saturating_mul(at as u64));
            format!("{}.{:03}", ms / 1000, ms % 1000)
        };
        let mut commands = Vec::new();
        for at in 0..ahead.spans.len() {
            let mut count = command("ZCOUNT", &k.pending);
            let from = if at == 0 {
                "-inf".to_owned()
            } else {
                score(at)
            };
            count.arg(from).arg(format!("({}", score(at + 1)));
            commands.push(count);
        }
        commands.extend(of_failing("ZMSCORE", &k.pending, &failed));
        let mut answers = self.work.run(OPERATION, &commands).await?;
        let scores = answers.split_off(ahead.spans.len().min(answers.len()));
        for (span, answer) in ahead.spans.iter_mut().zip(answers) {
            span.count = decode(&self.name, OPERATION, answer)?;
        }
        for answer in scores {
            let scores: Vec<Value> = decode(&self.name, OPERATION, answer)?;
            let due = scores
                .into_iter()
                .filter_map(|score| score_ms(&text(score)));
            ahead.add_failed(due, span_ms);
        }
        Ok(ahead)
    }

    /// Messages that have failed, and whether there are more: the answer to [`some_attempts`].
    fn failing(&self, answer: Value) -> StoreResult<(Vec<HasFailed>, bool)> {
        let (cursor, fields): (u64, Vec<Value>) = decode(&self.name, OPERATION, answer)?;
        let mut failed: Vec<_> = fields.chunks_exact(2).filter_map(failing).collect();
        // A small hash is answered whole, whatever was asked for.
        let partial = cursor != 0 || failed.len() > FAILED_SAMPLE_MAX;
        failed.truncate(FAILED_SAMPLE_MAX);
        Ok((failed, partial))
    }
}

/// Asks for the attempts of some messages.
fn some_attempts(k: &Keys) -> Cmd {
    let mut attempts = command("HSCAN", &k.attempts);
    attempts.arg(0).arg("COUNT").arg(FAILED_SAMPLE_MAX);
    attempts
}

/// Asks something of each of these messages; nothing of none.
fn of_failing(name: &str, key: &str, failed: &[HasFailed]) -> Option<Cmd> {
    let mut fields = command(name, key);
    for (id, _) in failed {
        fields.arg(id.as_slice());
    }
    (!failed.is_empty()).then_some(fields)
}
