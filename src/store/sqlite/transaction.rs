//! How a method becomes transactions: each step is one, and so is each look.

use crate::store::timing::Timed;
use crate::store::{Operation, Side};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::{Failure, store_error};
use super::queue::{QueueRow, QueueTx};
use super::thread::ConnectionThread;
use super::turn::Turn;
use super::{SqliteStore, repeats};
use crate::message::QueueName;
use crate::store::{BATCH_MAX, Cancelled, Redriven, Rescheduled, Settled, StoreError, StoreResult};

/// What a transaction needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct TxOptions {
    /// The queue is made when it is not there yet.
    create: bool,
    /// It survives a power cut, if the file does.
    durable: bool,
}

impl TxOptions {
    pub(super) const CREATE: Self = Self {
        create: true,
        durable: true,
    };
    pub(super) const CHANGE: Self = Self {
        create: false,
        durable: true,
    };
    /// Says who has what in flight, or what time has brought. A power cut ends all hosts on the file, so it
    /// may undo this, and the next `advance` does it again. What is made durable later makes this durable
    /// with it, for the log is written in order. With a delivery its token is undone, when nobody is left
    /// who could show it.
    pub(super) const PASSING: Self = Self {
        create: false,
        durable: false,
    };
    pub(super) const PASSING_CREATE: Self = Self {
        create: true,
        durable: false,
    };
}

/// How far the writing connection waits for the disk.
#[derive(Debug)]
pub(super) struct Syncing {
    /// None when it is the same for all transactions.
    is_full: Option<AtomicBool>,
}

impl Syncing {
    /// Of a connection that is opened with `synchronous = FULL`, if `by_options`.
    pub(super) fn new(by_options: bool) -> Self {
        Self {
            is_full: by_options.then(|| AtomicBool::new(true)),
        }
    }

    /// Before a transaction. Relaxed order: one thread alone writes.
    fn set(&self, connection: &Connection, options: TxOptions) -> rusqlite::Result<()> {
        let Some(is_full) = &self.is_full else {
            return Ok(());
        };
        if is_full.load(Ordering::Relaxed) != options.durable {
            let level = if options.durable { "FULL" } else { "NORMAL" };
            connection.pragma_update(None, "synchronous", level)?;
            is_full.store(options.durable, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What is said of an item.
pub(super) trait Answer: Clone + Send + 'static {
    /// Where there is no such queue.
    const NO_QUEUE: Self;
}

impl Answer for Settled {
    const NO_QUEUE: Self = Self::LeaseLost;
}

impl Answer for Cancelled {
    const NO_QUEUE: Self = Self::Unknown;
}

impl Answer for Rescheduled {
    const NO_QUEUE: Self = Self::Unknown;
}

impl Answer for Redriven {
    const NO_QUEUE: Self = Self::Unknown;
}

impl Answer for bool {
    const NO_QUEUE: Self = false;
}

/// Begins a transaction that writes, when it is this process's turn.
fn begin<'c>(
    connection: &'c mut Connection,
    turn: Option<&Turn>,
) -> rusqlite::Result<Transaction<'c>> {
    let _waiting = turn.map(Turn::wait);
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

impl SqliteStore {
    fn panicked(&self, operation: Operation) -> StoreError {
        StoreError::Refused {
            store: self.name.to_string(),
            operation,
            reason: "a bug in dqhost; nothing of this was done".to_owned(),
        }
    }

    async fn on<T: Send + 'static>(
        &self,
        thread: &ConnectionThread,
        operation: Operation,
        transaction: impl FnOnce(&mut Connection) -> Result<T, Failure> + Send + 'static,
    ) -> StoreResult<T> {
        operation.passes(Side::Before);
        let timed = Timed::begin(operation);
        let answer = thread.run(transaction).await;
        timed.end(matches!(answer, Ok(Ok(_))));
        operation.passes(Side::After);
        answer
            .map_err(|_| self.panicked(operation))?
            .map_err(|failure| store_error(&self.name, operation, &failure))
    }

    /// One transaction on a queue. None when there is no such queue and it is not to be made.
    pub(super) async fn transact<T: Send + 'static>(
        &self,
        operation: Operation,
        queue: &QueueName,
        options: TxOptions,
        work: impl FnOnce(&mut QueueTx<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let (queue, clock, wake) = (queue.clone(), self.clock.clone(), Arc::clone(&self.wake));
        let (syncing, turn) = (Arc::clone(&self.syncing), self.turn.clone());
        let transaction = move |connection: &mut Connection| -> Result<Option<T>, Failure> {
            syncing.set(connection, options)?;
            let tx = begin(connection, turn.as_deref())?;
            // Read when the turn has come: to wait for it is time that passes.
            let Some(mut queue_tx) = QueueTx::on(&tx, &queue, options.create, clock.now())? else {
                return Ok(None);
            };
            let done = queue_tx.apply(|queue_tx| {
                let done = work(queue_tx)?;
                repeats::after_runs(queue_tx)?;
                Ok(done)
            })?;
            let (must_notify, smaller) = (queue_tx.wake, queue_tx.smaller);
            let killed = queue_tx.runs.killed;
            tx.commit()?;
            if killed {
                wake.call_killed();
            } else if must_notify {
                wake.call();
            }
            if smaller {
                // Best effort: readers in the way leave it to the next time.
                let _ = connection.pragma_update(None, "wal_checkpoint", "PASSIVE");
            }
            Ok(Some(done))
        };
        self.on(&self.write, operation, transaction).await
    }

    /// One transaction on what belongs to no queue, or to one that has no row.
    pub(super) async fn transact_file<T: Send + 'static>(
        &self,
        operation: Operation,
        options: TxOptions,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> StoreResult<T> {
        let (syncing, turn) = (Arc::clone(&self.syncing), self.turn.clone());
        let transaction = move |connection: &mut Connection| -> Result<T, Failure> {
            syncing.set(connection, options)?;
            let tx = begin(connection, turn.as_deref())?;
            let done = work(&tx)?;
            tx.commit()?;
            Ok(done)
        };
        self.on(&self.write, operation, transaction).await
    }

    /// One look.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        operation: Operation,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        // One transaction, so that all of it is of one moment.
        let look = move |connection: &mut Connection| -> Result<T, Failure> {
            let tx = connection.transaction()?;
            Ok(work(&tx)?)
        };
        let thread = self.read.as_ref().unwrap_or(&self.write);
        self.on(thread, operation, look).await
    }

    /// One look at a queue; none when there is no such queue.
    pub(super) async fn read_queue<T: Send + 'static>(
        &self,
        operation: Operation,
        queue: &QueueName,
        work: impl FnOnce(&Connection, &QueueRow) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let queue = queue.clone();
        self.read(operation, move |connection| {
            QueueRow::find(connection, queue.as_str())?
                .map(|row| work(connection, &row))
                .transpose()
        })
        .await
    }

    /// Changes in steps, each a transaction, with one answer for each item.
    pub(super) async fn transact_each<I, A>(
        &self,
        (operation, options): (Operation, TxOptions),
        queue: &QueueName,
        items: &[I],
        work: impl Fn(&mut QueueTx<'_>, &[I]) -> Result<Vec<A>, Failure> + Clone + Send + 'static,
    ) -> StoreResult<Vec<A>>
    where
        I: Clone + Send + 'static,
        A: Answer,
    {
        let mut answers = Vec::with_capacity(items.len());
        for step in items.chunks(BATCH_MAX) {
            let (work, items) = (work.clone(), step.to_vec());
            let done = self
                .transact(operation, queue, options, move |queue_tx| {
                    work(queue_tx, &items)
                })
                .await?;
            answers.extend(done.unwrap_or_else(|| vec![A::NO_QUEUE; step.len()]));
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NewMessage;
    use crate::store::sqlite::{Durability, SqliteOptions};
    use crate::store::{Deliver, First, Reservation, SendMessages, Settle, Settlement};
    use std::time::Duration;

    /// What `PRAGMA synchronous` says.
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;

    async fn level(store: &SqliteStore) -> i64 {
        let level = store.write.run(|connection| {
            connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0))
        });
        level.await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn what_must_survive_a_power_cut_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let queue: QueueName = "q".parse().unwrap();
        let wanted = Reservation {
            max: 1,
            lease: Duration::from_mins(1),
            first: First::Ready,
            retries_default: 3,
        };
        for durability in [Durability::Full, Durability::Normal] {
            let mut options = SqliteOptions::file(folder.path().join(format!("{durability:?}.db")));
            options.durability = durability;
            let full = match durability {
                Durability::Full => FULL,
                Durability::Normal => NORMAL,
            };
            let store = SqliteStore::open(&options).await.unwrap();
            for _ in 0..2 {
                let message = NewMessage::new("x");
                store.send(&queue, &[message]).await.unwrap();
                assert_eq!(level(&store).await, full);
                let delivery = store.reserve(&queue, wanted).await.unwrap().remove(0);
                assert_eq!(level(&store).await, NORMAL);
                let settlement = (delivery.claim, Settlement::ACK);
                store.settle(&queue, &[settlement]).await.unwrap();
                assert_eq!(level(&store).await, full);
                let (_, none) = store.advance_and_reserve(&queue, wanted).await.unwrap();
                assert!(none.is_empty());
                assert_eq!(level(&store).await, NORMAL);
            }
        }
    }
}
