//! What a host shows of itself, and what an operator may tell it while it works.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Summary;
use super::auto_slots::SlotsReason;
use super::in_flight::InFlightDelivery;
use super::queues::{HostQueues, ServedQueue};
use super::times::Quantiles;
use crate::message::{MessageId, QueueName};
use crate::metrics::Distribution;

/// A view of a running host; a clone is the same one.
#[derive(Clone)]
pub struct Monitor(pub(super) Arc<HostQueues>);

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
    /// The slots that the host has found for it, and why; none if a number was set.
    pub slots: Option<(usize, SlotsReason)>,
    /// How long handlers took lately.
    pub took: Quantiles,
    /// How long after their due times messages were given to handlers lately, by this host's clock.
    pub late: Quantiles,
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
        self.0.shared.slots.count()
    }

    /// Handlers that run.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.0.shared.slots.busy()
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

    /// How often a message of this queue may be redriven; none for any number, or a queue that is not
    /// served.
    #[must_use]
    pub fn max_redrives(&self, queue: &QueueName) -> Option<u32> {
        self.0.get(queue)?.settings.max_redrives
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
                slots: served.slots.found(),
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
            QueueMetrics {
                queue: served.queue.clone(),
                running: served.running().0,
                slots: served.slots.found().map(|(slots, _)| slots),
                ended: times.ended_by_class(),
                took: times.took(),
                late: times.late(),
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

    /// The queues for which the store did not do what was asked of it last.
    #[must_use]
    pub fn failing(&self) -> Vec<QueueName> {
        let queues = self.0.current();
        let fails = |served: &&Arc<ServedQueue>| served.fails.load(Ordering::Relaxed);
        let failing = queues.iter().filter(fails);
        failing.map(|served| served.queue.clone()).collect()
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
    /// The slots that the host has found for it; none if a number was set.
    pub slots: Option<usize>,
    /// Runs that have ended, by [`Outcome::CLASSES`](crate::verdict::Outcome::CLASSES).
    pub ended: Vec<(&'static str, u64)>,
    /// How long handlers took.
    pub took: Distribution,
    /// How long after their due times messages were given to handlers, by this host's clock.
    pub late: Distribution,
}
