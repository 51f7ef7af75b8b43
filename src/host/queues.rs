//! The queues of a host, and what they share. They may change while it works.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use super::ended::EndedNotes;
use super::in_flight::InFlight;
use super::requeued::Requeued;
use super::slots::SlotUser;
use super::times::Times;
use super::turns::{QueueTurns, Turns};
use super::{CurrentHandler, QueueSettings, Served, Shared};
use crate::message::QueueName;

/// A queue that a host serves, for its loop and the tasks beside it.
pub(super) struct ServedQueue {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: QueueName,
    pub(super) handler: Arc<CurrentHandler>,
    pub(super) settings: QueueSettings,
    pub(super) in_flight: InFlight,
    pub(super) requeued: Requeued,
    pub(super) ended: EndedNotes,
    pub(super) times: Arc<Times>,
    pub(super) slots: Arc<SlotUser>,
    /// Of its long handlers.
    pub(super) turns: Arc<QueueTurns>,
    /// True while nothing of it is known to wait.
    pub(super) is_idle: AtomicBool,
    /// How often its loop went round.
    pub(super) passes: AtomicU64,
    /// True while the store does not do what the loop asks of it.
    pub(super) fails: AtomicBool,
    /// True once it was said that histories cannot be read.
    pub(super) is_history_refused: AtomicBool,
    /// True once it reserves no more: what is in flight ends, and then it is gone.
    is_retired: AtomicBool,
    /// The same queue as it was served before, as long as messages of that time are in flight.
    before: Vec<Weak<Self>>,
}

impl ServedQueue {
    /// Handlers of the queue that run, and results that are not settled yet. Those that began before its
    /// settings changed count as well.
    pub(super) fn running(&self) -> (usize, usize) {
        let before = self.before.iter().filter_map(Weak::upgrade);
        before.fold(self.in_flight.running(), |(running, unsettled), before| {
            let (more, more_unsettled) = before.in_flight.running();
            (running + more, unsettled + more_unsettled)
        })
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }
}

/// The queues of a host, and what they share.
pub(super) struct HostQueues {
    pub(super) shared: Arc<Shared>,
    turns: Arc<Turns>,
    all: RwLock<Vec<Arc<ServedQueue>>>,
}

impl HostQueues {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            turns: Turns::new(shared.workers.patient.metrics().num_workers()),
            shared: Arc::new(shared),
            all: RwLock::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<ServedQueue>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<ServedQueue>>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are served, and those that are retired and still have messages in flight.
    pub(super) fn all(&self) -> Vec<Arc<ServedQueue>> {
        self.read().clone()
    }

    /// Those that are served.
    pub(super) fn current(&self) -> Vec<Arc<ServedQueue>> {
        let all = self.read();
        all.iter()
            .filter(|served| !served.is_retired())
            .cloned()
            .collect()
    }

    /// The queue with this name, if it is served.
    pub(super) fn get(&self, queue: &QueueName) -> Option<Arc<ServedQueue>> {
        let all = self.read();
        let mut current = all.iter().filter(|served| !served.is_retired());
        current.find(|served| served.queue == *queue).cloned()
    }

    /// The names of all of them, each once.
    pub(super) fn names(&self) -> Vec<QueueName> {
        let mut names: Vec<_> = self.read().iter().map(|one| one.queue.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Adds a queue, or one with new settings in place of the one that is retired by this.
    pub(super) fn add(&self, served: Served) -> Arc<ServedQueue> {
        let shared = &self.shared;
        let before = self.retire(&served.queue);
        let handler = if let Some(before) = &before {
            before.handler.replace(served.handler);
            Arc::clone(&before.handler)
        } else {
            let (queue, http) = (served.queue.clone(), shared.workers.http.clone());
            Arc::new(CurrentHandler::new(queue, served.handler, http))
        };
        let slots = before.as_ref().map(|before| &*before.slots);
        let slots = shared.slots.add_user(&served.settings, slots);
        let times = before.as_ref().map(|before| Arc::clone(&before.times));
        let all = self.read();
        let those_before = all.iter().filter(|one| one.queue == served.queue);
        let those_before = those_before.map(Arc::downgrade).collect();
        drop(all);
        let new = Arc::new(ServedQueue {
            shared: Arc::clone(shared),
            queue: served.queue,
            handler,
            in_flight: InFlight::default(),
            requeued: Requeued::default(),
            ended: EndedNotes::default(),
            times: times.unwrap_or_default(),
            slots,
            settings: served.settings,
            turns: self.turns.add_queue(),
            is_idle: AtomicBool::new(false),
            passes: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            is_history_refused: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            before: those_before,
        });
        self.write().push(Arc::clone(&new));
        new
    }

    /// From now on it wants no slots. It is still among all until it is forgotten.
    pub(super) fn retire(&self, queue: &QueueName) -> Option<Arc<ServedQueue>> {
        let served = self.get(queue)?;
        served.is_retired.store(true, Ordering::SeqCst);
        self.shared.slots.remove_user(&served.slots);
        Some(served)
    }

    /// Nothing of it is in flight any more.
    pub(super) fn forget(&self, served: &Arc<ServedQueue>) {
        self.write().retain(|one| !Arc::ptr_eq(one, served));
        self.shared.may_be_empty.notify_one();
    }
}
