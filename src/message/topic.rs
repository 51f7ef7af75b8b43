//! Topics: names to which queues subscribe.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::{NewMessage, QueueName};

/// The header that names the topic to which a message was sent. The store writes it.
pub const TOPIC: &str = "dqhost-topic";

/// Queues that may subscribe to one topic: a send reaches all of them in one step.
pub const TOPIC_QUEUES_MAX: usize = 100;

/// The name of a topic: as that of a queue, 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TopicName(QueueName);

impl TopicName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// Why a topic name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "topic name {0:?} is not allowed: use 1 to 64 characters of letters, digits, dot, underscore and dash"
)]
pub struct TopicNameError(String);

impl FromStr for TopicName {
    type Err = TopicNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let parsed = name.parse().map(Self);
        parsed.map_err(|_| TopicNameError(name.chars().take(80).collect()))
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What each queue of a topic gets. All copies have the id of the message.
pub(crate) fn copy(message: &NewMessage, topic: &TopicName) -> NewMessage {
    let mut copy = message.clone();
    copy.headers.retain(|(name, _)| name != TOPIC);
    copy.headers.push((TOPIC.to_owned(), topic.to_string()));
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_named_as_a_queue_is() {
        assert_eq!(
            "orders.v1".parse::<TopicName>().unwrap().as_str(),
            "orders.v1"
        );
        for bad in ["", "a b", "a{b}", "a:b", "\x1b[2J", &"x".repeat(65)] {
            let error = bad.parse::<TopicName>().unwrap_err().to_string();
            assert!(error.starts_with("topic name"), "{error}");
            assert!(!error.contains('\x1b'), "{error}");
        }
    }

    #[test]
    fn a_copy_says_to_which_topic_it_was_sent_and_is_the_same_else() {
        let of = |name: &str| {
            let topic = (TOPIC.to_owned(), name.to_owned());
            let other = ("k".to_owned(), "v".to_owned());
            vec![other, topic]
        };
        let message = NewMessage {
            headers: of("forged"),
            ..NewMessage::new("x")
        };
        let expected = NewMessage {
            headers: of("t"),
            ..message.clone()
        };
        assert_eq!(copy(&message, &"t".parse().unwrap()), expected);
    }
}
