//! The contract between the host and whatever keeps the messages.
//!
//! Every method is one atomic step for each message it names, or a bounded number of them: after a
//! crash at any moment each message is in exactly one [`State`](crate::message::State), and the
//! next call of [`Store::advance`] by any host repairs what the crash left behind. The store's own
//! clock decides what is due and which lease has ended; a host's clock decides nothing.
//!
//! A delivery is named by a [`Claim`]: the id and a token that changes with every delivery. A
//! settlement, an extension or a release whose token is not the current one, or whose message is
//! not in unack, answers [`Settled::LeaseLost`] and changes nothing. So each of them may be
//! repeated: the second call finds the lease gone.
//!
//! The contract suite in `tests/it/contract` runs against every store.

use std::time::Duration;

use async_trait::async_trait;

use crate::message::{
    Attempt, Claim, Delivery, Due, MessageId, NewMessage, Outgoing, QueueName, Record, Sent, State,
};

pub mod address;
mod common;
mod error;
pub mod move_queue;
mod notifier;
mod operation;
pub mod redis;
mod report;
mod retention;
pub mod sqlite;

pub use self::error::{StoreError, StoreResult};
pub use self::move_queue::Peer;
pub use self::operation::{Operation, Side};
pub use self::report::{
    Audit, AuditReport, Cancelled, Counts, Discovered, FAILED_SAMPLE_MAX, FINDING_SAMPLES_MAX,
    FailedAt, FailedSample, FindingKind, Findings, HOST_SILENCE, HostInfo, Overview, Redriven,
    Rescheduled, SeenHost, Totals,
};
pub use self::retention::Retention;

/// The most messages that one step inside a store moves. Methods take more and go on in steps.
/// 1,000 keeps every Lua script in the low milliseconds and far from Lua's limit of 7,999 values.
pub const BATCH_MAX: usize = 1000;

/// The most messages, and the most bytes of their payloads and headers, that go with one ack: one
/// step has to take them all.
pub const OUTBOX_MAX: usize = 1000;
/// See [`OUTBOX_MAX`].
pub const OUTBOX_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What became of one settlement, extension or release. Not an error: a lost lease is ordinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It took effect.
    Done,
    /// The lease is not (or no longer) this one's; nothing was changed.
    LeaseLost,
    /// The store does not take the messages that go with the ack: it has no room, or they may not go
    /// there. Nothing was changed, and the lease goes on as it was.
    Refused,
}

/// How a delivery ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Handled: the message is removed, and what its handler sent is accepted in the same step.
    Ack {
        /// At most [`OUTBOX_MAX`]; of two that go to one queue the earlier is the next out. Only to
        /// queues of which [`Store::can_send_along`] is true.
        outbox: Vec<Outgoing>,
    },
    /// Not handled: one retry less, or dead when none is left.
    Nack {
        /// How long to wait before the next attempt; none for at once.
        delay: Option<Duration>,
        /// What is kept of the attempt.
        attempt: Attempt,
    },
    /// Never to be handled: dead, whatever retries are left.
    Reject {
        /// What is kept of the attempt.
        attempt: Attempt,
    },
}

impl Settlement {
    /// An ack of a handler that sent nothing.
    pub const ACK: Self = Self::Ack { outbox: Vec::new() };
}

/// Which waiting messages a reservation looks at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Those that were never delivered.
    Ready,
    /// Those that failed before.
    Retry,
}

impl First {
    /// What the reservation of this number looks at first: one in four at those that failed before,
    /// so that new ones do not starve them.
    #[must_use]
    pub fn in_turn(reservation: u32) -> Self {
        if reservation.is_multiple_of(4) {
            Self::Retry
        } else {
            Self::Ready
        }
    }
}

/// What is wanted of one [`Store::reserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Messages at most: the free slots.
    pub max: usize,
    /// How long they are the host's, unless renewed.
    pub lease: Duration,
    /// Where to look first.
    pub first: First,
    /// The retries of a message whose producer recorded none.
    pub retries_default: u32,
}

/// What one [`Store::advance`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Advanced {
    /// Messages promoted from pending.
    pub promoted: usize,
    /// Those of them that were put in line after the reservation of the same step, so that it could not
    /// see them.
    pub adopted: usize,
    /// Leases that had ended.
    pub expired: usize,
    /// Dead letters made.
    pub dead_lettered: usize,
    /// True when a step was full, so that there may be more to do at once.
    pub more: bool,
    /// True when messages wait that [`Store::reserve`] may give out.
    pub waiting: bool,
    /// Time until the next message is due or the next lease ends, by the store's clock; none when
    /// neither is in sight.
    pub next_in: Option<Duration>,
}

/// A place that keeps messages and moves them through the pipeline.
///
/// In the life of a message: [`send`](Self::send), [`advance`](Self::advance),
/// [`reserve`](Self::reserve), [`extend`](Self::extend), [`settle`](Self::settle) or
/// [`release`](Self::release); beside it what people ask for.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What this store is, for people: kind and place, without secrets.
    fn describe(&self) -> String;

    /// Accepts messages.
    ///
    /// Before: the ids are new. After: each message is pending, or ready when it is due already,
    /// and will not be lost by anything that the store survives. A repeat with the same ids while
    /// they live, or within their windows, writes nothing. All or nothing for each step of up to [`BATCH_MAX`] messages or
    /// 4 MiB; on an error the steps before it have been accepted.
    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>>;

    /// Does one bounded step of each duty that time brings: promotes what is due, takes back what
    /// a lease has ended for, buries garbage.
    ///
    /// A repeat does the next step, or nothing. Every host calls this again and again; it is what
    /// repairs the crash of any other.
    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced>;

    /// Reserves waiting messages, oldest first.
    ///
    /// Before: the host has that many free slots, for the lease runs from here. After: each is in
    /// unack with a token of its own. When the answer is lost, the leases end and `advance` takes
    /// the messages back, at the price of an attempt. Of a paused queue nothing is taken.
    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>>;

    /// [`advance`](Self::advance) and [`reserve`](Self::reserve) in one step: what a host does when
    /// a message is due. Promotes, reserves, then does the other duties, so that what a lease has
    /// ended for is given out by the next call. `next_in` may leave out the leases that begin here.
    async fn advance_and_reserve(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<(Advanced, Vec<Delivery>)>;

    /// Makes leases end `lease` from now. One answer for each claim, in order.
    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>>;

    /// Ends deliveries. One answer for each, in order.
    ///
    /// After a done one: an acked message is gone, and its outbox is accepted as by
    /// [`send`](Self::send), in one step with the ack, but for ids that live already, that of the
    /// acked message among them; a nacked one waits in pending or retry with one
    /// retry less, or is on its way to the dead letters; a rejected one is on its way there.
    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>>;

    /// Whether an ack of a message of `from` can carry messages to `to` in one step.
    fn can_send_along(&self, from: &QueueName, to: &QueueName) -> bool;

    /// Gives deliveries back unhandled: next in line, with the attempt given back. One answer for
    /// each claim, in order.
    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>>;

    /// Takes back messages that wait. One answer for each id, in order.
    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>>;

    /// Gives waiting messages (pending, ready, retry) another due time. One answer for each id, in
    /// order.
    ///
    /// After: due later, it is pending; due now, one that was pending is ready, or in retry when it
    /// has failed before, and one that is in line already keeps its place. Failed attempts and
    /// retries stay as they are. A repeat does the same again, counted from then.
    async fn reschedule(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        due: Due,
    ) -> StoreResult<Vec<Rescheduled>>;

    /// Stops giving out the queue's messages on every host, or resumes it and wakes the hosts. What
    /// is said last holds, also after a restart of hosts and store; a repeat changes nothing. The
    /// queue is made when it is not there yet.
    ///
    /// While it is paused `reserve` answers nothing; what is in flight is finished, and all else goes
    /// on. In Redis a delayqueue (Go) consumer of the queue knows nothing of this and goes on.
    async fn set_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<()>;

    /// How many messages are in each state, and the totals.
    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts>;

    /// How the queue stands, at a cost that does not grow with it. All zero for a queue that is not
    /// there, but for the time. Changes meanwhile may be in one part and not in another.
    async fn overview(&self, queue: &QueueName) -> StoreResult<Overview>;

    /// All that is known of one message, or none.
    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>>;

    /// A page of the messages in one state, without their payloads' bytes beyond
    /// `payload_max` each: dead letters latest first, pending and unack by time, ready and retry
    /// next out first. At most [`BATCH_MAX`].
    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>>;

    /// Puts dead letters back into their queue, due at once, each under a new id. `retries` is
    /// their new budget; none gives each the budget it had. One answer for each id, in order. A
    /// repeat finds the dead letters gone.
    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        retries: Option<u32>,
    ) -> StoreResult<Vec<Redriven>>;

    /// Sends a dead letter's headers with another payload as a new message, due at once; its payload
    /// may be missing. `retries` is as for [`redrive`](Self::redrive). The dead letter itself stays
    /// as it is, so a repeat sends one more.
    async fn redrive_edited(
        &self,
        queue: &QueueName,
        id: &MessageId,
        payload: &[u8],
        retries: Option<u32>,
    ) -> StoreResult<Redriven>;

    /// Dead letters that are to be kept no longer, by the store's clock: at most [`BATCH_MAX`], so
    /// delete these and ask again until there are none. Changes nothing.
    async fn past_retention(
        &self,
        queue: &QueueName,
        retention: Retention,
    ) -> StoreResult<Vec<MessageId>>;

    /// Removes dead letters for good. One answer for each id, in order: whether it was there.
    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>>;

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

    /// Compares all that is kept of a queue's messages and says what does not go together. Repairs
    /// it too when that is wanted, and makes a dead letter of what can be no message any more.
    ///
    /// Made for a queue that is in use: it reads and repairs in bounded steps, and a finding is
    /// something that was wrong at one moment. What others change meanwhile is neither a finding nor
    /// overwritten: each repair looks again, and does nothing where anything is not as it was found.
    /// A lease that runs is never broken. What others have settled before its repair is not counted.
    ///
    /// After a repair: each message is in one state, with its payload unless it is dead or moving,
    /// and no payload that was there is gone. Each message's repair is one step, so that after a
    /// crash the next audit goes on with the rest, and a repeat finds nothing.
    async fn audit(&self, queue: &QueueName, how: Audit) -> StoreResult<AuditReport>;

    /// The same for what belongs to no queue in particular. When it finds the store damaged, no queue
    /// is to be audited.
    async fn audit_store(&self, repair: bool) -> StoreResult<AuditReport>;

    /// The queues that this store has seen a dqhost producer or host use, sorted.
    async fn queues(&self) -> StoreResult<Vec<QueueName>>;

    /// True when programs other than dqhost may have queues here that [`queues`](Self::queues) does not
    /// know.
    fn has_other_users(&self) -> bool {
        false
    }

    /// The same queues, and those that only others have used, looked for among up to `keys_max` keys
    /// (rounded up to whole pages of 1,000).
    async fn discover(&self, keys_max: u64) -> StoreResult<Discovered> {
        let _ = keys_max;
        Ok(Discovered {
            queues: self.queues().await?,
            complete: true,
        })
    }

    /// What to do when a queue has no messages here, and a delayqueue with other settings has some of a
    /// queue of this name: none when that is not so.
    async fn naming_hint(&self, queue: &QueueName) -> StoreResult<Option<String>> {
        let _ = queue;
        Ok(None)
    }

    /// Makes a host visible to others on this queue for `silence` more, and forgets a bounded number of
    /// ids whose [`NewMessage::dedup_window`] is over.
    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()>;

    /// Puts a mark where every store that shares messages or payloads with this one sees it, or takes it
    /// away again. Returns true when it took one away. A mark vanishes by itself, after four seconds at
    /// the earliest.
    async fn mark(&self, queue: &QueueName, mark: &str, is_put: bool) -> StoreResult<bool>;

    /// Takes a host off the list.
    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()>;

    /// The hosts on this queue that have been heard of within `silence`, by id.
    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<SeenHost>>;

    /// Returns when a message may have become ready in one of these queues sooner than the caller
    /// knew, or never. A hint: it may come without need and it may be lost, so callers wait with a
    /// limit as well. A change between two calls is not lost by the second.
    async fn wait(&self, queues: &[QueueName]);
}

/// Which part of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// How many to pass over.
    pub offset: usize,
    /// How many at most.
    pub limit: usize,
    /// Bytes of each payload that are wanted at most; with 0 the records say nothing of payloads,
    /// and their `payload` is none.
    pub payload_max: usize,
}
