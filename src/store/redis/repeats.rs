//! Sends that change what is there under their id, and repeats that wait for the end of a run.

use redis::{Cmd, Value};

use super::args::due_arg;
use super::decode::{decode, text, unexpected};
use super::keys::Keys;
use super::{MessageId, NewMessage, QueueName, RedisStore, Sent, StoreResult, ms, scripts};
use crate::message::repeat::without_first_sent;
use crate::message::{OnRepeat, SendOutcome};
use crate::store::Operation;
use crate::store::common::headers_json;

/// Messages that are changed in one request, so that it ends well within a request's time limit: each may be
/// looked for in a list.
const CHANGES_STEP: usize = 20;

/// Repeats that one call of `after_run` takes at most.
const AFTER_RUN_STEP: usize = 20;

fn send_or_change(k: &Keys, message: &NewMessage) -> Cmd {
    let payload = k.message(&message.id);
    let mut command = scripts::SEND_OR_CHANGE.call(k, &[payload]);
    let mode = match message.on_repeat {
        OnRepeat::Extend { .. } => "extend",
        OnRepeat::Replace { .. } | OnRepeat::Ignore => "replace",
    };
    let max_wait = message.on_repeat.max_wait();
    let headers = without_first_sent(message.headers.clone());
    command
        .arg(&k.wake)
        .arg(message.id.as_str())
        .arg(message.payload.as_slice())
        .arg(due_arg(message.due))
        .arg(message.retries)
        .arg(headers_json(&headers))
        .arg(mode)
        .arg(max_wait.map_or(String::new(), |wait| ms(wait).to_string()));
    command
}

fn after_run(k: &Keys, ids: &[MessageId]) -> Cmd {
    let payloads: Vec<String> = ids.iter().map(|id| k.message(id)).collect();
    let mut command = scripts::AFTER_RUN.call(k, &payloads);
    command.arg(&k.wake);
    for id in ids {
        command.arg(id.as_str());
    }
    command
}

/// What the script says of one message.
fn outcome(code: i64) -> Option<SendOutcome> {
    Some(match code {
        0 => SendOutcome::Repeat,
        1 => SendOutcome::Sent,
        2 => SendOutcome::Replaced,
        3 => SendOutcome::Extended,
        4 => SendOutcome::AfterRunning,
        _ => return None,
    })
}

impl RedisStore {
    /// Sends messages of which each may change what is there. Each is a step of its own.
    pub(super) async fn send_or_change(
        &self,
        k: &Keys,
        messages: &[NewMessage],
    ) -> StoreResult<Vec<Sent>> {
        const OPERATION: Operation = Operation::Send;
        let unexpected = || unexpected(&self.name, OPERATION);
        let mut sent = Vec::with_capacity(messages.len());
        for step in messages.chunks(CHANGES_STEP) {
            let commands: Vec<Cmd> = step.iter().map(|new| send_or_change(k, new)).collect();
            let answers = self.work.run(OPERATION, &commands).await?;
            if answers.len() != step.len() {
                return Err(unexpected());
            }
            for (message, answer) in step.iter().zip(answers) {
                let (code, due_ms): (i64, u64) = decode(&self.name, OPERATION, answer)?;
                let outcome = outcome(code).ok_or_else(unexpected)?;
                sent.push(Sent {
                    id: message.id.clone(),
                    due_at_ms: (outcome != SendOutcome::Repeat).then_some(due_ms),
                    outcome,
                });
            }
        }
        Ok(sent)
    }

    /// Lets repeats take effect whose messages do not run any more: those of these ids, or what is found when
    /// there are none. If that fails, a heartbeat of some host finds them.
    pub(super) async fn after_runs(
        &self,
        operation: Operation,
        queue: &QueueName,
        ids: Vec<MessageId>,
    ) {
        if let Err(error) = self.try_after_runs(operation, queue, ids).await {
            tracing::debug!(queue = %queue, "repeats wait for the next heartbeat: {error}");
        }
    }

    async fn try_after_runs(
        &self,
        operation: Operation,
        queue: &QueueName,
        mut ids: Vec<MessageId>,
    ) -> StoreResult<()> {
        let k = self.keys(queue);
        if ids.is_empty() {
            let found: Vec<Value> = self.one(&self.work, operation, after_run(&k, &[])).await?;
            ids = found.into_iter().map(|id| text(id).into()).collect();
        }
        for step in ids.chunks(AFTER_RUN_STEP) {
            let command = after_run(&k, step);
            let _: Vec<Value> = self.one(&self.work, operation, command).await?;
        }
        Ok(())
    }
}
