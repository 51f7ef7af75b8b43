//! How messages ended: what is shown of them when their queue no longer has them.

use serde::{Deserialize, Serialize};

use crate::message::MessageId;

/// How a message ended: the host that settled it makes it, and operators read it. Nothing depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its id.
    pub id: MessageId,
    /// Unix milliseconds at which it was settled, by the store's clock.
    #[serde(skip)]
    pub at_ms: u64,
    /// What became of it.
    pub end: End,
    /// The number of its last attempt.
    pub attempt: u32,
    /// How long the handler ran in that attempt.
    pub duration_ms: u64,
    /// Unix milliseconds at which that attempt became due; none if it never waited for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at_ms: Option<u64>,
    /// The host that ran it.
    pub host: String,
    /// The SHA-256 of the component that ran it, hexadecimal.
    pub handler: String,
    /// What kind of end a failed attempt was, one word; empty if it was acked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// In words, from the handler or the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// True if the handler returned bytes with its ack.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_result: bool,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It was handled.
    Acked,
    /// It became a dead letter.
    Died,
    /// An operator took it from its host.
    Cancelled,
}

impl End {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Died => "died",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Ended {
    /// As it is stored, but for the time, which comes before it.
    pub(super) fn json(&self) -> String {
        // It fails for no value of this type. By way of a `Value` it would take several times as long.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From what is stored: the time, a space and JSON. None for what is anything else.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (at_ms, json) = line.split_once(' ')?;
        let ended: Self = serde_json::from_str(json).ok()?;
        Some(Self {
            at_ms: at_ms.parse().ok()?,
            ..ended
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_kept_is_read_again(id in ".*", texts: [String; 4], at_ms: u64, numbers: (u32, u64, Option<u64>), end in 0..3_usize) {
            let [host, handler, class, reason] = texts;
            let (attempt, duration_ms, due_at_ms) = numbers;
            let ended = Ended {
                id: id.into(),
                at_ms,
                end: [End::Acked, End::Died, End::Cancelled][end],
                attempt, duration_ms, due_at_ms, host, handler, class, reason,
                has_result: end == 0,
            };
            let line = format!("{at_ms} {}", ended.json());
            prop_assert_eq!(line.lines().count(), 1);
            prop_assert_eq!(Ended::parse(&line), Some(ended));
        }

        #[test]
        fn what_others_wrote_is_survived(line in "[0-9]{0,22} ?[{\"id:,}a]{0,20}|.*") {
            prop_assert!(Ended::parse(&line).is_none());
        }
    }
}
