//! One queue of a host, and its part of the loop.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::error_backoff::ErrorBackoff;
use super::record::Run;
use super::settle::Finished;
use super::timer::Timer;
use super::work::{Slot, run};
use super::{ServedQueue, Shared, leases, slots};
use crate::message::{Claim, Delivery};
use crate::store::{Advanced, First, Reservation, Settlement, StoreResult};
use crate::verdict::Outcome;

/// How long a message is kept that the host could not handle, before it is given back; half as long to
/// half as long again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// What settlements have put back into a queue since the loop last looked.
#[derive(Debug, Default)]
pub(super) struct Requeued(Mutex<RequeuedDue>);

/// When what was put back is due.
#[derive(Debug, Default)]
struct RequeuedDue {
    /// Some of it waits for a slot already.
    waits: bool,
    /// When `advance` has something to do for the earliest of the rest.
    due_at: Option<Instant>,
}

impl Requeued {
    /// Notes a settlement that took effect; `last` when no attempt is left after it.
    pub(super) fn settled(&self, settlement: &Settlement, last: bool) {
        let due_in = match settlement {
            Settlement::Ack { .. } => return,
            Settlement::Nack { delay, .. } if !last => delay.unwrap_or_default(),
            // To become a dead letter.
            Settlement::Nack { .. } | Settlement::Reject { .. } => Duration::ZERO,
        };
        let mut requeued = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due_at = Instant::now() + due_in;
        requeued.waits |= due_in.is_zero();
        requeued.due_at = Some(requeued.due_at.map_or(due_at, |at| at.min(due_at)));
    }

    /// Notes a message that was given back: it waits for a slot.
    pub(super) fn released(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).waits = true;
    }

    fn take(&self) -> RequeuedDue {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the loop of one queue knows.
pub(super) struct QueueWorker {
    index: usize,
    finished: UnboundedSender<Finished>,
    /// When `advance` may have something to do.
    advance_at: Instant,
    /// True when it will have: something is due then, or somebody has said so. Otherwise it is the
    /// look that is taken in case that something is not known here.
    deadline_known: bool,
    /// True when messages may wait that no reservation has looked for.
    has_ready: bool,
    reservations: u32,
    error_backoff: ErrorBackoff,
}

impl QueueWorker {
    pub(super) fn new(index: usize, finished: UnboundedSender<Finished>) -> Self {
        Self {
            index,
            finished,
            advance_at: Instant::now(),
            deadline_known: true,
            has_ready: true,
            reservations: 0,
            error_backoff: ErrorBackoff::default(),
        }
    }

    /// The loop, until the host is told to stop.
    pub(super) async fn serve(mut self, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
        let served = &shared.queues[self.index];
        let queues = [served.queue.clone()];
        let timer = Timer::new();
        // One for many rounds: to wait costs the names of channels.
        let mut notified = shared.store.wait(&queues);
        loop {
            self.after_progress(served);
            let sleep = self.pass(&shared).await.min(shared.config.poll);
            let wants_slots = self.has_ready && self.error_backoff.remaining().is_zero();
            if served.wants_slots.swap(wants_slots, SeqCst) && !wants_slots {
                // Others may have more than their share now.
                shared.slots_are_free();
            }
            served
                .is_idle
                .store(!self.has_ready && self.advance_at > Instant::now(), SeqCst);
            if *stopped.borrow() {
                return;
            }
            if sleep.is_zero() {
                tokio::task::yield_now().await;
                continue;
            }
            shared.may_be_empty.notify_one();
            tokio::select! {
                () = timer.sleep(sleep) => {}
                () = &mut notified => {
                    notified = shared.store.wait(&queues);
                    self.look_again();
                }
                () = served.progress.notified() => {}
                _ = stopped.changed() => {}
            }
        }
    }

    /// Something may have happened that this host does not know of.
    fn look_again(&mut self) {
        self.advance_at = Instant::now();
        self.deadline_known = true;
    }

    /// A slot became free or results were settled: takes note of what that put back.
    fn after_progress(&mut self, served: &ServedQueue) {
        let requeued = served.requeued.take();
        self.has_ready |= requeued.waits;
        if let Some(at) = requeued.due_at
            && at < self.advance_at
        {
            self.advance_at = at;
            self.deadline_known = true;
        }
    }

    /// Takes note of what an advance did.
    fn advanced(&mut self, shared: &Shared, advanced: Advanced) {
        if advanced.expired > 0 {
            let queue = &shared.queues[self.index].queue;
            tracing::info!(%queue, "{} leases have expired without an answer; their messages are to be \
                retried, or dead when no retries are left", advanced.expired);
        }
        let next_in = if advanced.more {
            Some(Duration::ZERO)
        } else {
            advanced.next_in
        };
        let next_in = next_in.filter(|due| *due < shared.config.poll);
        self.deadline_known = next_in.is_some();
        self.advance_at = Instant::now() + next_in.unwrap_or(shared.config.poll);
    }

    /// One pass: advance when it is time, reserve as many as there are free slots, start each.
    /// Returns how long nothing more is to be done unless a slot becomes free or a hint comes; an
    /// error pauses this queue and no other.
    async fn pass(&mut self, shared: &Arc<Shared>) -> Duration {
        let left = self.error_backoff.remaining();
        if !left.is_zero() {
            return left;
        }
        let queue = &shared.queues[self.index].queue;
        match self.try_pass(shared).await {
            Ok(was_full) => {
                if self.error_backoff.succeeded() {
                    tracing::info!(%queue, "the store answers again");
                }
                if self.has_ready && was_full {
                    return Duration::ZERO;
                }
                self.advance_at.saturating_duration_since(Instant::now())
            }
            Err(error) => {
                if self.error_backoff.failed() {
                    tracing::warn!(%queue, "trying again until the store answers: {error}");
                }
                // A look alone comes next, so that nothing is reserved that cannot be moved on.
                self.advance_at = Instant::now();
                (self.deadline_known, self.has_ready) = (false, false);
                self.error_backoff.remaining()
            }
        }
    }

    /// True when every slot that it could have was filled, so that there may be more.
    async fn try_pass(&mut self, shared: &Arc<Shared>) -> StoreResult<bool> {
        let served = &shared.queues[self.index];
        let mut is_time = self.advance_at <= Instant::now();
        if is_time && !self.deadline_known && !self.has_ready {
            self.advance(shared).await?;
            is_time = false;
        }
        if !self.has_ready && !is_time {
            return Ok(false);
        }
        served.wants_slots.store(true, SeqCst);
        match slots::take(shared, self.index) {
            Some(permits) => self.fill(shared, permits, is_time).await,
            None if is_time => self.advance(shared).await.map(|()| false),
            None => Ok(false),
        }
    }

    async fn advance(&mut self, shared: &Shared) -> StoreResult<()> {
        let advanced = shared
            .store
            .advance(&shared.queues[self.index].queue)
            .await?;
        self.advanced(shared, advanced);
        self.has_ready = advanced.waiting;
        Ok(())
    }

    /// Reserves as many as there are slots and starts each, after an advance if it is time for one.
    /// True when all were filled.
    async fn fill(
        &mut self,
        shared: &Arc<Shared>,
        mut permits: OwnedSemaphorePermit,
        is_time: bool,
    ) -> StoreResult<bool> {
        let queue = &shared.queues[self.index].queue;
        self.reservations = self.reservations.wrapping_add(1);
        let wanted = Reservation {
            max: permits.num_permits(),
            lease: shared.config.lease,
            first: First::in_turn(self.reservations),
            retries_default: shared.config.retries_default,
        };
        let asked_at = Instant::now();
        let (ended, deliveries) = if is_time {
            let (advanced, deliveries) = shared.store.advance_and_reserve(queue, wanted).await?;
            self.advanced(shared, advanced);
            (advanced.expired + advanced.adopted > 0, deliveries)
        } else {
            (false, shared.store.reserve(queue, wanted).await?)
        };
        let unused = wanted.max.saturating_sub(deliveries.len());
        drop(permits.split(unused));
        let is_full = deliveries.len() == wanted.max;
        self.has_ready = is_full || ended;
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
        Ok(is_full || ended)
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
        let (in_flight_id, stop) = shared.in_flight.add(self.index, &delivery, asked_at, lease);
        if let Some(late) = lateness(&delivery) {
            shared.queues[self.index].times.was_late(late);
        }
        let slot = Slot {
            permit,
            shared: Arc::clone(shared),
        };
        let (served, finished) = (self.index, self.finished.clone());
        let shared_in_task = Arc::clone(shared);
        let task = async move {
            let (attempt, attempts_max) = (delivery.attempt, delivery.attempts_max);
            let (mut report, slot) = run(&shared_in_task, served, delivery, (stop, slot)).await;
            if matches!(report.outcome, Outcome::HostBusy { .. }) {
                // With its slot: what the host is short of must not be asked for in a hot loop.
                tokio::time::sleep(BUSY_PAUSE.mul_f64(0.5 + fastrand::f64())).await;
            }
            shared_in_task.queues[served].times.took(report.duration);
            shared_in_task.totals.refused(report.refused as u64);
            let is_ours = shared_in_task.in_flight.finished(in_flight_id);
            // Not before: who is woken by it counts what runs.
            drop(slot);
            if !is_ours {
                return;
            }
            let outbox = std::mem::take(&mut report.outbox);
            let run = Run {
                in_flight_id,
                attempt,
                attempts_max,
                report,
            };
            // The receiver outlives every handler; if it is gone the lease expires by itself.
            let _ = finished.send(Finished::new(&shared_in_task, served, claim, run, outbox));
        };
        let handle = shared.tasks.spawn_on(task, &shared.workers.quick);
        shared
            .in_flight
            .started(in_flight_id, handle.abort_handle());
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
