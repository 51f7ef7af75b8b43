//! The pipeline in one SQLite file (or in memory): the state of a message is a column, and each
//! method is one transaction.
//!
//! Transactions are `BEGIN IMMEDIATE`, so that of several processes on the file one writes at a
//! time and none fails half-way. The log is write-ahead: readers neither wait nor keep writers
//! waiting. A process that dies in a transaction leaves nothing of it; SQLite sees to that when the
//! next one opens the file. A host that dies between two lets its leases expire.
//!
//! Two threads do the work, one that writes and one that only reads; memory has one for both. A third waits for
//! the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::error::Failure;
use self::flush::Flusher;
use self::thread::ConnectionThread;
use self::turn::Turn;
use self::wake::Wake;
use crate::clock::Clock;
use crate::store::EventBuffer;

mod advance;
mod aside;
mod audit;
mod backup;
mod close;
mod dedup;
mod deliver;
mod discover;
mod disk;
mod ended;
mod error;
mod events;
mod fair;
mod flush;
mod hosts;
mod inspect;
mod keyed;
mod limit_times;
mod limits;
mod manage;
mod open;
mod overview;
mod queue;
mod repeats;
mod retention;
mod send;
mod settle;
mod thread;
mod ticks;
mod topics;
mod transaction;
mod transfer;
mod turn;
mod wake;

pub use open::{Durability, Older, SqliteOptions};

/// A queue store in one file.
pub struct SqliteStore {
    /// The version of the schema.
    schema: usize,
    write: ConnectionThread,
    /// None in memory, which one connection alone can see.
    read: Option<ConnectionThread>,
    /// None in memory.
    turn: Option<Arc<Turn>>,
    wake: Arc<Wake>,
    /// None where nothing is kept through a power cut.
    flusher: Option<Arc<Flusher>>,
    /// True once messages were reserved: by a host, which has more to do while it waits for the disk.
    reserves: AtomicBool,
    /// None in memory.
    room: Option<DiskReserve>,
    /// How operators and errors name it.
    name: Arc<str>,
    clock: Clock,
    events: Arc<EventBuffer>,
}

/// The room that a send leaves on the disk.
#[derive(Debug, Clone)]
struct DiskReserve {
    path: PathBuf,
    free_min: u64,
}

impl DiskReserve {
    fn check(&self) -> Result<(), Failure> {
        // What cannot be asked is left to the write to find out.
        match rustix::fs::statvfs(&self.path) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < self.free_min => {
                Err(Failure::NoRoom {
                    free_min: self.free_min,
                })
            }
            _ => Ok(()),
        }
    }
}
