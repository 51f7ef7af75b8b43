//! How messages ended, until the store is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::in_flight::Lost;
use crate::message::MessageId;
use crate::runtime::Handler;
use crate::store::{End, Ended};

/// A message that has ended, before anybody is told.
pub(super) struct Note {
    pub id: MessageId,
    pub at: Instant,
    pub attempt: u32,
    pub duration: Duration,
    pub due_at_ms: Option<u64>,
    /// None if none had started.
    pub handler: Option<Arc<Handler>>,
    pub end: End,
    /// What its handler returned.
    pub result: Option<Vec<u8>>,
    /// Class and reason, if it is dead.
    pub failure: Option<(String, String)>,
}

impl Note {
    /// Of a message that an operator took from this host.
    pub(super) fn of_cancelled(lost: Lost, at: Instant) -> Self {
        Self {
            id: lost.id,
            at,
            attempt: lost.attempt,
            duration: at.saturating_duration_since(lost.since),
            due_at_ms: lost.due_at_ms,
            handler: lost.handler,
            end: End::Cancelled,
            result: None,
            failure: None,
        }
    }

    /// As the store takes it: how it ended, and how long ago.
    pub(super) fn told(self, host: &str, now: Instant) -> (Ended, Duration) {
        let (class, reason) = self.failure.unwrap_or_default();
        let ended = Ended {
            id: self.id,
            // The store says it.
            at_ms: 0,
            end: self.end,
            attempt: self.attempt,
            duration_ms: u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            due_at_ms: self.due_at_ms,
            host: host.to_owned(),
            handler: self
                .handler
                .map_or_else(String::new, |handler| handler.digest().to_owned()),
            class,
            reason,
            has_result: self.result.is_some(),
        };
        (ended, now.saturating_duration_since(self.at))
    }
}

/// What is to be told of a queue.
#[derive(Default)]
pub(super) struct EndedNotes {
    notes: Mutex<VecDeque<Note>>,
    /// There is something.
    some: Notify,
    /// Nothing more comes.
    over: CancellationToken,
}

impl EndedNotes {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the latest, and forgets what is more than `keep`, and results of more than `result_bytes`.
    pub(super) fn add(&self, latest: Vec<Note>, keep: usize, result_bytes: usize) {
        if latest.is_empty() {
            return;
        }
        let has_results = latest.iter().any(|note| note.result.is_some());
        let mut notes = self.lock();
        notes.extend(latest);
        let over = notes.len().saturating_sub(keep);
        notes.drain(..over);
        if has_results {
            let mut left = result_bytes;
            for note in notes.iter_mut().rev() {
                let size = note.result.as_ref().map_or(0, Vec::len);
                if size > result_bytes {
                    note.result = None;
                } else if size > left {
                    // Nor any before it: those that are kept are the latest.
                    left = 0;
                    note.result = None;
                } else {
                    left -= size;
                }
            }
        }
        drop(notes);
        self.some.notify_one();
    }

    /// Takes what there is.
    pub(super) fn take(&self) -> VecDeque<Note> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns when there may be something, or nothing more comes.
    pub(super) async fn changed(&self) {
        tokio::select! {
            () = self.some.notified() => {}
            () = self.over.cancelled() => {}
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    /// True when nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Returns when nothing more comes.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }
}
