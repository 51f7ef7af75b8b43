//! How messages move from one store to another.

use async_trait::async_trait;

use crate::message::{MessageId, QueueName, Record};
use crate::store::{Peer, StoreResult};

/// How messages move from one store to another: see [`move_queue`](mod@crate::store::move_queue).
#[async_trait]
pub trait Transfer: Send + Sync + 'static {
    /// Begins a move to or from another store. From here on only calls with the run of `peer` take
    /// effect, so that of two copies the later goes on alone.
    ///
    /// Refused when messages are moving to or from a third store.
    async fn begin_transfer(&self, queue: &QueueName, peer: &Peer) -> StoreResult<()>;

    /// The first half of leaving: takes up to `max` messages, at most [`BATCH_MAX`], out of every
    /// host's reach, and returns them as they will be in the other store. What an earlier call took
    /// is returned again before anything else is taken. Messages in unack stay.
    ///
    /// In the records `state` is the one to arrive in, and `at_ms` is for ready and retry when the
    /// message became due.
    async fn export(&self, queue: &QueueName, run: &str, max: usize) -> StoreResult<Vec<Record>>;

    /// The first half of arriving: keeps what the other store has exported, still out of every
    /// host's reach. A message that is here already is left as it is.
    async fn import(&self, queue: &QueueName, run: &str, records: &[Record]) -> StoreResult<()>;

    /// The second half of leaving: removes messages that are moving, once the other store has them.
    async fn remove_exported(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()>;

    /// The second half of arriving: puts messages that are moving into their states, once the
    /// other store has removed them.
    async fn commit_import(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()>;

    /// Puts a mark where every store that shares messages or payloads with this one sees it, or takes it
    /// away. Returns true when it took one away. A mark vanishes by itself, after four seconds or later.
    async fn mark(&self, queue: &QueueName, mark: &str, is_put: bool) -> StoreResult<bool>;
}
