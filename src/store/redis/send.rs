//! Accepts messages.

use crate::store::Operation;
use crate::store::SendMessages;
use async_trait::async_trait;
use redis::Cmd;

use super::args::add_message;
use super::decode::{text, unexpected};
use super::keys::Keys;
use super::{MessageId, NewMessage, QueueName, RedisStore, Sent, StoreResult, scripts};
use crate::message::OnRepeat;
use crate::store::common::send_steps;

/// What `send` says of a message that it has not sent, since somebody has to look where its id is.
pub(super) const LOOK_FIRST: i64 = -1;

/// Ids that are looked for in one request, so that it ends well within a request's time limit.
const LOOKS_MAX: usize = 20;

/// What goes into one step, in order. Whoever may change what is there is sent by another script.
fn alike(messages: &[NewMessage]) -> impl Iterator<Item = &[NewMessage]> {
    let same = |a: &NewMessage, b: &NewMessage| changes(a) == changes(b);
    messages.chunk_by(same).flat_map(send_steps)
}

fn changes(message: &NewMessage) -> bool {
    message.on_repeat != OnRepeat::Ignore
}

pub(super) fn locate(k: &Keys, id: &MessageId) -> Cmd {
    let mut command = scripts::LOCATE.call_ro(k, scripts::NO_MORE);
    command.arg(id.as_str());
    command
}

#[async_trait]
impl SendMessages for RedisStore {
    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>> {
        self.register(queue).await?;
        let keys = self.keys(queue);
        let mut sent = Vec::with_capacity(messages.len());
        for step in alike(messages) {
            if changes(&step[0]) {
                sent.extend(self.send_or_change(&keys, step).await?);
                continue;
            }
            let messages = step.iter().map(|message| (message, "")).collect();
            let mut dues = self.send_step(&keys, messages).await?;
            if dues.contains(&LOOK_FIRST) {
                self.send_found(&keys, step, &mut dues).await?;
            }
            sent.extend(step.iter().zip(dues).map(|(message, due)| {
                let due_at_ms = u64::try_from(due).ok().filter(|due| *due != 0);
                Sent::new(message.id.clone(), due_at_ms)
            }));
        }
        self.events.sent(queue, messages, &sent);
        Ok(sent)
    }
}

impl RedisStore {
    /// Sends messages with the places where their ids were found; what the script says of each.
    async fn send_step(
        &self,
        keys: &Keys,
        messages: Vec<(&NewMessage, &str)>,
    ) -> StoreResult<Vec<i64>> {
        const OPERATION: Operation = Operation::Send;
        let payloads: Vec<String> = messages.iter().map(|(m, _)| keys.message(&m.id)).collect();
        let mut command = scripts::SEND.call(keys, &payloads);
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
}
