//! What a send does to a message that is there under its id already, and what became of it.
//!
//! When a message was sent first is a header, so every store keeps it with the message, and moves and lists know
//! it. `lua/include/change.lua` reads and writes it in the same way.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Headers, MessageId, NewMessage};

/// The header with the time at which a message that repeats may change was sent first: unix milliseconds by
/// the store's clock. The store writes it.
pub const FIRST_SENT_AT: &str = "dqhost-first-sent-at";

/// More digits are no time.
const DIGITS_MAX: usize = 15;

/// What a send does to a message that is there under its id already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnRepeat {
    /// Nothing: what is there stays as it is.
    #[default]
    Ignore,
    /// Puts its payload, headers, retries and due time in the place of those that are there.
    Replace {
        /// So long after its first send the message is due at the latest.
        max_wait: Option<Duration>,
    },
    /// Gives what is there its due time, and nothing else.
    Extend {
        /// So long after its first send the message is due at the latest.
        max_wait: Option<Duration>,
    },
}

impl OnRepeat {
    /// How long after its first send the message is due at the latest.
    #[must_use]
    pub const fn max_wait(self) -> Option<Duration> {
        match self {
            Self::Ignore => None,
            Self::Replace { max_wait } | Self::Extend { max_wait } => max_wait,
        }
    }
}

/// What became of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendOutcome {
    /// It is a new message.
    Sent,
    /// A message of this id was there already, or within its [`NewMessage::dedup_window`], and nothing was
    /// written.
    Repeat,
    /// It has replaced the message that was there ([`OnRepeat::Replace`]).
    Replaced,
    /// The message that was there has its due time ([`OnRepeat::Extend`]).
    Extended,
    /// The message of this id runs. When that run has ended, the repeat takes effect as if it were sent then.
    AfterRunning,
}

impl SendOutcome {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Repeat => "repeat",
            Self::Replaced => "replaced",
            Self::Extended => "extended",
            Self::AfterRunning => "after-running",
        }
    }
}

/// What the store says of a message that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The id that the sender chose.
    pub id: MessageId,
    /// When the message is due, unix milliseconds; none for [`SendOutcome::Repeat`].
    pub due_at_ms: Option<u64>,
    /// What became of it.
    pub outcome: SendOutcome,
}

impl Sent {
    /// A message that was accepted as a new one, or one that was there already if it has no due time.
    #[must_use]
    pub fn new(id: MessageId, due_at_ms: Option<u64>) -> Self {
        Self {
            id,
            due_at_ms,
            outcome: match due_at_ms {
                Some(_) => SendOutcome::Sent,
                None => SendOutcome::Repeat,
            },
        }
    }

    /// True for a new message.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.outcome == SendOutcome::Sent
    }
}

impl NewMessage {
    /// The window that counts: whoever changes what is there also sends anew what is gone.
    pub(crate) fn window(&self) -> Duration {
        match self.on_repeat {
            OnRepeat::Ignore => self.dedup_window,
            OnRepeat::Replace { .. } | OnRepeat::Extend { .. } => Duration::ZERO,
        }
    }
}

/// When a message was sent first, if its headers say so. Not in the future.
pub(crate) fn first_sent_ms(headers: &Headers, now_ms: u64) -> Option<u64> {
    let ours = headers.iter().filter(|(name, _)| name == FIRST_SENT_AT);
    let is_time = |text: &&String| {
        (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let at_ms = ours.map(|(_, value)| value).find(is_time)?.parse().ok();
    at_ms.map(|at_ms: u64| at_ms.min(now_ms))
}

/// The headers without it.
pub(crate) fn without_first_sent(mut headers: Headers) -> Headers {
    headers.retain(|(name, _)| name != FIRST_SENT_AT);
    headers
}

/// The headers with it.
pub(crate) fn with_first_sent(headers: Headers, at_ms: u64) -> Headers {
    let mut headers = without_first_sent(headers);
    headers.push((FIRST_SENT_AT.to_owned(), at_ms.to_string()));
    headers
}

/// The due time, which is at most so long after the first send, and not in the past.
pub(crate) fn bounded_due(
    due_ms: u64,
    first_ms: u64,
    max_wait_ms: Option<u64>,
    now_ms: u64,
) -> u64 {
    let latest = max_wait_ms.map_or(u64::MAX, |wait| first_ms.saturating_add(wait));
    due_ms.min(latest).max(now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> Headers {
        let ours = values.iter().map(|value| (FIRST_SENT_AT, *value));
        let all = [("a", "1")].into_iter().chain(ours);
        all.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn the_first_send_is_a_time_that_has_passed() {
        for (values, at) in [
            (&["7"][..], Some(7)),
            (&["soon", "7"], Some(7)),
            (&["999"], Some(100)),
            (&["1234567890123456"], None),
            (&[""], None),
            (&["-7"], None),
            (&[], None),
        ] {
            assert_eq!(first_sent_ms(&headers(values), 100), at, "{values:?}");
        }
        assert_eq!(with_first_sent(headers(&["7", "x"]), 9), headers(&["9"]));
    }

    #[test]
    fn a_due_time_is_bounded_from_the_first_send_on() {
        assert_eq!(bounded_due(50, 10, None, 20), 50);
        assert_eq!(bounded_due(50, 10, Some(30), 20), 40);
        assert_eq!(bounded_due(50, 10, Some(5), 20), 20);
        assert_eq!(bounded_due(5, 10, None, 20), 20);
        assert_eq!(bounded_due(u64::MAX, 10, Some(u64::MAX), 20), u64::MAX);
    }

    #[test]
    fn an_outcome_is_stored_by_its_word() {
        for outcome in [
            SendOutcome::Sent,
            SendOutcome::Repeat,
            SendOutcome::Replaced,
            SendOutcome::Extended,
            SendOutcome::AfterRunning,
        ] {
            let word = serde_json::json!(outcome.as_str());
            assert_eq!(serde_json::json!(outcome), word);
        }
    }
}
