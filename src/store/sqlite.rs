//! The pipeline in one SQLite file (or in memory): the state of a message is a column, and each
//! method is one transaction.
//!
//! Transactions are `BEGIN IMMEDIATE`, so that of several processes on the file one writes at a
//! time and none fails half-way. The log is write-ahead: readers neither wait nor keep writers
//! waiting. A process that dies in a transaction leaves nothing of it; SQLite sees to that when the
//! next one opens the file. A host that dies between two lets its leases end.
//!
//! Two threads do the work, one that writes and one that only reads; memory has one for both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, TransactionBehavior};

use self::error::{Failure, store_error};
use self::queue::{Change, QueueRow};
use self::thread::ConnectionThread;
use self::wake::Wake;
use super::common::{import_steps, ms, send_steps};
use super::{
    Advanced, BATCH_MAX, Cancelled, Counts, HostInfo, Page, Peer, Redriven, Reservation, Settled,
    Settlement, Store, StoreError, StoreResult,
};
use crate::clock::Clock;
use crate::message::{Claim, Delivery, MessageId, NewMessage, QueueName, Record, Sent, State};

mod deliver;
mod error;
mod moving;
mod open;
mod people;
mod queue;
mod settle;
mod thread;
mod wake;

pub use open::{Durability, SqliteOptions};

/// A queue store in one file.
pub struct SqliteStore {
    write: ConnectionThread,
    /// None in memory, which one connection alone can see.
    read: Option<ConnectionThread>,
    wake: Arc<Wake>,
    /// None in memory.
    room: Option<Room>,
    /// How people and errors name it.
    name: Arc<str>,
    clock: Clock,
}

/// The room that a send leaves on the disk.
#[derive(Debug, Clone)]
struct Room {
    path: PathBuf,
    free_min: u64,
}

impl Room {
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

/// What is said of an item.
trait Answer: Clone + Send + 'static {
    /// Where there is no such queue.
    const NO_QUEUE: Self;
}

impl Answer for Settled {
    const NO_QUEUE: Self = Self::LeaseLost;
}

impl Answer for Cancelled {
    const NO_QUEUE: Self = Self::Unknown;
}

impl Answer for Redriven {
    const NO_QUEUE: Self = Self::Unknown;
}

impl Answer for bool {
    const NO_QUEUE: Self = false;
}

impl SqliteStore {
    fn panicked(&self, operation: &'static str) -> StoreError {
        StoreError::Refused {
            store: self.name.to_string(),
            operation,
            reason: "a bug in dqhost; nothing of this was done".to_owned(),
        }
    }

    /// One transaction on a queue. None when there is no such queue and it is not to be made.
    async fn change<T: Send + 'static>(
        &self,
        operation: &'static str,
        queue: &QueueName,
        create: bool,
        work: impl FnOnce(&mut Change<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let (queue, clock, wake) = (queue.clone(), self.clock.clone(), Arc::clone(&self.wake));
        let transaction = move |connection: &mut Connection| -> Result<Option<T>, Failure> {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Read when the turn has come: to wait for it is time that passes.
            let Some(mut change) = Change::on(&tx, &queue, create, clock.now())? else {
                return Ok(None);
            };
            let done = change.apply(work)?;
            let (is_news, smaller) = (change.wake, change.smaller);
            tx.commit()?;
            if is_news {
                wake.call();
            }
            if smaller {
                // Best effort: readers in the way leave it to the next time.
                let _ = connection.pragma_update(None, "wal_checkpoint", "PASSIVE");
            }
            Ok(Some(done))
        };
        self.write
            .run(transaction)
            .await
            .map_err(|_| self.panicked(operation))?
            .map_err(|failure| store_error(&self.name, operation, &failure))
    }

    /// One look.
    async fn look<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        // One transaction, so that all of it is of one moment.
        let look = move |connection: &mut Connection| -> Result<T, Failure> {
            let tx = connection.transaction()?;
            Ok(work(&tx)?)
        };
        let thread = self.read.as_ref().unwrap_or(&self.write);
        thread
            .run(look)
            .await
            .map_err(|_| self.panicked(operation))?
            .map_err(|failure| store_error(&self.name, operation, &failure))
    }

    /// One look at a queue; none when there is no such queue.
    async fn look_at<T: Send + 'static>(
        &self,
        operation: &'static str,
        queue: &QueueName,
        work: impl FnOnce(&Connection, &QueueRow) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let queue = queue.clone();
        self.look(operation, move |connection| {
            QueueRow::find(connection, queue.as_str())?
                .map(|row| work(connection, &row))
                .transpose()
        })
        .await
    }

    /// Changes in steps, each a transaction, with one answer for each item.
    async fn change_each<I, A>(
        &self,
        operation: &'static str,
        queue: &QueueName,
        items: &[I],
        work: impl Fn(&mut Change<'_>, &[I]) -> Result<Vec<A>, Failure> + Clone + Send + 'static,
    ) -> StoreResult<Vec<A>>
    where
        I: Clone + Send + 'static,
        A: Answer,
    {
        let mut answers = Vec::with_capacity(items.len());
        for step in items.chunks(BATCH_MAX) {
            let (work, items) = (work.clone(), step.to_vec());
            let done = self
                .change(operation, queue, false, move |change| work(change, &items))
                .await?;
            answers.extend(done.unwrap_or_else(|| vec![A::NO_QUEUE; step.len()]));
        }
        Ok(answers)
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn describe(&self) -> String {
        self.name.to_string()
    }

    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>> {
        let mut sent = Vec::with_capacity(messages.len());
        for step in send_steps(messages) {
            let (step, room) = (step.to_vec(), self.room.clone());
            let work = move |change: &mut Change<'_>| {
                room.as_ref().map_or(Ok(()), Room::check)?;
                deliver::send(change, &step)
            };
            let done = self.change("send", queue, true, work).await?;
            sent.extend(done.unwrap_or_default());
        }
        Ok(sent)
    }

    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced> {
        const OPERATION: &str = "advance";
        let clock = self.clock.clone();
        // A look first: when nothing is due, as most often, nobody is kept from writing.
        let duties = self
            .look_at(OPERATION, queue, move |connection, row| {
                deliver::duties(connection, row, clock.now())
            })
            .await?;
        let idle = Advanced {
            promoted: 0,
            expired: 0,
            buried: 0,
            more: false,
            next_in: duties.as_ref().and_then(|duties| duties.next_in),
        };
        if !duties.is_some_and(|duties| duties.now) {
            return Ok(idle);
        }
        let done = self
            .change(OPERATION, queue, false, deliver::advance)
            .await?;
        Ok(done.unwrap_or(idle))
    }

    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>> {
        const OPERATION: &str = "reserve";
        let work = move |change: &mut Change<'_>| deliver::reserve(change, wanted);
        let done = self.change(OPERATION, queue, false, work).await?;
        Ok(done.unwrap_or_default())
    }

    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>> {
        let work =
            move |change: &mut Change<'_>, claims: &[Claim]| deliver::extend(change, claims, lease);
        self.change_each("extend", queue, claims, work).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        let work =
            |change: &mut Change<'_>, some: &[(Claim, Settlement)]| settle::settle(change, some);
        self.change_each("settle", queue, settlements, work).await
    }

    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>> {
        let work = |change: &mut Change<'_>, some: &[Claim]| settle::release(change, some);
        self.change_each("release", queue, claims, work).await
    }

    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        let work = |change: &mut Change<'_>, some: &[MessageId]| people::cancel(change, some);
        self.change_each("cancel", queue, ids, work).await
    }

    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts> {
        let counts = self.look_at("counting", queue, |_, row| Ok(row.counts()));
        Ok(counts.await?.unwrap_or_default())
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>> {
        let id = id.clone();
        let record = self.look_at("get", queue, move |connection, row| {
            people::get(connection, row, &id)
        });
        Ok(record.await?.flatten())
    }

    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>> {
        let records = self.look_at("listing", queue, move |connection, row| {
            people::list(connection, row, state, page)
        });
        Ok(records.await?.unwrap_or_default())
    }

    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        retries: Option<u32>,
    ) -> StoreResult<Vec<Redriven>> {
        let work = move |change: &mut Change<'_>, some: &[MessageId]| {
            people::redrive(change, some, retries)
        };
        self.change_each("redrive", queue, ids, work).await
    }

    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>> {
        let work = |change: &mut Change<'_>, some: &[MessageId]| people::delete_dead(change, some);
        self.change_each("deleting dead letters", queue, ids, work)
            .await
    }

    async fn meet(&self, queue: &QueueName, peer: &Peer) -> StoreResult<()> {
        let peer = peer.clone();
        let work = move |change: &mut Change<'_>| moving::meet(change, peer);
        self.change("copy", queue, true, work).await?;
        Ok(())
    }

    async fn export(&self, queue: &QueueName, run: &str, max: usize) -> StoreResult<Vec<Record>> {
        let run = run.to_owned();
        let work = move |change: &mut Change<'_>| moving::export(change, &run, max);
        let done = self.change("export", queue, false, work).await?;
        Ok(done.unwrap_or_default())
    }

    async fn import(&self, queue: &QueueName, run: &str, records: &[Record]) -> StoreResult<()> {
        for step in import_steps(records) {
            let (run, step, room) = (run.to_owned(), step.to_vec(), self.room.clone());
            let work = move |change: &mut Change<'_>| {
                room.as_ref().map_or(Ok(()), Room::check)?;
                moving::import(change, &run, &step)
            };
            self.change("import", queue, true, work).await?;
        }
        Ok(())
    }

    async fn discard(&self, queue: &QueueName, run: &str, ids: &[MessageId]) -> StoreResult<()> {
        let (run, ids) = (run.to_owned(), ids.to_vec());
        let work = move |change: &mut Change<'_>| moving::discard(change, &run, &ids);
        self.change("discard", queue, false, work).await?;
        Ok(())
    }

    async fn admit(&self, queue: &QueueName, run: &str, ids: &[MessageId]) -> StoreResult<()> {
        let (run, ids) = (run.to_owned(), ids.to_vec());
        let work = move |change: &mut Change<'_>| moving::admit(change, &run, &ids);
        self.change("admit", queue, false, work).await?;
        Ok(())
    }

    async fn queues(&self) -> StoreResult<Vec<QueueName>> {
        self.look("listing the queues", people::queues).await
    }

    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()> {
        let host = host.clone();
        let work = move |change: &mut Change<'_>| people::heartbeat(change, &host, silence);
        self.change("heartbeat", queue, true, work).await?;
        Ok(())
    }

    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()> {
        let host_id = host_id.to_owned();
        let work = move |change: &mut Change<'_>| people::leave(change, &host_id);
        self.change("leave", queue, false, work).await?;
        Ok(())
    }

    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<HostInfo>> {
        let since_ms = self.clock.now().ms.saturating_sub(ms(silence));
        let hosts = self.look_at("listing the hosts", queue, move |connection, row| {
            people::hosts(connection, row, since_ms)
        });
        Ok(hosts.await?.unwrap_or_default())
    }

    async fn wait(&self, _queues: &[QueueName]) {
        self.wake.heard().await;
    }
}
