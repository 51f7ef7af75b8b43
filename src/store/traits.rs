//! What a store can do, one trait for each kind of caller. Each store implements each of them in the
//! file of the same name.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Advanced, Audit, AuditReport, Cancelled, Counts, Discovered, DueAhead, Ended, Events, HostInfo,
    LimitedReservation, Limits, Overview, Page, PageEnd, Redrive, Redriven, Rescheduled,
    Reservation, Retention, SeenHost, Settled, Settlement, StoreResult, Subscription, Topics,
};
use crate::message::{Claim, Delivery, Due, MessageId, NewMessage, QueueName, Record, Sent, State};

mod ticks;
mod transfer;

pub use ticks::SendTicks;
pub use transfer::Transfer;

/// A place that keeps messages and moves them through the pipeline.
///
/// In the life of a message: `send`, `advance`, `reserve`, `extend`, then `settle` or `release`.
pub trait Store:
    SendMessages
    + Advance
    + Deliver
    + Settle
    + Hosts
    + Inspect
    + Discover
    + Manage
    + SendTicks
    + Transfer
    + AuditQueues
    + Events
    + Topics
    + Close
{
}

impl<T> Store for T where
    T: SendMessages
        + Advance
        + Deliver
        + Settle
        + Hosts
        + Inspect
        + Discover
        + Manage
        + SendTicks
        + Transfer
        + AuditQueues
        + Events
        + Topics
        + Close
{
}

/// A producer: what accepts messages.
#[async_trait]
pub trait SendMessages: Send + Sync + 'static {
    /// Accepts messages.
    ///
    /// Before: the ids are new. After: each message is pending, or ready when it is due already,
    /// and will not be lost by anything that the store survives. A repeat with the same ids while
    /// they live, or within their windows, writes nothing. All or nothing for each step of up to [`BATCH_MAX`] messages or
    /// 4 MiB; on an error the steps before it have been accepted.
    ///
    /// A message with another [`NewMessage::on_repeat`] than `Ignore` may change what is there, and in Redis
    /// is a step of its own. If that is in unack, it takes effect when the delivery has ended.
    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>>;
}

/// What time brings.
#[async_trait]
pub trait Advance: Send + Sync + 'static {
    /// Does one bounded step of each duty that time brings: promotes what is due, takes back what
    /// a lease has expired for, buries garbage.
    ///
    /// A repeat does the next step, or nothing. Every host calls this again and again; it is what
    /// repairs the crash of any other.
    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced>;
}

/// A consumer: reserves messages, keeps them and gives them back.
#[async_trait]
pub trait Deliver: Send + Sync + 'static {
    /// Reserves waiting messages, oldest first.
    ///
    /// Before: the host has that many free slots, for the lease runs from here. After: each is in
    /// unack with a token of its own. When the answer is lost, the leases expire and `advance` takes
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

    /// [`reserve`](Self::reserve) within the limits of the queue, which hold for all who reserve with
    /// limits, in whatever process: the store keeps count, by its own clock.
    ///
    /// What is over a limit stays where it is, and costs no attempt. With [`Limits::NONE`] it is
    /// `reserve`. After a crash nothing is to be repaired: what counts as running is what is in unack,
    /// and the time of the rate is kept in the same step as the leases. A clock that is set back, or
    /// other limits, delay messages by the time of one burst at most.
    ///
    /// With [`Limits::fair_by`], what is in line is sorted by key, some hundred messages in a call. A call
    /// for no message at all sorts, too.
    async fn reserve_limited(
        &self,
        queue: &QueueName,
        wanted: Reservation,
        limits: &Limits,
    ) -> StoreResult<LimitedReservation>;

    /// Makes leases expire `lease` from now. One answer for each claim, in order.
    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>>;

    /// Gives deliveries back unhandled: next in line, with the attempt given back. One answer for
    /// each claim, in order.
    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>>;

    /// A reservation of fewer messages costs nearly what one of so many does. While others wait for a thread of
    /// the host, it waits until so many slots are free, or a quarter of them.
    fn reservation_worth(&self) -> usize;

    /// Subscribes to hints that a message may have become ready in one of these queues sooner than the
    /// caller knew. To be called in a Tokio runtime.
    /// A hint may come without need, or be lost. So callers [`advance`](Advance::advance) in between.
    fn subscribe(&self, queues: &[QueueName]) -> Subscription;
}

/// How deliveries end.
#[async_trait]
pub trait Settle: Send + Sync + 'static {
    /// Ends deliveries. One answer for each, in order.
    ///
    /// After a done one:
    ///
    /// * An acked message is gone. Its outbox is accepted in the same step, as by [`send`](Self::send).
    ///   Ids that live already are left out, that of the acked message among them.
    /// * A nacked one waits in pending or retry with one retry less, or is on its way to the dead letters.
    /// * A rejected one is on its way to the dead letters.
    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>>;

    /// Keeps how messages ended, oldest first, each with how long ago that was, for [`Inspect::ended`].
    ///
    /// After: at least the latest `keep` of the queue are kept; a file may keep the rest of the call that
    /// brought the oldest of them. With zero nothing is changed. No settlement waits for it or fails with
    /// it. What a crash before it has lost is shown no more.
    async fn keep_ended(
        &self,
        queue: &QueueName,
        ended: &[(Ended, Duration)],
        keep: usize,
    ) -> StoreResult<()>;

    /// Keeps what handlers returned, oldest first: the latest [`BATCH_MAX`] of the queue, within `bytes_max`.
    async fn keep_results(
        &self,
        queue: &QueueName,
        results: &[(MessageId, Vec<u8>)],
        bytes_max: usize,
    ) -> StoreResult<()>;

    /// Whether an ack of a message of `from` can carry messages to `to` in one step.
    fn can_send_along(&self, from: &QueueName, to: &QueueName) -> bool;
}

/// Which hosts serve a queue.
#[async_trait]
pub trait Hosts: Send + Sync + 'static {
    /// Makes a host visible to others on this queue for `silence` more, and forgets a bounded number of
    /// ids whose [`NewMessage::dedup_window`] is over. In Redis it also lets repeats take effect whose
    /// messages others have taken out of unack.
    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()>;

    /// Takes a host off the list.
    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()>;

    /// The hosts on this queue that have been heard of within `silence`, by id.
    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<SeenHost>>;
}

/// What operators and dashboards read.
#[async_trait]
pub trait Inspect: Send + Sync + 'static {
    /// What this store is, for operators: kind and place, without secrets.
    fn describe(&self) -> String;

    /// How many messages are in each state, and the totals.
    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts>;

    /// How the queue stands, at a cost that does not grow with it. All zero for a queue that is not
    /// there, but for the time. Changes meanwhile may be in one part and not in another.
    async fn overview(&self, queue: &QueueName) -> StoreResult<Overview>;

    /// How many pending messages fall due in each of the next `spans` spans of this length, at least a
    /// millisecond each and [`DUE_SPANS_MAX`](super::DUE_SPANS_MAX) at most. A file counts up to 10,000
    /// messages in a span and then says that there are more. All zero for a queue that is not there.
    async fn due_ahead(
        &self,
        queue: &QueueName,
        span: Duration,
        spans: usize,
    ) -> StoreResult<DueAhead>;

    /// All that is known of one message, or none.
    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>>;

    /// A page of the messages in one state, without their payloads' bytes beyond `payload_max` each: dead letters
    /// latest first, pending and unack by time, ready and retry next out first. At most [`BATCH_MAX`].
    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>>;

    /// The same, and where the page has ended. With such an end it begins behind that, and `page.offset` counts
    /// for nothing: what leaves or arrives before that end moves nothing behind it.
    ///
    /// No end is told for an empty page, and by a store in which a page costs the same wherever it is: there
    /// a walk goes on by the offset.
    async fn list_behind(
        &self,
        queue: &QueueName,
        state: State,
        (behind, page): (Option<PageEnd>, Page),
    ) -> StoreResult<(Vec<Record>, Option<PageEnd>)> {
        let _ = behind;
        Ok((self.list(queue, state, page).await?, None))
    }

    /// What the handler of a message returned, as far as it is [kept](Settle::keep_results).
    async fn result(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Vec<u8>>>;

    /// How the latest messages of the queue ended, as far as hosts have [kept](Settle::keep_ended) it:
    /// latest first, from `offset` on, at most `limit` and [`BATCH_MAX`]. Empty behind the last.
    async fn ended(
        &self,
        queue: &QueueName,
        offset: usize,
        limit: usize,
    ) -> StoreResult<Vec<Ended>>;
}

/// A program that ends.
#[async_trait]
pub trait Close: Send + Sync + 'static {
    /// Ends the work of this store for all who hold it: what was asked for is done, and later calls are
    /// refused. The last process that closes a file moves its log into it; after a crash that is done by
    /// the next one that opens the file. A server has nothing to tidy up, and goes on.
    async fn close(&self) {}
}

/// Which queues there are.
#[async_trait]
pub trait Discover: Send + Sync + 'static {
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
}

/// What operators do to messages and queues.
#[async_trait]
pub trait Manage: Send + Sync + 'static {
    /// Takes back messages that wait. One answer for each id, in order.
    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>>;

    /// [`cancel`](Self::cancel), also of messages that hosts have in flight. One answer for each id, in
    /// order.
    ///
    /// After: the message is gone, and what its host settles is refused. Hosts are told, and stop the
    /// handlers of what is not theirs any more. One that is not told finds out when it renews the lease.
    async fn kill(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>>;

    /// Gives waiting messages (pending, ready, retry) another due time. One answer for each id, in
    /// order.
    ///
    /// After: due later, it is pending. Due now, one that was pending is ready, or in retry when it has
    /// failed before. One that is in line already keeps its place. Failed attempts and retries stay as they
    /// are. A repeat does the same again, counted from then.
    async fn reschedule(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        due: Due,
    ) -> StoreResult<Vec<Rescheduled>>;

    /// Stops giving out the queue's messages on every host, or resumes it and wakes the hosts. What is said
    /// last holds, also after a restart. The queue is made when it is not there yet.
    ///
    /// While it is paused `reserve` answers nothing; what is in flight is finished, and all else goes
    /// on. In Redis a delayqueue (Go) consumer of the queue knows nothing of this and goes on.
    async fn set_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<()>;

    /// Puts dead letters back into their queue, due at once, each under a new id, and counts in its
    /// history how often that was done. One answer for each id, in order. A repeat finds the dead letters
    /// gone.
    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        how: Redrive,
    ) -> StoreResult<Vec<Redriven>>;

    /// Sends a dead letter's headers with another payload as a new message, due at once; its payload
    /// may be missing. `retries` is as for [`redrive`](Self::redrive), and it counts as well. The dead
    /// letter itself stays as it is, so a repeat sends one more.
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
}

/// Cross-checks what a store keeps, and repairs it.
#[async_trait]
pub trait AuditQueues: Send + Sync + 'static {
    /// Cross-checks all that is kept of a queue's messages and reports inconsistencies. Repairs them
    /// if asked to, and makes a dead letter of what can be no message any more.
    ///
    /// Made for a queue that is in use: it reads and repairs in bounded steps. What others change
    /// meanwhile is neither a finding nor overwritten: each repair looks again, and does nothing where
    /// anything is not as it was found. A lease that runs is never broken.
    ///
    /// After a repair: each message is in one state, with its payload unless it is dead or moving,
    /// and no payload that was there is gone. Each message's repair is one step, so that after a
    /// crash the next audit goes on with the rest, and a repeat finds nothing.
    async fn audit(&self, queue: &QueueName, how: Audit) -> StoreResult<AuditReport>;

    /// The same for what belongs to no queue in particular. When it finds the store damaged, no queue
    /// is to be audited.
    async fn audit_store(&self, repair: bool) -> StoreResult<AuditReport>;
}
