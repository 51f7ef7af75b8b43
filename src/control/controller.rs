//! The other side of the boundary: reads the store and the host for the dashboard's snapshots, and
//! does what it asks for.
//!
//! Three tasks, so that a store that does not answer keeps none of the others waiting: one reads the
//! store, one does commands in their order, one puts snapshots together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::{
    Channels, Command, IN_FLIGHT_MAX, LoadHandler, LogRing, Notice, OwnHost, Query, QueryResult,
    QueueView, Snapshot, Stage, TaskView, Trial, scan,
};
use crate::host::Monitor;
use crate::message::QueueName;
use crate::store::{Store, StoreResult};

mod commands;
mod notices;
mod read;
mod tasks;
mod trials;
mod undo;

use read::{answer, queue_views};
pub use tasks::pace;

/// How often snapshots of the host itself are made.
const LOCAL_EVERY: Duration = Duration::from_millis(250);

/// What the controller works with.
pub struct Controller {
    /// Where the messages are.
    pub store: Arc<dyn Store>,
    /// The queues to show; none for all that the store knows of. Beside a host they are those that it serves.
    pub queues: Vec<QueueName>,
    /// The host in this process, and what tells it to stop.
    pub host: Option<(Monitor, watch::Sender<Stage>)>,
    /// True when nothing may be changed.
    pub read_only: bool,
    /// What loads a handler to try it; none where that cannot be.
    pub handlers: Option<Arc<dyn LoadHandler>>,
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
    /// A search for what the screen looks at goes on.
    is_searching: bool,
}

/// What the tasks share.
struct Shared {
    controller: Controller,
    part: Mutex<StorePart>,
    query: Mutex<Query>,
    task: Mutex<Option<TaskView>>,
    /// The latest trial of a handler.
    trial: Mutex<Option<Arc<Trial>>>,
    /// The number of the latest trial that was not begun, and why.
    refused_trial: Mutex<Option<(u64, Arc<str>)>>,
    /// Counts up when the long task is to stop.
    task_stops: watch::Sender<u64>,
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
                is_searching: false,
            }),
            query: Mutex::new(Query::Nothing),
            task: Mutex::new(None),
            trial: Mutex::new(None),
            refused_trial: Mutex::new(None),
            task_stops: watch::Sender::new(0),
            undo: Mutex::new(None),
            drained_by: Mutex::new(None),
            read: Notify::new(),
            changed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(read::read(Arc::clone(&shared)));
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

    /// One snapshot, for a single frame, with what the screen then wants to see.
    pub async fn snapshot(self, wants: impl FnOnce(&Snapshot) -> Query) -> StoreResult<Snapshot> {
        let mut snapshot = Snapshot::empty(self.store.describe());
        let (queues, refused) = queue_views(&self, &[], true, 0).await?;
        snapshot.queues = queues;
        snapshot.outage = refused;
        snapshot.read_at = Some(Instant::now());
        snapshot.result = answer(&*self.store, wants(&snapshot)).await?;
        Ok(snapshot)
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
            trial: lock(&shared.trial).clone(),
            refused_trial: lock(&shared.refused_trial).clone(),
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
        *self.task_stops.borrow()
    }

    /// Returns when the task that has begun at this count is to stop.
    async fn stopped(&self, stops: u64) {
        let mut now = self.task_stops.subscribe();
        // The sender is there as long as this is.
        let _ = now.wait_for(|now| *now != stops).await;
    }
}
