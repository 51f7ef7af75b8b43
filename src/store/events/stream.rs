//! What a listener hears. Whoever reads slowly misses events and is told so; it holds nothing up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{Event, parse};
use crate::message::QueueName;
use crate::store::{StoreError, StoreResult};

/// Events that wait for their reader. The next ones are missed.
const WAITING_MAX: usize = 4096;

/// An event, and where it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The queue; none for a gap that may concern any.
    pub queue: Option<QueueName>,
    /// True if a delayqueue has reported it.
    pub is_delayqueue: bool,
    /// What happened.
    pub event: Event,
}

/// What happens on some queues, from now on. Listening ends when it is dropped.
#[derive(Debug)]
pub struct EventStream {
    waiting: Receiver<StoreResult<Heard>>,
    missed: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

/// The other end of a stream.
#[derive(Debug, Clone)]
pub(in crate::store) struct EventSender {
    waiting: Sender<StoreResult<Heard>>,
    missed: Arc<AtomicU64>,
    /// True once it listens.
    listens: Arc<watch::Sender<bool>>,
}

impl EventStream {
    /// Listens in a task of its own.
    pub(in crate::store) fn start<F>(listen: impl FnOnce(EventSender) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, waiting) = channel(WAITING_MAX);
        let missed = Arc::<AtomicU64>::default();
        let sender = EventSender {
            waiting: sender,
            missed: Arc::clone(&missed),
            listens: Arc::default(),
        };
        Self {
            waiting,
            missed,
            _task: AbortOnDropHandle::new(tokio::spawn(listen(sender))),
        }
    }

    /// The next event. None when nothing more comes. It may be dropped while it waits.
    ///
    /// # Errors
    ///
    /// Why nothing can be heard.
    pub async fn next(&mut self) -> Option<StoreResult<Heard>> {
        match self.waiting.try_recv() {
            Ok(heard) => return Some(heard),
            Err(TryRecvError::Empty) => {
                let missed = self.missed.swap(0, Ordering::Relaxed);
                if missed > 0 {
                    return Some(Ok(gap(Some(missed))));
                }
            }
            Err(TryRecvError::Disconnected) => return None,
        }
        self.waiting.recv().await
    }
}

fn gap(count: Option<u64>) -> Heard {
    Heard {
        queue: None,
        is_delayqueue: false,
        event: Event::gap(count),
    }
}

impl EventSender {
    /// What was published on a queue.
    pub(in crate::store) fn batch(&self, queue: &QueueName, batch: &[u8]) {
        for event in parse(batch) {
            self.tell(&Heard {
                queue: Some(queue.clone()),
                is_delayqueue: false,
                event,
            });
        }
    }

    /// What a delayqueue has reported.
    pub(in crate::store) fn report(&self, queue: &QueueName, payload: &[u8]) {
        if let Some(event) = super::read_report(payload) {
            self.tell(&Heard {
                queue: Some(queue.clone()),
                is_delayqueue: true,
                event,
            });
        }
    }

    /// From here on nothing is missed. If it is said again, something may have been.
    pub(in crate::store) fn listens(&self) {
        if self.listens.send_replace(true) {
            self.gap();
        }
    }

    /// Returns when it listens.
    pub(in crate::store) async fn listening(&self) {
        let _ = self.listens.subscribe().wait_for(|is| *is).await;
    }

    /// Something was not heard.
    pub(in crate::store) fn gap(&self) {
        self.tell(&gap(None));
    }

    /// Nothing can be heard.
    pub(in crate::store) async fn fail(&self, error: StoreError) {
        let _ = self.waiting.send(Err(error)).await;
    }

    fn tell(&self, heard: &Heard) {
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            // In its place, as long as there is room for it.
            match self.waiting.try_send(Ok(gap(Some(missed)))) {
                Ok(()) => self.missed.fetch_sub(missed, Ordering::Relaxed),
                Err(_) => return self.miss(heard),
            };
        }
        if self.waiting.try_send(Ok(heard.clone())).is_err() {
            self.miss(heard);
        }
    }

    fn miss(&self, heard: &Heard) {
        let more = match heard.event.event {
            super::EventKind::Gap => heard.event.count.unwrap_or(1),
            _ => 1,
        };
        self.missed.fetch_add(more, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventKind;
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_is_told_how_much_it_has_missed() {
        let queue: QueueName = "q".parse().unwrap();
        let (told, telling) = tokio::sync::oneshot::channel::<EventSender>();
        let mut stream = EventStream::start(|sender| async move {
            let _ = told.send(sender);
            std::future::pending::<()>().await;
        });
        let sender = telling.await.unwrap();
        let line = Event::now(EventKind::Paused).line();
        for _ in 0..WAITING_MAX + 7 {
            sender.batch(&queue, line.as_bytes());
        }
        for _ in 0..WAITING_MAX {
            let heard = stream.next().await.unwrap().unwrap();
            assert_eq!(heard.event.event, EventKind::Paused);
        }
        let heard = stream.next().await.unwrap().unwrap();
        assert_eq!(
            (heard.event.event, heard.event.count),
            (EventKind::Gap, Some(7))
        );
        // In its place, when more comes before it is read.
        for _ in 0..=WAITING_MAX {
            sender.batch(&queue, line.as_bytes());
        }
        for _ in 0..3 {
            stream.next().await.unwrap().unwrap();
        }
        sender.batch(&queue, line.as_bytes());
        let mut kinds = Vec::new();
        for _ in 0..WAITING_MAX - 1 {
            kinds.push(stream.next().await.unwrap().unwrap().event.event);
        }
        let end = [EventKind::Paused, EventKind::Gap, EventKind::Paused];
        assert!(kinds.ends_with(&end), "{:?}", kinds.last());
    }
}
