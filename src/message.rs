//! The vocabulary: what a message is and what is said about it. Imports nothing of ours.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub mod expiry;
mod queue_name;
pub mod repeat;
pub mod topic;

pub use queue_name::{QueueName, QueueNameError};
pub use repeat::{OnRepeat, SendOutcome, Sent};
pub use topic::TopicName;

/// The longest payload that is accepted unless the sender's setting says otherwise, in bytes.
pub const PAYLOAD_MAX_DEFAULT: usize = 256 * 1024;

/// The longest delay, in milliseconds: 100 years of 365 days. Due times stay far below 2^53, so
/// they are exact in every store.
pub const DELAY_MS_MAX: u64 = 100 * 365 * 24 * 3600 * 1000;

/// The largest retry budget. Attempt numbers stay far below 2^32.
pub const RETRIES_MAX: u32 = 1_000_000;

/// The most bytes that the headers of one message may take as JSON.
pub const HEADERS_MAX: usize = 8 * 1024;

/// What names a message for its whole life. Ours are UUIDs of version 7; those of other producers
/// are any text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MessageId(String);

impl MessageId {
    /// A new, unique id, which also tells when it was made.
    #[must_use]
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// The id of what the handler of the message `parent` of a queue sends by its call of this number. It
    /// is the same for each attempt, so what the handler notes of it stays true. A UUID of version 8 made
    /// of a SHA-256.
    #[must_use]
    pub fn derived(queue: &str, parent: &str, call: u32) -> Self {
        let digest = Sha256::new()
            .chain_update(b"dqhost outbox\0")
            .chain_update(call.to_be_bytes())
            .chain_update(queue)
            .chain_update([0])
            .chain_update(parent)
            .finalize();
        Self::from_digest(digest.as_ref())
    }

    /// The id of what is sent under this idempotency key, any text: the same each time, so that a
    /// repeat writes nothing while the message is there or in its [`NewMessage::dedup_window`]. A UUID
    /// of version 8 made of a SHA-256.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        let digest = Sha256::new()
            .chain_update(b"dqhost key\0")
            .chain_update(key)
            .finalize();
        Self::from_digest(digest.as_ref())
    }

    fn from_digest(digest: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(
            uuid::Builder::from_custom_bytes(bytes)
                .into_uuid()
                .to_string(),
        )
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When the sender made the id, in unix milliseconds by the sender's clock; none for ids that
    /// are not UUIDs of version 7.
    #[must_use]
    pub fn sent_at_ms(&self) -> Option<u64> {
        let id = uuid::Uuid::parse_str(&self.0).ok()?;
        let (seconds, nanos) = id.get_timestamp()?.to_unix();
        (id.get_version_num() == 7).then(|| seconds * 1000 + u64::from(nanos) / 1_000_000)
    }
}

impl Default for MessageId {
    fn default() -> Self {
        Self::new()
    }
}

impl From<String> for MessageId {
    fn from(id: String) -> Self {
        Self(id)
    }
}

impl From<&str> for MessageId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// When a message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// So long after the store accepts it, by the store's clock; rounded up to the millisecond.
    In(Duration),
    /// At this time, unix milliseconds. A time that has passed means now.
    At(u64),
}

impl Due {
    /// Due as soon as it is accepted.
    pub const NOW: Self = Self::In(Duration::ZERO);
}

/// Named values that go with a message; the order is kept.
pub type Headers = Vec<(String, String)>;

/// The bytes that headers take as JSON, but for what has to be escaped.
#[must_use]
pub fn headers_size(headers: &Headers) -> usize {
    let size = |(key, value): &(String, String)| key.len() + value.len() + 6;
    headers.iter().map(size).sum()
}

/// A message on its way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Chosen by the sender before the first try, so that a repeat can be told from a new message.
    pub id: MessageId,
    /// Any bytes.
    pub payload: Vec<u8>,
    /// When to deliver it first.
    pub due: Due,
    /// How many deliveries may follow a failed first one.
    pub retries: u32,
    /// Given to the handler as they are.
    pub headers: Headers,
    /// A second send of the id writes nothing until so long after the due time of the first, even when the
    /// message is gone; with zero only while it is there. To be given each time: a send with zero does not
    /// look. Only with [`OnRepeat::Ignore`]: the others send anew what is gone.
    pub dedup_window: Duration,
    /// What a repeat does to a message of this id that waits, runs or is dead. To be given each time.
    pub on_repeat: OnRepeat,
}

impl NewMessage {
    /// The retries of a message whose sender says nothing, as in delayqueue.
    pub const RETRIES_DEFAULT: u32 = 3;

    /// A message that is due at once, with the default retries, no headers and no window.
    #[must_use]
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: MessageId::new(),
            payload: payload.into(),
            due: Due::NOW,
            retries: Self::RETRIES_DEFAULT,
            headers: Vec::new(),
            dedup_window: Duration::ZERO,
            on_repeat: OnRepeat::Ignore,
        }
    }
}

/// A message that a handler sent: accepted with the ack of the one that it handled, or never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it goes.
    pub queue: QueueName,
    /// What goes there.
    pub message: NewMessage,
}

/// What proves that a settlement comes from the current lease. Opaque: made by the store, compared
/// by the store, different for each delivery of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) String);

/// A delivery, as far as the store needs it back: which message, under which lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The message.
    pub id: MessageId,
    /// The lease.
    pub token: Token,
}

/// One delivery of one message to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What settles it.
    pub claim: Claim,
    /// None when the store has lost it (evicted, expired, deleted by others): such a delivery is
    /// to be rejected with the reason `payload-missing`.
    pub payload: Option<Vec<u8>>,
    /// As sent.
    pub headers: Headers,
    /// 1 on the first delivery.
    pub attempt: u32,
    /// The number of the last attempt that the message has.
    pub attempts_max: u32,
    /// Unix milliseconds at which this attempt became due; none when it never waited for a time.
    pub due_at_ms: Option<u64>,
    /// True when the time by which it had to begin is over ([`NewMessage::expiring_in`]): such a delivery
    /// is to be rejected with the reason `message-expired`.
    pub expired: bool,
}

/// How one attempt failed: what is kept of it in the message's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// 1 for the first delivery.
    pub attempt: u32,
    /// Unix milliseconds at which it ended.
    pub at_ms: u64,
    /// What kind of end it was, one word: `nacked`, `rejected`, `trapped`, `timed-out`, ...
    pub class: String,
    /// In words, from the handler or the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How long the handler ran; none when no host saw the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The host that ran it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The SHA-256 of the component that ran it, hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handler: String,
    /// What the handler printed, cut to a few lines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
}

/// One line of a message's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HistoryEntry {
    /// A failed attempt.
    Attempt(Attempt),
    /// The message was a dead letter under another id before.
    Redriven {
        /// The id of the dead letter.
        redriven_from: String,
        /// Unix milliseconds.
        at_ms: u64,
        /// How often the message was redriven, this time included. An earlier version did not count.
        #[serde(default = "once")]
        redrives: u32,
    },
}

fn once() -> u32 {
    1
}

/// Where a message is. Each state says how a message enters it, how it leaves, and who repairs it
/// after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Waiting for a time. Enters by send with a future due time, or by a nack with a delay;
    /// leaves to ready or retry when due, or by cancel. Any host's `advance` promotes it, so a
    /// crash only delays that.
    Pending,
    /// Due, never delivered before, waiting for a free slot. Enters from pending or by send;
    /// leaves by reserve or cancel. Nothing is in flight here, so there is nothing to repair.
    Ready,
    /// Delivered under a lease. Enters by reserve; leaves by ack, nack, reject, release, or when
    /// the lease expires. A host that crashes lets the lease end, and any host's `advance` takes the
    /// message back.
    Unack,
    /// Due for another attempt, waiting for a free slot. Enters by a nack without delay, a lease
    /// that ended, or from pending after a nack with a delay; leaves by reserve or cancel.
    Retry,
    /// Out of retries or rejected, not yet a dead letter. Enters by nack, reject or the expiry of a lease;
    /// any host's `advance` makes it a dead letter.
    Garbage,
    /// Kept until redriven or deleted, or past the retention of a host. Enters from garbage.
    Dead,
    /// On its way from one store to another, and in no host's reach. In the store that it leaves it enters
    /// from any state but unack, and leaves when it has arrived. In the other it enters from outside, and
    /// leaves to the state it had. A move that was interrupted is ended by another one between the same two
    /// stores, in either direction.
    Moving,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Ready,
        Self::Unack,
        Self::Retry,
        Self::Garbage,
        Self::Dead,
        Self::Moving,
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Unack => "unack",
            Self::Retry => "retry",
            Self::Garbage => "garbage",
            Self::Dead => "dead",
            Self::Moving => "moving",
        }
    }
}

/// All that a store knows of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its id; of a dead letter too.
    pub id: MessageId,
    /// Where it is.
    pub state: State,
    /// Unix milliseconds: when it is due (pending), its lease expires (unack), or it died (dead).
    pub at_ms: Option<u64>,
    /// Deliveries that failed so far.
    pub attempts: u32,
    /// Retries that are left; of a dead letter those it had when it died.
    pub retries_left: u32,
    /// As sent.
    pub headers: Headers,
    /// Oldest first; at most 20 entries, the first and the latest.
    pub history: Vec<HistoryEntry>,
    /// None when it is missing from the store.
    pub payload: Option<Vec<u8>>,
}

impl Record {
    /// How often it was redriven, under whatever ids. The first line of its history says so.
    #[must_use]
    pub fn redrives(&self) -> u32 {
        match self.history.first() {
            Some(HistoryEntry::Redriven { redrives, .. }) => *redrives,
            _ => 0,
        }
    }

    /// The last failed attempt, if there was one.
    #[must_use]
    pub fn last_attempt(&self) -> Option<&Attempt> {
        self.history.iter().rev().find_map(|entry| match entry {
            HistoryEntry::Attempt(attempt) => Some(attempt),
            HistoryEntry::Redriven { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn queue_names_are_checked() {
        for good in ["a", "default", "A.b_c-9", &"x".repeat(64)] {
            assert_eq!(good.parse::<QueueName>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a{b}", "a:b", "é", "a\x1b[2J", &"x".repeat(65)] {
            assert!(bad.parse::<QueueName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_derived_id_is_the_same_each_time_and_no_other_has_it() {
        let id = MessageId::derived("q", "parent", 1);
        assert_eq!(id, MessageId::derived("q", "parent", 1));
        assert_ne!(id, MessageId::derived("q", "parent", 2));
        assert_ne!(id, MessageId::derived("other", "parent", 1));
        let uuid = uuid::Uuid::parse_str(id.as_str()).unwrap();
        assert_eq!((uuid.get_version_num(), id.sent_at_ms()), (8, None));
    }

    #[test]
    fn a_key_is_the_same_id_for_ever() {
        let id = MessageId::of_key("order 17");
        // What producers of other versions make of it, too.
        assert_eq!(id.as_str(), "9807319c-e8db-833c-bbe6-7478292b42f1");
        assert_ne!(id, MessageId::of_key("order 18"));
        let uuid = uuid::Uuid::parse_str(id.as_str()).unwrap();
        assert_eq!(uuid.get_version_num(), 8);
    }

    #[test]
    fn only_our_ids_tell_when_they_were_made() {
        let before = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis();
        let sent = MessageId::new().sent_at_ms().unwrap();
        assert!(u128::from(sent) >= before && u128::from(sent) < before + 10_000);
        assert_eq!(MessageId::from("abc").sent_at_ms(), None);
        let v4 = "0f8fad5b-d9cb-469f-a165-70867728950e";
        assert_eq!(MessageId::from(v4).sent_at_ms(), None);
    }

    proptest! {
        #[test]
        fn a_queue_name_is_one_word_and_is_refused_in_few(text in "[A-Za-z0-9._-]{0,70}|.*") {
            match text.parse::<QueueName>() {
                Ok(name) => {
                    prop_assert!((1..=64).contains(&name.as_str().len()));
                    let harmless = |c: char| c.is_ascii_graphic() && !"{}:/*?".contains(c);
                    prop_assert!(name.as_str().chars().all(harmless));
                }
                Err(error) => prop_assert!(error.to_string().len() < 1200),
            }
        }

        #[test]
        fn ids_of_any_form_may_tell_when_they_were_made(text in "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|.*") {
            prop_assert!(MessageId::from(text).sent_at_ms().is_none_or(|ms| ms < 1 << 48));
        }
    }
}
