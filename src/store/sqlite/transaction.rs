//! How a method becomes transactions: each step is one, and so is each look.

use crate::store::timing::Timed;
use crate::store::{Operation, Side};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::{Failure, store_error};
use super::queue::{QueueRow, QueueTx};
use super::thread::NoAnswer;
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
    fn unanswered(&self, operation: Operation, why: &NoAnswer) -> StoreError {
        let why = match why {
            NoAnswer::Panicked => "a bug in dqhost",
            NoAnswer::Closed => "this program has closed it",
        };
        StoreError::Refused {
            store: self.name.to_string(),
            operation,
            reason: format!("{why}; nothing of this was done"),
        }
    }

    /// A transaction whose answer comes when it is on the disk, if its options and those of the store say so.
    async fn on_disk<T: Send + 'static>(
        &self,
        operation: Operation,
        options: TxOptions,
        transaction: impl FnOnce(&mut Connection) -> Result<T, Failure> + Send + 'static,
    ) -> StoreResult<T> {
        let flusher = self.flusher.clone();
        if operation == Operation::Reserve {
            self.reserves.store(true, Relaxed);
        }
        let (reserves, waiting) = (self.reserves.load(Relaxed), self.write.waiting());
        let answer = self.write.hand_over(move |connection, answer| {
            let is_believed = flusher.as_ref().map_or(Ok(()), |disk| disk.is_believed());
            let done = is_believed.and_then(|()| transaction(connection));
            match flusher {
                Some(flusher) if options.durable && done.is_ok() => {
                    // With nothing else to do, this thread may wait for the disk itself.
                    if !reserves && waiting.load(Relaxed) == 0 {
                        let _ = answer.send(flusher.now().and(done));
                        return;
                    }
                    flusher.then(move |flushed| {
                        let _ = answer.send(flushed.and(done));
                    });
                }
                _ => {
                    let _ = answer.send(done);
                }
            }
        });
        self.answered(operation, answer).await
    }

    /// The answer to an operation, and the points at which tests stop it.
    async fn answered<T>(
        &self,
        operation: Operation,
        answer: impl Future<Output = Result<Result<T, Failure>, NoAnswer>>,
    ) -> StoreResult<T> {
        operation.passes(Side::Before);
        let timed = Timed::begin(operation);
        let answer = answer.await;
        timed.end(matches!(answer, Ok(Ok(_))));
        operation.passes(Side::After);
        answer
            .map_err(|why| self.unanswered(operation, &why))?
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
        let turn = self.turn.clone();
        let transaction = move |connection: &mut Connection| -> Result<Option<T>, Failure> {
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
        self.on_disk(operation, options, transaction).await
    }

    /// One transaction on what belongs to no queue, or to one that has no row.
    pub(super) async fn transact_file<T: Send + 'static>(
        &self,
        operation: Operation,
        options: TxOptions,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> StoreResult<T> {
        let turn = self.turn.clone();
        let transaction = move |connection: &mut Connection| -> Result<T, Failure> {
            let tx = begin(connection, turn.as_deref())?;
            let done = work(&tx)?;
            tx.commit()?;
            Ok(done)
        };
        self.on_disk(operation, options, transaction).await
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
        self.answered(operation, thread.run(look)).await
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
    use crate::store::sqlite::flush::Flusher;
    use crate::store::sqlite::{Durability, SqliteOptions};
    use crate::store::{Deliver, First, Reservation, SendMessages, Settle, Settlement};
    use std::io;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    const WANTED: Reservation = Reservation {
        max: 1,
        lease: Duration::from_mins(1),
        first: First::Ready,
        retries_default: 3,
    };

    /// A disk that says when it begins to flush, and does not end before it is let.
    fn slow_disk() -> (Flusher, UnboundedReceiver<()>, mpsc::Sender<io::Result<()>>) {
        let (began, begins) = unbounded_channel();
        let (ends, end) = mpsc::channel();
        let flusher = Flusher::start(move || {
            let _ = began.send(());
            end.recv().unwrap_or(Ok(()))
        });
        (flusher.unwrap(), begins, ends)
    }

    #[tokio::test]
    async fn what_must_survive_a_power_cut_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let queue: QueueName = "q".parse().unwrap();
        let options = SqliteOptions::file(folder.path().join("q.db"));
        let mut store = SqliteStore::open(&options).await.unwrap();
        let (flusher, mut begins, ends) = slow_disk();
        store.flusher = Some(Arc::new(flusher));
        // As a host does.
        assert!(store.reserve(&queue, WANTED).await.unwrap().is_empty());
        let messages = [NewMessage::new("x")];
        let mut send = std::pin::pin!(store.send(&queue, &messages));
        tokio::select! {
            biased;
            _ = &mut send => panic!("it did not wait"),
            _ = begins.recv() => {}
        }
        // Who has what in flight does not wait, not even for a flush that is under way.
        let delivery = store.reserve(&queue, WANTED).await.unwrap().remove(0);
        ends.send(Ok(())).unwrap();
        assert!(send.await.is_ok());
        let settlements = [(delivery.claim, Settlement::ACK)];
        let mut settle = std::pin::pin!(store.settle(&queue, &settlements));
        tokio::select! {
            biased;
            _ = &mut settle => panic!("it did not wait"),
            _ = begins.recv() => {}
        }
        ends.send(Err(io::Error::other("it burns"))).unwrap();
        let error = settle.await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("it burns"), "{error}");
        assert!(begins.try_recv().is_err());
        // Without a disk that keeps verdicts no attempt begins, so none is used up.
        let error = store.reserve(&queue, WANTED).await.unwrap_err();
        assert!(error.to_string().contains("it burns"), "{error}");
    }

    #[tokio::test]
    async fn who_reserves_nothing_waits_for_the_disk_without_another_thread() {
        let folder = tempfile::tempdir().unwrap();
        let queue: QueueName = "q".parse().unwrap();
        let options = SqliteOptions::file(folder.path().join("q.db"));
        let mut store = SqliteStore::open(&options).await.unwrap();
        let (told, on) = mpsc::channel();
        let flusher = Flusher::start(move || {
            let thread = std::thread::current();
            let _ = told.send(thread.name().map(str::to_owned));
            Ok(())
        });
        store.flusher = Some(Arc::new(flusher.unwrap()));
        let messages = [NewMessage::new("x")];
        store.send(&queue, &messages).await.unwrap();
        assert_eq!(on.recv().unwrap().as_deref(), Some("sqlite-write"));
        store.reserve(&queue, WANTED).await.unwrap();
        store.send(&queue, &messages).await.unwrap();
        assert_eq!(on.recv().unwrap().as_deref(), Some("sqlite-flush"));
        assert!(on.try_recv().is_err());
    }

    #[tokio::test]
    async fn only_a_file_that_is_to_survive_a_power_cut_is_flushed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| SqliteOptions::file(folder.path().join(name));
        let mut normal = file("normal");
        normal.durability = Durability::Normal;
        for (options, expected) in [
            (file("full"), true),
            (normal, false),
            (SqliteOptions::memory(), false),
        ] {
            let store = SqliteStore::open(&options).await.unwrap();
            assert_eq!(store.flusher.is_some(), expected, "{options:?}");
        }
    }
}
