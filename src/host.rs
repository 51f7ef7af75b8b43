//! The host: moves messages through the pipeline and runs each in a sandbox.
//!
//! The loop is the specification: advance, reserve as many as there are free slots, run each,
//! settle in batches, wait. Each queue has a loop of its own, so that none waits for what the store
//! does for another. Nothing is reserved without a free slot, so no lease runs while a message waits
//! in memory. Beside the loops run one task that keeps leases alive, one for each queue that settles
//! results, one that tells other hosts of this one, and one that deletes dead letters which are past
//! their retention.
//!
//! After a crash at any point the leases of this host end, and the next `advance` of any host
//! delivers its messages again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::drain::{StopHandlers, drain};
use self::in_flight::InFlight;
use self::queue_worker::{QueueWorker, Requeued};
use crate::message::QueueName;
use crate::runtime::Handler;
use crate::store::{HOST_SILENCE, HostInfo, Retention, Store, StoreError, StoreResult};
use crate::verdict::Backoff;

mod drain;
mod error_backoff;
mod in_flight;
mod leases;
mod monitor;
mod queue_worker;
mod record;
mod retention;
mod settle;
mod slots;
mod timer;
mod totals;
mod turns;
mod work;

use monitor::Times;
pub use monitor::{InFlightDelivery, Monitor, Quantiles, QueueReport};
pub use totals::Summary;
use totals::Totals;
use turns::Turns;

/// How often a host tells the others of itself.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// How long a host that stops tries to give back what it has in flight. What it cannot give back is
/// delivered again when the lease expires.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Results of one queue that may wait for the store, for each slot, before its messages are no
/// longer reserved.
const UNSETTLED_PER_SLOT_MAX: usize = 4;

/// The same, however few slots there are.
const UNSETTLED_MAX: usize = 256;

/// A queue and what handles it.
pub struct Served {
    /// The queue.
    pub queue: QueueName,
    /// Its handler.
    pub handler: Arc<Handler>,
}

/// Where handlers run: threads of their own, so that busy guests delay no renewal. Both kinds drive
/// timers and connections.
#[derive(Debug, Clone)]
pub struct Workers {
    /// Where each run begins, and most end.
    pub quick: tokio::runtime::Handle,
    /// Where runs go on that compute for long: threads of a low priority, so that those which begin
    /// do not wait for them.
    pub patient: tokio::runtime::Handle,
    /// Where HTTP connections of handlers are driven, so that what servers send keeps no handler waiting.
    pub http: tokio::runtime::Handle,
    /// Where results are settled and told of, beside the loops that reserve and keep leases. One
    /// thread, since more would wake each other for nothing.
    pub settling: tokio::runtime::Handle,
}

/// How a host works.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// What it is called in heartbeats and histories: a label.
    pub host_id: String,
    /// Handlers that run at a time, over all queues.
    pub slots: usize,
    /// How long a delivery is this host's, unless renewed.
    pub lease: Duration,
    /// How long handlers may finish after it was told to stop.
    pub drain: Duration,
    /// The longest sleep between two looks at the store, for messages that nothing told it of.
    pub poll: Duration,
    /// What follows a failed attempt that names no delay.
    pub backoff: Backoff,
    /// The retries of messages whose producers recorded none.
    pub retries_default: u32,
    /// Which dead letters of its queues are kept.
    pub retention: Retention,
    /// Stop when nothing waits and nothing is in flight.
    pub exit_when_empty: bool,
}

/// What a host is told to do. It only goes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Work.
    Run,
    /// Reserve nothing more, let handlers finish, then stop.
    Drain,
    /// Stop now: handlers are interrupted and their messages given back.
    Now,
}

/// What the loops and the tasks beside them share of one queue.
struct ServedQueue {
    queue: QueueName,
    handler: Arc<Handler>,
    requeued: Requeued,
    times: Times,
    /// A slot became free or a result was settled: its loop has something to look at.
    progress: Notify,
    /// True while messages of it may wait for a slot.
    wants_slots: AtomicBool,
    /// True while nothing of it is known to wait.
    is_idle: AtomicBool,
}

/// What the loops and the tasks beside them share.
struct Shared {
    store: Arc<dyn Store>,
    queues: Vec<ServedQueue>,
    config: HostConfig,
    in_flight: InFlight,
    slots: Arc<Semaphore>,
    /// The handlers, to wait for them when stopping.
    tasks: TaskTracker,
    workers: Workers,
    /// Of the threads of long handlers.
    turns: Arc<Turns>,
    totals: Totals,
    /// Something was settled, or a loop found nothing: the host may be done.
    may_be_empty: Notify,
}

impl Shared {
    /// Slots became free, or one queue wants no more of them: those that do are told.
    fn slots_are_free(&self) {
        for served in &self.queues {
            if served.wants_slots.load(Ordering::SeqCst) {
                served.progress.notify_one();
            }
        }
    }
}

/// A host that is ready to work.
pub struct Host(Arc<Shared>);

impl Host {
    /// A host on this store; handlers run on the threads of `workers`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        served: Vec<Served>,
        config: HostConfig,
        workers: Workers,
    ) -> Self {
        for Served { queue, handler } in &served {
            handler.serves(queue.as_str(), &workers.http);
        }
        Self(Arc::new(Shared {
            store,
            in_flight: InFlight::default(),
            slots: Arc::new(Semaphore::new(config.slots)),
            may_be_empty: Notify::new(),
            tasks: TaskTracker::new(),
            totals: Totals::default(),
            turns: Turns::new(workers.patient.metrics().num_workers(), served.len()),
            queues: served
                .into_iter()
                .map(|Served { queue, handler }| ServedQueue {
                    queue,
                    handler,
                    requeued: Requeued::default(),
                    times: Times::default(),
                    progress: Notify::new(),
                    wants_slots: AtomicBool::new(true),
                    is_idle: AtomicBool::new(false),
                })
                .collect(),
            config,
            workers,
        }))
    }

    /// What shows how it works.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.0))
    }

    /// Serves its queues until told to stop, or until they are empty if that is configured.
    ///
    /// No error of the store ends it: it waits and goes on.
    ///
    /// When the future is dropped, handlers are stopped and nothing more is reserved, renewed or
    /// settled: the messages in flight are delivered again when their leases expire.
    pub async fn run(self, mut stage: watch::Receiver<Stage>) -> Summary {
        let shared = self.0;
        let _stop_handlers = StopHandlers(&shared);
        let (stop, stopped) = watch::channel(false);
        let (mut loops, mut settlers) = (Vec::new(), Vec::new());
        for index in 0..shared.queues.len() {
            let (sender, receiver) = unbounded_channel();
            let settling = &shared.workers.settling;
            let settler = settling.spawn(settle::settle(Arc::clone(&shared), index, receiver));
            settlers.push(AbortOnDropHandle::new(settler));
            let served = QueueWorker::new(index, sender);
            loops.push(until_dropped(
                served.serve(Arc::clone(&shared), stopped.clone()),
            ));
        }
        let leases = until_dropped(leases::keep(Arc::clone(&shared)));
        let heartbeat = until_dropped(beat(Arc::clone(&shared)));
        let retention = until_dropped(retention::keep_to(Arc::clone(&shared)));

        tokio::select! {
            () = reached(&mut stage, Stage::Drain) => {}
            () = until_empty(&shared) => {}
        }
        // Each ends when what it asks of the store is answered, so that no delivery gets lost on its
        // way.
        stop.send_replace(true);
        for one in loops {
            let _ = one.await;
        }
        drain(&shared, &mut stage).await;
        // Of all queues at a time, so that many take no longer than one when the store is away.
        let _ = tokio::time::timeout(RELEASE_LIMIT, join_all(settlers)).await;
        drop((leases, heartbeat, retention));
        let id = &shared.config.host_id;
        let queues = shared.queues.iter();
        let left = queues.map(|served| shared.store.leave(&served.queue, id));
        let _ = tokio::time::timeout(RELEASE_LIMIT, join_all(left)).await;
        shared.totals.summary()
    }
}

/// A task that ends when the handle is dropped.
fn until_dropped(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Returns when the host is told to go that far; never when nobody is left who could tell it.
async fn reached(stage: &mut watch::Receiver<Stage>, wanted: Stage) {
    if stage.wait_for(|stage| *stage >= wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns when this host is to stop once everything is done, and everything is.
async fn until_empty(shared: &Shared) {
    if !shared.config.exit_when_empty {
        std::future::pending::<()>().await;
    }
    let mut told = false;
    while !is_empty(shared, &mut told).await {
        // What others have in flight is not told here.
        let _ = tokio::time::timeout(shared.config.poll, shared.may_be_empty.notified()).await;
    }
}

/// True when this host has nothing in flight and the store says that nothing waits anywhere, not
/// even in another host's hands. Says once why the store does not tell.
async fn is_empty(shared: &Shared, told: &mut bool) -> bool {
    let is_idle = |served: &ServedQueue| served.is_idle.load(Ordering::SeqCst);
    // Of several queues one may have sent to another that was looked at before.
    for _ in 0..shared.queues.len().min(2) {
        if shared.in_flight.count(None) > 0 || !shared.queues.iter().all(is_idle) {
            return false;
        }
        for served in &shared.queues {
            match is_drained(shared, &served.queue).await {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    if is_refused(&error) && !std::mem::replace(told, true) {
                        let queue = &served.queue;
                        tracing::warn!(%queue, "it is not known whether it is empty: {error}");
                    }
                    return false;
                }
            }
        }
    }
    true
}

async fn is_drained(shared: &Shared, queue: &QueueName) -> StoreResult<bool> {
    let counts = shared.store.counts(queue).await?;
    if !counts.is_drained() {
        return Ok(false);
    }
    // What was on its way to the dead letters arrives there before the host leaves.
    while shared.store.advance(queue).await?.more {}
    Ok(true)
}

/// What the store itself will not do; whether it can be reached is the loop's to tell.
fn is_refused(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused { .. })
}

/// Tells the other hosts of this one, for what dashboards show.
async fn beat(shared: Arc<Shared>) {
    let mut told = vec![false; shared.queues.len()];
    let mut clock = tokio::time::interval(HEARTBEAT_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        for (index, served) in shared.queues.iter().enumerate() {
            let info = HostInfo {
                id: shared.config.host_id.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                handler: served.handler.digest().to_owned(),
                slots: shared.config.slots,
                in_flight: shared.in_flight.count(Some(index)),
            };
            let queue = &served.queue;
            match shared.store.heartbeat(queue, &info, HOST_SILENCE).await {
                Ok(()) => told[index] = false,
                Err(error) if is_refused(&error) && !told[index] => {
                    told[index] = true;
                    tracing::warn!(%queue, "this host is not shown to others: {error}");
                }
                Err(_) => {}
            }
        }
    }
}
