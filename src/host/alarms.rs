//! Wakes loops at their time. Tokio's own timers count whole milliseconds and wake after the next one,
//! which is later than a message should be.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// One alarm for each loop, and a thread that sleeps until the next of them.
pub(super) struct Alarms {
    shared: Arc<Shared>,
    /// None when the system had no thread for it: then tokio's timers have to do.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    table: Mutex<Table>,
    /// An alarm is set that is earlier than what the thread sleeps for, or it is to end.
    sooner: Condvar,
    bells: Vec<Notify>,
}

#[derive(Debug)]
struct Table {
    at: Vec<Option<Instant>>,
    /// None while it sleeps for nothing.
    asleep_until: Option<Instant>,
    stop: bool,
}

/// An alarm that is set; not any more when it is dropped.
struct Set<'a>(&'a Alarms, usize);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().at[self.1] = None;
    }
}

impl Alarms {
    /// Alarms for so many loops.
    pub(super) fn start(loops: usize) -> Self {
        let shared = Arc::new(Shared {
            table: Mutex::new(Table {
                at: vec![None; loops],
                asleep_until: None,
                stop: false,
            }),
            sooner: Condvar::new(),
            bells: (0..loops).map(|_| Notify::new()).collect(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("alarms".to_owned())
            .spawn(move || of_thread.ring())
            .inspect_err(|error| tracing::warn!("messages may be a millisecond late: {error}"))
            .ok();
        Self { shared, thread }
    }

    /// Returns after this time, or without need before it. Of each loop there is one at a time.
    pub(super) async fn sleep(&self, index: usize, duration: Duration) {
        let Some(at) = Instant::now().checked_add(duration) else {
            return std::future::pending().await;
        };
        if self.thread.is_none() {
            return tokio::time::sleep_until(at.into()).await;
        }
        let _set = self.set(index, at);
        self.shared.bells[index].notified().await;
    }

    fn set(&self, index: usize, at: Instant) -> Set<'_> {
        let mut table = self.shared.lock();
        table.at[index] = Some(at);
        if table.asleep_until.is_none_or(|until| at < until) {
            self.shared.sooner.notify_one();
        }
        Set(self, index)
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.sooner.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's work, until it is to end.
    fn ring(&self) {
        let mut table = self.lock();
        while !table.stop {
            let now = Instant::now();
            for (at, bell) in table.at.iter_mut().zip(&self.bells) {
                if at.is_some_and(|at| at <= now) {
                    *at = None;
                    bell.notify_one();
                }
            }
            table.asleep_until = table.at.iter().flatten().min().copied();
            table = match table.asleep_until {
                None => self
                    .sooner
                    .wait(table)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let woken = self.sooner.wait_timeout(table, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_wakes_at_its_own_time_and_never_before() {
        let alarms = Alarms::start(3);
        let began = Instant::now();
        let sleep = async |index: usize, ms: u64| {
            let limit = Duration::from_millis(ms);
            alarms.sleep(index, limit).await;
            assert!(began.elapsed() >= limit);
            index
        };
        // The second is set while the thread sleeps for the first; the third has no end.
        tokio::select! {
            biased;
            _ = sleep(0, 60_000) => panic!("a minute cannot be over"),
            () = alarms.sleep(2, Duration::MAX) => panic!("this has no end"),
            index = sleep(1, 5) => assert_eq!(index, 1),
        }
        assert_eq!(sleep(0, 1).await, 0);
    }
}
