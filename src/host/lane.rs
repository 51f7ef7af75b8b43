//! One queue of a host, and its part of the loop.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio_util::task::AbortOnDropHandle;

use super::pause::Pause;
use super::record::Run;
use super::settle::Finished;
use super::{Shared, SharedLane, leases, slots};
use crate::message::{Claim, Delivery};
use crate::runtime::{Call, Report};
use crate::store::{First, Reservation, Settlement, StoreResult};
use crate::verdict::Outcome;

/// How much of the quick threads' time one run may take before it goes on on the patient ones.
const QUICK_MAX: Duration = Duration::from_micros(500);

/// What settlements have put back into a queue since the loop last looked.
#[derive(Debug, Default)]
pub(super) struct News(Mutex<Return>);

/// When what was put back is due.
#[derive(Debug, Default)]
struct Return {
    /// Some of it waits for a slot already.
    waits: bool,
    /// When `advance` has something to do for the earliest of the rest.
    due_at: Option<Instant>,
}

impl News {
    /// Notes a settlement that took effect; `last` when no attempt is left after it.
    pub(super) fn settled(&self, settlement: &Settlement, last: bool) {
        let due_in = match settlement {
            Settlement::Ack { .. } => return,
            Settlement::Nack { delay, .. } if !last => delay.unwrap_or_default(),
            // To be buried.
            Settlement::Nack { .. } | Settlement::Reject { .. } => Duration::ZERO,
        };
        let mut news = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due_at = Instant::now() + due_in;
        news.waits |= due_in.is_zero();
        news.due_at = Some(news.due_at.map_or(due_at, |at| at.min(due_at)));
    }

    fn take(&self) -> Return {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the loop of one queue knows.
pub(super) struct Lane {
    index: usize,
    finished: UnboundedSender<Finished>,
    /// When `advance` may have something to do.
    advance_at: Instant,
    /// True when messages may wait that no reservation has looked for.
    may_wait: bool,
    reservations: u32,
    pause: Pause,
}

impl Lane {
    pub(super) fn new(index: usize, finished: UnboundedSender<Finished>) -> Self {
        Self {
            index,
            finished,
            advance_at: Instant::now(),
            may_wait: true,
            reservations: 0,
            pause: Pause::default(),
        }
    }

    /// The loop, until the host is told to stop.
    pub(super) async fn serve(mut self, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
        let lane = &shared.lanes[self.index];
        let queues = [lane.queue.clone()];
        loop {
            self.after_progress(lane);
            let sleep = self.pass(&shared).await.min(shared.config.poll);
            let is_hungry = self.may_wait && self.pause.remaining().is_zero();
            if lane.is_hungry.swap(is_hungry, SeqCst) && !is_hungry {
                // Others may have more than their share now.
                shared.slots_are_free();
            }
            lane.is_idle
                .store(!self.may_wait && self.advance_at > Instant::now(), SeqCst);
            if *stopped.borrow() {
                return;
            }
            if sleep.is_zero() {
                tokio::task::yield_now().await;
                continue;
            }
            shared.may_be_empty.notify_one();
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = shared.store.wait(&queues) => self.look_again(),
                () = lane.progress.notified() => {}
                _ = stopped.changed() => {}
            }
        }
    }

    /// Something may have happened that this host does not know of.
    fn look_again(&mut self) {
        self.advance_at = Instant::now();
        self.may_wait = true;
    }

    /// A slot became free or results were settled: takes the news of what that put back.
    fn after_progress(&mut self, lane: &SharedLane) {
        let news = lane.news.take();
        self.may_wait |= news.waits;
        if let Some(at) = news.due_at {
            self.advance_at = self.advance_at.min(at);
        }
    }

    /// One pass: advance when it is time, reserve as many as there are free slots, start each.
    /// Returns how long nothing more is to be done unless a slot becomes free or a hint comes; an
    /// error pauses this queue and no other.
    async fn pass(&mut self, shared: &Arc<Shared>) -> Duration {
        let left = self.pause.remaining();
        if !left.is_zero() {
            return left;
        }
        let queue = &shared.lanes[self.index].queue;
        match self.try_pass(shared).await {
            Ok(was_full) => {
                if self.pause.succeeded() {
                    tracing::info!(%queue, "the store answers again");
                }
                if self.may_wait && was_full {
                    return Duration::ZERO;
                }
                self.advance_at.saturating_duration_since(Instant::now())
            }
            Err(error) => {
                if self.pause.failed() {
                    tracing::warn!(%queue, "trying again until the store answers: {error}");
                }
                self.look_again();
                self.pause.remaining()
            }
        }
    }

    /// True when every slot that it could have was filled, so that there may be more.
    async fn try_pass(&mut self, shared: &Arc<Shared>) -> StoreResult<bool> {
        let queue = &shared.lanes[self.index].queue;
        if self.advance_at <= Instant::now() {
            let advanced = shared.store.advance(queue).await?;
            let next_in = if advanced.more {
                Duration::ZERO
            } else {
                shared.config.poll
            };
            let next_in = advanced.next_in.map_or(next_in, |due| due.min(next_in));
            self.advance_at = Instant::now() + next_in;
            self.may_wait = true;
        }
        if !self.may_wait {
            return Ok(false);
        }
        shared.lanes[self.index].is_hungry.store(true, SeqCst);
        let Some(mut permits) = slots::take(shared, self.index) else {
            return Ok(false);
        };
        self.reservations = self.reservations.wrapping_add(1);
        let wanted = Reservation {
            max: permits.num_permits(),
            lease: shared.config.lease,
            first: First::in_turn(self.reservations),
            retries_default: shared.config.retries_default,
        };
        let asked_at = Instant::now();
        let deliveries = shared.store.reserve(queue, wanted).await?;
        let unused = wanted.max.saturating_sub(deliveries.len());
        drop(permits.split(unused));
        self.may_wait = deliveries.len() == wanted.max;
        let kept_until = asked_at + shared.config.lease;
        if Instant::now() + leases::margin(shared.config.lease) >= kept_until {
            tracing::warn!(%queue, "the store answered so late that {} leases were almost \
                over; their messages are given back", deliveries.len());
            let claims: Vec<Claim> = deliveries.into_iter().map(|d| d.claim).collect();
            drop(permits);
            shared.slots_are_free();
            shared.store.release(queue, &claims).await?;
            return Ok(false);
        }
        for delivery in deliveries {
            // The store gives no more than it was asked for.
            let permit = permits.split(1);
            self.start(shared, delivery, asked_at, permit);
        }
        Ok(self.may_wait)
    }

    /// Starts the handler of one delivery on the worker threads. The slot is held until the
    /// handler has ended, however it ends.
    fn start(
        &self,
        shared: &Arc<Shared>,
        delivery: Delivery,
        asked_at: Instant,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let claim = delivery.claim.clone();
        let lease = shared.config.lease;
        let (flight, stop) = shared.flights.add(self.index, &delivery, asked_at, lease);
        if let Some(late) = lateness(&delivery) {
            shared.lanes[self.index].times.was_late(late);
        }
        let slot = Slot {
            permit,
            shared: Arc::clone(shared),
        };
        let (lane, finished) = (self.index, self.finished.clone());
        let shared_in_task = Arc::clone(shared);
        let task = async move {
            let (attempt, attempts_max) = (delivery.attempt, delivery.attempts_max);
            let (mut report, slot) = run(&shared_in_task, lane, delivery, (stop, slot)).await;
            shared_in_task.lanes[lane].times.took(report.duration);
            shared_in_task.totals.refused(report.refused as u64);
            let is_ours = shared_in_task.flights.finished(flight);
            // Not before: who is woken by it counts what runs.
            drop(slot);
            if !is_ours {
                return;
            }
            let outbox = std::mem::take(&mut report.outbox);
            let run = Run {
                flight,
                attempt,
                attempts_max,
                report,
            };
            // The receiver outlives every handler; if it is gone the lease ends by itself.
            let _ = finished.send(Finished::new(&shared_in_task, lane, claim, run, outbox));
        };
        let handle = shared.tasks.spawn_on(task, &shared.workers.quick);
        shared.flights.started(flight, handle.abort_handle());
    }
}

/// A slot in use. Dropped when the handler has ended or was stopped.
struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.shared.slots_are_free();
    }
}

/// How long after its due time a delivery comes, by this host's clock; none for what never waited
/// for a time and failed before, or was sent by others.
fn lateness(delivery: &Delivery) -> Option<Duration> {
    let sent = || {
        let first = delivery.attempt == 1;
        delivery.claim.id.sent_at_ms().filter(|_| first)
    };
    let due_ms = delivery.due_at_ms.or_else(sent)?;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()?;
    Some(now.saturating_sub(Duration::from_millis(due_ms)))
}

/// Runs the handler to its end, or until a person stops it. The slot goes with the guest, wherever it
/// runs, so that it is free only when the guest has really ended; it comes back unless it was dropped
/// in a panic.
async fn run(
    shared: &Shared,
    lane: usize,
    delivery: Delivery,
    (stop, slot): (Arc<Notify>, Slot),
) -> (Report, Option<Slot>) {
    let lane = &shared.lanes[lane];
    let started = Instant::now();
    let nothing_ran = move |outcome| Report::without_guest(outcome, started.elapsed());
    let Some(payload) = delivery.payload else {
        return (nothing_ran(Outcome::PayloadMissing), Some(slot));
    };
    let id = delivery.claim.id;
    let call = Call {
        sent_at_ms: id.sent_at_ms(),
        id: id.to_string(),
        queue: lane.queue.to_string(),
        payload,
        headers: delivery.headers,
        attempt: delivery.attempt,
        attempts_max: delivery.attempts_max,
        due_at_ms: delivery.due_at_ms,
    };
    let handler = Arc::clone(&lane.handler);
    let work = async move {
        let slot = slot;
        let report = tokio::select! {
            report = handler.run(call) => report,
            () = stop.notified() => nothing_ran(Outcome::Stopped),
        };
        (report, slot)
    };
    let end = work_out(shared, Box::pin(AssertUnwindSafe(work).catch_unwind())).await;
    let Some((report, slot)) = end else {
        let reason = "a bug in dqhost: the host panicked".to_owned();
        return (nothing_ran(Outcome::HostFault { reason }), None);
    };
    (report, Some(slot))
}

/// Polls a run here until it has taken more than its time on these threads, then to its end on those
/// of low priority. None when it panicked.
async fn work_out<F, T>(shared: &Shared, mut work: Pin<Box<F>>) -> Option<T>
where
    F: Future<Output = std::thread::Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let mut spent = Duration::ZERO;
    let quick = poll_fn(|cx| {
        let began = Instant::now();
        match work.as_mut().poll(cx) {
            Poll::Ready(end) => Poll::Ready(Some(end)),
            Poll::Pending => {
                spent += began.elapsed();
                if spent > QUICK_MAX {
                    Poll::Ready(None)
                } else {
                    Poll::Pending
                }
            }
        }
    });
    if let Some(end) = quick.await {
        return end.ok();
    }
    let rest = poll_fn(move |cx| {
        let polled = work.as_mut().poll(cx);
        // Whoever waits for this core need not wait until the system takes it away.
        std::thread::yield_now();
        polled
    });
    let rest = shared.tasks.spawn_on(rest, &shared.workers.patient);
    // Dropped with this future, which is how a handler is stopped.
    AbortOnDropHandle::new(rest).await.ok()?.ok()
}
