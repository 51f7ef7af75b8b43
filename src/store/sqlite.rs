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

use self::error::Failure;
use self::queue::QueueTx;
use self::thread::ConnectionThread;
use self::transaction::{Syncing, TxOptions};
use self::turn::Turn;
use self::wake::Wake;
use super::Operation;
use super::common::{import_steps, send_steps, settle_steps};
use super::move_queue::mark_as_host;
use super::{
    Advanced, Audit, AuditReport, Cancelled, Counts, HostInfo, Overview, Page, Peer, Redriven,
    Rescheduled, Reservation, Retention, SeenHost, Settled, Settlement, Store, StoreResult,
};
use crate::clock::Clock;
use crate::message::{Claim, Delivery, Due, MessageId, NewMessage, QueueName, Record, Sent, State};

mod audit;
mod dedup;
mod deliver;
mod disk;
mod error;
mod open;
mod overview;
mod people;
mod queue;
mod retention;
mod settle;
mod thread;
mod transaction;
mod transfer;
mod turn;
mod wake;

pub use open::{Durability, SqliteOptions};

/// A queue store in one file.
pub struct SqliteStore {
    write: ConnectionThread,
    /// None in memory, which one connection alone can see.
    read: Option<ConnectionThread>,
    /// None in memory.
    turn: Option<Arc<Turn>>,
    wake: Arc<Wake>,
    syncing: Arc<Syncing>,
    /// None in memory.
    room: Option<DiskReserve>,
    /// How people and errors name it.
    name: Arc<str>,
    clock: Clock,
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

#[async_trait]
impl Store for SqliteStore {
    fn describe(&self) -> String {
        self.name.to_string()
    }

    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>> {
        let mut sent = Vec::with_capacity(messages.len());
        for step in send_steps(messages) {
            let (step, room) = (step.to_vec(), self.room.clone());
            let work = move |tx: &mut QueueTx<'_>| {
                room.as_ref().map_or(Ok(()), DiskReserve::check)?;
                deliver::send(tx, &step)
            };
            let done = self
                .transact(Operation::Send, queue, TxOptions::CREATE, work)
                .await?;
            sent.extend(done.unwrap_or_default());
        }
        Ok(sent)
    }

    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced> {
        const OPERATION: Operation = Operation::Advance;
        let clock = self.clock.clone();
        // A look first: when nothing is due, as most often, nobody is kept from writing.
        let duties = self
            .read_queue(OPERATION, queue, move |connection, row| {
                deliver::duties(connection, row, clock.now())
            })
            .await?;
        let idle = Advanced {
            waiting: duties.as_ref().is_some_and(|duties| duties.waiting),
            next_in: duties.as_ref().and_then(|duties| duties.next_in),
            ..Advanced::default()
        };
        if !duties.is_some_and(|duties| duties.now) {
            return Ok(idle);
        }
        let done = self
            .transact(OPERATION, queue, TxOptions::PASSING, deliver::advance)
            .await?;
        Ok(done.unwrap_or(idle))
    }

    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>> {
        const OPERATION: Operation = Operation::Reserve;
        let work = move |tx: &mut QueueTx<'_>| deliver::reserve(tx, wanted);
        let done = self
            .transact(OPERATION, queue, TxOptions::PASSING, work)
            .await?;
        Ok(done.unwrap_or_default())
    }

    async fn advance_and_reserve(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<(Advanced, Vec<Delivery>)> {
        let work = move |tx: &mut QueueTx<'_>| deliver::advance_and_reserve(tx, wanted);
        let done = self
            .transact(Operation::Reserve, queue, TxOptions::PASSING, work)
            .await?;
        Ok(done.unwrap_or_default())
    }

    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>> {
        let work = move |tx: &mut QueueTx<'_>, claims: &[Claim]| deliver::extend(tx, claims, lease);
        self.transact_each((Operation::Extend, TxOptions::PASSING), queue, claims, work)
            .await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        let mut answers = Vec::with_capacity(settlements.len());
        for step in settle_steps(settlements) {
            let room = self.room.clone();
            let work = move |tx: &mut QueueTx<'_>, some: &[(Claim, Settlement)]| {
                settle::settle(tx, some, room.as_ref())
            };
            answers.extend(
                self.transact_each((Operation::Settle, TxOptions::CHANGE), queue, step, work)
                    .await?,
            );
        }
        Ok(answers)
    }

    fn can_send_along(&self, _from: &QueueName, _to: &QueueName) -> bool {
        true
    }

    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>> {
        let work = |tx: &mut QueueTx<'_>, some: &[Claim]| settle::release(tx, some);
        self.transact_each((Operation::Release, TxOptions::CHANGE), queue, claims, work)
            .await
    }

    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        let work = |tx: &mut QueueTx<'_>, some: &[MessageId]| people::cancel(tx, some);
        self.transact_each((Operation::Cancel, TxOptions::CHANGE), queue, ids, work)
            .await
    }

    async fn reschedule(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        due: Due,
    ) -> StoreResult<Vec<Rescheduled>> {
        let work =
            move |tx: &mut QueueTx<'_>, some: &[MessageId]| people::reschedule(tx, some, due);
        self.transact_each((Operation::Reschedule, TxOptions::CHANGE), queue, ids, work)
            .await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<()> {
        let work = move |tx: &mut QueueTx<'_>| {
            people::set_paused(tx, paused);
            Ok(())
        };
        self.transact(Operation::Pause, queue, TxOptions::CREATE, work)
            .await?;
        Ok(())
    }

    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts> {
        let counts = self.read_queue(Operation::Count, queue, |_, row| Ok(row.counts()));
        Ok(counts.await?.unwrap_or_default())
    }

    async fn overview(&self, queue: &QueueName) -> StoreResult<Overview> {
        let now_ms = self.clock.now().ms;
        let overview = self.read_queue(Operation::Overview, queue, move |connection, row| {
            overview::read(connection, row, now_ms)
        });
        Ok(overview.await?.unwrap_or_else(|| Overview {
            now_ms,
            ..Overview::default()
        }))
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>> {
        let id = id.clone();
        let record = self.read_queue(Operation::Get, queue, move |connection, row| {
            people::get(connection, row, &id)
        });
        Ok(record.await?.flatten())
    }

    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>> {
        let records = self.read_queue(Operation::List, queue, move |connection, row| {
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
        let work =
            move |tx: &mut QueueTx<'_>, some: &[MessageId]| people::redrive(tx, some, retries);
        self.transact_each((Operation::Redrive, TxOptions::CHANGE), queue, ids, work)
            .await
    }

    async fn redrive_edited(
        &self,
        queue: &QueueName,
        id: &MessageId,
        payload: &[u8],
        retries: Option<u32>,
    ) -> StoreResult<Redriven> {
        let (id, payload, room) = (id.clone(), payload.to_vec(), self.room.clone());
        let work = move |tx: &mut QueueTx<'_>| {
            room.as_ref().map_or(Ok(()), DiskReserve::check)?;
            people::redrive_edited(tx, &id, &payload, retries)
        };
        let done = self
            .transact(Operation::Redrive, queue, TxOptions::CHANGE, work)
            .await?;
        Ok(done.unwrap_or(Redriven::Unknown))
    }

    async fn past_retention(
        &self,
        queue: &QueueName,
        retention: Retention,
    ) -> StoreResult<Vec<MessageId>> {
        let now_ms = self.clock.now().ms;
        let ids = self.read_queue(Operation::List, queue, move |connection, row| {
            retention::past_retention(connection, row, retention, now_ms)
        });
        Ok(ids.await?.unwrap_or_default())
    }

    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>> {
        let work = |tx: &mut QueueTx<'_>, some: &[MessageId]| people::delete_dead(tx, some);
        self.transact_each((Operation::DeleteDead, TxOptions::CHANGE), queue, ids, work)
            .await
    }

    async fn begin_transfer(&self, queue: &QueueName, peer: &Peer) -> StoreResult<()> {
        let peer = peer.clone();
        let work = move |tx: &mut QueueTx<'_>| transfer::begin_transfer(tx, peer);
        self.transact(Operation::Copy, queue, TxOptions::CREATE, work)
            .await?;
        Ok(())
    }

    async fn export(&self, queue: &QueueName, run: &str, max: usize) -> StoreResult<Vec<Record>> {
        let run = run.to_owned();
        let work = move |tx: &mut QueueTx<'_>| transfer::export(tx, &run, max);
        let done = self
            .transact(Operation::Export, queue, TxOptions::CHANGE, work)
            .await?;
        Ok(done.unwrap_or_default())
    }

    async fn import(&self, queue: &QueueName, run: &str, records: &[Record]) -> StoreResult<()> {
        for step in import_steps(records) {
            let (run, step, room) = (run.to_owned(), step.to_vec(), self.room.clone());
            let work = move |tx: &mut QueueTx<'_>| {
                room.as_ref().map_or(Ok(()), DiskReserve::check)?;
                transfer::import(tx, &run, &step)
            };
            self.transact(Operation::Import, queue, TxOptions::CREATE, work)
                .await?;
        }
        Ok(())
    }

    async fn remove_exported(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        let (run, ids) = (run.to_owned(), ids.to_vec());
        let work = move |tx: &mut QueueTx<'_>| transfer::remove_exported(tx, &run, &ids);
        self.transact(Operation::RemoveExported, queue, TxOptions::CHANGE, work)
            .await?;
        Ok(())
    }

    async fn commit_import(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        let (run, ids) = (run.to_owned(), ids.to_vec());
        let work = move |tx: &mut QueueTx<'_>| transfer::commit_import(tx, &run, &ids);
        self.transact(Operation::CommitImport, queue, TxOptions::CHANGE, work)
            .await?;
        Ok(())
    }

    async fn audit(&self, queue: &QueueName, how: Audit) -> StoreResult<AuditReport> {
        self.audit_queue(queue, how.repair).await
    }

    async fn audit_store(&self, repair: bool) -> StoreResult<AuditReport> {
        self.audit_file(repair).await
    }

    async fn queues(&self) -> StoreResult<Vec<QueueName>> {
        self.read(Operation::ListQueues, people::queues).await
    }

    async fn mark(&self, queue: &QueueName, mark: &str, is_put: bool) -> StoreResult<bool> {
        mark_as_host(self, queue, mark, is_put).await
    }

    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()> {
        let host = host.clone();
        let work = move |tx: &mut QueueTx<'_>| people::heartbeat(tx, &host, silence);
        self.transact(Operation::Heartbeat, queue, TxOptions::PASSING_CREATE, work)
            .await?;
        Ok(())
    }

    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()> {
        let host_id = host_id.to_owned();
        let work = move |tx: &mut QueueTx<'_>| people::leave(tx, &host_id);
        self.transact(Operation::Leave, queue, TxOptions::PASSING, work)
            .await?;
        Ok(())
    }

    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<SeenHost>> {
        let now_ms = self.clock.now().ms;
        let hosts = self.read_queue(Operation::ListHosts, queue, move |connection, row| {
            people::hosts(connection, row, now_ms, silence)
        });
        Ok(hosts.await?.unwrap_or_default())
    }

    async fn wait(&self, queues: &[QueueName]) {
        self.wake.notified(queues).await;
    }
}
