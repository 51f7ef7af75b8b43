//! A message as `dqhost export` prints it, read back with all that is known of it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::line::{self, Defaults};
use super::message::Repeats;
use crate::message::{
    Due, Headers, HistoryEntry, MessageId, NewMessage, OnRepeat, RETRIES_MAX, Record, State,
};

/// Bytes of an id that is taken over.
const ID_MAX: usize = 512;

/// Failed attempts that are taken over: as many as a store keeps.
const HISTORY_MAX: usize = 20;

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// A message that is to run: with its own id, and the retries that it has left.
    Alive(NewMessage),
    /// A dead letter, or what is about to be one.
    Dead(Box<Record>),
}

/// What a line says beside what a new message has.
#[derive(Deserialize)]
struct Description {
    id: Option<String>,
    state: Option<State>,
    at_ms: Option<u64>,
    attempts: Option<u32>,
    retries_left: Option<u32>,
    #[serde(default)]
    history: Vec<Value>,
}

/// What a line that is read may be.
pub(crate) fn defaults(max_payload: usize) -> Defaults {
    Defaults {
        due: Due::NOW,
        retries: NewMessage::RETRIES_DEFAULT,
        headers: Headers::new(),
        key: None,
        repeats: Repeats::default(),
        expires_in: None,
        max_payload,
    }
}

/// Reads one. The ids of those that are to run are known for `window`. The error says in words what is
/// wrong.
pub(crate) fn parse(line: &[u8], defaults: &Defaults, window: Duration) -> Result<Listed, String> {
    let message = line::parse(line, defaults)?;
    let described: Description =
        serde_json::from_slice(line).map_err(|error| format!("it is no exported line: {error}"))?;
    let (Some(id), Some(state)) = (described.id, described.state) else {
        return Err(
            "it has no id or no state: `dqhost export` prints both, and `dqhost send --ndjson` takes new \
             messages"
                .to_owned(),
        );
    };
    if id.is_empty() || id.len() > ID_MAX {
        return Err(format!("its id must have 1 to {ID_MAX} bytes"));
    }
    let retries = described.retries_left.unwrap_or(message.retries);
    if retries > RETRIES_MAX {
        return Err(format!(
            "retries_left {retries} are over the limit of {RETRIES_MAX}"
        ));
    }
    let mut history = history(described.history)?;
    let id = MessageId::from(id);
    if !matches!(state, State::Dead | State::Garbage) {
        return Ok(Listed::Alive(NewMessage {
            id,
            retries,
            dedup_window: window,
            on_repeat: OnRepeat::Ignore,
            ..message
        }));
    }
    // The first and the latest, as a store keeps them.
    if history.len() > HISTORY_MAX {
        history.drain(1..=history.len() - HISTORY_MAX);
    }
    Ok(Listed::Dead(Box::new(Record {
        id,
        // Without a time of death it becomes a dead letter when a host sees it.
        state: if described.at_ms.is_some() {
            state
        } else {
            State::Garbage
        },
        at_ms: described.at_ms,
        attempts: described.attempts.unwrap_or(0),
        retries_left: retries,
        headers: message.headers,
        history,
        payload: Some(message.payload),
    })))
}

/// The history, or which entry is none.
fn history(entries: Vec<Value>) -> Result<Vec<HistoryEntry>, String> {
    let read = |(number, entry)| {
        serde_json::from_value(entry).map_err(|_| {
            format!(
                "entry {number} of its history is wrong: a failed attempt is {{\"attempt\": 1, \"at_ms\": \
                 1795228395123, \"class\": \"nacked\"}}, and a redrive is {{\"redriven_from\": \"ID\", \
                 \"at_ms\": 1795228395123}}"
            )
        })
    };
    (1..).zip(entries).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json;
    use crate::message::{Attempt, PAYLOAD_MAX_DEFAULT};
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_hours(1);

    fn read(line: &[u8]) -> Result<Listed, String> {
        parse(line, &defaults(PAYLOAD_MAX_DEFAULT), WINDOW)
    }

    fn state() -> impl Strategy<Value = State> {
        prop::sample::select(&State::ALL[..])
    }

    proptest! {
        #[test]
        fn what_is_exported_is_read_again(
            id in ".{1,40}", state in state(), payload: Vec<u8>, attempts in 1_u32..9, left in 0_u32..9, reason in ".*",
        ) {
            let headers = vec![("k".to_owned(), reason.clone())];
            let history = vec![HistoryEntry::Attempt(Attempt {
                attempt: attempts,
                at_ms: 5,
                class: "nacked".to_owned(),
                reason,
                duration_ms: Some(3),
                host: "h".to_owned(),
                handler: "ab".to_owned(),
                log: String::new(),
            })];
            let record = Record {
                id: id.as_str().into(),
                state,
                at_ms: Some(1_795_228_395_123),
                attempts,
                retries_left: left,
                headers: headers.clone(),
                history,
                payload: Some(payload.clone()),
            };
            let line = json::text(&json::record(&record));
            match read(line.as_bytes()).unwrap() {
                Listed::Dead(read) => {
                    prop_assert!(matches!(state, State::Dead | State::Garbage));
                    prop_assert_eq!(*read, record);
                }
                Listed::Alive(message) => {
                    prop_assert!(!matches!(state, State::Dead | State::Garbage));
                    prop_assert_eq!(message.id, record.id);
                    prop_assert_eq!((message.payload, message.headers), (payload, headers));
                    prop_assert_eq!((message.retries, message.dedup_window), (left, WINDOW));
                    let is_later = state == State::Pending;
                    prop_assert_eq!(message.due == Due::At(1_795_228_395_123), is_later);
                }
            }
        }

        #[test]
        fn any_line_is_survived(line: Vec<u8>, text in r#"\{("(id|state|payload|at_ms|history|attempts)":("dead"|-?[0-9]{1,20}|\[\]|"x"),?){0,6}\}"#) {
            let _ = read(&line);
            let _ = read(text.as_bytes());
        }
    }

    #[test]
    fn what_is_no_exported_line_is_refused() {
        for (line, says) in [
            (r#"{"payload":"x"}"#, "no id or no state"),
            (
                r#"{"payload":"x","id":"","state":"ready"}"#,
                "1 to 512 bytes",
            ),
            (
                r#"{"payload":"x","id":7,"state":"ready"}"#,
                "no exported line",
            ),
            (
                r#"{"payload":"x","id":"a","state":"ready","retries_left":4000000000}"#,
                "over the limit",
            ),
            (
                r#"{"payload":null,"payload_missing":true,"id":"a","state":"dead"}"#,
                "payload is missing",
            ),
            (
                r#"{"payload":"x","id":"a","state":"dead","history":[{"attempt":1,"at_ms":1,"class":"nacked"},{}]}"#,
                "entry 2 of its history is wrong: a failed attempt is {\"attempt\": 1, \"at_ms\": 179",
            ),
            (
                r#"{"payload":"x","id":"a","state":"ready","history":["x"]}"#,
                "and a redrive is {\"redriven_from\": \"ID\", \"at_ms\": 1795228395123}",
            ),
            ("[]", "not a JSON object"),
        ] {
            let error = read(line.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn of_a_long_history_the_first_and_the_latest_are_taken() {
        let entries: Vec<String> = (1..=50)
            .map(|n| format!(r#"{{"attempt":{n},"at_ms":{n},"class":"nacked"}}"#))
            .collect();
        let line = format!(
            r#"{{"payload":"x","id":"a","state":"dead","at_ms":5,"history":[{}]}}"#,
            entries.join(",")
        );
        let Ok(Listed::Dead(record)) = read(line.as_bytes()) else {
            panic!("{line}")
        };
        let attempt = |entry: &HistoryEntry| match entry {
            HistoryEntry::Attempt(attempt) => attempt.attempt,
            HistoryEntry::Redriven { .. } => 0,
        };
        let attempts: Vec<u32> = record.history.iter().map(attempt).collect();
        assert_eq!(attempts.len(), HISTORY_MAX);
        assert_eq!((attempts[0], attempts[1], attempts[19]), (1, 32, 50));
    }
}
