//! What a queue has reserved and not begun, and whether the free slots are worth a request to the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::ServedQueue;

/// No number of messages wakes the loop.
const NONE: usize = usize::MAX;

/// Messages of a queue that wait for a thread of this host. While many do, more of them would only wait here
/// in place of in the store. Where a request for a few costs what one for many does
/// ([`Deliver::reservation_worth`](crate::store::Deliver::reservation_worth)), the loop of the queue is woken
/// when enough of them have begun.
///
/// Nothing is kept beyond the process: what was reserved and never begins comes back when its lease expires.
#[derive(Debug)]
pub(super) struct Unbegun {
    /// So many free slots are worth a request, whatever has not begun.
    worth: usize,
    count: AtomicUsize,
    /// With how many of them left the loop looks again; `NONE` while it waits for no such number.
    wakes_at: AtomicUsize,
}

impl Unbegun {
    pub(super) fn new(worth: usize) -> Self {
        Self {
            worth,
            count: AtomicUsize::new(0),
            wakes_at: AtomicUsize::new(NONE),
        }
    }

    /// So many more wait for a thread. Each is to be told by a [`Begins`].
    pub(super) fn add(&self, messages: usize) {
        self.count.fetch_add(messages, SeqCst);
    }

    /// One of them begins, or never will. True if the loop has to look again.
    fn begins(&self) -> bool {
        let left = self.count.fetch_sub(1, SeqCst) - 1;
        // The order of the two is what `are_worth_asking` relies on.
        let wakes_at = self.wakes_at.load(SeqCst);
        wakes_at != NONE && left <= wakes_at && self.looks_again()
    }

    /// The loop looks, whatever it waited for. To be called before it sees which slots are free: those that become
    /// free afterwards wake it. True if it waited for a number of them.
    pub(super) fn looks_again(&self) -> bool {
        self.wakes_at.swap(NONE, SeqCst) != NONE
    }

    /// True while the loop waits until enough have begun: that a slot is free is no news to it.
    pub(super) fn are_awaited(&self) -> bool {
        self.wakes_at.load(SeqCst) != NONE
    }

    /// True if a request for so many slots is to be made now. If not, the loop is woken when it is time.
    pub(super) fn are_worth_asking(&self, slots: usize) -> bool {
        if self.worth <= 1 {
            return true;
        }
        let Some(wakes_at) = self.wakes_at(slots, self.count.load(SeqCst)) else {
            return true;
        };
        self.wakes_at.store(wakes_at, SeqCst);
        // Those that began before that was stored have told nobody.
        self.count.load(SeqCst) <= wakes_at && self.looks_again()
    }

    /// With how many unbegun messages to look again, if so many slots are not worth a request while so many
    /// messages have not begun. It is when a quarter of both is free, if each that begins frees its slot.
    fn wakes_at(&self, slots: usize, unbegun: usize) -> Option<usize> {
        let enough = (slots + unbegun).div_ceil(4).min(self.worth);
        let missing = enough.checked_sub(slots).filter(|missing| *missing > 0)?;
        unbegun.checked_sub(missing)
    }
}

/// A message that waits for a thread. Dropped when it begins, or when it is known that it never will.
pub(super) struct Begins(Arc<ServedQueue>);

impl Begins {
    pub(super) fn later(served: &Arc<ServedQueue>) -> Self {
        Self(Arc::clone(served))
    }
}

impl Drop for Begins {
    fn drop(&mut self) {
        let slots = &self.0.slots;
        if slots.unbegun.begins() {
            slots.progress.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slots_are_not_worth_a_request_while_much_has_not_begun() {
        let queue = Unbegun::new(64);
        for (slots, unbegun, expected) in [
            // Nothing waits for a thread: each slot counts, as with handlers that wait for others.
            (1, 0, None),
            (0, 0, None),
            (1, 3, None),
            (1, 4, Some(3)),
            (4, 12, None),
            (3, 13, Some(12)),
            (0, 16, Some(12)),
            (0, 256, Some(192)),
            (63, 900, Some(899)),
            (64, 900, None),
        ] {
            assert_eq!(
                queue.wakes_at(slots, unbegun),
                expected,
                "{slots} of {unbegun}"
            );
        }
    }

    #[test]
    fn where_each_request_is_worth_its_price_each_slot_is() {
        let queue = Unbegun::new(1);
        queue.add(1_000);
        for slots in 0..2 {
            assert!(queue.are_worth_asking(slots));
            assert!(!queue.are_awaited());
        }
    }

    #[test]
    fn the_loop_is_woken_before_all_have_begun() {
        for unbegun in 0..300 {
            for slots in 0..300 {
                let queue = Unbegun::new(64);
                queue.add(unbegun);
                if queue.are_worth_asking(slots) {
                    assert!(!queue.are_awaited(), "{slots} of {unbegun}");
                    continue;
                }
                assert!(queue.are_awaited(), "{slots} of {unbegun}");
                let woken = (0..unbegun).filter(|_| queue.begins()).count();
                assert_eq!(woken, 1, "{slots} of {unbegun}");
                assert!(!queue.are_awaited(), "{slots} of {unbegun}");
            }
        }
    }

    #[test]
    fn whatever_begins_meanwhile_is_not_overlooked() {
        for _ in 0..2_000 {
            let queue = Unbegun::new(64);
            queue.add(40);
            let start = std::sync::Barrier::new(2);
            let (asks, woken) = std::thread::scope(|scope| {
                let begin = scope.spawn(|| {
                    start.wait();
                    (0..40).filter(|_| queue.begins()).count()
                });
                start.wait();
                let asks = queue.are_worth_asking(0);
                (asks, begin.join().unwrap())
            });
            // It asks at once or is told when to look.
            assert_eq!(usize::from(asks) + woken, 1);
        }
    }
}
