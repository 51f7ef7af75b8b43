//! By when a message has to begin.
//!
//! It is a header, so every store keeps it with the message, and lists, moves and producers in other
//! languages know it. `lua/include/expiry.lua`, `reserve.lua`, `redriven.lua` and `change.lua` read it in the same way.

use std::borrow::Cow;
use std::time::Duration;

use super::{Headers, NewMessage};

/// The header with the time by which an attempt has to begin: unix milliseconds by the store's clock.
/// `+N` stands for N milliseconds after the store accepts the message, which then writes the time.
pub const EXPIRES_AT: &str = "dqhost-expires-at";

/// More digits are no time.
const DIGITS_MAX: usize = 15;

impl NewMessage {
    /// The same message, which has to begin within this time after the store accepts it. If no attempt
    /// has begun by then, the next one does not: the message is a dead letter of the class
    /// `message-expired`. An attempt that has begun is not stopped.
    #[must_use]
    pub fn expiring_in(mut self, time: Duration) -> Self {
        set(&mut self.headers, time);
        self
    }
}

/// Makes a message with these headers expire so long after the store accepts it.
pub(crate) fn set(headers: &mut Headers, time: Duration) {
    remove(headers);
    let ms = time.as_nanos().div_ceil(1_000_000);
    headers.push((EXPIRES_AT.to_owned(), format!("+{ms}")));
}

fn number(text: &str) -> Option<u64> {
    let is_time = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    is_time.then(|| text.parse().ok()).flatten()
}

fn values(headers: &Headers) -> impl Iterator<Item = &str> {
    let ours = headers.iter().filter(|(name, _)| name == EXPIRES_AT);
    ours.map(|(_, value)| value.as_str())
}

/// How long a new message has to begin, if it says so, in milliseconds.
pub(crate) fn relative_ms(headers: &Headers) -> Option<u64> {
    values(headers).find_map(|value| number(value.strip_prefix('+')?))
}

/// The headers with the time in the place of how long it is until then.
pub(crate) fn resolved(headers: &Headers, now_ms: u64) -> Cow<'_, Headers> {
    if relative_ms(headers).is_none() {
        return Cow::Borrowed(headers);
    }
    let mut headers = headers.clone();
    for (name, value) in &mut headers {
        if name == EXPIRES_AT
            && let Some(ms) = value.strip_prefix('+').and_then(number)
        {
            *value = now_ms.saturating_add(ms).to_string();
        }
    }
    Cow::Owned(headers)
}

/// True if the message had to begin before this time.
pub(crate) fn is_expired(headers: &Headers, now_ms: u64) -> bool {
    values(headers)
        .find_map(number)
        .is_some_and(|at_ms| at_ms <= now_ms)
}

/// Takes the expiry off.
pub(crate) fn remove(headers: &mut Headers) {
    headers.retain(|(name, _)| name != EXPIRES_AT);
}

/// Refuses a value that is no time, since the message would never expire.
pub(crate) fn check(headers: &Headers) -> Result<(), String> {
    let is_wrong = |value: &&str| number(value.strip_prefix('+').unwrap_or(value)).is_none();
    match values(headers).find(is_wrong) {
        Some(wrong) => Err(format!(
            "the header {EXPIRES_AT} is {wrong:?}: give unix milliseconds, or + and milliseconds from \
             now"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> Headers {
        let ours = values.iter().map(|value| (EXPIRES_AT, *value));
        let all = [("a", "+1")].into_iter().chain(ours);
        all.map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn a_time_from_now_becomes_a_time_when_it_is_accepted() {
        let message = NewMessage {
            headers: headers(&["7"]),
            ..NewMessage::new("x")
        };
        let message = message.expiring_in(Duration::from_micros(1500));
        assert_eq!(message.headers, headers(&["+2"]));
        assert_eq!(*resolved(&message.headers, 40), headers(&["42"]));
        for kept in [headers(&[]), headers(&["9"]), headers(&["+x"])] {
            assert!(matches!(resolved(&kept, 1), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn only_a_time_expires() {
        for (values, at) in [
            (&["7"][..], Some(7)),
            (&["soon", "7"], Some(7)),
            (&["9", "7"], Some(9)),
            (&["+7"], None),
            (&[""], None),
            (&["-7"], None),
            (&["1234567890123456"], None),
            (&[], None),
        ] {
            let headers = headers(values);
            let at = at.unwrap_or(u64::MAX);
            assert!(!is_expired(&headers, at - 1), "{values:?}");
            assert_eq!(is_expired(&headers, at), at < u64::MAX, "{values:?}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for good in [&[][..], &["7"], &["+7"], &["000000000000007"]] {
            assert_eq!(check(&headers(good)), Ok(()));
        }
        for bad in ["", "+", "soon", "7.5", "10m", "++7", "1234567890123456"] {
            let error = check(&headers(&[bad])).unwrap_err();
            assert!(error.contains("unix milliseconds"), "{error}");
        }
        let mut removed = headers(&["7", "+7"]);
        remove(&mut removed);
        assert_eq!(removed, headers(&[]));
    }
}
