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
    /// Those in which nothing runs.
    free: usize,
    queues: usize,
    /// Handlers of this queue that run.
    running: usize,
    /// Other queues with messages that may wait.
    hungry: usize,
}

impl Demand {
    /// The slots that the queue may have more than it has: its equal share among those that want
    /// some. While another queue wants none, it may have as many as it leaves free, so that the other
    /// finds slots when it wants them (dynamic thresholds, as in `runtime/shares.rs`). With fewer than
    /// two slots for each queue none is left free.
    fn more(self) -> usize {
        let share = self.slots.div_ceil(self.hungry + 1);
        let share = share.saturating_sub(self.running);
        if self.hungry + 1 < self.queues && self.slots >= 2 * self.queues {
            share.min(self.free.saturating_sub(self.running).div_ceil(2))
        } else {
            share
        }
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
    let queues = shared.queues.iter().enumerate();
    let hungry =
        queues.filter(|(other, served)| *other != index && served.wants_slots.load(SeqCst));
    let demand = Demand {
        slots: shared.config.slots,
        free: shared.slots.available_permits(),
        queues: shared.queues.len(),
        running: own,
        hungry: hungry.count(),
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
    fn a_queue_has_its_share_and_leaves_as_many_free_for_those_that_want_none() {
        let alone = Demand {
            slots: 8,
            free: 5,
            queues: 1,
            running: 3,
            hungry: 0,
        };
        assert_eq!(alone.more(), 5);
        let two = Demand { queues: 2, ..alone };
        assert_eq!(two.more(), 1);
        assert_eq!(Demand { hungry: 1, ..two }.more(), 1);
        let greedy = Demand {
            running: 4,
            free: 4,
            ..two
        };
        assert_eq!(greedy.more(), 0);
        let over = Demand {
            hungry: 1,
            running: 6,
            ..two
        };
        assert_eq!(over.more(), 0);
        // Those that want nothing take no share from those that do.
        let some = Demand {
            slots: 24,
            free: 24,
            queues: 10,
            running: 0,
            hungry: 1,
        };
        assert_eq!(some.more(), 12);
        // With few slots none is left unused.
        let many = Demand { queues: 5, ..alone };
        assert_eq!(many.more(), 5);
        let few = Demand {
            slots: 2,
            free: 2,
            queues: 5,
            running: 0,
            hungry: 4,
        };
        assert_eq!(few.more(), 1);
    }

    /// Takes as many as each may have, in turns, until none may have more; returns what is left.
    fn fill(slots: usize, queues: usize, greedy: usize) -> usize {
        let mut running = vec![0; greedy];
        loop {
            let before = running.clone();
            for queue in 0..greedy {
                let demand = Demand {
                    slots,
                    free: slots - running.iter().sum::<usize>(),
                    queues,
                    running: running[queue],
                    hungry: greedy - 1,
                };
                running[queue] += demand.more().min(demand.free);
            }
            if running == before {
                return slots - running.iter().sum::<usize>();
            }
        }
    }

    #[test]
    fn whoever_comes_late_finds_a_slot_and_nobody_else_leaves_one_unused() {
        assert_eq!(fill(16, 1, 1), 0);
        assert_eq!(fill(16, 2, 1), 8);
        assert_eq!(fill(16, 2, 2), 0);
        for queues in 2..=7 {
            for greedy in 1..queues {
                let left = fill(16, queues, greedy);
                assert!((1..=8).contains(&left), "{greedy} of {queues} leave {left}");
            }
        }
    }
}
