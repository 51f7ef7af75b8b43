//! Messages that delayqueue producers sent, and what delayqueue consumers leave.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::Cmd;

use super::args::add_claim;
use super::decode::unexpected;
use super::keys::Keys;
use super::{BATCH_MAX, Claim, MessageId, QueueName, RedisStore, StoreResult, scripts};
use crate::store::{Deliver, Operation};

/// True for an id that no dqhost made, by the same sign as `lua/include/foreign.lua`.
pub(super) fn is_foreign(id: &MessageId) -> bool {
    // 8 are those of what handlers send.
    !matches!(id.as_str().as_bytes().get(14), Some(b'7' | b'8'))
}

/// The keys of these messages' payloads. Others may give ids any bytes.
pub(super) fn payload_keys<'a>(k: &Keys, ids: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let key = |id| [k.message_prefix().as_bytes(), id].concat();
    ids.into_iter().map(key).collect()
}

/// Takes the expiry off these messages' payloads.
pub(super) fn persist(k: &Keys, ids: &[&[u8]], are_moving: bool) -> Cmd {
    let mut command = scripts::PERSIST.call(k, &payload_keys(k, ids.iter().copied()));
    command.arg(u8::from(are_moving)).arg(ids);
    command
}

/// Promotes due messages whose due times are cut to seconds, or gives them their exact ones.
pub(super) fn adopt(k: &Keys, ids: &[&[u8]]) -> Cmd {
    let mut command = scripts::ADOPT.call(k, &payload_keys(k, ids.iter().copied()));
    command.arg(ids);
    command
}

pub(super) fn log_dropped(queue: &QueueName, count: usize) {
    if count > 0 {
        tracing::info!(%queue, "dropped {count} ids without payload and retries: \
            a delayqueue consumer had ended their messages");
    }
}

impl RedisStore {
    /// Drops reserved ids that have neither payload nor retries. One whose payload has come back is
    /// given back. Returns the ids whose payload is something else, which are deliveries like others.
    pub(super) async fn drop_empty(
        &self,
        queue: &QueueName,
        k: &Keys,
        claims: &[Claim],
    ) -> StoreResult<Vec<MessageId>> {
        const OPERATION: Operation = Operation::ReadPayloads;
        let mut others = Vec::new();
        for step in claims.chunks(BATCH_MAX) {
            let payloads: Vec<String> = step.iter().map(|claim| k.message(&claim.id)).collect();
            let mut command = scripts::DROP.call(k, &payloads);
            for claim in step {
                add_claim(&mut command, claim);
            }
            let codes: Vec<i64> = self.one(&self.work, OPERATION, command).await?;
            if codes.len() != step.len() {
                return Err(unexpected(&self.name, OPERATION));
            }
            let kept = step.iter().zip(&codes).filter(|(_, code)| **code == 0);
            let kept: Vec<Claim> = kept.map(|(claim, _)| claim.clone()).collect();
            let some = step.iter().zip(&codes).filter(|(_, code)| **code == 2);
            others.extend(some.map(|(claim, _)| claim.id.clone()));
            log_dropped(queue, codes.iter().filter(|code| **code == 1).count());
            if !kept.is_empty() {
                self.release(queue, &kept).await?;
            }
        }
        Ok(others)
    }
}

/// How long a queue is left alone after a look for payloads that expire, unless it found some.
const REST: Duration = Duration::from_millis(250);

/// How far the places of each queue have been looked through for payloads that expire, by channel of
/// wake-ups. Whatever is lost of it costs only another look.
#[derive(Debug, Default)]
pub(super) struct Walks(Mutex<HashMap<String, Walk>>);

#[derive(Debug, Clone, Copy)]
struct Walk {
    place: u64,
    since: Instant,
    hurries: bool,
}

impl Walks {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Walk>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to look now; none while the queue is left alone.
    pub(super) fn next(&self, channel: &str) -> Option<u64> {
        match self.lock().get(channel) {
            None => Some(0),
            Some(walk) => (walk.hurries || walk.since.elapsed() >= REST).then_some(walk.place),
        }
    }

    /// Where to look next, and whether at once.
    pub(super) fn went_to(&self, channel: &str, place: u64, hurries: bool) {
        let walk = Walk {
            place,
            since: Instant::now(),
            hurries,
        };
        let mut walks = self.lock();
        match walks.get_mut(channel) {
            Some(known) => *known = walk,
            None => drop(walks.insert(channel.to_owned(), walk)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_left_alone_after_a_look_that_found_nothing() {
        let walks = Walks::default();
        assert_eq!(walks.next("a"), Some(0));
        walks.went_to("a", 500, true);
        assert_eq!((walks.next("a"), walks.next("b")), (Some(500), Some(0)));
        walks.went_to("a", 0, false);
        assert_eq!(walks.next("a"), None);
    }
}
