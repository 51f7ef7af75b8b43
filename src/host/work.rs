//! One delivery in its handler's hands.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use super::{ServedQueue, Shared};
use crate::message::Delivery;
use crate::runtime::{Call, Handler, Report};
use crate::verdict::Outcome;

/// How much of the quick threads' time one run may take before it goes on on the patient ones.
const QUICK_MAX: Duration = Duration::from_micros(500);

/// A slot in use. Dropped when the handler has ended or was stopped.
pub(super) struct Slot {
    pub permit: Option<OwnedSemaphorePermit>,
    pub shared: Arc<Shared>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.shared.slots.are_free();
    }
}

/// Runs the handler to its end, or until an operator stops it. The slot goes with the guest, wherever it
/// runs, so that it is free only when the guest has really ended; it comes back unless it was dropped
/// in a panic.
pub(super) async fn run(
    served: &Arc<ServedQueue>,
    handler: &Arc<Handler>,
    delivery: &mut Delivery,
    stop: Arc<Notify>,
    slot: Slot,
) -> (Report, Option<Slot>) {
    let started = Instant::now();
    let nothing_ran = move |outcome| Report::without_guest(outcome, started.elapsed());
    if delivery.expired {
        return (nothing_ran(Outcome::Expired), Some(slot));
    }
    let Some(payload) = delivery.payload.take() else {
        return (nothing_ran(Outcome::PayloadMissing), Some(slot));
    };
    let id = &delivery.claim.id;
    let call = Call {
        sent_at_ms: id.sent_at_ms(),
        id: id.as_str().to_owned(),
        queue: served.queue.as_str().to_owned(),
        payload,
        headers: std::mem::take(&mut delivery.headers),
        attempt: delivery.attempt,
        attempts_max: delivery.attempts_max,
        due_at_ms: delivery.due_at_ms,
    };
    let handler = Arc::clone(handler);
    let work = async move {
        let slot = slot;
        let report = tokio::select! {
            report = handler.run(call) => report,
            () = stop.notified() => nothing_ran(Outcome::Stopped),
        };
        (report, slot)
    };
    let end = work_out(served, Box::pin(AssertUnwindSafe(work).catch_unwind())).await;
    let Some(((report, slot), inside)) = end else {
        let reason = "a bug in dqhost: the host panicked".to_owned();
        return (nothing_ran(Outcome::HostFault { reason }), None);
    };
    let outside = report.duration.saturating_sub(inside);
    served.slots.meter.finished(outside, report.memory);
    (report, Some(slot))
}

/// Polls a run here until it has taken more than its time on these threads. From then on those of low
/// priority poll it to its end, in turn with the long runs of this and of other queues. Comes with the time
/// for which it computed or waited for a core. None when it panicked.
async fn work_out<F, T>(served: &Arc<ServedQueue>, mut work: Pin<Box<F>>) -> Option<(T, Duration)>
where
    F: Future<Output = std::thread::Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let mut spent = Duration::ZERO;
    let quick = poll_fn(|cx| {
        let began = Instant::now();
        let polled = work.as_mut().poll(cx);
        let computed = began.elapsed();
        served.slots.meter.computed(computed);
        spent += computed;
        match polled {
            Poll::Ready(end) => Poll::Ready(Some(end)),
            Poll::Pending if spent > QUICK_MAX => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    if let Some(end) = quick.await {
        return Some((end.ok()?, spent));
    }
    let (mut turn, of) = (served.turns.add_run(), Arc::clone(served));
    let woken = Woken::now();
    let waker = Waker::from(Arc::clone(&woken));
    let rest = poll_fn(move |cx| {
        woken.driver.register(cx.waker());
        ready!(turn.poll(cx));
        let (waited, began) = (woken.goes_on(), Instant::now());
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        turn.end();
        let computed = began.elapsed();
        of.slots.meter.queued(waited);
        of.slots.meter.computed(computed);
        spent += waited + computed;
        // Whoever waits for this core need not wait until the system takes it away.
        std::thread::yield_now();
        polled.map(|end| (end, spent))
    });
    let shared = &served.shared;
    let rest = shared.tasks.spawn_on(rest, &shared.workers.patient);
    // Dropped with this future, which is how a handler is stopped.
    let (end, spent) = AbortOnDropHandle::new(rest).await.ok()?;
    Some((end.ok()?, spent))
}

/// Since when a long run could go on: it waits for a thread in the line of tasks, and then for its turn.
#[derive(Debug)]
struct Woken {
    made_at: Instant,
    /// Nanoseconds after that at which it was woken, and one more; zero if it was not.
    since: AtomicU64,
    /// Wakes the task that drives it.
    driver: AtomicWaker,
}

impl Woken {
    /// It could go on from now on.
    fn now() -> Arc<Self> {
        Arc::new(Self {
            made_at: Instant::now(),
            since: AtomicU64::new(1),
            driver: AtomicWaker::new(),
        })
    }

    /// It goes on now. Returns for how long it could have.
    fn goes_on(&self) -> Duration {
        match self.since.swap(0, SeqCst) {
            0 => Duration::ZERO,
            since => {
                let woken_at = Duration::from_nanos(since - 1);
                self.made_at.elapsed().saturating_sub(woken_at)
            }
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let nanos = u64::try_from(self.made_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = nanos.saturating_add(1);
        // The first counts.
        let _ = self.since.compare_exchange(0, now, SeqCst, SeqCst);
        self.driver.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_from_the_time_at_which_it_is_woken() {
        let woken = Woken::now();
        let waker = Waker::from(Arc::clone(&woken));
        let nap = Duration::from_millis(5);
        std::thread::sleep(nap);
        assert!(woken.goes_on() >= nap);
        std::thread::sleep(nap);
        // Meanwhile it waits for others.
        assert_eq!(woken.goes_on(), Duration::ZERO);
        waker.wake_by_ref();
        std::thread::sleep(nap);
        waker.wake();
        assert!(woken.goes_on() >= nap);
    }
}
