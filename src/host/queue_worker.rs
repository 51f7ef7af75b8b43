//! One queue of a host, and its part of the loop.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::attempt_span::AttemptSpan;
use super::error_backoff::ErrorBackoff;
use super::finished::Finished;
use super::held::Held;
use super::queues::ServedQueue;
use super::timer::Timer;
use super::unbegun::Begins;
use super::work::{Slot, run};
use super::{events, leases};
use crate::message::{Claim, Delivery, QueueName};
use crate::store::{Advanced, Reservation, Schedule, StoreResult};
use crate::text::printable;
use crate::verdict::Outcome;

/// How long a message is kept that the host could not handle, before it is given back; half as long to
/// half as long again.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The loop of one queue, and what only it knows.
pub(super) struct QueueWorker {
    served: Arc<ServedQueue>,
    results: UnboundedSender<Box<Finished>>,
    schedule: Schedule,
    /// True when messages may wait that no reservation has looked for.
    has_ready: bool,
    /// Whether a limit of the queue holds back what waits.
    held: Held,
    error_backoff: ErrorBackoff,
}

impl QueueWorker {
    pub(super) fn new(served: Arc<ServedQueue>, results: UnboundedSender<Box<Finished>>) -> Self {
        Self {
            schedule: Schedule::new(served.shared.config.poll),
            served,
            results,
            has_ready: true,
            held: Held::default(),
            error_backoff: ErrorBackoff::default(),
        }
    }

    /// The loop, until the host is told to stop.
    pub(super) async fn serve(mut self, mut stopped: watch::Receiver<bool>) {
        let served = Arc::clone(&self.served);
        let shared = &served.shared;
        let timer = Timer::new();
        let hints = shared.store.subscribe(std::slice::from_ref(&served.queue));
        loop {
            self.after_progress();
            let sleep = self.pass().await.min(shared.config.poll);
            served.passes.fetch_add(1, Relaxed);
            let can_reserve = !self.held.is_held() && self.error_backoff.remaining().is_zero();
            let wants_slots = self.has_ready && can_reserve;
            if served.slots.wants_slots.swap(wants_slots, SeqCst) && !wants_slots {
                // Others may have more than their share now.
                shared.slots.are_free();
            }
            served
                .is_idle
                .store(!self.has_ready && !self.schedule.is_due(), SeqCst);
            if *stopped.borrow() {
                return;
            }
            if sleep.is_zero() {
                tokio::task::yield_now().await;
                continue;
            }
            shared.may_be_empty.notify_one();
            tokio::select! {
                () = timer.sleep(sleep) => self.has_ready |= self.held.may_be_settled(),
                () = hints.notified() => self.schedule.hinted(),
                () = served.slots.progress.notified() => {
                    self.has_ready |= self.held.may_be_settled();
                }
                _ = stopped.changed() => {}
            }
        }
    }

    /// A slot became free or results were settled: takes note of what that put back.
    fn after_progress(&mut self) {
        let requeued = self.served.requeued.take();
        self.has_ready |= requeued.waits | self.held.is_over();
        if let Some(at) = requeued.due_at {
            self.schedule.due_by(at);
        }
    }

    /// Takes note of what an advance did.
    fn advanced(&mut self, advanced: &Advanced) {
        if advanced.expired > 0 {
            let queue = &self.served.queue;
            tracing::info!(%queue, "{} leases have expired without an answer; their messages are to be \
                retried, or dead when no retries are left", advanced.expired);
        }
        let served = &self.served;
        events::advanced(&*served.shared.store, &served.queue, advanced);
        // No hint is taken while the store is asked.
        self.schedule.advanced(advanced, self.schedule.hints());
    }

    /// One pass: advance when it is time, reserve as many as there are free slots, start each.
    /// Returns how long nothing more is to be done unless a slot becomes free or a hint comes; an
    /// error pauses this queue and no other.
    async fn pass(&mut self) -> Duration {
        let left = self.error_backoff.remaining();
        if !left.is_zero() {
            return left;
        }
        let result = self.try_pass().await;
        self.served.fails.store(result.is_err(), Relaxed);
        let queue = &self.served.queue;
        match result {
            Ok(was_full) => {
                if self.error_backoff.succeeded() {
                    tracing::info!(%queue, "the store answers again");
                }
                if self.has_ready && was_full {
                    return Duration::ZERO;
                }
                let next = self.schedule.advance_at();
                let next = self.held.until().map_or(next, |until| until.min(next));
                next.saturating_duration_since(Instant::now())
            }
            Err(error) => {
                if self.error_backoff.failed() {
                    tracing::warn!(%queue, "trying again until the store answers: {error}");
                }
                // A look alone comes next, so that nothing is reserved that cannot be moved on.
                self.schedule.failed();
                self.has_ready = false;
                self.error_backoff.remaining()
            }
        }
    }

    /// True when every slot that it could have was filled, so that there may be more.
    async fn try_pass(&mut self) -> StoreResult<bool> {
        let mut is_time = self.schedule.is_due();
        if is_time && !self.schedule.deadline_known() && !self.has_ready {
            self.advance().await?;
            is_time = false;
        }
        if !is_time && (!self.has_ready || self.held.is_held()) {
            return Ok(false);
        }
        if self.held.is_held() {
            return self.advance().await.map(|()| false);
        }
        let served = &self.served;
        served.slots.wants_slots.store(true, SeqCst);
        let slots = &served.shared.slots;
        served.slots.unbegun.looks_again();
        let (running, unsettled) = served.running();
        if let Some(permits) = slots.take(&served.slots, running, unsettled) {
            return self.fill((permits, running), is_time).await;
        }
        if self.has_ready {
            served.slots.meter.is_short();
        }
        if is_time {
            self.advance().await?;
        }
        if self.takes_turns() && (is_time || self.held.has_to_sort()) {
            self.sort().await?;
        }
        Ok(false)
    }

    /// True if the keys of the queue take turns.
    fn takes_turns(&self) -> bool {
        self.served.settings.limits.fair_by().is_some()
    }

    /// Lets the store sort what is in line, so that whose turn it is is known when there is a slot.
    async fn sort(&mut self) -> StoreResult<()> {
        let ServedQueue {
            shared,
            queue,
            settings,
            ..
        } = &*self.served;
        let wanted = Reservation {
            max: 0,
            lease: settings.lease,
            first: self.schedule.first(),
            retries_default: settings.retries_default,
        };
        let store = &shared.store;
        let sorted = store
            .reserve_limited(queue, wanted, &settings.limits)
            .await?;
        self.held.note(sorted.next);
        self.held.note_sorting(sorted.next);
        Ok(())
    }

    async fn advance(&mut self) -> StoreResult<()> {
        let ServedQueue { shared, queue, .. } = &*self.served;
        let advanced = shared.store.advance(queue).await?;
        self.advanced(&advanced);
        // What is set aside for a key is not in line.
        self.has_ready = advanced.waiting || self.served.settings.limits.are_by_key();
        Ok(())
    }

    /// Reserves as many as there are slots, beside so many that run, and starts each, after an advance if it is
    /// time for one. True when all were filled.
    async fn fill(
        &mut self,
        (mut permits, running): (OwnedSemaphorePermit, usize),
        is_time: bool,
    ) -> StoreResult<bool> {
        let served = Arc::clone(&self.served);
        let (shared, queue, lease) = (&served.shared, &served.queue, served.settings.lease);
        let wanted = Reservation {
            max: permits.num_permits(),
            lease,
            first: self.schedule.first(),
            retries_default: served.settings.retries_default,
        };
        let asked_at = Instant::now();
        let (ended, deliveries) = self.ask(wanted, is_time).await?;
        let answered_at = Instant::now();
        served.slots.meter.asked_store(answered_at - asked_at);
        let unused = wanted.max.saturating_sub(deliveries.len());
        drop(permits.split(unused));
        let is_full = deliveries.len() == wanted.max;
        self.has_ready = is_full || ended;
        if answered_at + leases::margin(lease) >= asked_at + lease {
            tracing::warn!(%queue, "the store answered so late that {} leases were almost \
                over; their messages are given back", deliveries.len());
            let claims: Vec<Claim> = deliveries.into_iter().map(|d| d.claim).collect();
            drop(permits);
            shared.slots.are_free();
            shared.store.release(queue, &claims).await?;
            return Ok(false);
        }
        if is_full {
            served.slots.meter.is_short();
        }
        if !deliveries.is_empty() {
            shared
                .slots
                .have_begun(&served.slots, running + deliveries.len());
            let now = unix_now();
            let late = deliveries.iter().filter_map(|one| lateness(one, now));
            served.times.were_late(late);
        }
        served.slots.unbegun.add(deliveries.len());
        for delivery in deliveries {
            // The store gives no more than it was asked for.
            let permit = permits.split(1);
            self.start(delivery, (asked_at, answered_at), permit);
        }
        Ok(is_full || ended)
    }

    /// Reserves, and advances if it is time for that. True when the advance has put messages in line that
    /// the reservation could not see.
    async fn ask(
        &mut self,
        wanted: Reservation,
        is_time: bool,
    ) -> StoreResult<(bool, Vec<Delivery>)> {
        let served = Arc::clone(&self.served);
        let (store, queue) = (&served.shared.store, &served.queue);
        let limits = &served.settings.limits;
        if !limits.is_none() {
            if is_time {
                let advanced = store.advance(queue).await?;
                self.advanced(&advanced);
            }
            let reserved = store.reserve_limited(queue, wanted, limits).await?;
            self.held.note(reserved.next);
            if self.takes_turns() {
                self.held.note_sorting(reserved.next);
            }
            return Ok((false, reserved.deliveries));
        }
        if !is_time {
            return Ok((false, store.reserve(queue, wanted).await?));
        }
        let (advanced, deliveries) = store.advance_and_reserve(queue, wanted).await?;
        self.advanced(&advanced);
        Ok((advanced.expired + advanced.adopted > 0, deliveries))
    }

    /// Starts the handler of one delivery on the worker threads, with the times at which the store was asked and
    /// has answered. The slot is held until the handler has ended, however it ends.
    fn start(
        &self,
        mut delivery: Delivery,
        (asked_at, answered_at): (Instant, Instant),
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let (served, results) = (Arc::clone(&self.served), self.results.clone());
        let shared = Arc::clone(&served.shared);
        let lease = served.settings.lease;
        let (in_flight_id, stop) = served.in_flight.add(&delivery, asked_at, lease);
        log_reserved(&served.queue, &delivery, asked_at);
        events::started(&served, &delivery);
        let slot = Slot {
            permit,
            shared: Arc::clone(&shared),
        };
        let handler = served.handler.get();
        let its_handler = Arc::clone(&handler);
        let begins = Begins::later(&served);
        let task = async move {
            drop(begins);
            let now = Instant::now();
            served.slots.meter.queued(now - answered_at);
            // A machine that is short of processors may come here late. What would outlive its lease is
            // given up by `leases::keep`. If it was renewed, the table knows.
            let margin = leases::margin(lease);
            let is_late = now + margin >= asked_at + lease;
            if is_late && !served.in_flight.has_time(in_flight_id, margin) {
                return;
            }
            let span = AttemptSpan::begin(&served, &mut delivery);
            let (report, slot) = run(&served, &handler, &mut delivery, stop, slot).await;
            if matches!(report.outcome, Outcome::HostBusy { .. }) {
                // With its slot: what the host is short of must not be asked for in a hot loop.
                tokio::time::sleep(BUSY_PAUSE.mul_f64(0.5 + fastrand::f64())).await;
            }
            let span = span.and_then(|span| span.ran(&report, handler.digest()));
            served.times.ended(&report.outcome, report.duration);
            served.shared.totals.refused(report.refused as u64);
            let is_ours = served.in_flight.finished(in_flight_id);
            // Not before: who is woken by it counts what runs.
            drop(slot);
            if !is_ours {
                return;
            }
            let mut finished = Box::new(Finished {
                in_flight_id,
                claim: delivery.claim,
                attempt: delivery.attempt,
                attempts_max: delivery.attempts_max,
                due_at_ms: delivery.due_at_ms,
                report,
                handler,
                settlement: None,
                span,
            });
            finished.decide(&served).await;
            // The receiver outlives every handler; if it is gone the lease expires by itself.
            let _ = results.send(finished);
        };
        let handle = shared.tasks.spawn_on(task, &shared.workers.quick);
        let abort = handle.abort_handle();
        self.served
            .in_flight
            .started(in_flight_id, abort, its_handler);
    }
}

/// Says when the reservation was asked for: the lease began then at the earliest.
fn log_reserved(queue: &QueueName, delivery: &Delivery, asked_at: Instant) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    // The clock first: the time that is told is never later than the request.
    let now = unix_now();
    let asked_at_ms = now.saturating_sub(asked_at.elapsed()).as_millis();
    let id = printable(delivery.claim.id.as_str());
    let (attempt, asked_at_ms) = (delivery.attempt, u64::try_from(asked_at_ms).unwrap_or(0));
    tracing::debug!(%queue, %id, attempt, asked_at_ms, "reserved");
}

fn unix_now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// How long after its due time a delivery comes, by this host's clock; none for what never waited
/// for a time and failed before, or was sent by others.
fn lateness(delivery: &Delivery, now: Duration) -> Option<Duration> {
    let sent = || {
        let first = delivery.attempt == 1;
        delivery.claim.id.sent_at_ms().filter(|_| first)
    };
    let due_ms = delivery.due_at_ms.or_else(sent)?;
    Some(now.saturating_sub(Duration::from_millis(due_ms)))
}
