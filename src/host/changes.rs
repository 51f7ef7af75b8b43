//! Serves the queues of a host, and changes them while it works.
//!
//! A queue whose settings change is served anew: its loop reserves no more, and another begins with the new
//! settings. What is in flight ends under the settings that it began with, and its leases are kept until
//! then. Nothing of this is in the store, so a crash leaves nothing to repair.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::queue_worker::QueueWorker;
use super::queues::{HostQueues, ServedQueue};
use super::{
    CurrentHandler, QueueSettings, RELEASE_LIMIT, Served, beat, leases, retention, schedules,
    settle, until_dropped,
};
use crate::message::QueueName;

/// What is to be different.
pub(super) enum Change {
    /// Serve this queue, or serve it with these settings.
    Serve(Box<Served>),
    /// Serve this queue no longer.
    Retire(QueueName),
}

/// Changes the queues of a host and their handlers while it works.
#[derive(Clone)]
pub struct QueueChanger {
    queues: Arc<HostQueues>,
    changes: UnboundedSender<Change>,
}

impl QueueChanger {
    pub(super) fn new(queues: Arc<HostQueues>, changes: UnboundedSender<Change>) -> Self {
        Self { queues, changes }
    }

    /// The handler of a queue, if it is served.
    #[must_use]
    pub fn handler(&self, queue: &QueueName) -> Option<Arc<CurrentHandler>> {
        let served = self.queues.get(queue)?;
        Some(Arc::clone(&served.handler))
    }

    /// How a queue is served, if it is.
    #[must_use]
    pub fn settings(&self, queue: &QueueName) -> Option<QueueSettings> {
        self.queues.get(queue).map(|served| served.settings.clone())
    }

    /// Serves a queue from now on, or serves it with other settings. What is in flight ends under those that
    /// it began with. A host that is stopping changes nothing any more.
    pub fn serve(&self, served: Served) {
        let _ = self.changes.send(Change::Serve(Box::new(served)));
    }

    /// Serves a queue no longer. What is in flight ends.
    pub fn retire(&self, queue: QueueName) {
        let _ = self.changes.send(Change::Retire(queue));
    }
}

/// The tasks that serve one queue. They end when this is dropped.
struct Serving {
    served: Arc<ServedQueue>,
    /// True when it is to reserve no more.
    stop: watch::Sender<bool>,
    worker: AbortOnDropHandle<()>,
    settler: AbortOnDropHandle<()>,
    /// What has to go on while messages are in flight.
    leases: [AbortOnDropHandle<()>; 2],
    /// What others can do as well.
    rest: [AbortOnDropHandle<()>; 2],
}

impl Serving {
    fn start(queues: &Arc<HostQueues>, served: Arc<ServedQueue>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (results, finished) = unbounded_channel();
        let settler = settle::settle(Arc::clone(&served), finished);
        let settling = &served.shared.workers.settling;
        let worker = QueueWorker::new(Arc::clone(&served), results);
        Self {
            stop,
            worker: until_dropped(worker.serve(stopped)),
            settler: AbortOnDropHandle::new(settling.spawn(settler)),
            leases: [
                until_dropped(leases::keep(Arc::clone(&served))),
                until_dropped(beat(Arc::clone(&served), Arc::clone(queues))),
            ],
            rest: [
                until_dropped(retention::keep_to(Arc::clone(&served))),
                until_dropped(schedules::send(Arc::clone(&served))),
            ],
            served,
        }
    }

    /// Ends when all that was in flight has ended and is settled, or is another's. Tells `reserves_no_more`
    /// when its loop has ended.
    async fn retire(self, queues: Arc<HostQueues>, reserves_no_more: oneshot::Sender<()>) {
        drop(self.rest);
        self.stop.send_replace(true);
        let _ = self.worker.await;
        let _ = reserves_no_more.send(());
        // Whoever could bring it a result holds its channel.
        let _ = self.settler.await;
        drop(self.leases);
        queues.forget(&self.served);
        let (shared, queue) = (&queues.shared, &self.served.queue);
        if !queues.names().contains(queue) {
            let _ = shared.store.leave(queue, &shared.config.host_id).await;
        }
    }
}

/// The tasks that serve all queues of a host.
pub(super) struct AllServing {
    queues: Arc<HostQueues>,
    serving: Vec<Serving>,
    retiring: JoinSet<()>,
    /// Of each that is retiring: its loop has ended.
    ending: Vec<oneshot::Receiver<()>>,
}

impl AllServing {
    pub(super) fn start(queues: Arc<HostQueues>) -> Self {
        Self {
            serving: (queues.current().into_iter())
                .map(|served| Serving::start(&queues, served))
                .collect(),
            retiring: JoinSet::new(),
            ending: Vec::new(),
            queues,
        }
    }

    pub(super) fn change(&mut self, change: Change) {
        while self.retiring.try_join_next().is_some() {}
        // One that has ended answers, or is gone.
        self.ending
            .retain_mut(|ending| ending.try_recv() == Err(TryRecvError::Empty));
        let queue = match &change {
            Change::Serve(served) => served.queue.clone(),
            Change::Retire(queue) => queue.clone(),
        };
        let is_it = |serving: &mut Serving| serving.served.queue == queue;
        let before: Vec<Serving> = self.serving.extract_if(.., is_it).collect();
        match change {
            Change::Serve(served) => {
                let served = self.queues.add(*served);
                self.serving.push(Serving::start(&self.queues, served));
            }
            Change::Retire(queue) => {
                self.queues.retire(&queue);
            }
        }
        for one in before {
            let (ended, ending) = oneshot::channel();
            self.ending.push(ending);
            self.retiring
                .spawn(one.retire(Arc::clone(&self.queues), ended));
        }
        // Those that stay may have another share of the slots.
        self.queues.shared.slots.are_free();
    }

    /// Returns when each loop has ended. Other hosts send what is due by schedule from here on.
    pub(super) async fn reserve_no_more(&mut self) {
        for one in &mut self.serving {
            one.rest.iter().for_each(AbortOnDropHandle::abort);
            one.stop.send_replace(true);
        }
        for one in &mut self.serving {
            let _ = (&mut one.worker).await;
        }
        for ending in self.ending.drain(..) {
            let _ = ending.await;
        }
    }

    /// Returns when all results are settled, or it has taken too long. Of all queues at a time, so that many
    /// take no longer than one when the store is away.
    pub(super) async fn settle_all(self) {
        let (mut settlers, mut leases) = (self.retiring, Vec::new());
        for one in self.serving {
            settlers.spawn(async move {
                let _ = one.settler.await;
            });
            leases.push(one.leases);
        }
        let all = async { while settlers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(RELEASE_LIMIT, all).await;
    }
}
