//! The handler of a queue, which may be replaced while the host works.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::message::QueueName;
use crate::runtime::{Handler, QueueShares};

/// The handler of a queue that a host serves. A run that begins is given the current one, and keeps it to
/// its end.
pub struct CurrentHandler {
    queue: QueueName,
    /// Where HTTP connections of handlers are driven.
    http: tokio::runtime::Handle,
    current: RwLock<Current>,
}

struct Current {
    handler: Arc<Handler>,
    refusal: Option<Arc<str>>,
    /// What other queues leave for its runs.
    _shares: QueueShares,
}

impl CurrentHandler {
    pub(super) fn new(
        queue: QueueName,
        handler: Arc<Handler>,
        http: tokio::runtime::Handle,
    ) -> Self {
        let current = RwLock::new(Current {
            _shares: handler.serves(queue.as_str(), &http),
            handler,
            refusal: None,
        });
        Self {
            queue,
            http,
            current,
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Current> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its queue.
    #[must_use]
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The handler that the next run is given.
    #[must_use]
    pub fn get(&self) -> Arc<Handler> {
        Arc::clone(&self.read().handler)
    }

    /// Gives runs that begin from now on another handler. Runs that have begun end on theirs.
    pub fn replace(&self, handler: Arc<Handler>) {
        let new = Current {
            _shares: handler.serves(self.queue.as_str(), &self.http),
            handler,
            refusal: None,
        };
        *self.write() = new;
    }

    /// Notes why the latest file did not replace it; none if it is what the file holds.
    pub fn note_refusal(&self, reason: Option<Arc<str>>) {
        self.write().refusal = reason;
    }

    pub(super) fn refusal(&self) -> Option<Arc<str>> {
        self.read().refusal.clone()
    }
}
