//! A queue for programs that handle messages themselves, over any store.
//!
//! ```
//! use std::time::Duration;
//!
//! use dqhost::message::{Due, NewMessage};
//! use dqhost::store::address::{self, StoreSettings};
//! use dqhost::{Queue, QueueError};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In memory; the path of a file or the URL of a Redis server would do as well.
//! let store = address::open(&":memory:".parse()?, StoreSettings::default()).await?;
//! let orders = Queue::new(store, "orders".parse()?);
//!
//! let later = NewMessage {
//!     due: Due::In(Duration::from_millis(20)),
//!     ..NewMessage::new("later")
//! };
//! orders.send(later).await?;
//! orders.send(NewMessage::new("now")).await?;
//!
//! // What is due comes first, and what is not due is waited for, up to a limit.
//! for expected in ["now", "later"] {
//!     let message = orders.receive(Duration::from_secs(60)).await?.expect("one is due");
//!     assert_eq!(message.payload(), expected.as_bytes());
//!     message.ack().await?;
//! }
//! assert!(orders.receive(Duration::from_millis(10)).await?.is_none());
//!
//! // Closing ends every wait.
//! orders.close();
//! let error = orders.send(NewMessage::new("too late")).await.unwrap_err();
//! assert!(matches!(error, QueueError::Closed));
//! # Ok(())
//! # }
//! ```

use std::slice;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{MutexGuard, Notify, watch};

use crate::message::{Delivery, NewMessage, QueueName, Sent};
use crate::store::{Reservation, Schedule, Store, StoreError, StoreResult, Subscription};

mod received;

pub use received::Received;

/// The longest sleep between two looks at the store, for what nothing told of.
const POLL: Duration = Duration::from_secs(1);

/// The longest wait that is told from one without end.
const LONGEST_WAIT: Duration = Duration::from_hours(24 * 365 * 100);

/// How long a send that does not wait for room waits for sends that are under way: until they are done
/// nobody knows whether there is room.
const TURN_LIMIT: Duration = Duration::from_secs(1);

/// How often a full queue is looked at for what others took out.
const ROOM_POLL: Duration = Duration::from_millis(50);

/// Why a queue did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QueueError {
    /// It was closed.
    #[error("the queue is closed")]
    Closed,
    /// It holds as many messages as it may; nothing was sent.
    #[error("the queue is full: it holds {capacity} messages")]
    Full {
        /// What it may hold.
        capacity: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A queue: send to it and receive from it, from any number of tasks. Clones are the same queue.
#[derive(Clone)]
pub struct Queue {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    name: QueueName,
    lease: Duration,
    capacity: Option<u64>,
    closed: watch::Sender<bool>,
    /// Lets one sender at a time look whether there is room.
    sending: tokio::sync::Mutex<()>,
    /// Something was taken out.
    room: Notify,
    /// Passed from a receiver that is done to one that waits: only one of them may have notified the
    /// store.
    turn: Notify,
    /// A std mutex: nothing is awaited while it is held.
    schedule: Mutex<Schedule>,
    /// Made by the first that waits.
    hints: OnceLock<Subscription>,
}

impl Queue {
    /// A queue of a store, without a limit on its length, with leases of 15 seconds.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, name: QueueName) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                name,
                lease: Duration::from_secs(15),
                capacity: None,
                closed: watch::Sender::new(false),
                sending: tokio::sync::Mutex::new(()),
                room: Notify::new(),
                turn: Notify::new(),
                schedule: Mutex::new(Schedule::new(POLL)),
                hints: OnceLock::new(),
            }),
        }
    }

    /// The same with leases of this length: a message that is received and neither settled nor
    /// extended is delivered again so much later.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        self.rebuilt(|inner| inner.lease = lease)
    }

    /// The same, holding at most so many messages that wait or are in flight. What this queue and its
    /// clones send keeps to it, but for a send whose future was dropped on its way to the store;
    /// senders elsewhere have limits of their own.
    #[must_use]
    pub fn with_capacity(self, capacity: u64) -> Self {
        self.rebuilt(|inner| inner.capacity = Some(capacity))
    }

    fn rebuilt(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut queue = Self::new(Arc::clone(&self.inner.store), self.inner.name.clone());
        if let Some(inner) = Arc::get_mut(&mut queue.inner) {
            inner.lease = self.inner.lease;
            inner.capacity = self.inner.capacity;
            change(inner);
        }
        queue
    }

    /// Its store, for everything else that can be asked of it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &QueueName {
        &self.inner.name
    }

    /// Sends a message. On a queue with a capacity it waits up to a second for sends of this queue that
    /// are under way, and for no room.
    ///
    /// # Errors
    ///
    /// [`QueueError::Full`] when there is no room, [`QueueError::Closed`], and those of the store.
    pub async fn send(&self, message: NewMessage) -> Result<Sent, QueueError> {
        self.send_within(message, Duration::ZERO).await
    }

    /// Sends a message, and waits up to `limit` for room.
    ///
    /// # Errors
    ///
    /// As [`Queue::send`], [`QueueError::Full`] when the limit is over.
    pub async fn send_within(
        &self,
        message: NewMessage,
        limit: Duration,
    ) -> Result<Sent, QueueError> {
        let id = message.id.clone();
        let sent = self.send_all(&[message], limit).await?;
        Ok(sent.into_iter().next().unwrap_or(Sent::new(id, None)))
    }

    /// Sends messages, all or none of them as far as room goes, and waits up to `limit` for room.
    ///
    /// The limit and [`Queue::close`] end every wait for room and for other sends of this queue. They do
    /// not end a request to the store that is under way, because its outcome would be unknown; that has
    /// the time limits of the store.
    ///
    /// # Errors
    ///
    /// As [`Queue::send_within`].
    pub async fn send_all(
        &self,
        messages: &[NewMessage],
        limit: Duration,
    ) -> Result<Vec<Sent>, QueueError> {
        let end = end_of(limit);
        let inner = &*self.inner;
        loop {
            if self.is_closed() {
                return Err(QueueError::Closed);
            }
            let Some(capacity) = inner.capacity else {
                return Ok(inner.store.send(&inner.name, messages).await?);
            };
            {
                let _one_at_a_time = self.turn(limit, end).await?;
                let held = inner.store.counts(&inner.name).await?.alive();
                if self.is_closed() {
                    return Err(QueueError::Closed);
                }
                if held.saturating_add(messages.len() as u64) <= capacity {
                    return Ok(inner.store.send(&inner.name, messages).await?);
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(QueueError::Full { capacity });
            }
            tokio::select! {
                () = tokio::time::sleep(left.min(ROOM_POLL)) => {}
                () = inner.room.notified() => {}
                () = self.when_closed() => {}
            }
        }
    }

    /// Waits until no other send of this queue is under way.
    async fn turn(&self, limit: Duration, end: Instant) -> Result<MutexGuard<'_, ()>, QueueError> {
        let end = if limit.is_zero() {
            end + TURN_LIMIT
        } else {
            end
        };
        tokio::select! {
            biased;
            () = self.when_closed() => Err(QueueError::Closed),
            turn = self.inner.sending.lock() => Ok(turn),
            () = tokio::time::sleep_until(end.into()) => Err(QueueError::Full {
                capacity: self.inner.capacity.unwrap_or(u64::MAX),
            }),
        }
    }

    /// The next message that is due: at once if there is one, else when one becomes due or arrives,
    /// or none when the limit is over.
    ///
    /// The message is the caller's until its lease expires. When the future is dropped a message may be
    /// in flight already; it comes back when its lease expires, so give a limit instead.
    ///
    /// # Errors
    ///
    /// [`QueueError::Closed`], also while it waits, and those of the store.
    pub async fn receive(&self, limit: Duration) -> Result<Option<Received>, QueueError> {
        let end = end_of(limit);
        let inner = &*self.inner;
        // Whoever leaves, with a message or without, lets another look: the store may have told
        // only this one of two messages, or of when the next is due.
        let _turn = PassTurn(&inner.turn);
        loop {
            if self.is_closed() {
                return Err(QueueError::Closed);
            }
            inner.advance_if_due().await?;
            if let Some(delivery) = inner.reserve().await? {
                if delivery.expired {
                    self.received(delivery, Vec::new())
                        .end(
                            "message-expired",
                            "it expired before this attempt began",
                            None,
                            true,
                        )
                        .await?;
                    continue;
                }
                let Some(payload) = delivery.payload.clone() else {
                    self.received(delivery, Vec::new())
                        .end("payload-missing", "the payload is gone", None, true)
                        .await?;
                    continue;
                };
                return Ok(Some(self.received(delivery, payload)));
            }
            let now = Instant::now();
            if now >= end {
                return Ok(None);
            }
            let until = end.min(inner.schedule().advance_at()).min(now + POLL);
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                () = inner.turn.notified() => {}
                () = inner.hints().notified() => inner.schedule().hinted(),
                () = self.when_closed() => {}
            }
        }
    }

    fn received(&self, delivery: Delivery, payload: Vec<u8>) -> Received {
        Received {
            queue: self.clone(),
            delivery,
            payload,
        }
    }

    /// Ends every wait, here and in all clones, and refuses what is sent from now on. Messages that
    /// are in flight can be settled; those that wait stay in the store.
    pub fn close(&self) {
        self.inner.closed.send_replace(true);
    }

    /// True once it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self.inner.closed.borrow()
    }

    async fn when_closed(&self) {
        // It fails only when the sender is gone, and that is held here.
        let _ = self
            .inner
            .closed
            .subscribe()
            .wait_for(|closed| *closed)
            .await;
    }
}

/// When a wait ends. No clock counts further than the longest wait, whatever is asked for.
fn end_of(limit: Duration) -> Instant {
    Instant::now() + limit.min(LONGEST_WAIT)
}

struct PassTurn<'a>(&'a Notify);

impl Drop for PassTurn<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Inner {
    fn schedule(&self) -> std::sync::MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hints(&self) -> &Subscription {
        let subscribe = || self.store.subscribe(slice::from_ref(&self.name));
        self.hints.get_or_init(subscribe)
    }

    async fn advance_if_due(&self) -> StoreResult<()> {
        loop {
            let hints = {
                let schedule = self.schedule();
                if !schedule.is_due() {
                    return Ok(());
                }
                schedule.hints()
            };
            let advanced = self.store.advance(&self.name).await?;
            self.schedule().advanced(&advanced, hints);
            if !advanced.more {
                return Ok(());
            }
        }
    }

    async fn reserve(&self) -> StoreResult<Option<Delivery>> {
        let wanted = Reservation {
            max: 1,
            lease: self.lease,
            first: self.schedule().first(),
            retries_default: NewMessage::RETRIES_DEFAULT,
        };
        Ok(self.store.reserve(&self.name, wanted).await?.pop())
    }
}
