//! Fairness between the processes that write to one file.
//!
//! SQLite has no queue for its write lock: who waits asks again and again, and a busy host takes the
//! lock anew within microseconds. So a writer that has waited for long claims the next turn with an
//! advisory lock on the `-wake` companion, and every other writer lets it go first. The system
//! releases the lock of a process that dies.

use std::cell::RefCell;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long a call waits while other processes write.
pub(super) const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// Pauses between tries while another process writes.
pub(super) const BUSY_PAUSE: Duration = Duration::from_micros(500);

/// A writer that has waited for so long claims the next turn.
const PATIENCE: Duration = Duration::from_millis(20);

/// How long a writer lets another go first at most: a frozen process may hold the claim.
const YIELD_MAX: Duration = Duration::from_millis(50);

/// How long a claim is ignored after it was not used within [`YIELD_MAX`].
const IGNORE_FOR: Duration = Duration::from_secs(1);

/// How often the claim is asked for while a writer lets another go first.
const YIELD_PAUSE: Duration = Duration::from_millis(1);

/// So long after nobody had claimed the turn, nobody is asked again. A busy host writes thousands of times
/// a second, and who claims has waited for twenty times as long.
const ASK_EVERY: Duration = Duration::from_millis(1);

thread_local! {
    /// The turn for which this thread waits. SQLite's busy handler knows nothing but its thread.
    static WAITING: RefCell<Option<Waits>> = const { RefCell::new(None) };
}

struct Waits {
    claim: Arc<File>,
    has_claimed: bool,
}

/// One writing connection's view of whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    claim: Arc<File>,
    /// Until then, claims are ignored.
    ask_at: Mutex<Instant>,
    yield_max: Duration,
    ask_every: Duration,
}

/// While this lives, the busy handler of this thread may claim the next turn.
pub(super) struct Waiting(());

impl Turn {
    pub(super) fn new(claim: File) -> Self {
        Self {
            claim: Arc::new(claim),
            ask_at: Mutex::new(Instant::now()),
            yield_max: YIELD_MAX,
            ask_every: ASK_EVERY,
        }
    }

    /// Lets a writer that has claimed the turn go first. To be held until the write lock is taken.
    pub(super) fn wait(&self) -> Waiting {
        let begin = Instant::now();
        let mut ask_at = self.ask_at.lock().unwrap_or_else(PoisonError::into_inner);
        if *ask_at <= begin {
            *ask_at = loop {
                if !self.is_claimed() {
                    break Instant::now() + self.ask_every;
                }
                if begin.elapsed() >= self.yield_max {
                    break Instant::now() + IGNORE_FOR;
                }
                std::thread::sleep(YIELD_PAUSE);
            };
        }
        WAITING.set(Some(Waits {
            claim: Arc::clone(&self.claim),
            has_claimed: false,
        }));
        Waiting(())
    }

    /// Shared locks are compatible with each other, so those who ask do not see each other.
    fn is_claimed(&self) -> bool {
        let taken = flock(&self.claim, FlockOperation::NonBlockingLockShared);
        if taken.is_ok() {
            let _ = flock(&self.claim, FlockOperation::Unlock);
        }
        taken == Err(rustix::io::Errno::WOULDBLOCK)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(waits) = WAITING.take()
            && waits.has_claimed
        {
            let _ = flock(&*waits.claim, FlockOperation::Unlock);
        }
    }
}

/// Short pauses instead of SQLite's own, which grow to 100 ms: writers here are done within
/// milliseconds.
pub(super) fn wait_while_busy(tries: i32) -> bool {
    let waited = BUSY_PAUSE * tries.unsigned_abs();
    if waited >= BUSY_LIMIT {
        return false;
    }
    if waited >= PATIENCE {
        claim();
    }
    std::thread::sleep(BUSY_PAUSE.mul_f64(0.5 + fastrand::f64()));
    true
}

/// Claims the next turn for the writer that waits on this thread, unless another has claimed it.
fn claim() {
    WAITING.with_borrow_mut(|waiting| {
        if let Some(waits) = waiting {
            let claimed = flock(&*waits.claim, FlockOperation::NonBlockingLockExclusive);
            waits.has_claimed |= claimed.is_ok();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::mpsc;

    fn turn(path: &Path, yield_max: Duration) -> Turn {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path);
        Turn {
            yield_max,
            ..Turn::new(file.unwrap())
        }
    }

    #[test]
    fn a_writer_that_claims_the_turn_goes_before_those_who_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wake");
        let starving = turn(&path, Duration::MAX);
        let waiting = starving.wait();
        claim();
        let (went, goes) = mpsc::channel();
        let later = std::thread::spawn(move || {
            let later = turn(&path, Duration::MAX);
            assert!(later.is_claimed());
            went.send(()).unwrap();
            drop(later.wait());
            went.send(()).unwrap();
        });
        goes.recv().unwrap();
        assert!(goes.try_recv().is_err());
        drop(waiting);
        goes.recv().unwrap();
        later.join().unwrap();
    }

    #[test]
    fn a_busy_writer_asks_for_claims_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wake");
        let mut busy = turn(&path, Duration::MAX);
        busy.ask_every = Duration::from_hours(1);
        // Nobody has claimed it, so nobody is asked for an hour.
        drop(busy.wait());
        let claimed = std::thread::spawn(move || {
            let starving = turn(&path, Duration::MAX);
            let _waiting = starving.wait();
            claim();
            assert!(busy.is_claimed());
            std::thread::spawn(move || drop(busy.wait()))
                .join()
                .unwrap();
        });
        claimed.join().unwrap();
    }

    #[test]
    fn who_has_not_claimed_the_turn_takes_no_claim_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wake");
        let starving = turn(&path, Duration::MAX);
        let waiting = starving.wait();
        claim();
        let other = turn(&path, Duration::ZERO);
        std::thread::spawn(move || {
            drop(other.wait());
            assert!(other.is_claimed());
        })
        .join()
        .unwrap();
        drop(waiting);
        assert!(!turn(&path, Duration::ZERO).is_claimed());
    }

    #[test]
    fn a_claim_that_is_not_used_keeps_nobody_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wake");
        let frozen = turn(&path, Duration::ZERO);
        let _waiting = frozen.wait();
        claim();
        std::thread::spawn(move || {
            let mut other = turn(&path, Duration::from_millis(1));
            drop(other.wait());
            // The next does not ask again.
            other.yield_max = Duration::MAX;
            drop(other.wait());
        })
        .join()
        .unwrap();
    }
}
