//! Messages on their way in: how large they may be, and what an idempotency key makes of them.

use std::time::Duration;

use crate::clock::Clock;
use crate::message::{
    Due, HEADERS_MAX, Headers, MessageId, NewMessage, OnRepeat, SendOutcome, expiry, headers_size,
};
use crate::text::human_duration;

/// How long a key counts unless said otherwise: longer than scripts and operators retry.
const DEDUP_WINDOW: Duration = Duration::from_hours(24);

/// What is said about repeats under the same idempotency key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Repeats {
    /// How long a key counts after the due time; none for [`DEDUP_WINDOW`].
    pub window: Option<Duration>,
    pub replace: bool,
    pub extend: bool,
    pub max_wait: Option<Duration>,
}

impl Repeats {
    /// A repeat changes what is there.
    pub(crate) fn change(&self) -> bool {
        self.replace || self.extend
    }

    fn on_repeat(&self) -> Result<OnRepeat, String> {
        let max_wait = self.max_wait;
        match (self.replace, self.extend) {
            (true, true) => Err("give replace or extend, not both".to_owned()),
            (false, false) if max_wait.is_some() => {
                Err("a longest wait is for messages with replace or extend".to_owned())
            }
            (false, false) => Ok(OnRepeat::Ignore),
            _ if self.window.is_some() => Err(
                "replace and extend send anew what is gone: leave out the deduplication window"
                    .to_owned(),
            ),
            (true, false) => Ok(OnRepeat::Replace { max_wait }),
            (false, true) => Ok(OnRepeat::Extend { max_wait }),
        }
    }
}

/// The message under this idempotency key, if there is one.
///
/// # Errors
///
/// What is said about repeats does not go together, or needs a key.
pub(crate) fn with_key(
    message: NewMessage,
    key: Option<&str>,
    repeats: &Repeats,
) -> Result<NewMessage, String> {
    let on_repeat = repeats.on_repeat()?;
    let Some(key) = key else {
        return match on_repeat {
            OnRepeat::Ignore => Ok(message),
            _ => Err(
                "replace and extend are for messages with an idempotency key, and it has none"
                    .to_owned(),
            ),
        };
    };
    if let (Some(longest), Due::In(delay)) = (on_repeat.max_wait(), message.due)
        && delay > longest
    {
        return Err(format!(
            "it is to wait for {}, and at most for {}",
            human_duration(delay),
            human_duration(longest)
        ));
    }
    Ok(NewMessage {
        id: MessageId::of_key(key),
        dedup_window: repeats.window.unwrap_or(DEDUP_WINDOW),
        on_repeat,
        ..message
    })
}

/// What became of a message that is no new one, behind its id.
pub(crate) fn outcome_text(outcome: SendOutcome) -> Option<&'static str> {
    match outcome {
        SendOutcome::Sent => None,
        SendOutcome::Repeat => Some("was sent before, so nothing was sent now"),
        SendOutcome::Replaced => Some("was there, and has the new payload, headers and time"),
        SendOutcome::Extended => Some("was there, and has the new time"),
        SendOutcome::AfterRunning => Some("is running, and what was sent follows that run"),
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
