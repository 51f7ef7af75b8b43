//! What the headers of a request say about its message.
//!
//! They have the names of the flags of `dqhost send`: `dqhost-in`, `dqhost-at`, `dqhost-retries`,
//! `dqhost-dedup-window`, `dqhost-replace`, `dqhost-extend`, `dqhost-max-wait`, `dqhost-expires-in` and
//! `idempotency-key`. `dqhost-header-NAME` is a header of the message.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::guard::single;
use super::problem::Problem;
use crate::format::line::{self, Defaults};
use crate::format::message::{Repeats, expiring, with_key};
use crate::format::time;
use crate::message::{Due, Headers, NewMessage, RETRIES_MAX};

const OURS: &str = "dqhost-";
const MESSAGE_HEADER: &str = "dqhost-header-";
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The longest idempotency key, in bytes.
pub(super) const KEY_MAX: usize = 1024;

/// Headers that go on to the handler under their own names, beside those of CloudEvents (`ce-...`).
const PASSED_ON: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// What is to be done with the message of a request, or with each message of a batch that does not say
/// otherwise.
pub(super) struct Options {
    defaults: Defaults,
}

impl Options {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let (mut delay, mut at, mut retries, mut expires_in) = (None, None, None, None);
        let mut repeats = Repeats::default();
        let ours = headers.keys().filter_map(|name| {
            let word = name.as_str().strip_prefix(OURS)?;
            (!name.as_str().starts_with(MESSAGE_HEADER)).then_some((name, word))
        });
        for (name, word) in ours {
            let value = single(headers, name)?.unwrap_or_default();
            let wrong = |error: String| Problem::bad_request(format!("{name} {value:?}: {error}"));
            match word {
                "in" => delay = Some(time::duration(value).map_err(wrong)?),
                "at" => at = Some(time::at(value).map_err(wrong)?),
                "retries" => retries = Some(whole_number(value).map_err(wrong)?),
                "dedup-window" => repeats.window = Some(time::duration(value).map_err(wrong)?),
                "replace" => repeats.replace = truth(value).map_err(wrong)?,
                "extend" => repeats.extend = truth(value).map_err(wrong)?,
                "max-wait" => repeats.max_wait = Some(time::some_duration(value).map_err(wrong)?),
                "expires-in" => expires_in = Some(time::some_duration(value).map_err(wrong)?),
                _ => {
                    return Err(Problem::bad_request(format!(
                        "there is no header {name}: a header for the handler is \
                         dqhost-header-{word}"
                    )));
                }
            }
        }
        let due = match (delay, at) {
            (Some(_), Some(_)) => {
                return Err(Problem::bad_request(
                    "give dqhost-in or dqhost-at, not both",
                ));
            }
            (Some(delay), None) => Due::In(delay),
            (None, at) => at.map_or(Due::NOW, Due::At),
        };
        let key = single(headers, &HeaderName::from_static(IDEMPOTENCY_KEY))?;
        Ok(Self {
            defaults: Defaults {
                due,
                retries: retries.unwrap_or(NewMessage::RETRIES_DEFAULT),
                headers: message_headers(headers)?,
                key: key.map(key_of).transpose()?,
                repeats,
                expires_in,
                // Checked afterwards, since it has an answer of its own.
                max_payload: usize::MAX,
            },
        })
    }

    pub(super) fn has_key(&self) -> bool {
        self.defaults.key.is_some()
    }

    /// Those of each message.
    pub(super) fn headers(&self) -> &Headers {
        &self.defaults.headers
    }

    /// The message with this payload.
    pub(super) fn message(self, payload: Vec<u8>) -> Result<NewMessage, Problem> {
        let message = NewMessage {
            due: self.defaults.due,
            retries: self.defaults.retries,
            headers: self.defaults.headers,
            ..NewMessage::new(payload)
        };
        let message = expiring(message, self.defaults.expires_in).map_err(Problem::bad_request)?;
        with_key(
            message,
            self.defaults.key.as_deref(),
            &self.defaults.repeats,
        )
        .map_err(Problem::bad_request)
    }

    /// The message that a JSON object describes, or what is wrong with it.
    pub(super) fn parse(&self, text: &[u8]) -> Result<NewMessage, String> {
        line::parse(text, &self.defaults).map_err(|error| {
            if error.starts_with("unknown field") {
                return format!(
                    "{error}; a payload that is JSON itself goes into the field `payload`, or as \
                     the body with another content-type, such as text/plain"
                );
            }
            error
        })
    }
}

fn truth(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("it must be true or false".to_owned()),
    }
}

fn whole_number(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number <= RETRIES_MAX);
    number.ok_or_else(|| format!("it must be a whole number from 0 to {RETRIES_MAX}"))
}

/// The key itself: a text, or a text in double quotes as structured fields have it.
fn key_of(value: &str) -> Result<String, Problem> {
    let quoted = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let key = match quoted {
        Some(text) => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        None => value.to_owned(),
    };
    if key.is_empty() || key.len() > KEY_MAX {
        return Err(Problem::bad_request(format!(
            "idempotency-key must have from 1 to {KEY_MAX} bytes"
        )));
    }
    Ok(key)
}

/// The headers of the message, by name.
fn message_headers(headers: &HeaderMap) -> Result<Headers, Problem> {
    let is_event = headers.contains_key("ce-specversion");
    // It is the type of an event's data.
    let mut found = passed_on(headers, |name| is_event && name == header::CONTENT_TYPE)?;
    for (name, value) in headers {
        match name.as_str().strip_prefix(MESSAGE_HEADER) {
            Some("") => return Err(Problem::bad_request("dqhost-header- has no name")),
            Some(key) => found.push((key.to_owned(), text(name, value)?)),
            None => {}
        }
    }
    found.sort();
    Ok(found)
}

/// Headers for the handler under their own names: those of CloudEvents and traces, and others.
fn passed_on(
    headers: &HeaderMap,
    others: impl Fn(&HeaderName) -> bool,
) -> Result<Headers, Problem> {
    let is_passed = |name: &HeaderName| {
        name.as_str().starts_with("ce-") || PASSED_ON.contains(&name.as_str()) || others(name)
    };
    let passed = headers.iter().filter(|(name, _)| is_passed(name));
    let mut found = passed
        .map(|(name, value)| Ok((name.as_str().to_owned(), text(name, value)?)))
        .collect::<Result<Headers, Problem>>()?;
    found.sort();
    Ok(found)
}

fn text(name: &HeaderName, value: &HeaderValue) -> Result<String, Problem> {
    let text = std::str::from_utf8(value.as_bytes());
    let text = text.map_err(|_| Problem::bad_request(format!("{name} is not UTF-8")))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn read(headers: &[(&str, &str)]) -> Result<Options, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        Options::read(&map).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn headers_have_the_names_of_the_flags() {
        let headers = [
            ("dqhost-in", "5s"),
            ("dqhost-retries", "7"),
            ("dqhost-header-tenant", "a"),
            ("ce-id", "1"),
            ("traceparent", "00-x"),
            ("content-type", "text/plain"),
            ("user-agent", "curl"),
        ];
        let message = read(&headers).unwrap().message(b"x".to_vec()).unwrap();
        assert_eq!(message.due, Due::In(Duration::from_secs(5)));
        assert_eq!(message.retries, 7);
        let names = [("ce-id", "1"), ("tenant", "a"), ("traceparent", "00-x")];
        let names = names.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(message.headers, names);
        let event = [("ce-specversion", "1.0"), ("content-type", "a/b")];
        let message = read(&event).unwrap().message(Vec::new()).unwrap();
        assert!(
            message
                .headers
                .contains(&("content-type".into(), "a/b".into()))
        );
        for (name, value, says) in [
            ("dqhost-in", "5", "not a duration"),
            ("dqhost-at", "soon", "not a time"),
            ("dqhost-retries", "-1", "whole number"),
            ("dqhost-retries", "1000001", "whole number"),
            ("dqhost-expires-in", "0s", "more than zero"),
            ("dqhost-colour", "red", "there is no header dqhost-colour"),
            ("dqhost-header-", "x", "has no name"),
            ("idempotency-key", "", "from 1 to"),
            ("idempotency-key", "\"\"", "from 1 to"),
        ] {
            let error = read(&[(name, value)]).err().unwrap();
            assert!(error.contains(says), "{name}: {error}");
        }
        assert!(read(&[("dqhost-in", "1s"), ("dqhost-in", "1s")]).is_err());
        let both = [("dqhost-in", "1s"), ("dqhost-at", "14:00")];
        assert!(read(&both).err().unwrap().contains("not both"));
    }

    #[test]
    fn a_key_is_the_same_with_and_without_quotes_and_once_only() {
        let id = |key: &str| {
            let options = read(&[("idempotency-key", key)]).unwrap();
            options.message(Vec::new()).unwrap().id
        };
        assert_eq!(
            id("order 17"),
            crate::message::MessageId::of_key("order 17")
        );
        assert_eq!(id("\"order 17\""), id("order 17"));
        assert_ne!(id("order 18"), id("order 17"));
        let options = read(&[("idempotency-key", "order 17")]).unwrap();
        assert_eq!(
            options.parse(br#"{"payload":1}"#).unwrap().id,
            id("order 17")
        );
        let both = br#"{"payload":1,"idempotency_key":"x"}"#;
        assert!(
            options
                .parse(both)
                .unwrap_err()
                .contains("one in the headers")
        );
    }

    proptest! {
        #[test]
        fn no_header_is_a_panic(name in "(dqhost-(in|at|retries|header-x|dedup-window|replace|extend|max-wait|expires-in)|idempotency-key|ce-x)", value: Vec<u8>) {
            let mut map = HeaderMap::new();
            if let Ok(value) = axum::http::HeaderValue::from_bytes(&value) {
                map.append(name.parse::<HeaderName>().unwrap(), value);
            }
            if let Ok(options) = Options::read(&map) {
                let _ = options.parse(&value);
            }
        }
    }
}
