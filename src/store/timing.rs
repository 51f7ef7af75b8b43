//! How many requests this process has made to its stores, and how long they took: counted once a scrape
//! may ask for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::Operation;
use crate::metrics::{Buckets, Distribution};

/// Requests of one kind. Relaxed order: independent counters.
#[derive(Debug)]
struct Requests {
    made: AtomicU64,
    failed: AtomicU64,
}

static IS_COUNTING: AtomicBool = AtomicBool::new(false);

static REQUESTS: [Requests; Operation::ALL.len()] = [const {
    Requests {
        made: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    }
}; Operation::ALL.len()];

static TOOK: Buckets = Buckets::new();

/// Requests of one kind that were answered, or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCount {
    /// The kind.
    pub operation: Operation,
    /// All of them.
    pub made: u64,
    /// Those that were answered with an error, or not in time.
    pub failed: u64,
}

/// Counts from now on.
pub fn count_requests() {
    IS_COUNTING.store(true, Ordering::Relaxed);
}

/// What was counted: by kind, without those that were never made, and how long all of them took.
#[must_use]
pub fn requests() -> (Vec<RequestCount>, Distribution) {
    let counts = Operation::ALL.iter().zip(&REQUESTS);
    let counts = counts.map(|(operation, requests)| RequestCount {
        operation: *operation,
        made: requests.made.load(Ordering::Relaxed),
        failed: requests.failed.load(Ordering::Relaxed),
    });
    (counts.filter(|count| count.made > 0).collect(), TOOK.read())
}

/// A request under way. One that is dropped without an end was given up, so it has failed.
pub(super) struct Timed {
    operation: Operation,
    /// None while nothing is counted.
    began: Option<Instant>,
    failed: bool,
}

impl Timed {
    pub(super) fn begin(operation: Operation) -> Self {
        let is_counting = IS_COUNTING.load(Ordering::Relaxed);
        Self {
            operation,
            began: is_counting.then(Instant::now),
            failed: true,
        }
    }

    pub(super) fn end(mut self, is_ok: bool) {
        self.failed = !is_ok;
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let Some(began) = self.began else { return };
        TOOK.record(began.elapsed());
        let requests = &REQUESTS[self.operation as usize];
        requests.made.fetch_add(1, Ordering::Relaxed);
        requests
            .failed
            .fetch_add(u64::from(self.failed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_well_what_fails_and_what_is_given_up_are_counted() {
        // In this binary nothing else reads CLUSTER SLOTS.
        let operation = Operation::ReadSlots;
        Timed::begin(operation).end(false);
        count_requests();
        Timed::begin(operation).end(true);
        Timed::begin(operation).end(false);
        drop(Timed::begin(operation));
        let (counts, took) = requests();
        let count = counts.iter().find(|count| count.operation == operation);
        let count = count.map(|count| (count.made, count.failed));
        assert_eq!(count, Some((3, 2)));
        assert!(took.count >= 3);
    }
}
