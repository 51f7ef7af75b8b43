//! What goes in, and what people do to messages that wait or are dead.

use crate::store::Operation;
use redis::Cmd;

use super::decode::{text, unexpected};
use super::keys::Keys;
use super::{
    BATCH_MAX, Cancelled, Due, MessageId, NewMessage, QueueName, RedisStore, Redriven, Rescheduled,
    Sent, StoreResult, evalsha, evalsha_ro, ms, scripts,
};
use crate::store::common::{headers_json, send_steps};

/// A due time as the scripts take it: "+N" for N ms from now, else unix ms.
fn due_arg(due: Due) -> String {
    match due {
        Due::In(delay) => format!("+{}", ms(delay)),
        Due::At(at_ms) => at_ms.to_string(),
    }
}

/// Appends a new message as the scripts take it: id, payload, due, retries, headers, window, and where
/// its id was found, "" when nobody has looked.
pub(super) fn add_message(command: &mut Cmd, message: &NewMessage, place: &str) {
    command
        .arg(message.id.as_str())
        .arg(message.payload.as_slice())
        .arg(due_arg(message.due))
        .arg(message.retries)
        .arg(headers_json(&message.headers))
        .arg(ms(message.dedup_window))
        .arg(place);
}

/// What `send` says of a message that it has not sent, since somebody has to look where its id is.
const LOOK_FIRST: i64 = -1;

/// Ids that are looked for in one request, so that it ends well within a request's time limit.
const LOOKS_MAX: usize = 20;

fn locate(k: &Keys, id: &MessageId) -> Cmd {
    let keys = [
        &k.pending, &k.ready, &k.unack, &k.retry, &k.garbage, &k.moving,
    ];
    let mut command = evalsha_ro(&scripts::LOCATE, keys.map(String::as_str));
    command.arg(id.as_str());
    command
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
        self.register(queue).await?;
        let keys = self.keys(queue);
        let mut sent = Vec::with_capacity(messages.len());
        for step in send_steps(messages) {
            let messages = step.iter().map(|message| (message, "")).collect();
            let mut dues = self.send_step(&keys, messages).await?;
            if dues.contains(&LOOK_FIRST) {
                self.send_found(&keys, step, &mut dues).await?;
            }
            sent.extend(step.iter().zip(dues).map(|(message, due)| Sent {
                id: message.id.clone(),
                due_at_ms: u64::try_from(due).ok().filter(|due| *due != 0),
            }));
        }
        Ok(sent)
    }

    /// Sends messages with the places where their ids were found; what the script says of each.
    async fn send_step(
        &self,
        keys: &Keys,
        messages: Vec<(&NewMessage, &str)>,
    ) -> StoreResult<Vec<i64>> {
        const OPERATION: Operation = Operation::Send;
        let payloads: Vec<String> = messages.iter().map(|(m, _)| keys.message(&m.id)).collect();
        let fixed = [
            &keys.pending,
            &keys.ready,
            &keys.counts,
            &keys.headers,
            &keys.stats,
            &keys.dedup,
            &keys.attempts,
            &keys.due,
            &keys.history,
        ];
        let all = fixed.into_iter().chain(&payloads).map(String::as_str);
        let mut command = evalsha(&scripts::SEND, all);
        command.arg(&keys.wake);
        for (message, place) in &messages {
            add_message(&mut command, message, place);
        }
        let dues: Vec<i64> = self.one(&self.work, OPERATION, command).await?;
        if dues.len() != messages.len() {
            return Err(unexpected(&self.name, OPERATION));
        }
        Ok(dues)
    }

    /// Looks where those are whose payloads are gone, and sends them with what was found.
    async fn send_found(
        &self,
        keys: &Keys,
        step: &[NewMessage],
        dues: &mut [i64],
    ) -> StoreResult<()> {
        const OPERATION: Operation = Operation::Send;
        let gone: Vec<usize> = (0..dues.len()).filter(|&n| dues[n] == LOOK_FIRST).collect();
        let mut places = Vec::with_capacity(gone.len());
        for some in gone.chunks(LOOKS_MAX) {
            let looks: Vec<Cmd> = some.iter().map(|&n| locate(keys, &step[n].id)).collect();
            let answers = self.work.run(OPERATION, &looks).await?;
            places.extend(answers.into_iter().map(text));
        }
        if places.len() != gone.len() {
            return Err(unexpected(&self.name, OPERATION));
        }
        let found = gone.iter().map(|&n| &step[n]);
        let found = found.zip(places.iter().map(String::as_str)).collect();
        let answers = self.send_step(keys, found).await?;
        for (n, due) in gone.into_iter().zip(answers) {
            dues[n] = due;
        }
        Ok(())
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
                    2 => Cancelled::InFlight,
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
                &k.stats,
            ];
            let mut command = evalsha(&scripts::RESCHEDULE, keys.map(String::as_str));
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
