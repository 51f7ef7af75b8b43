//! Ten times a second, while handlers run, each queue gets as many slots as it can use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use super::auto_slots::{AutoSlots, FIRST, Sample, SlotsReason};
use super::queues::{HostQueues, ServedQueue};
use crate::message::QueueName;
use crate::runtime::Handler;

/// How often that is found out.
const EVERY: Duration = Duration::from_millis(100);

/// After so many intervals in which nothing runs, it waits until something does.
const REST_AFTER: u32 = 10;

/// How often at most it is logged of a queue.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// Adjusts the slots of all queues until dropped, if they are no fixed number.
pub(super) async fn keep(queues: Arc<HostQueues>) {
    let slots = &queues.shared.slots;
    let Some(memory) = slots.memory() else {
        return;
    };
    let mut told = Told::default();
    loop {
        slots.were_used.notified().await;
        let mut clock = tokio::time::interval(EVERY);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        clock.tick().await;
        let (mut since, mut idle) = (Instant::now(), 0);
        told.begin(since);
        while idle < REST_AFTER {
            clock.tick().await;
            let elapsed = since.elapsed();
            since += elapsed;
            let all = seen(&queues.current(), elapsed, memory, slots.most());
            let runs = |(_, sample): &(_, Sample)| sample.running > 0 || sample.used > 0;
            idle = if all.iter().any(runs) { 0 } else { idle + 1 };
            for (served, sample) in all {
                served.slots.adjust(|auto| auto.next(&sample));
                told.tell(&served);
            }
        }
        for served in queues.current() {
            served.slots.adjust(AutoSlots::rest);
        }
    }
}

/// What happened in all queues since the last time. Handlers have so many bytes together.
fn seen(
    queues: &[Arc<ServedQueue>],
    elapsed: Duration,
    memory: usize,
    most: usize,
) -> Vec<(Arc<ServedQueue>, Sample)> {
    let handlers: Vec<Arc<Handler>> = queues.iter().map(|served| served.handler.get()).collect();
    let shares = Shares::of(queues, &handlers, memory, most);
    let sample = |(served, handler): (&Arc<ServedQueue>, &Arc<Handler>)| {
        let measured = served.slots.meter.take();
        let (running, in_use) = (served.running().0, handler.memory_in_use());
        let sample = Sample {
            elapsed,
            is_short: measured.is_short || served.slots.wants_slots(),
            used: measured.used,
            running,
            computed: measured.computed,
            queued: measured.queued,
            finished: measured.finished,
            outside: measured.outside,
            store: measured.store,
            memory: measured.memory.max(in_use / running.max(1)),
            memory_max: shares.memory(served.slots.weight(), in_use),
            most: served.slots.most().min(shares.places(handler.places())),
        };
        (Arc::clone(served), sample)
    };
    queues.iter().zip(&handlers).map(sample).collect()
}

/// What queues share beside the slots.
struct Shares {
    memory: usize,
    in_use: usize,
    /// Of all queues.
    weight: usize,
    most: usize,
    /// Queues whose handlers share an engine with fewer places.
    are_scarce: usize,
}

impl Shares {
    fn of(
        queues: &[Arc<ServedQueue>],
        handlers: &[Arc<Handler>],
        memory: usize,
        most: usize,
    ) -> Self {
        let in_use = handlers.iter().map(|handler| handler.memory_in_use());
        let weights = queues.iter().map(|served| served.slots.weight());
        Self {
            memory,
            in_use: in_use.fold(0, usize::saturating_add),
            weight: weights.fold(0, usize::saturating_add),
            most,
            are_scarce: handlers.iter().filter(|one| one.places() < most).count(),
        }
    }

    /// Bytes for a queue that has so many in use: what others leave, and at least its share.
    fn memory(&self, weight: usize, in_use: usize) -> usize {
        let of_others = self.in_use.saturating_sub(in_use);
        let share = self.memory / self.weight.max(1);
        let share = share.saturating_mul(weight);
        self.memory.saturating_sub(of_others).max(share)
    }

    /// Slots for a queue whose handler shares so many places.
    fn places(&self, places: usize) -> usize {
        if places < self.most {
            (places / self.are_scarce.max(1)).max(1)
        } else {
            self.most
        }
    }
}

/// What the log was told of the slots of each queue.
#[derive(Default)]
struct Told(HashMap<QueueName, (usize, Instant)>);

impl Told {
    /// Something runs again. The first seconds are not worth telling, since much changes then.
    fn begin(&mut self, now: Instant) {
        self.0.values_mut().for_each(|(_, at)| *at = now);
    }

    fn tell(&mut self, served: &ServedQueue) {
        let (queue, now) = (&served.queue, Instant::now());
        if let Some(found) = served.slots.found()
            && self.is_news(queue, found, now)
        {
            let (slots, reason) = found;
            tracing::info!(%queue, slots, "slots changed: {}", reason.words());
        }
    }

    /// True if a queue has at least twice or at most half of the slots of which it was told last.
    fn is_news(
        &mut self,
        queue: &QueueName,
        (slots, reason): (usize, SlotsReason),
        now: Instant,
    ) -> bool {
        let (told, at) = self.0.entry(queue.clone()).or_insert((FIRST, now));
        let is_much = slots >= *told * 2 || slots * 2 <= *told;
        let is_time = now.saturating_duration_since(*at) >= TOLD_EVERY;
        // That there is less to do is no news.
        let is_news = is_much && is_time && reason != SlotsReason::Unused;
        if is_news {
            (*told, *at) = (slots, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_the_memory_that_others_leave_and_at_least_its_share() {
        let shares = |in_use| Shares {
            memory: 1200,
            in_use,
            weight: 4,
            most: 1024,
            are_scarce: 2,
        };
        assert_eq!(shares(0).memory(1, 0), 1200);
        assert_eq!(shares(500).memory(1, 100), 800);
        assert_eq!(shares(1200).memory(1, 0), 300);
        assert_eq!(shares(1200).memory(3, 0), 900);
        assert_eq!(shares(0).places(1024), 1024);
        assert_eq!(shares(0).places(389), 194);
    }

    #[test]
    fn it_is_told_when_much_has_changed_and_not_each_time() {
        let (mut told, began) = (Told::default(), Instant::now());
        let queue: QueueName = "q".parse().unwrap();
        let mut is_news = |seconds, slots, reason| {
            let now = began + Duration::from_secs(seconds);
            if seconds == 100 {
                told.begin(now);
            }
            told.is_news(&queue, (slots, reason), now)
        };
        for (seconds, slots, reason, news) in [
            (0, 16, SlotsReason::First, false),
            (1, 64, SlotsReason::Grows, false),
            (6, 64, SlotsReason::Grows, true),
            (20, 127, SlotsReason::Grows, false),
            (20, 128, SlotsReason::Grows, true),
            (22, 10, SlotsReason::Cores, false),
            (26, 10, SlotsReason::Cores, true),
            (40, 1, SlotsReason::Unused, false),
            (100, 1024, SlotsReason::Most, false),
            (105, 1024, SlotsReason::Most, true),
        ] {
            assert_eq!(
                is_news(seconds, slots, reason),
                news,
                "{seconds} s, {slots}"
            );
        }
    }
}
