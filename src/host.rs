//! The host: moves messages through the pipeline and runs each in a sandbox.
//!
//! The loop is the specification: advance, reserve as many as there are free slots, run each,
//! settle in batches, wait. Nothing is reserved without a free slot, so no lease runs while a
//! message waits in memory. Beside the loop run one task that keeps leases alive, one for each
//! queue that brings results home, and one that tells other hosts of this one.
//!
//! After a crash at any point the leases of this host end, and the next `advance` of any host
//! delivers its messages again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use self::flights::Flights;
use self::lane::{Lane, News};
use crate::message::{Claim, QueueName};
use crate::runtime::Handler;
use crate::store::{HOST_SILENCE, HostInfo, Settled, Store, StoreResult};
use crate::verdict::Backoff;

mod flights;
mod lane;
mod leases;
mod monitor;
mod pause;
mod record;
mod settle;
mod totals;

use monitor::Times;
pub use monitor::{InHand, LaneReport, Monitor, Quantiles};
pub use totals::Summary;
use totals::Totals;

/// How often a host tells the others of itself.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// How long a host that stops tries to give back what it has in hand. What it cannot give back is
/// delivered again when the lease ends.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Results of one queue that may wait for the store, for each slot, before its messages are no
/// longer reserved.
const UNSETTLED_PER_SLOT_MAX: usize = 4;

/// A queue and what handles it.
pub struct Served {
    /// The queue.
    pub queue: QueueName,
    /// Its handler.
    pub handler: Arc<Handler>,
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
    /// Stop when nothing waits and nothing is in hand.
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

/// What the loop and the tasks beside it share of one queue.
struct SharedLane {
    queue: QueueName,
    handler: Arc<Handler>,
    news: News,
    times: Times,
}

/// What the loop and the tasks beside it share.
struct Shared {
    store: Arc<dyn Store>,
    lanes: Vec<SharedLane>,
    config: HostConfig,
    flights: Flights,
    slots: Arc<Semaphore>,
    /// A slot became free or a result was settled.
    progress: Notify,
    /// The handlers, to wait for them when stopping.
    tasks: TaskTracker,
    /// Where handlers run: threads of their own, so that busy guests delay no renewal.
    workers: tokio::runtime::Handle,
    totals: Totals,
}

/// Stops its task when dropped.
struct Beside(JoinHandle<()>);

impl Drop for Beside {
    fn drop(&mut self) {
        self.0.abort();
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
        workers: tokio::runtime::Handle,
    ) -> Self {
        Self(Arc::new(Shared {
            store,
            flights: Flights::default(),
            slots: Arc::new(Semaphore::new(config.slots)),
            progress: Notify::new(),
            tasks: TaskTracker::new(),
            workers,
            totals: Totals::default(),
            lanes: served
                .into_iter()
                .map(|Served { queue, handler }| SharedLane {
                    queue,
                    handler,
                    news: News::default(),
                    times: Times::default(),
                })
                .collect(),
            config,
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
    pub async fn run(self, mut stage: watch::Receiver<Stage>) -> Summary {
        let shared = self.0;
        let (mut lanes, mut settlers) = (Vec::new(), Vec::new());
        for index in 0..shared.lanes.len() {
            let (sender, receiver) = unbounded_channel();
            settlers.push(tokio::spawn(settle::settle(
                Arc::clone(&shared),
                index,
                receiver,
            )));
            lanes.push(Lane::new(index, sender));
        }
        let leases = Beside(tokio::spawn(leases::keep(Arc::clone(&shared))));
        let heartbeat = Beside(tokio::spawn(beat(Arc::clone(&shared))));

        work(&shared, &mut lanes, &mut stage).await;

        drop(lanes);
        drain(&shared, &mut stage).await;
        for settler in settlers {
            let _ = tokio::time::timeout(RELEASE_LIMIT, settler).await;
        }
        drop((leases, heartbeat));
        for lane in &shared.lanes {
            let leave = shared.store.leave(&lane.queue, &shared.config.host_id);
            let _ = tokio::time::timeout(RELEASE_LIMIT, leave).await;
        }
        shared.totals.summary()
    }
}

/// The loop, until the stage changes or everything is done. Each turn looks at every queue,
/// starting with the one after that which filled a slot last.
async fn work(shared: &Arc<Shared>, lanes: &mut [Lane], stage: &mut watch::Receiver<Stage>) {
    let queues: Vec<QueueName> = shared.lanes.iter().map(|lane| lane.queue.clone()).collect();
    let mut first = 0;
    loop {
        let (mut sleep, mut filled) = (shared.config.poll, None);
        for lane in &mut *lanes {
            lane.after_progress(shared);
        }
        for place in 0..lanes.len() {
            let index = (first + place) % queues.len();
            let free = free_slots(shared, lanes, index);
            sleep = sleep.min(lanes[index].pass(shared, free).await);
            if lanes[index].has_started() {
                filled = Some(index);
            }
        }
        first = filled.map_or(first, |index| index + 1);
        // One may have kept to its share while another looked and found nothing.
        let could_fill = |i: usize| lanes[i].is_hungry() && free_slots(shared, lanes, i) > 0;
        if !sleep.is_zero() && (0..lanes.len()).any(could_fill) {
            sleep = Duration::ZERO;
        }
        if *stage.borrow() != Stage::Run {
            return;
        }
        if shared.config.exit_when_empty && is_empty(shared, lanes).await {
            return;
        }
        if sleep.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(sleep) => {}
            () = shared.store.wait(&queues) => lanes.iter_mut().for_each(Lane::look_again),
            () = shared.progress.notified() => {}
            () = reached(stage, Stage::Drain) => return,
        }
    }
}

/// The slots that a queue may fill now: all that are free, but no more than its equal share while
/// messages of another queue wait; none while so many of its results wait for the store that it
/// would only fill the memory.
fn free_slots(shared: &Shared, lanes: &[Lane], index: usize) -> usize {
    let free = shared.slots.available_permits();
    if free == 0 {
        return 0;
    }
    let (running, unsettled) = shared.flights.running_and_unsettled(index);
    if unsettled > shared.config.slots * UNSETTLED_PER_SLOT_MAX {
        return 0;
    }
    let contended = lanes
        .iter()
        .enumerate()
        .any(|(other, lane)| other != index && lane.is_hungry());
    if !contended {
        return free;
    }
    let share = shared.config.slots.div_ceil(lanes.len());
    free.min(share.saturating_sub(running))
}

/// Returns when the host is told to go that far; never when nobody is left who could tell it.
async fn reached(stage: &mut watch::Receiver<Stage>, wanted: Stage) {
    if stage.wait_for(|stage| *stage >= wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// True when this host has nothing in hand and the store says that nothing waits anywhere, not
/// even in another host's hands.
async fn is_empty(shared: &Shared, lanes: &[Lane]) -> bool {
    if shared.flights.count(None) > 0 || !lanes.iter().all(Lane::is_idle) {
        return false;
    }
    for lane in &shared.lanes {
        match is_drained(shared, &lane.queue).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return false,
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

/// Lets handlers finish, then stops those that have not and gives their messages back, with their
/// attempts.
async fn drain(shared: &Shared, stage: &mut watch::Receiver<Stage>) {
    shared.tasks.close();
    let running = shared.flights.count(None);
    if running > 0 {
        tracing::info!(running, limit = ?shared.config.drain, "waiting for handlers to finish");
        tokio::select! {
            () = shared.tasks.wait() => {}
            () = tokio::time::sleep(shared.config.drain) => {}
            () = reached(stage, Stage::Now) => {}
        }
    }
    let mut given_up = shared.flights.give_up_running();
    // A message is given back only when its handler has really ended.
    if tokio::time::timeout(RELEASE_LIMIT, shared.tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            "a handler has not ended; {} messages wait for their leases to end",
            given_up.len()
        );
        return;
    }
    for (index, lane) in shared.lanes.iter().enumerate() {
        let claims: Vec<Claim> = given_up
            .extract_if(.., |(of, _)| *of == index)
            .map(|(_, claim)| claim)
            .collect();
        if claims.is_empty() {
            continue;
        }
        let release = shared.store.release(&lane.queue, &claims);
        match tokio::time::timeout(RELEASE_LIMIT, release).await {
            Ok(Ok(answers)) => {
                let done = answers
                    .iter()
                    .filter(|answer| **answer == Settled::Done)
                    .count();
                shared.totals.released(done as u64);
                tracing::info!(queue = %lane.queue, "{done} messages given back unhandled");
            }
            Ok(Err(error)) => tracing::warn!(queue = %lane.queue,
                "{} messages could not be given back and wait for their leases to end: {error}",
                claims.len()),
            Err(_) => tracing::warn!(queue = %lane.queue,
                "{} messages could not be given back in time and wait for their leases to end",
                claims.len()),
        }
    }
}

/// Tells the other hosts of this one, for what dashboards show. Errors are left to the loop to
/// tell.
async fn beat(shared: Arc<Shared>) {
    let mut clock = tokio::time::interval(HEARTBEAT_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        for (index, lane) in shared.lanes.iter().enumerate() {
            let info = HostInfo {
                id: shared.config.host_id.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                handler: lane.handler.digest().to_owned(),
                slots: shared.config.slots,
                in_flight: shared.flights.count(Some(index)),
            };
            let _ = shared
                .store
                .heartbeat(&lane.queue, &info, HOST_SILENCE)
                .await;
        }
    }
}
