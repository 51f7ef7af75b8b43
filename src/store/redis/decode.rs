//! Redis replies and stored values as our types. Everything here comes from outside: what cannot
//! be understood becomes the documented default or an error, never a panic.

use crate::store::Operation;
use redis::{FromRedisValue, Value};

use crate::message::{MessageId, Record, State};
use crate::store::common::{headers, history};
use crate::store::{Settled, StoreError, StoreResult, Totals};

/// A reply that is not of the form that the script's header promises.
pub(super) fn unexpected(store: &str, operation: Operation) -> StoreError {
    StoreError::Refused {
        store: store.to_owned(),
        operation,
        reason: "its reply has an unexpected form; is another program writing to these keys?"
            .to_owned(),
    }
}

/// A reply as `T`.
pub(super) fn decode<T: FromRedisValue>(
    store: &str,
    operation: Operation,
    value: Value,
) -> StoreResult<T> {
    T::from_redis_value(value).map_err(|_| unexpected(store, operation))
}

/// Done, and a repeat of the message waits for this.
pub(super) const REPEATED: i64 = 2;

/// What ack, nack, reject, extend and release say.
pub(super) fn settled(code: i64) -> Settled {
    match code {
        1 | REPEATED => Settled::Done,
        _ => Settled::LeaseLost,
    }
}

/// The bytes of a bulk string; none for nil and anything else.
pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// Text of a bulk string or status; empty for nil and anything else.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Value::SimpleString(text) => text,
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// The first two numbers of "failed:released[:left]".
pub(super) fn failed(attempts: &str) -> u32 {
    attempts
        .split(':')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

/// The third number of "failed:released:left", which dead letters have.
pub(super) fn left_at_death(attempts: &str) -> Option<u32> {
    attempts.split(':').nth(2)?.parse().ok()
}

/// What the hashes of a queue hold on one message, as text.
pub(super) struct Fields {
    pub left: String,
    pub attempts: String,
    pub headers: String,
    pub history: String,
}

/// A record from its parts.
pub(super) fn record(
    id: MessageId,
    state: State,
    at_ms: Option<u64>,
    fields: &Fields,
    payload: Option<Vec<u8>>,
) -> Record {
    Record {
        id,
        state,
        at_ms,
        attempts: failed(&fields.attempts),
        retries_left: left_at_death(&fields.attempts)
            .or_else(|| fields.left.parse().ok())
            .unwrap_or(0),
        headers: headers(&fields.headers),
        history: history(&fields.history),
        payload,
    }
}

/// The state that `inspect` or `export` names.
pub(super) fn state(name: &str) -> Option<State> {
    State::ALL.into_iter().find(|state| state.as_str() == name)
}

/// A score, unix seconds, as unix milliseconds.
pub(super) fn score_ms(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    let ms = (seconds * 1000.0).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be within 0 and 2^53"
    )]
    (0.0..=9_007_199_254_740_992.0)
        .contains(&ms)
        .then_some(ms as u64)
}

/// The totals as stored, name and number in turn. They are for operators, so one that is no number
/// counts as none and keeps nothing else from being shown.
pub(super) fn totals(fields: Vec<(Value, Value)>) -> Totals {
    let mut totals = Totals::default();
    for (name, number) in fields {
        let (name, number) = (text(name), text(number).parse().unwrap_or(0));
        let place = match name.as_str() {
            "sent" => &mut totals.sent,
            "acked" => &mut totals.acked,
            "nacked" => &mut totals.nacked,
            "rejected" => &mut totals.rejected,
            "expired" => &mut totals.expired,
            "released" => &mut totals.released,
            "dead" => &mut totals.dead,
            "redriven" => &mut totals.redriven,
            "cancelled" => &mut totals.cancelled,
            "deleted" => &mut totals.deleted,
            "dropped" => &mut totals.dropped,
            _ => continue,
        };
        *place = number;
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attempts_are_read_with_and_without_the_third_number() {
        assert_eq!((failed(""), failed("3:1"), failed("4:0:2")), (0, 3, 4));
        assert_eq!(
            (left_at_death("3:1"), left_at_death("4:0:2")),
            (None, Some(2))
        );
    }

    #[test]
    fn scores_are_read_to_the_millisecond() {
        assert_eq!(score_ms("1795228395.123"), Some(1_795_228_395_123));
        assert_eq!(score_ms("1795228395"), Some(1_795_228_395_000));
        assert_eq!(
            (score_ms("-1"), score_ms("inf"), score_ms("nan")),
            (None, None, None)
        );
    }

    /// A reply of any form.
    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            any::<f64>().prop_map(Value::Double),
            any::<bool>().prop_map(Value::Boolean),
            any::<Vec<u8>>().prop_map(Value::BulkString),
            any::<String>().prop_map(Value::SimpleString),
        ];
        leaf.prop_recursive(3, 30, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Set),
                prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn stored_values_of_any_kind_are_survived(text in ".*") {
            let _ = (failed(&text), left_at_death(&text), state(&text));
            prop_assert!(score_ms(&text).is_none_or(|ms| ms <= 1 << 53));
        }

        #[test]
        fn scores_of_any_size_are_times_or_none(score: f64) {
            prop_assert!(score_ms(&score.to_string()).is_none_or(|ms| ms <= 1 << 53));
        }

        #[test]
        fn replies_of_any_form_are_decoded_or_refused(value in any_value()) {
            let copy = || value.clone();
            let refused = |error: StoreError| {
                assert!(error.to_string().contains("unexpected form"), "{error}");
            };
            decode::<u64>("s", Operation::Get, copy()).map_or_else(refused, |_| ());
            decode::<Vec<i64>>("s", Operation::Get, copy()).map_or_else(refused, |_| ());
            decode::<(usize, i64)>("s", Operation::Get, copy()).map_or_else(refused, |_| ());
            decode::<(u64, Vec<Value>)>("s", Operation::Get, copy()).map_or_else(refused, |_| ());
            decode::<String>("s", Operation::Get, copy()).map_or_else(refused, |_| ());
            decode("s", Operation::Get, copy()).map_or_else(refused, |fields| {
                totals(fields);
            });
            let _ = (bytes(copy()), text(copy()));
        }

        #[test]
        fn a_total_is_a_number_or_none(number in "-?[0-9]{1,22}|[a-z]{1,3}") {
            let name = Value::BulkString(b"sent".to_vec());
            let value = Value::BulkString(number.clone().into_bytes());
            prop_assert_eq!(totals(vec![(name, value)]).sent, number.parse().unwrap_or(0));
        }
    }
}
