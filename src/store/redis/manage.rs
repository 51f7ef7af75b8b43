//! Manages messages and queues for operators: cancel, reschedule, pause, dead letters.

use std::slice::from_ref;

use async_trait::async_trait;
use redis::Value;

use super::args::{due_arg, retries_arg};
use super::decode::{text, unexpected};
use super::{RedisStore, scripts};
use crate::message::{Due, MessageId, NewMessage, QueueName};
use crate::store::common::ms;
use crate::store::{
    BATCH_MAX, Cancelled, Manage, Operation, Redrive, Redriven, Rescheduled, Retention, StoreResult,
};

/// Dead letters that one call puts back, since it reads their histories.
const REDRIVES_MAX: usize = 100;

impl RedisStore {
    /// Cancels messages, also those in flight if `kill`.
    async fn take_back(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        kill: bool,
    ) -> StoreResult<Vec<Cancelled>> {
        let k = self.keys(queue);
        let mut result = Vec::with_capacity(ids.len());
        let mut killed = Vec::new();
        for id in ids {
            let payload = k.message(id);
            let mut command = scripts::CANCEL.call(&k, &[&payload]);
            command.arg(id.as_str()).arg(u8::from(kill)).arg(&k.wake);
            let answer = self.one::<i64>(&self.work, Operation::Cancel, command);
            result.push(match answer.await? {
                1 => Cancelled::Done,
                2 => Cancelled::InFlight,
                3 => {
                    killed.push(id.clone());
                    Cancelled::Killed
                }
                _ => Cancelled::Unknown,
            });
        }
        if !killed.is_empty() {
            self.after_runs(Operation::Cancel, queue, killed).await;
        }
        self.events.cancelled(queue, ids, &result);
        Ok(result)
    }
}

#[async_trait]
impl Manage for RedisStore {
    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        self.take_back(queue, ids, false).await
    }

    async fn kill(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        self.take_back(queue, ids, true).await
    }

    async fn reschedule(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        due: Due,
    ) -> StoreResult<Vec<Rescheduled>> {
        const OPERATION: Operation = Operation::Reschedule;
        let k = self.keys(queue);
        let mut result = Vec::with_capacity(ids.len());
        for id in ids {
            let payload = k.message(id);
            let mut command = scripts::RESCHEDULE.call(&k, &[&payload]);
            command.arg(&k.wake).arg(id.as_str()).arg(due_arg(due));
            result.push(
                match self.one::<i64>(&self.work, OPERATION, command).await? {
                    -1 => Rescheduled::InFlight,
                    0 => Rescheduled::Unknown,
                    at_ms => Rescheduled::At(
                        u64::try_from(at_ms).map_err(|_| unexpected(&self.name, OPERATION))?,
                    ),
                },
            );
        }
        self.events.rescheduled(queue, ids, &result);
        Ok(result)
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<()> {
        self.register(queue).await?;
        let k = self.keys(queue);
        let mut command = scripts::PAUSE.call(&k, scripts::NO_MORE);
        command.arg(&k.wake).arg(u8::from(paused));
        self.one::<i64>(&self.work, Operation::Pause, command)
            .await?;
        self.events.paused(queue, paused);
        Ok(())
    }

    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        how: Redrive,
    ) -> StoreResult<Vec<Redriven>> {
        const OPERATION: Operation = Operation::Redrive;
        let k = self.keys(queue);
        let mut result = Vec::with_capacity(ids.len());
        for step in ids.chunks(REDRIVES_MAX) {
            let pairs: Vec<(&MessageId, MessageId)> =
                step.iter().map(|old| (old, MessageId::new())).collect();
            let payloads: Vec<String> = pairs
                .iter()
                .flat_map(|(old, new)| [k.message(old), k.message(new)])
                .collect();
            let mut command = scripts::REDRIVE.call(&k, &payloads);
            command.arg(&k.wake);
            command.arg(retries_arg(how.retries));
            command.arg(NewMessage::RETRIES_DEFAULT);
            command.arg(retries_arg(how.max_redrives));
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
                        refused @ ..=-1 => {
                            let redrives = refused.unsigned_abs() - 1;
                            Redriven::TooOften(u32::try_from(redrives).unwrap_or(u32::MAX))
                        }
                        _ => Redriven::Unknown,
                    }),
            );
        }
        self.events.redriven(queue, ids, &result);
        Ok(result)
    }

    async fn redrive_edited(
        &self,
        queue: &QueueName,
        id: &MessageId,
        payload: &[u8],
        retries: Option<u32>,
    ) -> StoreResult<Redriven> {
        let k = self.keys(queue);
        let new = MessageId::new();
        let new_payload = k.message(&new);
        let mut command = scripts::REDRIVE_EDITED.call(&k, &[&new_payload]);
        command
            .arg(&k.wake)
            .arg(retries_arg(retries))
            .arg(NewMessage::RETRIES_DEFAULT)
            .arg(id.as_str())
            .arg(new.as_str())
            .arg(payload);
        let code: i64 = self.one(&self.work, Operation::Redrive, command).await?;
        let answer = if code == 1 {
            Redriven::As(new)
        } else {
            Redriven::Unknown
        };
        self.events.redriven(queue, from_ref(id), from_ref(&answer));
        Ok(answer)
    }

    async fn past_retention(
        &self,
        queue: &QueueName,
        retention: Retention,
    ) -> StoreResult<Vec<MessageId>> {
        let k = self.keys(queue);
        // Not the form for readers only: hosts ask, whose users need not have it.
        let mut command = scripts::PAST_RETENTION.call(&k, scripts::NO_MORE);
        let Retention { age, number } = retention;
        command
            .arg(age.map_or(String::new(), |age| ms(age).to_string()))
            .arg(number.map_or(String::new(), |number| number.to_string()))
            .arg(BATCH_MAX);
        let ids: Vec<Value> = self.one(&self.work, Operation::List, command).await?;
        Ok(ids.into_iter().map(|id| text(id).into()).collect())
    }

    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>> {
        const OPERATION: Operation = Operation::DeleteDead;
        let k = self.keys(queue);
        let mut result = Vec::with_capacity(ids.len());
        for step in ids.chunks(BATCH_MAX) {
            let payloads: Vec<String> = step.iter().map(|id| k.message(id)).collect();
            let mut command = scripts::DELETE_DEAD.call(&k, &payloads);
            for id in step {
                command.arg(id.as_str());
            }
            let codes: Vec<i64> = self.one(&self.work, OPERATION, command).await?;
            result.extend(codes.into_iter().map(|code| code == 1));
        }
        self.events.deleted(queue, ids, &result);
        Ok(result)
    }
}
