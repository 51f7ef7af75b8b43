//! Hears of messages that may be ready sooner than a host knows, from this process or another.
//!
//! Beside the file is a companion, `-wake`, that is written to when there is something to hear, so
//! that the system tells all who watch it. Nobody watches the database itself: it changes with
//! every settlement.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::disk;
use super::turn::Turn;
use crate::message::QueueName;
use crate::store::notifier::{Notifier, Subscription};

/// Where the companion has eight bytes that are others whenever a message in flight was taken from its host.
const KILLED_AT: u64 = 8;

/// These eight bytes; none of a file that does not have them yet.
fn latest_killed(companion: &File) -> Option<[u8; 8]> {
    let mut bytes = [0; 8];
    companion.read_exact_at(&mut bytes, KILLED_AT).ok()?;
    Some(bytes)
}

pub(super) struct Wake {
    notifier: Arc<Notifier>,
    companion: Option<Companion>,
}

/// What other processes on the file are told through.
struct Companion {
    path: PathBuf,
    file: File,
    /// Made by the first who subscribes. A std mutex: nothing is awaited while it is held.
    watcher: Mutex<Watching>,
}

enum Watching {
    NotYet,
    /// Held because dropping it ends the watch.
    Since(#[expect(dead_code, reason = "held for its drop")] RecommendedWatcher),
    /// The system has no watch left; callers look at the store once a second anyhow.
    Impossible,
}

impl Wake {
    /// For a file, or for memory that nobody else sees.
    pub(super) fn new(database: Option<&Path>) -> std::io::Result<Self> {
        let companion = match database {
            None => None,
            Some(database) => {
                let (path, file) = disk::open_wake(database)?;
                Some(Companion {
                    path,
                    file,
                    watcher: Mutex::new(Watching::NotYet),
                })
            }
        };
        Ok(Self {
            notifier: Arc::default(),
            companion,
        })
    }

    /// Whose turn it is to write to the file; none in memory.
    pub(super) fn turn(&self) -> std::io::Result<Option<Turn>> {
        let companion = self.companion.as_ref();
        let file = companion.map(|companion| companion.file.try_clone());
        Ok(file.transpose()?.map(Turn::new))
    }

    /// Wakes all who wait, here and in other processes. A hint, which may be lost.
    pub(super) fn call(&self) {
        self.notifier.notify_all();
        if let Some(companion) = &self.companion {
            let _ = companion.file.write_at(b"w", 0);
        }
    }

    /// The same, and tells them that a message in flight was taken from its host.
    pub(super) fn call_killed(&self) {
        self.notifier.notify_all_killed();
        if let Some(companion) = &self.companion {
            let latest = fastrand::u64(..).to_ne_bytes();
            let _ = companion.file.write_at(&latest, KILLED_AT);
        }
        self.call();
    }

    /// A subscription to calls, which do not tell which queue they are about.
    pub(super) fn subscribe(&self, queues: &[QueueName]) -> Subscription {
        if let Some(companion) = &self.companion {
            companion.watch(&self.notifier);
        }
        let names = queues.iter().map(ToString::to_string);
        self.notifier.subscribe(names.collect())
    }
}

impl Companion {
    fn watch(&self, notifier: &Arc<Notifier>) {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*watcher, Watching::NotYet) {
            return;
        }
        let shared = Arc::clone(notifier);
        let file = self.file.try_clone();
        let read = move || file.as_ref().ok().map(latest_killed);
        let seen = Mutex::new(read());
        let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| event.kind.is_modify()) {
                let latest = read();
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if *seen != latest {
                    *seen = latest;
                    shared.notify_all_killed();
                }
                shared.notify_all();
            }
        })
        .and_then(|mut made| {
            made.watch(&self.path, RecursiveMode::NonRecursive)?;
            Ok(made)
        });
        *watcher = match made {
            Ok(made) => Watching::Since(made),
            Err(error) => {
                tracing::warn!(
                    "what other processes send is seen within a second instead of at once: \
                     {error}"
                );
                Watching::Impossible
            }
        };
        // What was sent while nobody watched is not heard: look once.
        notifier.notify_all();
    }
}
