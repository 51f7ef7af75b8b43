//! Messages that a handler sends.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// A message to be sent with the ack. If the handler ends in any other way, it was never sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "nothing is sent until `send` is called"]
#[non_exhaustive]
pub struct Outgoing {
    /// Where it goes; none for the queue of the message that is being handled.
    pub queue: Option<String>,
    /// Any bytes.
    pub payload: Vec<u8>,
    /// For its handler, in this order.
    pub headers: Vec<(String, String)>,
    /// How long after the ack it is due.
    pub delay: Duration,
    /// How many attempts may follow a failed first one; none for the host's default.
    pub retries: Option<u32>,
}

impl Outgoing {
    /// A message with these bytes, due at once.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            queue: None,
            payload: payload.into(),
            headers: Vec::new(),
            delay: Duration::ZERO,
            retries: None,
        }
    }

    /// A message with this value as JSON, due at once.
    ///
    /// # Errors
    ///
    /// A value that JSON cannot hold.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(Self::new)
    }

    /// Sends it to this queue, which the operator must allow (`--allow-send`).
    pub fn to(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Makes it due so long after the ack.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Makes it a dead letter of the class `message-expired` unless its handler begins so long after the ack.
    pub fn expires_in(self, time: Duration) -> Self {
        let ms = time.as_nanos().div_ceil(1_000_000);
        self.header("dqhost-expires-at", format!("+{ms}"))
    }

    /// Lets so many attempts follow a failed first one.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Sends it with the ack, and returns its id, which is the same in each attempt.
    ///
    /// # Errors
    ///
    /// What the host does not take. Messages that it took before stay taken.
    pub fn send(self) -> Result<String, SendError> {
        host::send(self)
    }
}

/// Why a message was not taken, in the host's words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The operator does not allow this queue.
    NotAllowed(String),
    /// The message is not valid.
    Invalid(String),
    /// One delivery may not send so many messages or bytes.
    TooMuch(String),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed(words) | Self::Invalid(words) | Self::TooMuch(words) => {
                f.write_str(words)
            }
        }
    }
}

impl std::error::Error for SendError {}

#[cfg(target_family = "wasm")]
mod host {
    use super::{Outgoing, SendError};
    use crate::bindings::dqhost::queue::outbox;
    use crate::error::whole_ms;

    pub(super) fn send(message: Outgoing) -> Result<String, SendError> {
        outbox::send(&outbox::NewMessage {
            queue: message.queue,
            payload: message.payload,
            headers: message.headers,
            delay_ms: whole_ms(message.delay),
            retries: message.retries,
        })
        .map_err(|error| match error {
            outbox::SendError::NotAllowed(words) => SendError::NotAllowed(words),
            outbox::SendError::Invalid(words) => SendError::Invalid(words),
            outbox::SendError::TooMuch(words) => SendError::TooMuch(words),
        })
    }
}

#[cfg(not(target_family = "wasm"))]
use crate::testing as host;
