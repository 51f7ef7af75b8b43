//! Who may fill the slots.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tokio::sync::OwnedSemaphorePermit;

use super::{Shared, UNSETTLED_MAX, UNSETTLED_PER_SLOT_MAX};
use crate::store::BATCH_MAX;

/// What is known of a host's slots when one of its queues wants some.
#[derive(Debug, Clone, Copy)]
struct Demand {
    slots: usize,
    queues: usize,
    /// Handlers of this queue that run.
    running: usize,
    /// Other queues with messages that may wait.
    hungry: usize,
    /// Other queues of which nothing runs and nothing is known to wait.
    quiet: usize,
}

impl Demand {
    /// The slots that the queue may have more than it has: its equal share among those that want
    /// some, of all but one for each that is quiet now, so that a message of it that comes later finds
    /// a slot. None is kept back when there are fewer than two for each queue.
    fn more(self) -> usize {
        let kept_back = if self.slots >= 2 * self.queues {
            self.quiet
        } else {
            0
        };
        let share = (self.slots - kept_back).div_ceil(self.hungry + 1);
        share.saturating_sub(self.running)
    }
}

/// The slots that a queue may fill now, taken; none when there are none, or while so many of its
/// results wait for the store that it would only fill the memory.
pub(super) fn take(shared: &Shared, index: usize) -> Option<OwnedSemaphorePermit> {
    let running = shared.in_flight.running();
    let (own, unsettled) = running.of(index);
    if unsettled > UNSETTLED_MAX.max(shared.config.slots * UNSETTLED_PER_SLOT_MAX) {
        return None;
    }
    let others = || (0..shared.queues.len()).filter(|other| *other != index);
    let (hungry, others): (Vec<usize>, Vec<usize>) =
        others().partition(|other| shared.queues[*other].wants_slots.load(SeqCst));
    let quiet = others.iter().filter(|other| running.of(**other).0 == 0);
    let demand = Demand {
        slots: shared.config.slots,
        queues: shared.queues.len(),
        running: own,
        hungry: hungry.len(),
        quiet: quiet.count(),
    };
    let mut wanted = demand.more().min(BATCH_MAX);
    loop {
        // Another queue may be faster and leave fewer.
        wanted = wanted.min(shared.slots.available_permits());
        let some = u32::try_from(wanted).ok().filter(|some| *some > 0)?;
        if let Ok(permits) = Arc::clone(&shared.slots).try_acquire_many_owned(some) {
            return Some(permits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_its_share_and_leaves_one_for_each_that_is_quiet() {
        let alone = Demand {
            slots: 8,
            queues: 1,
            running: 3,
            hungry: 0,
            quiet: 0,
        };
        assert_eq!(alone.more(), 5);
        let two = Demand { queues: 2, ..alone };
        assert_eq!(Demand { quiet: 1, ..two }.more(), 4);
        assert_eq!(Demand { hungry: 1, ..two }.more(), 1);
        let greedy = Demand {
            hungry: 1,
            running: 6,
            ..two
        };
        assert_eq!(greedy.more(), 0);
        // Those that want nothing take no share from those that do.
        let some = Demand {
            slots: 24,
            queues: 10,
            running: 0,
            hungry: 1,
            quiet: 8,
        };
        assert_eq!(some.more(), 8);
        // With few slots none is left unused.
        let many = Demand {
            queues: 5,
            quiet: 4,
            ..alone
        };
        assert_eq!(many.more(), 5);
        let few = Demand {
            slots: 2,
            queues: 5,
            running: 0,
            hungry: 4,
            quiet: 0,
        };
        assert_eq!(few.more(), 1);
    }
}
