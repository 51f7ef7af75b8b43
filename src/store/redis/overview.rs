//! How a queue stands, in two round trips that cost the same whatever its length.

use crate::store::Operation;
use redis::{Cmd, Value};

use super::decode::{bytes, decode, failed, left_at_death, score_ms, text, unexpected};
use super::inspect::{COUNTS, command, count_commands, unix_ms};
use super::keys::Keys;
use super::{MessageId, Overview, QueueName, RedisStore, StoreResult};
use crate::store::report::Failing;
use crate::store::{FAILED_SAMPLE_MAX, FailedSample};

const OPERATION: Operation = Operation::Overview;

/// What tells which messages have failed, and which one is first in line.
struct First {
    /// The id of the first in line in ready.
    in_line: Option<Vec<u8>>,
    /// Ids of messages that have failed, and how often.
    failed: Vec<(Vec<u8>, u32)>,
    /// There are more that have failed.
    partial: bool,
}

/// A field of the attempts: the id and the number of a message that has failed and is no dead
/// letter. Those that are about to be one or are moving to another store cannot be told apart.
fn failing(field: &[Value]) -> Option<(Vec<u8>, u32)> {
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
        let mut attempts = command("HSCAN", &k.attempts);
        attempts.arg(0).arg("COUNT").arg(FAILED_SAMPLE_MAX);
        let mut commands = count_commands(&k).to_vec();
        commands.extend([
            redis::cmd("TIME"),
            command("EXISTS", &k.paused),
            head,
            in_line,
            attempts,
        ]);
        let mut answers = self.work.run(OPERATION, &commands).await?;
        let others = answers.split_off(COUNTS.min(answers.len()));
        let [time, paused, head, in_line, attempts] =
            <[Value; 5]>::try_from(others).map_err(|_| unexpected(&self.name, OPERATION))?;
        let head: Vec<Value> = decode(&self.name, OPERATION, head)?;
        let (cursor, fields): (u64, Vec<Value>) = decode(&self.name, OPERATION, attempts)?;
        let mut failed: Vec<_> = fields.chunks_exact(2).filter_map(failing).collect();
        // A small hash is answered whole, whatever was asked for.
        let partial = cursor != 0 || failed.len() > FAILED_SAMPLE_MAX;
        failed.truncate(FAILED_SAMPLE_MAX);
        let first = First {
            in_line: bytes(in_line),
            failed,
            partial,
        };
        let (oldest_ready_ms, failed) = self.read_details(&k, first).await?;
        Ok(Overview {
            counts: self.counted(OPERATION, answers)?,
            paused: decode(&self.name, OPERATION, paused)?,
            now_ms: unix_ms(decode(&self.name, OPERATION, time)?),
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
        if !first.failed.is_empty() {
            let of_each = |name, key: &str| -> Cmd {
                let mut fields = command(name, key);
                for (id, _) in &first.failed {
                    fields.arg(id.as_slice());
                }
                fields
            };
            commands.push(of_each("HMGET", &k.counts));
            commands.push(of_each("ZMSCORE", &k.pending));
        }
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
}
