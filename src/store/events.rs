//! What happens on queues, told to those who listen: best effort, and beside the way of messages.
//!
//! Whoever changes something notes it in the [`EventBuffer`] of its store. If nobody listens, a note is one look
//! at a flag. What was noted is published in batches. After a crash the last moment is missing, and nothing
//! depends on it.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreResult;
use crate::clock::Clock;
use crate::message::{Due, MessageId, NewMessage, QueueName};

mod buffer;
mod notes;
mod report;
mod stream;

pub use self::buffer::{EventBuffer, flush_events, publish_events};
pub(super) use self::report::read as read_report;
pub use self::report::{ReportCounts, report_channel};
pub(super) use self::stream::EventSender;
pub use self::stream::{EventStream, Heard};

/// Tells what happens on queues to those who listen: best effort, see [`Event`].
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// What this process has to tell. Producers and operators note what they do here, and a host the rest.
    fn events(&self) -> &Arc<EventBuffer>;

    /// Those of these queues that somebody listens to.
    async fn listened(&self, queues: &[QueueName]) -> StoreResult<Vec<QueueName>>;

    /// Hands batches of events to those who listen now. A repeat tells it twice.
    async fn publish_events(&self, queue: &QueueName, batches: &[String]) -> StoreResult<()>;

    /// Tells the monitors of a delayqueue with this name. A store that they cannot reach does nothing.
    async fn report_events(&self, queue: &QueueName, counts: ReportCounts) -> StoreResult<()>;

    /// Listens to queues from now on, which need not be there yet. With `delayqueue` also to what others report
    /// in the format of a delayqueue. To be called in a Tokio runtime. A listener is noticed within a second.
    fn listen(self: Arc<Self>, queues: Vec<QueueName>, delayqueue: bool) -> EventStream;
}

/// How long a listener counts as one after it has said so.
pub(super) const LISTENER_TTL_MS: u64 = 5000;

/// How often a listener says so.
pub(super) const ANNOUNCE_EVERY: std::time::Duration = std::time::Duration::from_secs(2);

/// The most bytes of a batch that is published, and of one that is read.
const BATCH_BYTES_MAX: usize = 64 * 1024;
const READ_BYTES_MAX: usize = 4 * BATCH_BYTES_MAX;

macro_rules! kinds {
    ($($name:ident = $words:literal: $doc:literal,)*) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum EventKind {
            $(#[doc = $doc] #[serde(rename = $words)] $name,)*
        }

        impl EventKind {
            /// All of them, each with what it means.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $doc)),*];

            /// The word for it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

kinds! {
    Sent = "sent": "A message was sent.",
    Promoted = "promoted": "So many messages have become due.",
    Started = "started": "An attempt has begun.",
    Acked = "acked": "A message was handled.",
    Nacked = "nacked": "So many attempts have failed, as a delayqueue consumer reports it.",
    Retried = "retried": "An attempt has failed, and there will be another.",
    Dead = "dead": "The last attempt has failed.",
    Released = "released": "A message was given back, and the attempt does not count.",
    Expired = "expired": "The leases of so many messages have expired.",
    DeadLettered = "dead-lettered": "So many messages have arrived among the dead letters.",
    Cancelled = "cancelled": "A message was cancelled.",
    Rescheduled = "rescheduled": "A waiting message has another due time.",
    Redriven = "redriven": "A dead letter was sent again.",
    Deleted = "deleted": "A dead letter was deleted.",
    Paused = "paused": "The queue was paused.",
    Resumed = "resumed": "The queue was resumed.",
    Gap = "gap": "Events are missing here: so many, if the number is known.",
}

/// Something that happened on a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub event: EventKind,
    /// The message that it happened to; none for what concerns several or the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    /// Unix milliseconds, by the clock of whoever tells it.
    pub at_ms: u64,
    /// How many messages; none for one, and for a number that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The host that tells it; none for another program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How long the handler ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// When the message is due; none if that is at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at_ms: Option<u64>,
    /// What kind of end a failed attempt was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// In words, from the handler or the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The id under which a dead letter was sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_id: Option<MessageId>,
}

impl Event {
    /// One that happens now.
    #[must_use]
    pub fn now(event: EventKind) -> Self {
        Self {
            event,
            id: None,
            at_ms: Clock::System.now().ms,
            count: None,
            attempt: None,
            host: None,
            duration_ms: None,
            due_at_ms: None,
            class: None,
            reason: None,
            new_id: None,
        }
    }

    /// One that happens now to a message.
    #[must_use]
    pub fn of(event: EventKind, id: &MessageId) -> Self {
        Self {
            id: Some(id.clone()),
            ..Self::now(event)
        }
    }

    /// One that happens now to so many messages; none for no message.
    #[must_use]
    pub fn to_many(event: EventKind, count: usize) -> Option<Self> {
        let count = u64::try_from(count).ok().filter(|count| *count > 0);
        count.map(|count| Self {
            count: Some(count),
            ..Self::now(event)
        })
    }

    /// Events are missing; none for a number that is not known.
    #[must_use]
    pub fn gap(count: Option<u64>) -> Self {
        Self {
            count,
            ..Self::now(EventKind::Gap)
        }
    }

    /// A message that was accepted. One that is due at once has no due time here.
    pub(crate) fn sent(message: &NewMessage, due_at_ms: Option<u64>) -> Self {
        let is_now = matches!(message.due, Due::In(delay) if delay.is_zero());
        Self {
            due_at_ms: due_at_ms.filter(|_| !is_now),
            ..Self::of(EventKind::Sent, &message.id)
        }
    }

    fn line(&self) -> String {
        // It fails for no value of this type.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Lines in batches that are published each as one.
fn batches(events: &[Event]) -> Vec<String> {
    let mut batches = vec![String::new()];
    for event in events {
        let line = event.line();
        if batches
            .last()
            .is_some_and(|last| !last.is_empty() && last.len() + line.len() >= BATCH_BYTES_MAX)
        {
            batches.push(String::new());
        }
        if let Some(last) = batches.last_mut() {
            last.push_str(&line);
            last.push('\n');
        }
    }
    batches.retain(|batch| !batch.is_empty());
    batches
}

/// The events of a batch. What is no event is left out.
fn parse(batch: &[u8]) -> impl Iterator<Item = Event> {
    let batch = if batch.len() > READ_BYTES_MAX {
        &[]
    } else {
        batch
    };
    let lines = batch.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_kind_is_stored_by_its_word() {
        for (kind, _) in EventKind::ALL {
            assert_eq!(
                serde_json::json!(kind),
                serde_json::json!(kind.as_str()),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn batches_are_bounded_and_read_again() {
        let long = |n: u64| Event {
            reason: Some("x".repeat(1000)),
            ..Event::gap(Some(n))
        };
        let events: Vec<Event> = (0..200).map(long).collect();
        let batches = batches(&events);
        assert!(batches.len() > 2, "{}", batches.len());
        assert!(batches.iter().all(|batch| batch.len() <= BATCH_BYTES_MAX));
        let read: Vec<Event> = batches.iter().flat_map(|b| parse(b.as_bytes())).collect();
        assert_eq!(read, events);
        assert!(super::batches(&[]).is_empty());
    }

    #[test]
    fn what_is_no_event_is_left_out() {
        let good = Event::now(EventKind::Paused).line();
        let batch = format!("nonsense\n{{\"event\":\"other\",\"at_ms\":1}}\n{good}\n\n[1]");
        assert_eq!(parse(batch.as_bytes()).count(), 1);
        let huge = format!("{good}\n{}", " ".repeat(READ_BYTES_MAX));
        assert_eq!(parse(huge.as_bytes()).count(), 0);
        assert_eq!(parse(b"\xff\xfe\n").count(), 0);
    }

    #[test]
    fn a_send_that_is_due_at_once_has_no_due_time() {
        let later = NewMessage {
            due: Due::In(Duration::from_secs(1)),
            ..NewMessage::new("x")
        };
        assert_eq!(Event::sent(&later, Some(1005)).due_at_ms, Some(1005));
        assert_eq!(Event::sent(&NewMessage::new("x"), Some(5)).due_at_ms, None);
    }
}
