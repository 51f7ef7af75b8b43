//! What a store tells operators.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::message::{MessageId, QueueName, State};

/// What became of one cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It waited, and is gone.
    Done,
    /// A host had it in flight. It is gone, and the host stops its handler.
    Killed,
    /// A host has it in flight; nothing was changed.
    InFlight,
    /// No such message waits.
    Unknown,
}

/// What became of one rescheduling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescheduled {
    /// It is due then, unix milliseconds.
    At(u64),
    /// A host has it in flight; nothing was changed.
    InFlight,
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
    /// It was redriven so many times already, so it stays a dead letter.
    TooOften(u32),
}

/// The queues of a store that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Sorted.
    pub queues: Vec<QueueName>,
    /// False when there are more keys than were looked at.
    pub complete: bool,
}

/// How many messages are in each state, and what has happened in the queue's life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Waiting for a time.
    pub pending: u64,
    /// Due, never delivered.
    pub ready: u64,
    /// In flight.
    pub unack: u64,
    /// Due for another attempt.
    pub retry: u64,
    /// Dead letters, with those about to become a dead letter.
    pub dead: u64,
    /// On the way to or from another store.
    pub moving: u64,
    /// Totals since the queue exists.
    pub totals: Totals,
}

impl Counts {
    /// Messages that the list of a state has. What is about to become a dead letter is among the dead letters.
    #[must_use]
    pub fn of(&self, state: State) -> u64 {
        match state {
            State::Pending => self.pending,
            State::Ready => self.ready,
            State::Unack => self.unack,
            State::Retry => self.retry,
            State::Garbage | State::Dead => self.dead,
            State::Moving => self.moving,
        }
    }

    /// True when nothing waits and nothing is in flight. Dead letters wait for an operator only, and what
    /// is moving for the one who moves it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.alive() == 0
    }

    /// Those that wait in line. A store may say anything.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.ready.saturating_add(self.retry)
    }

    /// Those that wait or are in flight. A store may say anything.
    #[must_use]
    pub fn alive(&self) -> u64 {
        [self.ready, self.unack, self.retry]
            .into_iter()
            .fold(self.pending, u64::saturating_add)
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
    /// Messages cancelled.
    pub cancelled: u64,
    /// Dead letters deleted.
    pub deleted: u64,
    /// Ids without a message that were removed: what a delayqueue consumer's ack had left of them.
    pub dropped: u64,
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
    /// Messages of this queue that it has in flight.
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
    /// Messages that are due and wait because a limit of the queue is reached: see
    /// [`Deliver::reserve_limited`](super::Deliver::reserve_limited). As the latest reservation of the
    /// last two seconds found it.
    pub limited: u64,
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

/// The messages that wait or are in flight and have failed before; of many, a part of them.
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

/// How a queue is audited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// Repair what is found.
    pub repair: bool,
    /// How long a payload or a field must have belonged to no message before that is a finding. A
    /// delayqueue (Go) producer or consumer of the queue needs several requests for one send or one ack.
    /// What it is in the middle of is not to be taken for damage. Waited for only when there is something
    /// of this kind; a file has no such users.
    pub settling: Duration,
}

impl Audit {
    /// More than such a producer or consumer needs, unless its network fails meanwhile.
    pub const SETTLING: Duration = Duration::from_secs(5);
}

/// What can be wrong with what a store keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A payload, of an id that is in no state. Repaired, it is a dead letter.
    OrphanPayload,
    /// Retries, attempts, headers or the like, of an id that is in no state and has no payload.
    /// Repaired, they are gone.
    OrphanField,
    /// A message that waits or is in flight and has no payload. Repaired, it is a dead letter.
    PayloadMissing,
    /// A message that is in one line more than once. Repaired, it is there once, as the next out.
    TwiceInLine,
    /// A message in more than one state. Repaired, it is in one of them: moving if that is one, but
    /// left alone while a lease runs; else the first of unack, pending, retry, ready, dead, garbage.
    TwoStates,
    /// What is kept for one state only, of a message that is in another. Repaired, it is gone.
    StaleField,
    /// A row with a value that means nothing. Repaired, it is a dead letter that tells of it; what
    /// only told of the past is left out.
    NotUnderstood,
    /// The number of messages in a state, which is kept beside them and is not right. Repaired, they
    /// have been counted.
    WrongDepth,
    /// Messages or hosts of a queue that is not known, or whose name is not allowed. Repaired, the
    /// queue is called `unknown-N`.
    UnknownQueue,
    /// A key of a wrong type. Not repaired: nobody knows what it is.
    WrongType,
    /// A damaged file. Not repaired, and nothing else in it is looked at or changed.
    Damaged,
}

impl FindingKind {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OrphanPayload => "orphan-payload",
            Self::OrphanField => "orphan-field",
            Self::PayloadMissing => "payload-missing",
            Self::TwiceInLine => "twice-in-line",
            Self::TwoStates => "two-states",
            Self::StaleField => "stale-field",
            Self::NotUnderstood => "not-understood",
            Self::WrongDepth => "wrong-depth",
            Self::UnknownQueue => "unknown-queue",
            Self::WrongType => "wrong-type",
            Self::Damaged => "damaged",
        }
    }
}

/// What was done about one finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Nothing.
    None,
    /// Nothing, since a host has the message in flight.
    InFlight,
    /// It is right again.
    Repaired,
    /// The message is a dead letter.
    DeadLettered,
}

/// The findings of one kind.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Findings {
    /// What is wrong.
    pub kind: FindingKind,
    /// How many there are.
    pub found: u64,
    /// Of these, how many are right again.
    pub repaired: u64,
    /// How many are dead letters now.
    pub dead_lettered: u64,
    /// How many are as they were since a host has the message in flight: once it is settled or its
    /// lease has expired they can be repaired.
    pub in_flight: u64,
    /// How many are as they were, those in flight among them.
    pub left: u64,
    /// Some of them: ids, keys, or what a store says. Anything may stand in them.
    pub samples: Vec<String>,
}

/// How many [`Findings::samples`] there are at most.
pub const FINDING_SAMPLES_MAX: usize = 5;

/// What an audit found and did, by kind. Empty when nothing is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct AuditReport(pub Vec<Findings>);

impl AuditReport {
    /// True when nothing is wrong any more.
    #[must_use]
    pub fn is_repaired(&self) -> bool {
        self.0.iter().all(|findings| findings.left == 0)
    }

    /// Adds a finding.
    pub(super) fn add(&mut self, kind: FindingKind, sample: &str, remedy: Remedy) {
        let at = match self.0.binary_search_by_key(&kind, |findings| findings.kind) {
            Ok(at) => at,
            Err(at) => {
                let new = Findings {
                    kind,
                    found: 0,
                    repaired: 0,
                    dead_lettered: 0,
                    in_flight: 0,
                    left: 0,
                    samples: Vec::new(),
                };
                self.0.insert(at, new);
                at
            }
        };
        let findings = &mut self.0[at];
        findings.found += 1;
        findings.repaired += u64::from(remedy == Remedy::Repaired);
        findings.dead_lettered += u64::from(remedy == Remedy::DeadLettered);
        findings.in_flight += u64::from(remedy == Remedy::InFlight);
        findings.left += u64::from(matches!(remedy, Remedy::None | Remedy::InFlight));
        if findings.samples.len() < FINDING_SAMPLES_MAX {
            findings.samples.push(sample.to_owned());
        }
    }
}
