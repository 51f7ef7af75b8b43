//! The contract between the host and whatever keeps the messages.
//!
//! Every method is one atomic step for each message it names, or a bounded number of them. After a
//! crash at any moment each message is in exactly one [`State`](crate::message::State). The next call
//! of [`Store::advance`] by any host repairs what the crash left behind. The store's own clock decides
//! what is due and which lease has expired. A host's clock decides nothing.
//!
//! A delivery is named by a [`Claim`]: the id and a token that changes with every delivery. A
//! settlement, an extension or a release whose token is not the current one, or whose message is
//! not in unack, answers [`Settled::LeaseLost`] and changes nothing. So each of them may be
//! repeated: the second call finds the lease gone.
//!
//! The contract suite in `tests/it/contract` runs against every store.

use std::time::Duration;

use crate::message::{Attempt, Outgoing};

pub mod address;
mod common;
mod due;
mod ended;
mod error;
mod events;
mod limits;
pub mod move_queue;
mod notifier;
mod operation;
pub mod redis;
mod redrive;
mod report;
mod retention;
mod schedule;
pub mod sqlite;
mod ticks;
mod timing;
mod topics;
mod traits;

pub use self::due::{DUE_SPANS_MAX, DueAhead, DueSpan};
pub use self::ended::{End, Ended};
pub use self::error::{StoreError, StoreResult};
pub use self::events::{
    Event, EventBuffer, EventKind, EventStream, Events, Heard, ReportCounts, flush_events,
    publish_events, report_channel,
};
pub use self::limits::{
    FairWeights, KEY_RUNNING_MAX, LimitBy, LimitError, LimitedReservation, Limits, NextAllowed,
    Rate,
};
pub use self::move_queue::Peer;
pub use self::notifier::Subscription;
pub use self::operation::{Operation, Side};
pub use self::redrive::Redrive;
pub use self::report::{
    Audit, AuditReport, Cancelled, Counts, Discovered, FAILED_SAMPLE_MAX, FINDING_SAMPLES_MAX,
    FailedAt, FailedSample, FindingKind, Findings, HOST_SILENCE, HostInfo, Overview, Redriven,
    Rescheduled, SeenHost, Totals,
};
pub use self::retention::Retention;
pub(crate) use self::schedule::Schedule;
pub use self::ticks::{ScheduleState, Tick, TickSent};
pub use self::timing::{RequestCount, count_requests, requests};
pub use self::topics::{TopicSent, Topics};
pub use self::traits::{
    Advance, AuditQueues, Close, Deliver, Discover, Hosts, Inspect, Manage, SendMessages,
    SendTicks, Settle, Store, Transfer,
};

/// All traits of a store, for `use dqhost::store::prelude::*`.
pub mod prelude {
    pub use super::events::Events;
    pub use super::topics::Topics;
    pub use super::traits::{
        Advance, AuditQueues, Close, Deliver, Discover, Hosts, Inspect, Manage, SendMessages,
        SendTicks, Settle, Store, Transfer,
    };
}

/// The most messages that one step inside a store moves. Methods take more and go on in steps.
/// 1,000 keeps every Lua script in the low milliseconds and far from Lua's limit of 7,999 values.
pub const BATCH_MAX: usize = 1000;

/// The most messages, and the most bytes of their payloads and headers, that go with one ack: one
/// step has to take them all.
pub const OUTBOX_MAX: usize = 1000;
/// See [`OUTBOX_MAX`].
pub const OUTBOX_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What became of one settlement, extension or release: the store makes it, and whoever asked reads it.
/// Not an error: a lost lease is ordinary.
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

/// How a delivery ends: `verdict::settlement` or a library's program makes it, and the store reads it.
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
    /// Time until the next message is due or the next lease expires, by the store's clock; none when
    /// neither is in sight.
    pub next_in: Option<Duration>,
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

/// Where a page of a list has ended, in a store that finds this place again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEnd {
    place: i64,
    seq: i64,
}
