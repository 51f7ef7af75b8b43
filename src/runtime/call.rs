//! What is handed to a handler.

use crate::message::Headers;

/// What a handler is told of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The message's id.
    pub id: String,
    /// The queue that it came through.
    pub queue: String,
    /// As sent.
    pub payload: Vec<u8>,
    /// As sent.
    pub headers: Headers,
    /// 1 on the first delivery.
    pub attempt: u32,
    /// The number of the last attempt.
    pub attempts_max: u32,
    /// Unix milliseconds, when known.
    pub sent_at_ms: Option<u64>,
    /// Unix milliseconds, when it waited for a time.
    pub due_at_ms: Option<u64>,
}
