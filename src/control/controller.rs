//! The other side of the boundary: reads the store and the host for the dashboard's snapshots, and
//! does what it asks for.
//!
//! Three tasks, so that a store that does not answer keeps none of the others waiting: one reads the
//! store, one does commands in their order, one puts snapshots together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::{
    Channels, Command, LogRing, Notice, OwnHost, Query, QueryResult, QueueView, READ_EVERY,
    Snapshot, Stage, TaskView, scan,
};
use crate::host::Monitor;
use crate::message::QueueName;
use crate::store::{HOST_SILENCE, Store, StoreError, StoreResult};

mod commands;
mod notices;
mod tasks;
mod undo;

pub use tasks::pace;

/// Queues that are read each time at most, in turn.
const QUEUES_AT_A_TIME: usize = 2;

/// How often the lists of hosts and of queues are read.
const HOSTS_EVERY: Duration = Duration::from_secs(5);

/// How often what the screen looks at is read again while its queue changes, and while it does not.
/// Looking through many costs more.
const SEEN_EVERY: Duration = Duration::from_secs(2);
const MANY_SEEN_EVERY: Duration = Duration::from_secs(8);
const SEEN_AT_REST_EVERY: Duration = Duration::from_secs(10);

/// How often snapshots of the host itself are made.
const LOCAL_EVERY: Duration = Duration::from_millis(250);

/// Messages in flight that a snapshot carries at most.
const IN_FLIGHT_MAX: usize = 500;

/// What the controller works with.
pub struct Controller {
    /// Where the messages are.
    pub store: Arc<dyn Store>,
    /// The queues to show; none for all that the store knows of.
    pub queues: Vec<QueueName>,
    /// The host in this process, and what tells it to stop.
    pub host: Option<(Monitor, watch::Sender<Stage>)>,
    /// True when nothing may be changed.
    pub read_only: bool,
}

/// What was last read from the store.
#[derive(Debug)]
struct StorePart {
    read_at: Option<Instant>,
    outage: Option<String>,
    queues: Vec<QueueView>,
    result: QueryResult,
    seen_at: Option<Instant>,
    /// A queue has changed since then.
    has_changed: bool,
}

/// What the tasks share.
struct Shared {
    controller: Controller,
    part: Mutex<StorePart>,
    query: Mutex<Query>,
    task: Mutex<Option<TaskView>>,
    /// Counts up when the long task is to stop.
    task_stops: AtomicU64,
    undo: Mutex<Option<undo::Undo>>,
    drained_by: Mutex<Option<Instant>>,
    /// The store is to be read now.
    read: Notify,
    /// Something was read or done.
    changed: Notify,
}

/// Lets the tasks go when dropped.
pub struct ControllerHandle {
    _tasks: JoinSet<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controller {
    /// Starts the tasks.
    #[must_use]
    pub fn open(self, logs: Arc<LogRing>) -> (Channels, ControllerHandle) {
        let (snapshot_in, snapshots) =
            watch::channel(Arc::new(Snapshot::empty(self.store.describe())));
        let (commands, command_out) = mpsc::unbounded_channel();
        let (notice_in, notices) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            controller: self,
            part: Mutex::new(StorePart {
                read_at: None,
                outage: None,
                queues: Vec::new(),
                result: QueryResult::Nothing,
                seen_at: None,
                has_changed: false,
            }),
            query: Mutex::new(Query::Nothing),
            task: Mutex::new(None),
            task_stops: AtomicU64::new(0),
            undo: Mutex::new(None),
            drained_by: Mutex::new(None),
            read: Notify::new(),
            changed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(read(Arc::clone(&shared)));
        tasks.spawn(publish(Arc::clone(&shared), snapshot_in));
        tasks.spawn(commands::work(shared, command_out, notice_in));
        let channels = Channels {
            snapshots,
            commands,
            notices,
            logs,
        };
        (channels, ControllerHandle { _tasks: tasks })
    }

    /// One snapshot, for a single frame.
    pub async fn snapshot(self) -> StoreResult<Snapshot> {
        let mut snapshot = Snapshot::empty(self.store.describe());
        let (queues, refused) = queue_views(&self, &[], true, 0).await?;
        snapshot.queues = queues;
        snapshot.outage = refused;
        snapshot.read_at = Some(Instant::now());
        Ok(snapshot)
    }
}

/// The queues as they stand: of those that are known already, the ones whose turn it is are read
/// again. Without `with_hosts` the hosts are those of `before`. What one queue alone is refused for
/// comes beside them, and the queue as it was known before, if it was.
async fn queue_views(
    controller: &Controller,
    before: &[QueueView],
    with_hosts: bool,
    turn: usize,
) -> StoreResult<(Vec<QueueView>, Option<String>)> {
    let names = match controller.queues.as_slice() {
        [] if with_hosts => controller.store.queues().await?,
        [] => before.iter().map(|queue| queue.name.clone()).collect(),
        names => names.to_vec(),
    };
    let turns = names.len().div_ceil(QUEUES_AT_A_TIME).max(1);
    let mut views = Vec::with_capacity(names.len());
    let mut refused = None;
    for (at, name) in names.into_iter().enumerate() {
        let known = before.iter().find(|queue| queue.name == name);
        if let Some(known) = known.filter(|_| at % turns != turn % turns) {
            views.push(known.clone());
            continue;
        }
        let known_hosts = known.filter(|_| !with_hosts && turns == 1);
        match queue_view(controller, name.clone(), known_hosts).await {
            Ok(view) => views.push(view),
            Err(error @ StoreError::Refused { .. }) => {
                refused = Some(format!("queue {name}: {error}"));
                views.extend(known.cloned());
            }
            Err(error) => return Err(error),
        }
    }
    Ok((views, refused))
}

/// One queue as it stands, with the hosts that are known or those that the store tells of.
async fn queue_view(
    controller: &Controller,
    name: QueueName,
    known_hosts: Option<&QueueView>,
) -> StoreResult<QueueView> {
    let hosts = match known_hosts {
        Some(known) => known.hosts.clone(),
        None => controller.store.hosts(&name, HOST_SILENCE).await?,
    };
    Ok(QueueView {
        overview: controller.store.overview(&name).await?,
        read_at: Instant::now(),
        name,
        hosts,
        report: None,
    })
}

/// Reads the store again and again, at least as often as it is due.
async fn read(shared: Arc<Shared>) {
    let mut hosts_at: Option<Instant> = None;
    for turn in 0_usize.. {
        let with_hosts = hosts_at.is_none_or(|at| at.elapsed() >= HOSTS_EVERY);
        let before = lock(&shared.part).queues.clone();
        let result = queue_views(&shared.controller, &before, with_hosts, turn).await;
        match result {
            Ok((queues, refused)) => {
                // A host that has just begun is there a moment later.
                if with_hosts && queues.iter().any(|queue| !queue.hosts.is_empty()) {
                    hosts_at = Some(Instant::now());
                }
                let changed = before.len() != queues.len()
                    || before
                        .iter()
                        .zip(&queues)
                        .any(|(a, b)| a.overview.counts != b.overview.counts);
                {
                    let mut part = lock(&shared.part);
                    part.queues = queues;
                    part.read_at = Some(Instant::now());
                    part.outage = refused;
                    part.has_changed |= changed;
                }
                if let Err(error) = read_result(&shared).await {
                    let mut part = lock(&shared.part);
                    part.outage = Some(error.to_string());
                    part.has_changed = true;
                }
            }
            Err(error) => lock(&shared.part).outage = Some(error.to_string()),
        }
        shared.changed.notify_one();
        tokio::select! {
            () = tokio::time::sleep(READ_EVERY) => {}
            () = shared.read.notified() => {}
        }
    }
}

/// Reads what the screen looks at, if it is due.
async fn read_result(shared: &Shared) -> StoreResult<()> {
    let query = lock(&shared.query).clone();
    let (is_other, age, changed) = {
        let part = lock(&shared.part);
        (
            part.result.query() != &query,
            part.seen_at.map(|at| at.elapsed()),
            part.has_changed,
        )
    };
    let every = match &query {
        // It costs little, and is what an operator waits for.
        Query::Message { .. } if changed => Duration::ZERO,
        Query::Groups { .. } if changed => MANY_SEEN_EVERY,
        Query::Messages { filter, .. } if changed && !filter.is_empty() => MANY_SEEN_EVERY,
        _ if changed => SEEN_EVERY,
        _ => SEEN_AT_REST_EVERY,
    };
    if !is_other && age.is_some_and(|age| age < every) {
        return Ok(());
    }
    lock(&shared.part).has_changed = false;
    let store = &*shared.controller.store;
    let seen = match &query {
        Query::Nothing => QueryResult::Nothing,
        Query::Messages {
            queue,
            state,
            offset,
            limit,
            filter,
        } => {
            let page = scan::page(store, queue, *state, (*offset, *limit), filter).await?;
            QueryResult::Messages {
                records: Arc::new(page.records),
                more: page.more,
                cut: page.cut,
                query,
            }
        }
        Query::Groups { queue, filter } => {
            let (groups, cut) = scan::groups(store, queue, filter).await?;
            QueryResult::Groups {
                groups: Arc::new(groups),
                cut,
                query,
            }
        }
        Query::Message { queue, id } => {
            let record = store.get(queue, id).await?.map(Arc::new);
            QueryResult::Message { record, query }
        }
    };
    let mut part = lock(&shared.part);
    part.result = seen;
    part.seen_at = Some(Instant::now());
    Ok(())
}

impl QueryResult {
    /// What it answers.
    #[must_use]
    pub fn query(&self) -> &Query {
        match self {
            Self::Nothing => &Query::Nothing,
            Self::Messages { query, .. }
            | Self::Groups { query, .. }
            | Self::Message { query, .. } => query,
        }
    }
}

/// Puts snapshots together when something was read or done, and at a steady pace for what the host
/// in this process does meanwhile.
async fn publish(shared: Arc<Shared>, snapshots: watch::Sender<Arc<Snapshot>>) {
    let mut clock = tokio::time::interval(LOCAL_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        let read = tokio::select! {
            _ = clock.tick() => false,
            () = shared.changed.notified() => true,
        };
        let host = own_host(&shared);
        let task = lock(&shared.task).clone();
        let now = (host.clone(), task.clone());
        // At rest there is nothing to tell.
        if !read && last.as_ref() == Some(&now) {
            continue;
        }
        last = Some(now);
        let (in_flight, queue_reports) = match &shared.controller.host {
            Some((monitor, _)) => (monitor.in_flight(IN_FLIGHT_MAX), monitor.queue_reports()),
            None => (Vec::new(), Vec::new()),
        };
        let part = lock(&shared.part);
        let mut queues = part.queues.clone();
        for queue in &mut queues {
            queue.report = queue_reports
                .iter()
                .find(|report| report.queue == queue.name)
                .cloned();
        }
        snapshots.send_replace(Arc::new(Snapshot {
            store: shared.controller.store.describe(),
            read_at: part.read_at,
            outage: part.outage.clone(),
            queues,
            host,
            in_flight,
            result: part.result.clone(),
            task,
        }));
    }
}

fn own_host(shared: &Shared) -> Option<OwnHost> {
    let (monitor, stage) = shared.controller.host.as_ref()?;
    let stage = *stage.borrow();
    let mut drained_by = lock(&shared.drained_by);
    if stage >= Stage::Drain {
        drained_by.get_or_insert_with(|| Instant::now() + monitor.drain());
    }
    Some(OwnHost {
        id: monitor.host_id().to_owned(),
        slots: monitor.slots(),
        busy: monitor.busy(),
        stage,
        drained_by: *drained_by,
        summary: monitor.summary(),
    })
}

impl Shared {
    /// Reads the store now, what the screen looks at included.
    fn read_again(&self) {
        lock(&self.part).seen_at = None;
        self.read.notify_one();
    }

    fn stops_of_tasks(&self) -> u64 {
        self.task_stops.load(Ordering::Relaxed)
    }
}
