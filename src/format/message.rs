//! Messages on their way in: how large they may be, and what an idempotency key makes of them.

use std::time::Duration;

use crate::message::{HEADERS_MAX, Headers, MessageId, NewMessage, headers_size};

/// How long a key counts unless said otherwise: longer than scripts and operators retry.
const DEDUP_WINDOW: Duration = Duration::from_hours(24);

/// The message under this idempotency key, if there is one.
pub(crate) fn with_key(
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

/// Refuses what no host would take.
pub(crate) fn check(payload: &[u8], headers: &Headers, max_payload: usize) -> Result<(), String> {
    if payload.len() > max_payload {
        return Err(payload_too_long(Some(payload.len() as u64), max_payload));
    }
    let size = headers_size(headers);
    if size > HEADERS_MAX {
        return Err(format!(
            "the headers take {size} bytes and the limit is {HEADERS_MAX}"
        ));
    }
    Ok(())
}

/// Why a payload of so many bytes is refused; without a size it is not known, but over the limit.
pub(crate) fn payload_too_long(size: Option<u64>, max: usize) -> String {
    let has = match size {
        Some(size) => size.to_string(),
        None => format!("more than {max}"),
    };
    format!(
        "the payload has {has} bytes and the limit is {max}; send a reference to it, or raise \
         --max-payload"
    )
}
