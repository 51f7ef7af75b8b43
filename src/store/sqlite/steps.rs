//! How a method becomes transactions: each step is one, and so is each look.

use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};

use super::SqliteStore;
use super::error::{Failure, store_error};
use super::queue::{Change, QueueRow};
use crate::message::QueueName;
use crate::store::{BATCH_MAX, Cancelled, Redriven, Rescheduled, Settled, StoreError, StoreResult};

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

impl SqliteStore {
    fn panicked(&self, operation: &'static str) -> StoreError {
        StoreError::Refused {
            store: self.name.to_string(),
            operation,
            reason: "a bug in dqhost; nothing of this was done".to_owned(),
        }
    }

    /// One transaction on a queue. None when there is no such queue and it is not to be made.
    pub(super) async fn change<T: Send + 'static>(
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
    pub(super) async fn look<T: Send + 'static>(
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
    pub(super) async fn look_at<T: Send + 'static>(
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
    pub(super) async fn change_each<I, A>(
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
