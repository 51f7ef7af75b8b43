//! Messages under a key, which are sent once.

use std::time::Duration;

use crate::message::{MessageId, NewMessage};

/// How long a key counts unless said otherwise: longer than scripts and operators retry.
const DEDUP_WINDOW: Duration = Duration::from_hours(24);

/// The message under this idempotency key, if there is one.
pub(super) fn with_key(
    message: NewMessage,
    key: Option<&str>,
    window: Option<Duration>,
) -> NewMessage {
    let Some(key) = key else { return message };
    NewMessage {
        id: MessageId::of_key(key),
        dedup_window: window.unwrap_or(DEDUP_WINDOW),
        ..message
    }
}
