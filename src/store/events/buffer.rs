//! What was noted and is not published yet. Nobody waits for it: of too many the latest are missing, and a
//! gap says so.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Event, ReportCounts, batches};
use crate::message::QueueName;
use crate::store::{Store, StoreResult};

/// Events that wait to be published. The next ones are missing.
const WAITING_MAX: usize = 10_000;

/// How long events gather for the next batch, while somebody listens.
const GATHER: Duration = Duration::from_millis(50);

/// How often it is asked whether somebody listens, at most.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long a program that ends waits for its last events to be published.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// What happened on the queues of a store, by this process.
#[derive(Debug, Default)]
pub struct EventBuffer {
    /// Somebody may listen. Relaxed order: a note more or less is no matter.
    is_open: AtomicBool,
    /// [`publish_events`] is at work.
    is_published: AtomicBool,
    /// A delayqueue's monitors are told, too.
    reports: AtomicBool,
    host: OnceLock<String>,
    waiting: Mutex<Waiting>,
    some: Notify,
    /// When each queue was asked for last, and whether somebody listened. Held while events are published.
    asked: tokio::sync::Mutex<HashMap<QueueName, (Instant, bool)>>,
}

#[derive(Debug, Default)]
struct Waiting {
    events: BTreeMap<QueueName, Vec<Event>>,
    count: usize,
    missing: BTreeMap<QueueName, u64>,
}

impl EventBuffer {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what happened, if somebody may listen.
    pub fn note(&self, queue: &QueueName, events: impl IntoIterator<Item = Event>) {
        if !self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.lock();
        for event in events {
            if waiting.count >= WAITING_MAX {
                *waiting.missing.entry(queue.clone()).or_default() += 1;
                continue;
            }
            waiting.count += 1;
            if let Some(events) = waiting.events.get_mut(queue) {
                events.push(event);
            } else {
                waiting.events.insert(queue.clone(), vec![event]);
            }
        }
        let is_empty = waiting.count == 0;
        drop(waiting);
        if !is_empty {
            self.some.notify_one();
        }
    }

    /// Says which host tells what is noted here.
    pub fn set_host(&self, host: &str) {
        let _ = self.host.set(host.to_owned());
    }

    /// Reports to a delayqueue's monitors as well, whether they are there or not.
    pub fn report_to_delayqueue(&self) {
        self.reports.store(true, Ordering::Relaxed);
    }

    /// True if a delayqueue's monitors are told.
    pub(crate) fn reports(&self) -> bool {
        self.reports.load(Ordering::Relaxed)
    }

    /// What was noted since.
    fn take(&self) -> BTreeMap<QueueName, Vec<Event>> {
        let mut waiting = std::mem::take(&mut *self.lock());
        for (queue, missing) in waiting.missing {
            let events = waiting.events.entry(queue).or_default();
            events.push(Event::gap(Some(missing)));
        }
        for event in waiting.events.values_mut().flatten() {
            event.host = self.host.get().cloned();
        }
        waiting.events
    }

    /// Publishes what was noted. True if somebody listens to some of it.
    async fn publish(&self, store: &dyn Store) -> bool {
        let mut asked = self.asked.lock().await;
        let noted = self.take();
        let reports = self.reports();
        let listened = listened(&mut asked, store, noted.keys()).await;
        let listened = listened.unwrap_or_default();
        for (queue, events) in &noted {
            // An error is one of the store, and those who work with it tell of it.
            if listened.contains(queue) {
                let _ = store.publish_events(queue, &batches(events)).await;
            }
            if reports {
                let mut counts = ReportCounts::default();
                for event in events {
                    counts.add(event);
                }
                let _ = store.report_events(queue, counts).await;
            }
        }
        reports || !listened.is_empty()
    }
}

/// Those of these queues that somebody listens to.
async fn listened<'q>(
    asked: &mut HashMap<QueueName, (Instant, bool)>,
    store: &dyn Store,
    queues: impl Iterator<Item = &'q QueueName>,
) -> StoreResult<Vec<QueueName>> {
    let now = Instant::now();
    asked.retain(|_, (at, _)| now - *at < ASK_EVERY);
    let queues: Vec<&QueueName> = queues.collect();
    let unknown = queues.iter().filter(|queue| !asked.contains_key(**queue));
    let unknown: Vec<QueueName> = unknown.map(|queue| (*queue).clone()).collect();
    if !unknown.is_empty() {
        let found = store.listened(&unknown).await?;
        for queue in unknown {
            let is_listened = found.contains(&queue);
            asked.insert(queue, (now, is_listened));
        }
    }
    let is_listened = |queue: &&QueueName| asked.get(*queue).is_some_and(|(_, is)| *is);
    Ok(queues.into_iter().filter(is_listened).cloned().collect())
}

/// Nothing is noted any more when nobody is left who publishes it.
struct Publishing(Arc<EventBuffer>);

impl Drop for Publishing {
    fn drop(&mut self) {
        self.0.is_open.store(false, Ordering::Relaxed);
        self.0.is_published.store(false, Ordering::SeqCst);
    }
}

/// Publishes what this process does on a store, until the store is dropped or the future is. While nobody
/// listens, nothing is noted for a second after each question. A second call for the same store does nothing.
pub fn publish_events(store: &Arc<dyn Store>) -> impl Future<Output = ()> + Send + use<> {
    let buffer = Arc::clone(store.events());
    let is_first = !buffer.is_published.swap(true, Ordering::SeqCst);
    let publishing = is_first.then(|| {
        // From here on, so that nothing is missing that comes before the first poll.
        buffer.is_open.store(true, Ordering::Relaxed);
        Publishing(Arc::clone(&buffer))
    });
    let store = Arc::downgrade(store);
    async move {
        let Some(_publishing) = publishing else {
            return;
        };
        loop {
            buffer.some.notified().await;
            let Some(store) = store.upgrade() else {
                return;
            };
            let is_listened = buffer.publish(&*store).await;
            drop(store);
            if is_listened {
                tokio::time::sleep(GATHER).await;
            } else {
                buffer.is_open.store(false, Ordering::Relaxed);
                tokio::time::sleep(ASK_EVERY).await;
                buffer.is_open.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Publishes what is noted still, before a program ends.
pub async fn flush_events(store: &dyn Store) {
    let buffer = store.events();
    let is_empty = || {
        let waiting = buffer.lock();
        waiting.events.is_empty() && waiting.missing.is_empty()
    };
    // What is being published now ends first.
    let publish = async {
        if is_empty() {
            drop(buffer.asked.lock().await);
        } else {
            buffer.publish(store).await;
        }
    };
    let _ = tokio::time::timeout(FLUSH_LIMIT, publish).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EventKind;
    use crate::store::sqlite::{SqliteOptions, SqliteStore};

    fn paused() -> Event {
        Event::now(EventKind::Paused)
    }

    #[test]
    fn nothing_is_noted_unless_somebody_may_listen() {
        let (buffer, queue) = (EventBuffer::default(), "q".parse().unwrap());
        let never = std::iter::once_with(|| -> Event { panic!("it is not asked for") });
        buffer.note(&queue, never);
        assert!(buffer.take().is_empty());
    }

    #[test]
    fn of_too_many_the_latest_are_missing_and_a_gap_says_so() {
        let (buffer, queue): (_, QueueName) = (EventBuffer::default(), "q".parse().unwrap());
        buffer.is_open.store(true, Ordering::Relaxed);
        buffer.set_host("h");
        buffer.note(&queue, (0..WAITING_MAX + 5).map(|_| paused()));
        let taken = buffer.take().remove(&queue).unwrap();
        assert_eq!(taken.len(), WAITING_MAX + 1);
        let last = taken.last().unwrap();
        assert_eq!((last.event, last.count), (EventKind::Gap, Some(5)));
        assert!(taken.iter().all(|event| event.host.as_deref() == Some("h")));
        // There is room again.
        buffer.note(&queue, [paused()]);
        assert_eq!(buffer.take()[&queue].len(), 1);
    }

    #[tokio::test]
    async fn whoever_publishes_closes_it_at_the_end() {
        let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let buffer = Arc::clone(store.events());
        let is_open = || buffer.is_open.load(Ordering::Relaxed);
        assert!(!is_open());
        let first = publish_events(&store);
        assert!(is_open());
        // A second one leaves it to the first.
        publish_events(&store).await;
        assert!(is_open());
        drop(first);
        assert!(!is_open());
    }
}
