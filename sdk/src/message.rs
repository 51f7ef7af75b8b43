//! What a handler is told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;

use crate::bindings::dqhost::queue::types;
use crate::{Error, Result};

/// One delivery of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The same for every attempt: use it as the idempotency key of what the handler does.
    pub id: String,
    /// The queue that it came through.
    pub queue: String,
    /// Any bytes, as sent.
    pub payload: Vec<u8>,
    /// As sent, in the order sent. Names may repeat.
    pub headers: Vec<(String, String)>,
    /// 1 on the first delivery.
    pub attempt: u32,
    /// The number of the last attempt that this message has.
    pub max_attempts: u32,
    /// When the producer made the message, by the producer's clock, if it said so.
    pub sent_at: Option<SystemTime>,
    /// When this attempt became due, by the store's clock, if it waited for a time.
    pub due_at: Option<SystemTime>,
}

impl Message {
    /// A message for a test: the first of four attempts, in the queue `default`.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: "00000000-0000-7000-8000-000000000000".to_owned(),
            queue: "default".to_owned(),
            payload: payload.into(),
            headers: Vec::new(),
            attempt: 1,
            max_attempts: 4,
            sent_at: None,
            due_at: None,
        }
    }

    /// The same message in another attempt.
    #[must_use]
    pub fn attempt(mut self, number: u32) -> Self {
        self.attempt = number;
        self.max_attempts = self.max_attempts.max(number);
        self
    }

    /// The same message with one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    ///
    /// A payload that does not fit is rejected: it will not fit in a later attempt.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.payload)
            .map_err(|error| Error::reject(format!("the payload is not as expected: {error}")))
    }

    /// The payload as text.
    ///
    /// # Errors
    ///
    /// Other bytes are rejected.
    pub fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.payload)
            .map_err(|error| Error::reject(format!("the payload is not UTF-8: {error}")))
    }

    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(key, _)| key == name)
            .map(|(_, value)| &**value)
    }

    /// True if no attempt follows a failure of this one.
    #[must_use]
    pub fn is_last_attempt(&self) -> bool {
        self.attempt >= self.max_attempts
    }
}

impl From<types::Message> for Message {
    fn from(message: types::Message) -> Self {
        let time = |ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        Self {
            id: message.id,
            queue: message.queue,
            payload: message.payload,
            headers: message.headers,
            attempt: message.attempt,
            max_attempts: message.max_attempts,
            sent_at: message.sent_at_ms.and_then(time),
            due_at: message.due_at_ms.and_then(time),
        }
    }
}
