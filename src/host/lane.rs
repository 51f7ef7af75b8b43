//! One queue of a host, and its part of the loop.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::alarm::Alarm;
use super::pause::Pause;
use super::record::Run;
use super::settle::Finished;
use super::work::{Slot, run};
use super::{Shared, SharedLane, leases, slots};
use crate::message::{Claim, Delivery};
use crate::store::{Advanced, First, Reservation, Settlement, StoreResult};

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
    /// True when it will have: something is due then, or somebody has said so. Otherwise it is the
    /// look that is taken in case that something is not known here.
    expects: bool,
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
            expects: true,
            may_wait: true,
            reservations: 0,
            pause: Pause::default(),
        }
    }

    /// The loop, until the host is told to stop.
    pub(super) async fn serve(mut self, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
        let lane = &shared.lanes[self.index];
        let queues = [lane.queue.clone()];
        let alarm = Alarm::new();
        // One for many rounds: to wait costs the names of channels.
        let mut heard = shared.store.wait(&queues);
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
                () = alarm.sleep(sleep) => {}
                () = &mut heard => {
                    heard = shared.store.wait(&queues);
                    self.look_again();
                }
                () = lane.progress.notified() => {}
                _ = stopped.changed() => {}
            }
        }
    }

    /// Something may have happened that this host does not know of.
    fn look_again(&mut self) {
        self.advance_at = Instant::now();
        self.expects = true;
    }

    /// A slot became free or results were settled: takes the news of what that put back.
    fn after_progress(&mut self, lane: &SharedLane) {
        let news = lane.news.take();
        self.may_wait |= news.waits;
        if let Some(at) = news.due_at
            && at < self.advance_at
        {
            self.advance_at = at;
            self.expects = true;
        }
    }

    /// Takes note of what an advance did.
    fn advanced(&mut self, shared: &Shared, advanced: Advanced) {
        if advanced.expired > 0 {
            let queue = &shared.lanes[self.index].queue;
            tracing::info!(%queue, "{} leases have ended without an answer; their messages are to be \
                retried, or dead when no retries are left", advanced.expired);
        }
        let next_in = if advanced.more {
            Some(Duration::ZERO)
        } else {
            advanced.next_in
        };
        let next_in = next_in.filter(|due| *due < shared.config.poll);
        self.expects = next_in.is_some();
        self.advance_at = Instant::now() + next_in.unwrap_or(shared.config.poll);
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
                // A look alone comes next, so that nothing is reserved that cannot be moved on.
                self.advance_at = Instant::now();
                (self.expects, self.may_wait) = (false, false);
                self.pause.remaining()
            }
        }
    }

    /// True when every slot that it could have was filled, so that there may be more.
    async fn try_pass(&mut self, shared: &Arc<Shared>) -> StoreResult<bool> {
        let lane = &shared.lanes[self.index];
        let mut is_time = self.advance_at <= Instant::now();
        if is_time && !self.expects && !self.may_wait {
            self.advance(shared).await?;
            is_time = false;
        }
        if !self.may_wait && !is_time {
            return Ok(false);
        }
        lane.is_hungry.store(true, SeqCst);
        match slots::take(shared, self.index) {
            Some(permits) => self.fill(shared, permits, is_time).await,
            None if is_time => self.advance(shared).await.map(|()| false),
            None => Ok(false),
        }
    }

    async fn advance(&mut self, shared: &Shared) -> StoreResult<()> {
        let advanced = shared
            .store
            .advance(&shared.lanes[self.index].queue)
            .await?;
        self.advanced(shared, advanced);
        self.may_wait = advanced.waiting;
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
        let queue = &shared.lanes[self.index].queue;
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
        self.may_wait = is_full || ended;
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
