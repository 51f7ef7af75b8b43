//! How deliveries end: one script for each way, all of a batch in one round trip. An ack that takes
//! messages along is a call of its own, since it may be refused for lack of memory alone.

use crate::store::{Ended, Operation, Settle};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::args::{FAIL_STEP, add_claim, add_message};
use super::decode::{REPEATED, decode, settled, unexpected};
use super::keys::Keys;
use super::transport::faults::is_full;
use super::{
    Claim, MessageId, NewMessage, QueueName, RedisStore, Settled, Settlement, StoreError,
    StoreResult, ms, scripts,
};
use crate::store::common::{by_queue, outbox, settle_steps};

/// One script call.
struct Call {
    command: Cmd,
    /// The places in the batch that its answers are for.
    places: Vec<usize>,
    /// It adds messages, which a full server refuses.
    sends: bool,
}

impl Call {
    fn new(command: Cmd, places: Vec<usize>) -> Self {
        Self {
            command,
            places,
            sends: false,
        }
    }
}

#[async_trait]
impl Settle for RedisStore {
    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        let mut result = Vec::with_capacity(settlements.len());
        for step in settle_steps(settlements) {
            result.extend(self.settle_step(queue, step).await?);
        }
        Ok(result)
    }

    async fn keep_ended(
        &self,
        queue: &QueueName,
        ended: &[(Ended, Duration)],
        keep: usize,
    ) -> StoreResult<()> {
        self.write_ended(queue, ended, keep).await
    }

    async fn keep_results(
        &self,
        queue: &QueueName,
        results: &[(MessageId, Vec<u8>)],
        bytes_max: usize,
    ) -> StoreResult<()> {
        self.write_results(queue, results, bytes_max).await
    }

    fn can_send_along(&self, from: &QueueName, to: &QueueName) -> bool {
        !self.is_cluster || from == to
    }
}

impl RedisStore {
    async fn settle_step(
        &self,
        queue: &QueueName,
        step: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        const OPERATION: Operation = Operation::Settle;
        let targets = |place: usize| outbox(&step[place].1).iter().map(|sent| &sent.queue);
        let all = (0..step.len()).flat_map(targets).collect();
        let unlisted = self.register_all(&self.leases, all).await?;
        let (refused, calls): (Vec<Call>, Vec<Call>) =
            self.calls(queue, step).into_iter().partition(|call| {
                let mut targets = call.places.iter().copied().flat_map(targets);
                call.sends && targets.any(|queue| unlisted.contains(queue))
            });
        let (mut result, mut repeated) = (vec![Settled::LeaseLost; step.len()], Vec::new());
        for place in refused.into_iter().flat_map(|call| call.places) {
            result[place] = Settled::Refused;
        }
        let (commands, asked): (Vec<Cmd>, Vec<_>) = calls
            .into_iter()
            .map(|call| (call.command, (call.places, call.sends)))
            .unzip();
        let answers = self.leases.run_each(OPERATION, &commands).await?;
        for (answer, (places, sends)) in answers.into_iter().zip(asked) {
            let said = match answer {
                Ok(answer) => {
                    let codes = codes(&self.name, answer)?;
                    let ended = places
                        .iter()
                        .zip(&codes)
                        .filter(|(_, code)| **code == REPEATED);
                    repeated.extend(ended.map(|(place, _)| step[*place].0.id.clone()));
                    codes.into_iter().map(settled).collect()
                }
                Err(error) if sends && is_full(&error) => vec![Settled::Refused; places.len()],
                Err(error) => match self.leases.error(OPERATION, &error) {
                    // What keeps these messages out must not keep all others from being settled.
                    error @ (StoreError::Unusable { .. } | StoreError::Refused { .. }) if sends => {
                        tracing::warn!("an ack and what its handler sent are refused: {error}");
                        vec![Settled::Refused; places.len()]
                    }
                    error => return Err(error),
                },
            };
            if said.len() != places.len() {
                return Err(unexpected(&self.name, OPERATION));
            }
            for (place, said) in places.into_iter().zip(said) {
                result[place] = said;
            }
        }
        if !repeated.is_empty() {
            self.after_runs(OPERATION, queue, repeated).await;
        }
        Ok(result)
    }

    /// The script calls for up to [`BATCH_MAX`] settlements. Two of one delivery are answered in their
    /// order when they are of one kind. Of two kinds, an ack goes before one that takes messages along,
    /// that before a nack, and that before a reject.
    fn calls(&self, queue: &QueueName, step: &[(Claim, Settlement)]) -> Vec<Call> {
        let k = self.keys(queue);
        let (mut acks, mut sends, mut nacks, mut rejects) = (vec![], vec![], vec![], vec![]);
        for (place, (_, settlement)) in step.iter().enumerate() {
            match settlement {
                Settlement::Ack { outbox } if outbox.is_empty() => &mut acks,
                Settlement::Ack { .. } => &mut sends,
                Settlement::Nack { .. } => &mut nacks,
                Settlement::Reject { .. } => &mut rejects,
            }
            .push(place);
        }
        let mut calls = Vec::new();
        if !acks.is_empty() {
            calls.push(ack(&k, step, acks));
        }
        let sends = sends.into_iter();
        calls.extend(sends.map(|place| self.ack_and_send(&k, step, place)));
        let chunks = nacks.chunks(FAIL_STEP);
        calls.extend(chunks.map(|places| nack(&k, step, places.to_vec())));
        let chunks = rejects.chunks(FAIL_STEP);
        calls.extend(chunks.map(|places| reject(&k, step, places.to_vec())));
        calls
    }

    fn ack_and_send(&self, k: &Keys, step: &[(Claim, Settlement)], place: usize) -> Call {
        let (claim, settlement) = &step[place];
        let queues: Vec<(Arc<Keys>, Vec<&NewMessage>)> = by_queue(outbox(settlement))
            .into_iter()
            .map(|(queue, messages)| (self.keys(queue), messages))
            .collect();
        let own = k.message(&claim.id);
        let payloads: Vec<Vec<String>> = queues
            .iter()
            .map(|(to, messages)| messages.iter().map(|sent| to.message(&sent.id)).collect())
            .collect();
        let mut given = vec![&own];
        for ((to, _), payloads) in queues.iter().zip(&payloads) {
            given.extend(target(to));
            given.extend(payloads);
        }
        let mut command = scripts::ACK_AND_SEND.call(k, &given);
        add_claim(&mut command, claim);
        for (to, messages) in &queues {
            command.arg(&to.wake).arg(messages.len());
            for message in messages {
                add_message(&mut command, message, "");
            }
        }
        Call {
            command,
            places: vec![place],
            sends: true,
        }
    }
}

/// What a script says of each message: a number, or a digit of one text.
fn codes(store: &str, answer: Value) -> StoreResult<Vec<i64>> {
    if let Value::BulkString(text) = answer {
        let digits = text.iter().map(|digit| digit.saturating_sub(b'0'));
        return Ok(digits.map(i64::from).collect());
    }
    decode(store, Operation::Settle, answer)
}

/// The keys of a queue that a script sends to beside others, but for the payloads'.
pub(super) fn target(to: &Keys) -> [&String; 13] {
    [
        &to.pending,
        &to.ready,
        &to.counts,
        &to.headers,
        &to.stats,
        &to.dedup,
        &to.attempts,
        &to.due,
        &to.history,
        &to.unack,
        &to.retry,
        &to.garbage,
        &to.moving,
    ]
}

fn ack(k: &Keys, step: &[(Claim, Settlement)], places: Vec<usize>) -> Call {
    let payloads: Vec<String> = places
        .iter()
        .map(|&place| k.message(&step[place].0.id))
        .collect();
    let mut command = scripts::ACK.call(k, &payloads);
    for &place in &places {
        add_claim(&mut command, &step[place].0);
    }
    Call::new(command, places)
}

fn nack(k: &Keys, step: &[(Claim, Settlement)], places: Vec<usize>) -> Call {
    let mut command = scripts::NACK.call(k, scripts::NO_MORE);
    for &place in &places {
        if let (claim, Settlement::Nack { delay, attempt }) = &step[place] {
            add_claim(&mut command, claim);
            command.arg(delay.map_or(String::new(), |delay| ms(delay).to_string()));
            command.arg(serde_json::json!(attempt).to_string());
        }
    }
    Call::new(command, places)
}

fn reject(k: &Keys, step: &[(Claim, Settlement)], places: Vec<usize>) -> Call {
    let mut command = scripts::REJECT.call(k, scripts::NO_MORE);
    for &place in &places {
        if let (claim, Settlement::Reject { attempt }) = &step[place] {
            add_claim(&mut command, claim);
            command.arg(serde_json::json!(attempt).to_string());
        }
    }
    Call::new(command, places)
}
