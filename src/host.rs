//! The host: moves messages through the pipeline and runs each in a sandbox.
//!
//! The loop is the specification: advance, reserve as many as there are free slots, run each,
//! settle in batches, wait. Each queue has a loop of its own, so that none waits for what the store
//! does for another. Nothing is reserved without a free slot, so no lease runs while a message waits
//! in memory; a few free slots may have to wait for more of them (`unbegun`). Beside each loop run a task that keeps leases alive and one that settles results. The
//! host has one that tells other hosts of this one, and one that deletes dead letters which are past
//! their retention.
//!
//! After a crash at any point the leases of this host end, and the next `advance` of any host
//! delivers its messages again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::changes::{AllServing, Change};
use self::drain::{StopHandlers, drain};
use self::queues::{HostQueues, ServedQueue};
use self::slots::Slots;
use crate::message::QueueName;
use crate::runtime::Handler;
use crate::spans::Spans;
use crate::store::{
    HOST_SILENCE, HostInfo, Store, StoreError, StoreResult, flush_events, publish_events,
};

mod attempt_span;
mod auto_slots;
mod changes;
mod current_handler;
mod drain;
mod ended;
mod error_backoff;
mod events;
mod finished;
mod held;
mod in_flight;
mod leases;
mod monitor;
mod queue_worker;
mod queues;
mod record;
mod requeued;
mod retention;
mod schedules;
mod settings;
mod settle;
mod slot_keeper;
mod slot_meter;
mod slots;
mod tell;
mod timer;
mod times;
mod totals;
mod turns;
mod unbegun;
mod work;

pub use auto_slots::SlotsReason;
pub use changes::QueueChanger;
pub use current_handler::CurrentHandler;
pub use in_flight::InFlightDelivery;
pub use monitor::{Monitor, QueueMetrics, QueueReport};
pub use settings::QueueSettings;
pub use slots::SlotCount;
pub use times::Quantiles;
pub use totals::Summary;
use totals::Totals;

/// How often a host tells the others of itself.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// How long a host that stops tries to give back what it has in flight. What it cannot give back is
/// delivered again when the lease expires.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// A queue and what handles it.
pub struct Served {
    /// The queue.
    pub queue: QueueName,
    /// Its handler.
    pub handler: Arc<Handler>,
    /// How its messages are handled.
    pub settings: QueueSettings,
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
    pub slots: SlotCount,
    /// How long handlers may finish after it was told to stop.
    pub drain: Duration,
    /// The longest sleep between two looks at the store, for messages that nothing told it of.
    pub poll: Duration,
    /// Stop when nothing waits and nothing is in flight.
    pub exit_when_empty: bool,
    /// Where spans of attempts and of settlements go.
    pub spans: Spans,
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

/// What the queues of a host share.
struct Shared {
    store: Arc<dyn Store>,
    config: HostConfig,
    slots: Slots,
    /// The handlers, to wait for them when stopping.
    tasks: TaskTracker,
    workers: Workers,
    totals: Totals,
    /// Something was settled, or a loop found nothing: the host may be done.
    may_be_empty: Notify,
}

/// A host that is ready to work.
pub struct Host {
    queues: Arc<HostQueues>,
    changes: UnboundedReceiver<Change>,
    sender: UnboundedSender<Change>,
}

impl Host {
    /// A host on this store; handlers run on the threads of `workers`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        served: Vec<Served>,
        config: HostConfig,
        workers: Workers,
    ) -> Self {
        let (cores, worth) = (
            workers.quick.metrics().num_workers(),
            store.reservation_worth(),
        );
        let shared = Shared {
            store,
            slots: Slots::new(config.slots, cores, worth),
            may_be_empty: Notify::new(),
            tasks: TaskTracker::new(),
            totals: Totals::default(),
            config,
            workers,
        };
        let queues = Arc::new(HostQueues::new(shared));
        for one in served {
            queues.add(one);
        }
        let (sender, changes) = unbounded_channel();
        Self {
            queues,
            changes,
            sender,
        }
    }

    /// What shows how it works.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.queues))
    }

    /// What changes its queues and their handlers while it works.
    #[must_use]
    pub fn changer(&self) -> QueueChanger {
        QueueChanger::new(Arc::clone(&self.queues), self.sender.clone())
    }

    /// Serves its queues until told to stop, or until they are empty if that is configured.
    ///
    /// No error of the store ends it: it waits and goes on.
    ///
    /// When the future is dropped, handlers are stopped and nothing more is reserved, renewed or
    /// settled: the messages in flight are delivered again when their leases expire.
    pub async fn run(self, mut stage: watch::Receiver<Stage>) -> Summary {
        let Self {
            queues,
            mut changes,
            sender: _sender,
        } = self;
        let _stop_handlers = StopHandlers(&queues);
        let store = &queues.shared.store;
        store.events().set_host(&queues.shared.config.host_id);
        let _publishing = until_dropped(publish_events(store));
        let _adjusting = until_dropped(slot_keeper::keep(Arc::clone(&queues)));
        let mut serving = AllServing::start(Arc::clone(&queues));
        {
            let until_empty = until_empty(&queues);
            tokio::pin!(until_empty);
            loop {
                tokio::select! {
                    () = reached(&mut stage, Stage::Drain) => break,
                    () = &mut until_empty => break,
                    Some(change) = changes.recv() => serving.change(change),
                }
            }
        }
        // Each loop ends when what it asks of the store is answered, so that no delivery gets lost on its
        // way.
        serving.reserve_no_more().await;
        drain(&queues, &mut stage).await;
        serving.settle_all().await;
        let shared = &queues.shared;
        let (id, names) = (&shared.config.host_id, queues.names());
        let left = names.iter().map(|queue| shared.store.leave(queue, id));
        let _ = tokio::time::timeout(RELEASE_LIMIT, join_all(left)).await;
        flush_events(&**store).await;
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
async fn until_empty(queues: &HostQueues) {
    let shared = &queues.shared;
    if !shared.config.exit_when_empty {
        std::future::pending::<()>().await;
    }
    let mut told = false;
    while !is_empty(queues, &mut told).await {
        // What others have in flight is not told here.
        let _ = tokio::time::timeout(shared.config.poll, shared.may_be_empty.notified()).await;
    }
}

/// True when this host has nothing in flight and the store says that nothing waits anywhere, not
/// even in another host's hands. Says once why the store does not tell.
async fn is_empty(queues: &HostQueues, told: &mut bool) -> bool {
    let (shared, queues) = (&queues.shared, queues.all());
    if queues.is_empty() {
        // Those that were served are gone by a change of the settings, and nothing is known of them.
        return false;
    }
    let is_done = |served: &Arc<ServedQueue>| {
        served.in_flight.count() == 0 && served.is_idle.load(Ordering::SeqCst)
    };
    // Of several queues one may have sent to another that was looked at before.
    for _ in 0..queues.len().min(2) {
        if !queues.iter().all(is_done) {
            return false;
        }
        for served in &queues {
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
    loop {
        let advanced = shared.store.advance(queue).await?;
        events::advanced(&*shared.store, queue, &advanced);
        if !advanced.more {
            return Ok(true);
        }
    }
}

/// What the store itself will not do; whether it can be reached is the loop's to tell.
fn is_refused(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused { .. })
}

/// Tells the other hosts of this one, for what dashboards show.
async fn beat(served: Arc<ServedQueue>, queues: Arc<HostQueues>) {
    let ServedQueue { shared, queue, .. } = &*served;
    let mut told = false;
    let mut clock = tokio::time::interval(HEARTBEAT_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        if served.is_retired() && queues.get(queue).is_some() {
            // Whoever serves the queue now tells of what is in flight here as well.
            return;
        }
        let (running, unsettled) = served.running();
        let info = HostInfo {
            id: shared.config.host_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            handler: served.handler.get().digest().to_owned(),
            slots: shared.slots.count(),
            in_flight: running + unsettled,
        };
        match shared.store.heartbeat(queue, &info, HOST_SILENCE).await {
            Ok(()) => told = false,
            Err(error) if is_refused(&error) && !told => {
                told = true;
                tracing::warn!(%queue, "this host is not shown to others: {error}");
            }
            Err(_) => {}
        }
    }
}
