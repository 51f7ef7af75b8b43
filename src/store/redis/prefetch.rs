//! Which messages a host is likely to reserve next: what a wake-up names, and what is due next. Their
//! payloads are asked for together with the reservation, so that a message alone takes one round trip.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::foreign::is_foreign;
use crate::message::MessageId;

/// Ids that are kept of a queue.
const IDS_MAX: usize = 2;

/// The form of our ids has so many bytes; whatever else is published is not prefetched.
const ID_BYTES: usize = 36;

/// Ids by channel of wake-ups. A wrong one costs its name; a right one is read a moment earlier than
/// it would be anyway.
#[derive(Debug, Default)]
pub(super) struct PayloadPrefetch(Mutex<HashMap<String, Vec<MessageId>>>);

impl PayloadPrefetch {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<MessageId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, channel: &str, id: &str) {
        if id.len() != ID_BYTES {
            return;
        }
        let id = MessageId::from(id);
        // The payload of a foreign one may have a TTL that has to be seen to.
        if is_foreign(&id) {
            return;
        }
        let mut prefetch = self.lock();
        let of_queue = prefetch.entry(channel.to_owned()).or_default();
        if !of_queue.contains(&id) {
            if of_queue.len() == IDS_MAX {
                of_queue.remove(0);
            }
            of_queue.push(id);
        }
    }

    /// Those of a channel, which are none any more.
    pub(super) fn take(&self, channel: &str) -> Vec<MessageId> {
        let mut prefetch = self.lock();
        prefetch
            .get_mut(channel)
            .map(std::mem::take)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_our_own_ids_are_guesses_once() {
        let prefetch = PayloadPrefetch::default();
        let ids = [(); 3].map(|()| MessageId::new());
        for id in [&ids[0], &ids[1], &ids[1], &ids[2]] {
            prefetch.note("c", id.as_str());
        }
        let foreign = "019a2b3c-0000-4000-8000-000000000099";
        for other in ["", "x", foreign, &"7".repeat(1 << 20)] {
            prefetch.note("c", other);
        }
        assert_eq!(prefetch.take("c"), ids[1..]);
        assert!(prefetch.take("c").is_empty() && prefetch.take("d").is_empty());
    }
}
