//! Messages on their way in: how large they may be, and what an idempotency key makes of them.

use std::time::Duration;

use crate::clock::Clock;
use crate::message::{Due, HEADERS_MAX, Headers, MessageId, NewMessage, expiry, headers_size};
use crate::text::human_duration;

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

/// The message, which has to begin within this time after it is sent, if there is one.
///
/// # Errors
///
/// It would expire before it is due, or has a header that is no expiry.
pub(crate) fn expiring(
    message: NewMessage,
    expires_in: Option<Duration>,
) -> Result<NewMessage, String> {
    expiry::check(&message.headers)?;
    let Some(time) = expires_in else {
        return Ok(message);
    };
    let delay = match message.due {
        Due::In(delay) => delay,
        Due::At(at_ms) => Duration::from_millis(at_ms.saturating_sub(Clock::System.now().ms)),
    };
    if delay >= time {
        return Err(format!(
            "the message would expire before it is due: the {} count from the send",
            human_duration(time)
        ));
    }
    Ok(message.expiring_in(time))
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
