//! What a host shows of itself, and what an operator may tell it while it works.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{Shared, Summary};
use crate::message::{MessageId, QueueName};

/// How long a window of measurements lasts. What is shown covers the last window and the current
/// one.
const WINDOW: Duration = Duration::from_secs(30);

/// The longest time that is told from longer ones.
const LONGEST: Duration = Duration::from_hours(24);

/// A view of a running host; a clone is the same one.
#[derive(Clone)]
pub struct Monitor(pub(super) Arc<Shared>);

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
        &self.0.config.host_id
    }

    /// Handlers that it can run at a time.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.0.config.slots
    }

    /// Handlers that run.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.slots() - self.0.slots.available_permits().min(self.slots())
    }

    /// How long handlers may finish when it is told to stop.
    #[must_use]
    pub fn drain(&self) -> Duration {
        self.0.config.drain
    }

    /// What it did so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.0.totals.summary()
    }

    /// Its queues.
    #[must_use]
    pub fn queue_reports(&self) -> Vec<QueueReport> {
        let running = self.0.in_flight.running();
        let report = |(index, served): (usize, &super::ServedQueue)| {
            let (took, late) = served.times.quantiles();
            QueueReport {
                queue: served.queue.clone(),
                handler: served.handler.digest().to_owned(),
                running: running.of(index).0,
                took,
                late,
            }
        };
        self.0.queues.iter().enumerate().map(report).collect()
    }

    /// Up to `max` of the messages in flight, those first that have been there longest.
    #[must_use]
    pub fn in_flight(&self, max: usize) -> Vec<InFlightDelivery> {
        self.0
            .in_flight
            .longest(max, |served| self.0.queues[served].queue.clone())
    }

    /// Stops the handler of one message; its attempt counts as failed. False when no handler of it
    /// runs here.
    #[must_use]
    pub fn stop_handler(&self, queue: &QueueName, id: &MessageId) -> bool {
        let served = self
            .0
            .queues
            .iter()
            .position(|served| served.queue == *queue);
        served.is_some_and(|served| self.0.in_flight.stop(served, id))
    }
}

/// How long things took, over the last window and the current one.
#[derive(Debug)]
pub(super) struct Times(Mutex<Windows>);

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
        Self(Mutex::new(Windows {
            began: Instant::now(),
            took: [empty(), empty()],
            late: [empty(), empty()],
        }))
    }
}

impl Times {
    fn lock(&self) -> MutexGuard<'_, Windows> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub(super) fn took(&self, duration: Duration) {
        self.lock().took[0].saturating_record(micros(duration));
    }

    /// A message was given to its handler so long after it was due.
    pub(super) fn was_late(&self, by: Duration) {
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
        times.took(Duration::from_millis(10));
        let turn = |by| {
            let mut windows = times.0.lock().unwrap();
            windows.began = windows.began.checked_sub(by).unwrap();
        };
        turn(WINDOW);
        times.took(Duration::from_millis(30));
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
}
