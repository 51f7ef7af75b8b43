//! How deliveries end: one script for each way, all of a batch in one round trip.

use redis::Cmd;

use super::decode::{decode, settled, unexpected};
use super::deliver::{FAIL_STEP, add_claim};
use super::keys::Keys;
use super::{
    BATCH_MAX, Claim, QueueName, RedisStore, Settled, Settlement, StoreResult, evalsha, ms, scripts,
};

/// One script call, and the places in the batch that its answers are for.
type Call = (Cmd, Vec<usize>);

impl RedisStore {
    pub(super) async fn settle_deliveries(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        const OPERATION: &str = "settle";
        let k = self.keys(queue);
        let mut result = vec![Settled::LeaseLost; settlements.len()];
        for start in (0..settlements.len()).step_by(BATCH_MAX) {
            let step = &settlements[start..settlements.len().min(start + BATCH_MAX)];
            let (commands, places): (Vec<Cmd>, Vec<Vec<usize>>) =
                calls(&k, step).into_iter().unzip();
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
}

/// The script calls for up to [`BATCH_MAX`] settlements. Two of one delivery are answered in their
/// order when they are of one kind; of two kinds, an ack goes before a nack and that before a
/// reject.
fn calls(k: &Keys, step: &[(Claim, Settlement)]) -> Vec<Call> {
    let places = |wanted: fn(&Settlement) -> bool| -> Vec<usize> {
        (0..step.len())
            .filter(|&place| wanted(&step[place].1))
            .collect()
    };
    let acks = places(|settlement| matches!(settlement, Settlement::Ack { .. }));
    let nacks = places(|settlement| matches!(settlement, Settlement::Nack { .. }));
    let rejects = places(|settlement| matches!(settlement, Settlement::Reject { .. }));
    let mut calls = Vec::new();
    if !acks.is_empty() {
        calls.push(ack(k, step, acks));
    }
    calls.extend(
        nacks
            .chunks(FAIL_STEP)
            .map(|places| nack(k, step, places.to_vec())),
    );
    calls.extend(
        rejects
            .chunks(FAIL_STEP)
            .map(|places| reject(k, step, places.to_vec())),
    );
    calls
}

fn ack(k: &Keys, step: &[(Claim, Settlement)], places: Vec<usize>) -> Call {
    let payloads: Vec<String> = places
        .iter()
        .map(|&place| k.message(&step[place].0.id))
        .collect();
    let fixed = [
        &k.unack,
        &k.counts,
        &k.attempts,
        &k.headers,
        &k.history,
        &k.stats,
    ];
    let keys = fixed.into_iter().chain(&payloads).map(String::as_str);
    let mut command = evalsha(&scripts::ACK, keys);
    for &place in &places {
        add_claim(&mut command, &step[place].0);
    }
    (command, places)
}

fn nack(k: &Keys, step: &[(Claim, Settlement)], places: Vec<usize>) -> Call {
    let keys = [
        &k.unack,
        &k.counts,
        &k.attempts,
        &k.history,
        &k.pending,
        &k.retry,
        &k.garbage,
        &k.stats,
    ];
    let mut command = evalsha(&scripts::NACK, keys.map(String::as_str));
    for &place in &places {
        if let (claim, Settlement::Nack { delay, attempt }) = &step[place] {
            add_claim(&mut command, claim);
            command.arg(delay.map_or(String::new(), |delay| ms(delay).to_string()));
            command.arg(serde_json::json!(attempt).to_string());
        }
    }
    (command, places)
}

fn reject(k: &Keys, step: &[(Claim, Settlement)], places: Vec<usize>) -> Call {
    let keys = [
        &k.unack,
        &k.counts,
        &k.attempts,
        &k.history,
        &k.retry,
        &k.garbage,
        &k.stats,
    ];
    let mut command = evalsha(&scripts::REJECT, keys.map(String::as_str));
    for &place in &places {
        if let (claim, Settlement::Reject { attempt }) = &step[place] {
            add_claim(&mut command, claim);
            command.arg(serde_json::json!(attempt).to_string());
        }
    }
    (command, places)
}
