//! What goes in, and what people do to messages that wait or are dead.

use crate::store::Operation;
use redis::Cmd;

use super::decode::unexpected;
use super::{
    BATCH_MAX, Cancelled, Due, MessageId, NewMessage, QueueName, RedisStore, Redriven, Rescheduled,
    Sent, StoreResult, evalsha, ms, scripts,
};
use crate::store::common::{headers_json, send_steps};

/// A due time as the scripts take it: "+N" for N ms from now, else unix ms.
fn due_arg(due: Due) -> String {
    match due {
        Due::In(delay) => format!("+{}", ms(delay)),
        Due::At(at_ms) => at_ms.to_string(),
    }
}

/// Appends a new message as the scripts take it: id, payload, due, retries, headers, window.
pub(super) fn add_message(command: &mut Cmd, message: &NewMessage) {
    command
        .arg(message.id.as_str())
        .arg(message.payload.as_slice())
        .arg(due_arg(message.due))
        .arg(message.retries)
        .arg(headers_json(&message.headers))
        .arg(ms(message.dedup_window));
}

/// A budget as the scripts take it.
fn retries_arg(retries: Option<u32>) -> String {
    retries.map_or(String::new(), |n| n.to_string())
}

impl RedisStore {
    pub(super) async fn send_messages(
        &self,
        queue: &QueueName,
        messages: &[NewMessage],
    ) -> StoreResult<Vec<Sent>> {
        const OPERATION: Operation = Operation::Send;
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
                &keys.dedup,
            ];
            let all = fixed.into_iter().chain(&payload_keys).map(String::as_str);
            let mut command = evalsha(&scripts::SEND, all);
            command.arg(&keys.wake);
            for message in step {
                add_message(&mut command, message);
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

    pub(super) async fn cancel_messages(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
    ) -> StoreResult<Vec<Cancelled>> {
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
                match self
                    .one::<i64>(&self.work, Operation::Cancel, command)
                    .await?
                {
                    1 => Cancelled::Done,
                    2 => Cancelled::InHand,
                    _ => Cancelled::Unknown,
                },
            );
        }
        Ok(result)
    }

    pub(super) async fn reschedule_messages(
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
            let keys = [
                &k.pending,
                &k.ready,
                &k.retry,
                &k.unack,
                &k.attempts,
                &k.due,
                &payload,
            ];
            let mut command = evalsha(&scripts::RESCHEDULE, keys.map(String::as_str));
            command.arg(&k.wake).arg(id.as_str()).arg(due_arg(due));
            result.push(
                match self.one::<i64>(&self.work, OPERATION, command).await? {
                    -1 => Rescheduled::InHand,
                    0 => Rescheduled::Unknown,
                    at_ms => Rescheduled::At(
                        u64::try_from(at_ms).map_err(|_| unexpected(&self.name, OPERATION))?,
                    ),
                },
            );
        }
        Ok(result)
    }

    pub(super) async fn pause_queue(&self, queue: &QueueName, paused: bool) -> StoreResult<()> {
        self.register(queue).await?;
        let k = self.keys(queue);
        let mut command = evalsha(&scripts::PAUSE, [k.paused.as_str()]);
        command.arg(&k.wake).arg(u8::from(paused));
        self.one::<i64>(&self.work, Operation::Pause, command)
            .await?;
        Ok(())
    }

    pub(super) async fn redrive_dead(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        retries: Option<u32>,
    ) -> StoreResult<Vec<Redriven>> {
        const OPERATION: Operation = Operation::Redrive;
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
            command.arg(retries_arg(retries));
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

    pub(super) async fn send_dead_again(
        &self,
        queue: &QueueName,
        old: &MessageId,
        payload: &[u8],
        retries: Option<u32>,
    ) -> StoreResult<Redriven> {
        let k = self.keys(queue);
        let new = MessageId::new();
        let new_payload = k.message(&new);
        let keys = [
            &k.dead,
            &k.ready,
            &k.counts,
            &k.attempts,
            &k.headers,
            &k.history,
            &k.stats,
            &new_payload,
        ];
        let mut command = evalsha(&scripts::REDRIVE_EDITED, keys.map(String::as_str));
        command
            .arg(&k.wake)
            .arg(retries_arg(retries))
            .arg(NewMessage::RETRIES_DEFAULT)
            .arg(old.as_str())
            .arg(new.as_str())
            .arg(payload);
        let code: i64 = self.one(&self.work, Operation::Redrive, command).await?;
        Ok(if code == 1 {
            Redriven::As(new)
        } else {
            Redriven::Unknown
        })
    }

    pub(super) async fn remove_dead(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
    ) -> StoreResult<Vec<bool>> {
        const OPERATION: Operation = Operation::DeleteDead;
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
}
