//! What a host shows of itself, and what an operator may tell it while it works.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Summary;
use super::queues::{HostQueues, ServedQueue};
use crate::message::{MessageId, QueueName};
use crate::metrics::{Buckets, Distribution};
use crate::verdict::Outcome;

/// How long a window of measurements lasts. What is shown covers the last window and the current
/// one.
const WINDOW: Duration = Duration::from_secs(30);

/// The longest time that is told from longer ones.
const LONGEST: Duration = Duration::from_hours(24);

/// A view of a running host; a clone is the same one.
#[derive(Clone)]
pub struct Monitor(pub(super) Arc<HostQueues>);

/// A message that this host has in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightDelivery {
    /// Its queue.
    pub queue: QueueName,
    /// The message.
    pub id: MessageId,
    /// 1 on the first delivery.
    pub attempt: u32,
    /// The number of its last attempt.
    pub attempts_max: u32,
    /// When it was reserved.
    pub since: Instant,
    /// When the lease expires at the earliest.
    pub lease_end: Instant,
    /// True once the handler has ended and the result is on its way to the store.
    pub finished: bool,
}

/// What a host knows of one of its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueReport {
    /// The queue.
    pub queue: QueueName,
    /// The SHA-256 of its handler, hexadecimal.
    pub handler: String,
    /// Why the changed file of its handler was refused, until another is taken.
    pub refusal: Option<Arc<str>>,
    /// Handlers of it that run.
    pub running: usize,
    /// How long handlers took lately.
    pub took: Quantiles,
    /// How long after their due times messages were given to handlers lately, by this host's clock.
    pub late: Quantiles,
}

/// How long something took lately; zero when there was nothing to measure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Measurements.
    pub count: u64,
    /// Half of them took no longer.
    pub p50: Duration,
    /// All but one in a hundred took no longer.
    pub p99: Duration,
}

impl Monitor {
    /// The host's label.
    #[must_use]
    pub fn host_id(&self) -> &str {
        &self.0.shared.config.host_id
    }

    /// Handlers that it can run at a time.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.0.shared.config.slots
    }

    /// Handlers that run.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.slots() - self.0.shared.slots.free()
    }

    /// How long handlers may finish when it is told to stop.
    #[must_use]
    pub fn drain(&self) -> Duration {
        self.0.shared.config.drain
    }

    /// What it did so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.0.shared.totals.summary()
    }

    /// Its queues.
    #[must_use]
    pub fn queue_reports(&self) -> Vec<QueueReport> {
        let report = |served: &Arc<ServedQueue>| {
            let (took, late) = served.times.quantiles();
            QueueReport {
                queue: served.queue.clone(),
                handler: served.handler.get().digest().to_owned(),
                refusal: served.handler.refusal(),
                running: served.running().0,
                took,
                late,
            }
        };
        self.0.current().iter().map(report).collect()
    }

    /// What its queues' handlers did since it began.
    #[must_use]
    pub fn queue_metrics(&self) -> Vec<QueueMetrics> {
        let metrics = |served: &Arc<ServedQueue>| {
            let times = &served.times;
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let classes = Outcome::CLASSES.into_iter();
            QueueMetrics {
                queue: served.queue.clone(),
                running: served.running().0,
                ended: classes.zip(times.ended.iter().map(count)).collect(),
                took: times.took.read(),
                late: times.late.read(),
            }
        };
        self.0.current().iter().map(metrics).collect()
    }

    /// How often the loop of each queue went round. While it serves, each goes round at least once a second
    /// when the store answers, and asks it every time that it has to.
    #[must_use]
    pub fn passes(&self) -> HashMap<QueueName, u64> {
        let passes = |served: &Arc<ServedQueue>| served.passes.load(Ordering::Relaxed);
        let queues = self.0.current();
        queues
            .iter()
            .map(|served| (served.queue.clone(), passes(served)))
            .collect()
    }

    /// The queues that it serves.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueName> {
        let queues = self.0.current();
        queues.iter().map(|served| served.queue.clone()).collect()
    }

    /// Up to `max` of the messages in flight, those first that have been there longest.
    #[must_use]
    pub fn in_flight(&self, max: usize) -> Vec<InFlightDelivery> {
        let longest = |served: &Arc<ServedQueue>| served.in_flight.longest(max, &served.queue);
        let mut all: Vec<_> = self.0.all().iter().flat_map(longest).collect();
        all.sort_by_key(|delivery| delivery.since);
        all.truncate(max);
        all
    }

    /// Stops the handler of one message; its attempt counts as failed. False when no handler of it
    /// runs here.
    #[must_use]
    pub fn stop_handler(&self, queue: &QueueName, id: &MessageId) -> bool {
        let queues = self.0.all();
        let mut of_it = queues.iter().filter(|served| served.queue == *queue);
        of_it.any(|served| served.in_flight.stop(id))
    }
}

/// What one queue's handlers did since the host began.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueMetrics {
    /// The queue.
    pub queue: QueueName,
    /// Handlers of it that run.
    pub running: usize,
    /// Runs that have ended, by [`Outcome::CLASSES`].
    pub ended: Vec<(&'static str, u64)>,
    /// How long handlers took.
    pub took: Distribution,
    /// How long after their due times messages were given to handlers, by this host's clock.
    pub late: Distribution,
}

/// How long things took: over the last window and the current one, and since the host began.
#[derive(Debug)]
pub(super) struct Times {
    windows: Mutex<Windows>,
    /// Runs by the place of their class in [`Outcome::CLASSES`].
    ended: [AtomicU64; Outcome::CLASSES.len()],
    took: Buckets,
    late: Buckets,
}

#[derive(Debug)]
struct Windows {
    began: Instant,
    /// Handlers, then lateness; microseconds; the current window, then the one before.
    took: [Histogram<u64>; 2],
    late: [Histogram<u64>; 2],
}

impl Default for Times {
    fn default() -> Self {
        let empty = || {
            let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
            Histogram::new_with_max(longest, 2).expect("the bounds are those that it takes")
        };
        Self {
            windows: Mutex::new(Windows {
                began: Instant::now(),
                took: [empty(), empty()],
                late: [empty(), empty()],
            }),
            ended: Default::default(),
            took: Buckets::new(),
            late: Buckets::new(),
        }
    }
}

impl Times {
    fn lock(&self) -> MutexGuard<'_, Windows> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let age = windows.began.elapsed();
        if age >= WINDOW {
            let Windows { took, late, .. } = &mut *windows;
            for pair in [took, late] {
                pair.swap(0, 1);
                pair[0].reset();
                if age >= WINDOW * 2 {
                    pair[1].reset();
                }
            }
            windows.began = Instant::now();
        }
        windows
    }

    /// A handler has ended.
    pub(super) fn ended(&self, outcome: &Outcome, duration: Duration) {
        let class = outcome.class();
        if let Some(at) = Outcome::CLASSES.iter().position(|other| *other == class) {
            self.ended[at].fetch_add(1, Ordering::Relaxed);
        }
        if *outcome == Outcome::Expired {
            // Nothing ran that took a time.
            return;
        }
        self.took.record(duration);
        self.lock().took[0].saturating_record(micros(duration));
    }

    /// A message was given to its handler so long after it was due.
    pub(super) fn was_late(&self, by: Duration) {
        self.late.record(by);
        self.lock().late[0].saturating_record(micros(by));
    }

    fn quantiles(&self) -> (Quantiles, Quantiles) {
        let windows = self.lock();
        (quantiles(&windows.took), quantiles(&windows.late))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn quantiles([now, before]: &[Histogram<u64>; 2]) -> Quantiles {
    let mut both = now.clone();
    // The two have the same bounds, so nothing is left out.
    let _ = both.add(before);
    let at = |quantile| Duration::from_micros(both.value_at_quantile(quantile));
    Quantiles {
        count: both.len(),
        p50: at(0.5),
        p99: at(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_before_counts_and_older_ones_do_not() {
        let times = Times::default();
        times.ended(&Outcome::Acked, Duration::from_millis(10));
        let turn = |by| {
            let mut windows = times.windows.lock().unwrap();
            windows.began = windows.began.checked_sub(by).unwrap();
        };
        turn(WINDOW);
        times.ended(&Outcome::Stopped, Duration::from_millis(30));
        let (took, late) = times.quantiles();
        assert_eq!((took.count, late.count), (2, 0));
        assert!(
            took.p50.as_millis() == 10 && took.p99.as_millis() >= 30,
            "{took:?}"
        );
        turn(WINDOW);
        assert_eq!(times.quantiles().0.count, 1);
        turn(WINDOW * 2);
        assert_eq!(times.quantiles().0.count, 0);
    }

    #[test]
    fn every_end_is_counted_under_its_class() {
        let times = Times::default();
        let reason = String::new;
        let ends = [
            Outcome::Acked,
            Outcome::Nacked {
                delay: None,
                reason: reason(),
            },
            Outcome::Rejected { reason: reason() },
            Outcome::Trapped { reason: reason() },
            Outcome::Exited {
                ok: true,
                last_words: reason(),
            },
            Outcome::TimedOut {
                limit: Duration::ZERO,
            },
            Outcome::OutOfMemory { limit: 1 },
            Outcome::OutOfStack { limit: 1 },
            Outcome::OverLimit { what: reason() },
            Outcome::SendsRefused,
            Outcome::Stopped,
            Outcome::PayloadMissing,
            Outcome::Expired,
            Outcome::HostBusy { what: "x" },
            Outcome::HostFault { reason: reason() },
        ];
        for end in &ends {
            times.ended(end, Duration::ZERO);
        }
        assert!(
            times
                .ended
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 1)
        );
        assert_eq!(times.took.read().count, ends.len() as u64 - 1);
    }
}
