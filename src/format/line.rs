//! A message as a JSON object: a line of `send --ndjson`, or the body of an HTTP request.
//!
//! What `list`, `get` and `dead list` print with `--json` is such a line as well. It is sent as a new
//! message with the same payload, headers and retries. A pending one keeps its due time.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::message::Repeats;
use super::{message, time};
use crate::message::{Due, Headers, NewMessage, RETRIES_MAX, State, expiry};
use crate::text::cut;

/// What a line that does not say otherwise gets, and how long a payload may be.
pub(crate) struct Defaults {
    pub due: Due,
    pub retries: u32,
    pub headers: Headers,
    /// The idempotency key of a message that says none.
    pub key: Option<String>,
    pub repeats: Repeats,
    pub expires_in: Option<Duration>,
    pub max_payload: usize,
}

/// One line. Its values are read one by one, so that a wrong one is refused by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    payload_base64: Option<&'a RawValue>,
    #[serde(borrow, rename = "in")]
    delay: Option<&'a RawValue>,
    #[serde(borrow)]
    at: Option<&'a RawValue>,
    #[serde(borrow)]
    at_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    retries: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    idempotency_key: Option<&'a RawValue>,
    #[serde(borrow)]
    dedup_window: Option<&'a RawValue>,
    #[serde(borrow)]
    replace: Option<&'a RawValue>,
    #[serde(borrow)]
    extend: Option<&'a RawValue>,
    #[serde(borrow)]
    max_wait: Option<&'a RawValue>,
    #[serde(borrow)]
    expires_in: Option<&'a RawValue>,
    /// Only what is listed has a state. The fields below describe it, and are not sent.
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    id: Option<IgnoredAny>,
    attempts: Option<IgnoredAny>,
    retries_left: Option<IgnoredAny>,
    redrives: Option<IgnoredAny>,
    history: Option<IgnoredAny>,
    #[serde(borrow)]
    payload_missing: Option<&'a RawValue>,
}

/// Bytes of a wrong value that a refusal repeats.
const REPEATED_MAX: usize = 80;

/// A value that is there, be it null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The value of a field, or what it must be.
fn field<'a, T: Deserialize<'a>>(
    name: &str,
    value: Option<&'a RawValue>,
    must_be: &str,
) -> Result<Option<T>, String> {
    let read = |value: &'a RawValue| {
        serde_json::from_str(value.get()).map_err(|_| {
            let value = cut(value.get(), REPEATED_MAX);
            format!("{name} must be {must_be}, not {value}")
        })
    };
    value.map(read).transpose()
}

/// A field that is a string.
fn text(name: &str, value: Option<&RawValue>) -> Result<Option<String>, String> {
    if value.is_some_and(|value| value.get().starts_with('"')) {
        return field(name, value, "Unicode text without lone surrogates");
    }
    field(name, value, "a string")
}

/// The headers in the order written.
struct Pairs(Headers);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pairs(deserializer).map(Self)
    }
}

/// Headers as an object, or as a list of pairs, in the order written; names may repeat.
fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Headers, D::Error> {
    struct Reader;

    impl<'de> Visitor<'de> for Reader {
        type Value = Headers;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of strings, or a list of pairs of strings")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut headers = Headers::new();
            while let Some(pair) = list.next_element()? {
                headers.push(pair);
            }
            Ok(headers)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut headers = Headers::new();
            while let Some(pair) = map.next_entry()? {
                headers.push(pair);
            }
            Ok(headers)
        }
    }

    deserializer.deserialize_any(Reader)
}

impl Line<'_> {
    /// When it is due, if it says so. What is listed says something else by its time in some states:
    /// when a lease expires, or when the message became a dead letter.
    fn at_ms(&self) -> Result<Option<u64>, String> {
        let at = text("at", self.at)?;
        let at = at.map(|at| time::at(&at).map_err(|error| format!("at {at:?}: {error}")));
        let at_ms = field::<u64>("at_ms", self.at_ms, "a time in unix milliseconds")?;
        if at_ms.is_some_and(|at_ms| !time::is_allowed(at_ms)) {
            return Err("at_ms must not be more than 100 years away".to_owned());
        }
        let at_ms = match (at.transpose()?, at_ms) {
            (Some(at), Some(at_ms)) if at != at_ms => {
                return Err("its at and its at_ms are different times: leave one out".to_owned());
            }
            (at, at_ms) => at_ms.or(at),
        };
        let is_due_time = matches!(self.listed_state()?, None | Some(State::Pending));
        Ok(at_ms.filter(|_| is_due_time))
    }

    fn listed_state(&self) -> Result<Option<State>, String> {
        field("state", self.state, "one that a listed message has")
    }

    /// The headers. A dead letter that is sent again need not begin by the time that it had.
    fn headers(&self, defaults: &Defaults) -> Result<Headers, String> {
        let shape = "an object of strings, or a list of pairs of strings";
        let headers = field::<Pairs>("headers", self.headers, shape)?;
        let mut headers = headers.map_or_else(|| defaults.headers.clone(), |pairs| pairs.0);
        if matches!(self.listed_state()?, Some(State::Dead | State::Garbage)) {
            expiry::remove(&mut headers);
        }
        Ok(headers)
    }

    /// How long it has to begin. A header that says by when comes before the default.
    fn expires_in(
        &self,
        headers: &Headers,
        defaults: &Defaults,
    ) -> Result<Option<Duration>, String> {
        match text("expires_in", self.expires_in)? {
            Some(text) => time::some_duration(&text)
                .map(Some)
                .map_err(|error| format!("expires_in {text:?}: {error}")),
            None if headers.iter().any(|(name, _)| name == expiry::EXPIRES_AT) => Ok(None),
            None => Ok(defaults.expires_in),
        }
    }

    fn key(&self, defaults: &Defaults) -> Result<Option<String>, String> {
        match text("idempotency_key", self.idempotency_key)? {
            Some(key) if key.is_empty() => Err("its idempotency_key is empty".to_owned()),
            Some(_) if defaults.key.is_some() => {
                Err("there is an idempotency_key in the message and one in the headers".to_owned())
            }
            own => Ok(own.or_else(|| defaults.key.clone())),
        }
    }

    /// What it says about repeats. A line that names a way, or a window, has not that of the others.
    fn repeats(&self, key: Option<&str>, defaults: &Defaults) -> Result<Repeats, String> {
        let window = text("dedup_window", self.dedup_window)?;
        let window = window
            .map(|text| {
                time::duration(&text).map_err(|error| format!("dedup_window {text:?}: {error}"))
            })
            .transpose()?;
        if key.is_none() && window.is_some() {
            return Err("it has a dedup_window and no idempotency_key".to_owned());
        }
        let max_wait = text("max_wait", self.max_wait)?;
        let max_wait = max_wait
            .map(|text| {
                time::some_duration(&text).map_err(|error| format!("max_wait {text:?}: {error}"))
            })
            .transpose()?;
        let replace = field("replace", self.replace, "true or false")?;
        let extend = field("extend", self.extend, "true or false")?;
        let others = defaults.repeats;
        let own = replace.is_some() || extend.is_some() || window.is_some();
        let mut repeats = Repeats {
            window,
            replace: replace.unwrap_or(!own && others.replace),
            extend: extend.unwrap_or(!own && others.extend),
            max_wait,
        };
        if repeats.change() {
            repeats.max_wait = max_wait.or(others.max_wait);
        } else {
            repeats.window = window.or(others.window);
        }
        Ok(repeats)
    }

    fn payload(&self) -> Result<Vec<u8>, String> {
        let is_missing = field("payload_missing", self.payload_missing, "true or false")?;
        let base64 = text("payload_base64", self.payload_base64)?;
        // A listed message has both fields, and one of them is null.
        let is_null = self.payload.is_some_and(|value| value.get() == "null");
        match (self.payload.filter(|_| !is_null), base64) {
            // A string is its text; anything else is sent as it was written, to the last digit.
            (Some(value), None) if value.get().starts_with('"') => {
                let text = text("payload", Some(value))?;
                Ok(text.unwrap_or_default().into_bytes())
            }
            (Some(value), None) => Ok(value.get().as_bytes().to_vec()),
            (None, Some(text)) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| format!("payload_base64 is not base64: {error}")),
            (None, None) if is_missing == Some(true) => {
                Err("its payload is missing from the store".to_owned())
            }
            (None, None) if is_null => Err(
                "its payload is null: give \"\" for an empty payload, or \"null\" for that word"
                    .to_owned(),
            ),
            (None, None) => Err("it has neither payload nor payload_base64".to_owned()),
            (Some(_), Some(_)) => Err("it has payload and payload_base64".to_owned()),
        }
    }

    fn retries(&self) -> Result<Option<u32>, String> {
        let whole = format!("a whole number from 0 to {RETRIES_MAX}");
        let retries = field::<u64>("retries", self.retries, &whole)?;
        let Some(retries) = retries else {
            return Ok(None);
        };
        match u32::try_from(retries) {
            Ok(retries) if retries <= RETRIES_MAX => Ok(Some(retries)),
            _ => Err(format!(
                "retries {retries} are over the limit of {RETRIES_MAX}"
            )),
        }
    }

    /// Refuses what only a listed message has in a line that is not listed. A new message has an id of its
    /// own, and a producer who names one must not believe that it is used.
    fn check_description(&self) -> Result<(), String> {
        let described = [
            ("id", self.id.is_some()),
            ("attempts", self.attempts.is_some()),
            ("retries_left", self.retries_left.is_some()),
            ("redrives", self.redrives.is_some()),
            ("history", self.history.is_some()),
            ("payload_missing", self.payload_missing.is_some()),
        ];
        match described.into_iter().find(|(_, is_there)| *is_there) {
            Some((name, _)) if self.state.is_none() => Err(format!(
                "it has the field `{name}` and no `state`, which every listed message has: a new \
                 message gets an id of its own, or one made of its idempotency_key"
            )),
            _ => Ok(()),
        }
    }

    fn into_message(self, defaults: &Defaults) -> Result<NewMessage, String> {
        self.check_description()?;
        let at_ms = self.at_ms()?;
        let bytes = self.payload()?;
        let due = match (text("in", self.delay)?, at_ms) {
            (Some(delay), None) => {
                Due::In(time::duration(&delay).map_err(|error| format!("in {delay:?}: {error}"))?)
            }
            (None, Some(at_ms)) => Due::At(at_ms),
            (None, None) => defaults.due,
            (Some(_), Some(_)) => return Err("it has in and at".to_owned()),
        };
        let retries = self.retries()?.unwrap_or(defaults.retries);
        let headers = self.headers(defaults)?;
        let expires_in = self.expires_in(&headers, defaults)?;
        message::check(&bytes, &headers, defaults.max_payload)?;
        let key = self.key(defaults)?;
        let repeats = self.repeats(key.as_deref(), defaults)?;
        let message = NewMessage {
            due,
            retries,
            headers,
            ..NewMessage::new(bytes)
        };
        let message = message::expiring(message, expires_in)?;
        message::with_key(message, key.as_deref(), &repeats)
    }
}

/// Reads one. The error says in words what is wrong with it.
pub(crate) fn parse(line: &[u8], defaults: &Defaults) -> Result<NewMessage, String> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a JSON object, such as {\"payload\": \"text\"}".to_owned());
    }
    serde_json::from_slice::<Line<'_>>(line)
        .map_err(|error| refusal(&error))?
        .into_message(defaults)
}

/// What is wrong with a line, without the parser's own count of lines, which is always 1.
fn refusal(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    if error.is_data() {
        return what.to_owned();
    }
    format!("it is not valid JSON at column {}: {what}", error.column())
}

/// The longest line that is read with these limits, in bytes.
pub(crate) fn line_max(defaults: &Defaults) -> u64 {
    size_max(defaults.max_payload)
}

/// A payload of the largest size, every byte written as \u00xx, and the other fields, a history
/// included.
pub(crate) fn size_max(max_payload: usize) -> u64 {
    u64::try_from(max_payload)
        .unwrap_or(u64::MAX)
        .saturating_mul(6)
        .saturating_add(1 << 18)
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;
    use crate::message::{DELAY_MS_MAX, HistoryEntry, MessageId, Record};
    use proptest::prelude::*;

    fn defaults() -> Defaults {
        Defaults {
            due: Due::NOW,
            retries: 3,
            headers: Vec::new(),
            key: None,
            repeats: Repeats::default(),
            expires_in: None,
            max_payload: 100,
        }
    }

    #[test]
    fn a_line_says_what_its_message_is() {
        let line = br#"{"payload":{"a":1},"in":"2s","retries":5,"headers":{"k":"v"}}"#;
        let message = parse(line, &defaults()).unwrap();
        assert_eq!(message.payload, b"{\"a\":1}");
        let exact = r#"{"b": 12345678901234567890123, "a": 1.10}"#;
        let line = format!(r#"{{"payload":{exact},"headers":{{"z":"1","a":"2","z":"3"}}}}"#);
        let kept = parse(line.as_bytes(), &defaults()).unwrap();
        assert_eq!(kept.payload, exact.as_bytes());
        let headers = [("z", "1"), ("a", "2"), ("z", "3")];
        assert_eq!(
            kept.headers,
            headers.map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert_eq!(message.due, Due::In(Duration::from_secs(2)));
        assert_eq!(
            (message.retries, message.headers),
            (5, vec![("k".into(), "v".into())])
        );
        assert_eq!(
            parse(br#"{"payload":"text"}"#, &defaults())
                .unwrap()
                .payload,
            b"text"
        );
        assert_eq!(
            parse(br#"{"payload_base64":"AP8="}"#, &defaults())
                .unwrap()
                .payload,
            b"\x00\xff"
        );
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        for (line, what) in [
            ("{", "EOF"),
            ("{}", "neither"),
            (r#"{"payload":1,"id":"x"}"#, "the field `id` and no `state`"),
            (r#"{"payload":1,"at_ms":99999999999999}"#, "100 years"),
            (
                r#"{"payload":1,"at":"2050-01-01T00:00:00Z","at_ms":1}"#,
                "different times",
            ),
            (
                r#"{"state":"dead","payload":null,"payload_missing":true}"#,
                "missing from the store",
            ),
            (
                r#"{"payload":1,"headers":[["a"]]}"#,
                "headers must be an object of strings",
            ),
            (r#"{"payload":1,"colour":"red"}"#, "unknown field `colour`"),
            (r#"{"payload":1,"in":"-1s"}"#, "negative"),
            (r#"{"payload":1,"in":"1s","at":"14:00"}"#, "in and at"),
            (r#"{"payload":1,"retries":4000000000}"#, "over the limit"),
            (r#"{"payload_base64":"?"}"#, "not base64"),
            (r#"{"payload":1,"idempotency_key":""}"#, "is empty"),
            (r#"{"payload":1,"dedup_window":"1s"}"#, "no idempotency_key"),
            (
                r#"{"payload":1,"idempotency_key":"k","dedup_window":"1"}"#,
                "dedup_window \"1\"",
            ),
            (
                &format!(r#"{{"payload":"{}"}}"#, "x".repeat(101)),
                "101 bytes",
            ),
        ] {
            let error = parse(line.as_bytes(), &defaults()).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    /// A message as a list has it.
    fn listed(state: State, payload: Vec<u8>, headers: Headers, at_ms: u64) -> Record {
        Record {
            id: MessageId::new(),
            state,
            at_ms: Some(at_ms),
            attempts: 2,
            retries_left: 5,
            headers,
            history: vec![HistoryEntry::Redriven {
                redriven_from: "x".to_owned(),
                redrives: 1,
                at_ms: 1,
            }],
            payload: Some(payload),
        }
    }

    #[test]
    fn of_what_is_listed_only_a_pending_message_has_a_due_time() {
        let at_ms = 2_524_608_000_000;
        for (state, due, retries) in [
            (State::Pending, Due::At(at_ms), 7),
            (State::Unack, Due::NOW, 7),
            (State::Dead, Due::NOW, 6),
        ] {
            let record = listed(state, b"x".to_vec(), Vec::new(), at_ms);
            let line = json::text(&json::record(&record));
            let sent = parse(line.as_bytes(), &defaults()).unwrap();
            assert_eq!((sent.due, sent.retries), (due, retries), "{state:?}");
            assert_ne!(sent.id, record.id);
        }
    }

    proptest! {
        #[test]
        fn what_is_listed_is_sent_again_as_it_was(
            payload in prop_oneof![any::<Vec<u8>>(), "\\PC{0,20}|[\u{0}-\u{9f}\u{202e}]{0,9}".prop_map(String::into_bytes)],
            headers in prop::collection::vec(("[a-c\"\u{1b}é]{1,3}", "\\PC{0,9}"), 0..5),
            at_ms in 0_u64..1_700_000_000_000 + DELAY_MS_MAX,
        ) {
            let defaults = Defaults { max_payload: 1000, ..defaults() };
            let record = listed(State::Pending, payload, headers, at_ms);
            let line = json::text(&json::record(&record));
            prop_assert!(!line.contains(char::is_control));
            let sent = parse(line.as_bytes(), &defaults).unwrap();
            prop_assert_eq!(Some(sent.payload), record.payload.clone());
            prop_assert_eq!(&sent.headers, &record.headers);
            prop_assert_eq!(sent.due, Due::At(at_ms));
            prop_assert_eq!(sent.retries, json::retries(&record));
        }

        #[test]
        fn no_line_is_a_panic(line: Vec<u8>) {
            let _ = parse(&line, &defaults());
        }
    }
}
