//! What a store tells people.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::message::MessageId;

/// What became of one cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It waited, and is gone.
    Done,
    /// A host has it in hand; nothing was changed.
    InHand,
    /// No such message waits.
    Unknown,
}

/// What became of one rescheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescheduled {
    /// It is due then, unix milliseconds.
    At(u64),
    /// A host has it in hand; nothing was changed.
    InHand,
    /// No such message waits.
    Unknown,
}

/// What became of one redrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redriven {
    /// It is in its queue again, under this new id.
    As(MessageId),
    /// No such dead letter.
    Unknown,
    /// Its payload is missing, so it stays a dead letter.
    PayloadMissing,
}

/// How many messages are in each state, and what has happened in the queue's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Waiting for a time.
    pub pending: u64,
    /// Due, never delivered.
    pub ready: u64,
    /// In hand.
    pub unack: u64,
    /// Due for another attempt.
    pub retry: u64,
    /// Dead letters, with those about to be buried.
    pub dead: u64,
    /// On the way to or from another store.
    pub moving: u64,
    /// Totals since the queue exists.
    pub totals: Totals,
}

impl Counts {
    /// True when nothing waits and nothing is in hand. Dead letters wait for a person only, and what
    /// is moving for the one who moves it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.pending + self.ready + self.unack + self.retry == 0
    }
}

/// What has happened to the messages of a queue since it exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// Messages accepted.
    pub sent: u64,
    /// Acknowledged.
    pub acked: u64,
    /// Deliveries that failed with retries to follow or without.
    pub nacked: u64,
    /// Deliveries rejected.
    pub rejected: u64,
    /// Deliveries whose lease ended unanswered.
    pub expired: u64,
    /// Deliveries given back unhandled.
    pub released: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Dead letters put back as new messages.
    pub redriven: u64,
    /// Waiting messages cancelled.
    pub cancelled: u64,
    /// Dead letters deleted.
    pub deleted: u64,
}

/// After how long a silent host is no longer shown.
pub const HOST_SILENCE: Duration = Duration::from_secs(20);

/// A host, as its heartbeat shows it to the others.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HostInfo {
    /// Random for each start: a label, nothing depends on it.
    pub id: String,
    /// The version of dqhost.
    pub version: String,
    /// The SHA-256 of the queue's handler, hexadecimal.
    pub handler: String,
    /// Handlers that it can run at a time.
    pub slots: usize,
    /// Messages of this queue that it has in hand.
    pub in_flight: usize,
}

/// A host, and how long ago its last heartbeat was, by the store's clock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SeenHost {
    /// What it says of itself.
    #[serde(flatten)]
    pub info: HostInfo,
    /// Milliseconds since its last heartbeat.
    pub seen_ms_ago: u64,
}

/// How a queue stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// How many messages are in each state.
    pub counts: Counts,
    /// True when no host is given messages.
    pub paused: bool,
    /// The store's clock, unix milliseconds.
    pub now_ms: u64,
    /// When the next pending message is due, unix milliseconds.
    pub next_due_ms: Option<u64>,
    /// When the message that is first in line in ready became due, unix milliseconds: its due time,
    /// else when its id was made; none when neither is known.
    pub oldest_ready_ms: Option<u64>,
    /// Messages that have failed before.
    pub failed: FailedSample,
}

/// How many messages a [`FailedSample`] is made of at most, so that its cost has a bound.
pub const FAILED_SAMPLE_MAX: usize = 500;

/// The messages that wait or are in hand and have failed before; of many, a part of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedSample {
    /// True when there are more than were looked at.
    pub partial: bool,
    /// Of those looked at, the ones that wait in pending for another attempt.
    pub backing_off: u64,
    /// By how often they have failed, ascending.
    pub by_failed: Vec<FailedAt>,
}

/// Messages that have failed equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAt {
    /// Attempts that failed.
    pub failed: u32,
    /// Messages.
    pub count: u64,
    /// Those of them that have no retry left.
    pub last: u64,
}

/// One message of a [`FailedSample`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Failing {
    /// Attempts that failed.
    pub failed: u32,
    /// No retry is left.
    pub is_last: bool,
    /// It waits in pending.
    pub is_backing_off: bool,
}

impl FailedSample {
    /// Sums messages up.
    pub(super) fn of(messages: impl IntoIterator<Item = Failing>, partial: bool) -> Self {
        let mut backing_off = 0;
        let mut by_failed = BTreeMap::new();
        for message in messages {
            backing_off += u64::from(message.is_backing_off);
            let at = by_failed.entry(message.failed).or_insert(FailedAt {
                failed: message.failed,
                count: 0,
                last: 0,
            });
            at.count += 1;
            at.last += u64::from(message.is_last);
        }
        Self {
            partial,
            backing_off,
            by_failed: by_failed.into_values().collect(),
        }
    }
}
