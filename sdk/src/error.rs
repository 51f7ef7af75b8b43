//! How a message ends that is not acked.

use std::fmt;
use std::time::Duration;

use crate::bindings::dqhost::queue::types::{Nack, Verdict};

/// What a handler returns: `Ok(())` acks the message.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a message is not acked, and what happens to it.
///
/// Any [`std::error::Error`] becomes one that is retried, so `?` works on it. The reason is its text,
/// with those of its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub(crate) reason: String,
    pub(crate) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// After the delay, or the queue's back-off.
    Retry(Option<Duration>),
    Reject,
}

impl Error {
    /// Retries the message after the queue's back-off. With no attempt left it becomes a dead letter.
    pub fn retry(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
            end: End::Retry(None),
        }
    }

    /// Retries the message after this delay, which has milliseconds and is capped by the host.
    pub fn retry_in(delay: Duration, reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
            end: End::Retry(Some(delay)),
        }
    }

    /// Makes the message a dead letter at once.
    pub fn reject(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
            end: End::Reject,
        }
    }

    /// Why, in words. The host keeps the first 1,024 bytes.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn into_verdict(self) -> Verdict {
        match self.end {
            End::Retry(delay) => Verdict::Nack(Nack {
                delay_ms: delay.map(whole_ms),
                reason: Some(self.reason),
            }),
            End::Reject => Verdict::Reject(self.reason),
        }
    }
}

/// In whole milliseconds.
pub(crate) fn whole_ms(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut reason = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Some texts have their source's in them.
            if !reason.contains(&text) {
                reason = reason + ": " + &text;
            }
            source = cause.source();
        }
        Self::retry(reason)
    }
}

/// What becomes of a message if a step of its handler fails.
pub trait ResultExt<T> {
    /// Rejects the message: a retry would fail as well.
    ///
    /// # Errors
    ///
    /// The same, as a rejection.
    fn or_reject(self) -> Result<T>;

    /// Retries the message after this delay.
    ///
    /// # Errors
    ///
    /// The same, with the delay.
    fn or_retry_in(self, delay: Duration) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for std::result::Result<T, E> {
    fn or_reject(self) -> Result<T> {
        self.map_err(|error| Error::reject(error.into().reason))
    }

    fn or_retry_in(self, delay: Duration) -> Result<T> {
        self.map_err(|error| Error::retry_in(delay, error.into().reason))
    }
}
