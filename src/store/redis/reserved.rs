//! What asks for a reservation, and what answers it.

use redis::{Cmd, Value};

use super::decode::{self, bytes, text};
use super::keys::Keys;
use super::scripts::{self, Script};
use super::{BATCH_MAX, Claim, Delivery, First, MessageId, Reservation, Token, ms};
use crate::store::{Limits, Rate, common};

/// What asks for a reservation; the payloads of `prefetch` come with it if they are among them.
pub(super) fn reservation(k: &Keys, wanted: Reservation, prefetch: &[MessageId]) -> Cmd {
    let mut command = reserve_by(&scripts::READY_TO_UNACK, k, wanted, prefetch);
    add_ids(&mut command, prefetch);
    command
}

/// The same within the limits of the queue.
pub(super) fn limited(
    k: &Keys,
    wanted: Reservation,
    limits: &Limits,
    prefetch: &[MessageId],
) -> Cmd {
    let mut command = match (&limits.by, limits.fair_by()) {
        (Some(_), _) => reserve_by(&scripts::KEYED_TO_UNACK, k, wanted, prefetch),
        (None, Some(_)) => fair(k, wanted, prefetch),
        (None, None) => reserve_by(&scripts::LIMITED_TO_UNACK, k, wanted, prefetch),
    };
    match limits.rate {
        Some(rate) => command.arg(rate.count()).arg(rate.per_us()),
        None => command.arg(0).arg(1),
    };
    let burst = limits.rate.map_or(1, Rate::burst);
    command.arg(burst).arg(limits.running_max().unwrap_or(0));
    if let Some(by) = limits.by.as_ref().or(limits.fair_by()) {
        command.arg(by.header());
    }
    if limits.fair_by().is_some() {
        command.arg(limits.fair_weights.json());
    }
    add_ids(&mut command, prefetch);
    command
}

fn reserve_by(script: &Script, k: &Keys, wanted: Reservation, prefetch: &[MessageId]) -> Cmd {
    let (one, other) = match wanted.first {
        First::Ready => (&k.ready, &k.retry),
        First::Retry => (&k.retry, &k.ready),
    };
    let payloads: Vec<String> = prefetch.iter().map(|id| k.message(id)).collect();
    let given: Vec<&String> = [one, other].into_iter().chain(&payloads).collect();
    let mut command = script.call(k, &given);
    add_wanted(&mut command, wanted);
    command
}

/// The same in turns: it takes from both lists, each for what it is.
fn fair(k: &Keys, wanted: Reservation, prefetch: &[MessageId]) -> Cmd {
    let payloads: Vec<String> = prefetch.iter().map(|id| k.message(id)).collect();
    let mut command = scripts::FAIR_TO_UNACK.call(k, &payloads);
    add_wanted(&mut command, wanted);
    command
}

fn add_wanted(command: &mut Cmd, wanted: Reservation) {
    command
        .arg(wanted.max.min(BATCH_MAX))
        .arg(ms(wanted.lease))
        .arg(wanted.retries_default);
}

fn add_ids(command: &mut Cmd, ids: &[MessageId]) {
    for id in ids {
        command.arg(id.as_str());
    }
}

/// What a reservation brought.
#[derive(Debug)]
pub(super) struct Reserved {
    /// Ids that left their lists.
    pub taken: usize,
    pub deliveries: Vec<Delivery>,
    /// Those of them that had no retries on record.
    pub bare: Vec<MessageId>,
}

/// A list of an answer; empty for anything else.
fn list(value: Option<Value>) -> std::vec::IntoIter<Value> {
    match value {
        Some(Value::Array(values)) => values.into_iter(),
        _ => Vec::new().into_iter(),
    }
}

/// What `ready_to_unack` answers, with the payloads of those that were prefetched.
pub(super) fn reserved(answer: Vec<Value>, prefetch: &[MessageId]) -> Reserved {
    let mut answer = answer.into_iter();
    let taken = match answer.next() {
        Some(Value::Int(taken)) => usize::try_from(taken).unwrap_or(0),
        _ => 0,
    };
    let [ids, mut left, mut attempts, mut due, mut headers, flags] =
        std::array::from_fn(|_| list(answer.next()));
    let mut flags = flags.as_slice().chunks_exact(2).peekable();
    let mut deliveries = Vec::with_capacity(ids.len());
    let mut bare = Vec::new();
    for (place, id) in (1..).zip(ids) {
        let next =
            |column: &mut std::vec::IntoIter<Value>| column.next().map(text).unwrap_or_default();
        let id = MessageId::from(text(id));
        let (left, attempts) = (next(&mut left), next(&mut attempts));
        let flags = match flags.next_if(|pair| pair[0] == Value::Int(place)) {
            Some([_, Value::Int(flags)]) => *flags,
            _ => 0,
        };
        if flags & 1 != 0 {
            bare.push(id.clone());
        }
        let attempt = decode::failed(&attempts).saturating_add(1);
        deliveries.push(Delivery {
            claim: Claim {
                id,
                token: Token([left.as_str(), "/", &attempts].concat()),
            },
            payload: None,
            headers: common::headers(&next(&mut headers)),
            attempt,
            attempts_max: attempt.saturating_add(left.parse::<u32>().unwrap_or(0)),
            due_at_ms: next(&mut due).parse().ok(),
            expired: flags & 2 != 0,
        });
    }
    for (id, payload) in prefetch.iter().zip(answer) {
        if let Some(delivery) = deliveries.iter_mut().find(|d| d.claim.id == *id) {
            delivery.payload = bytes(payload);
        }
    }
    Reserved {
        taken,
        deliveries,
        bare,
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::add_claim;
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn what_is_answered_of_a_message_goes_to_that_message() {
        let ids: Vec<Value> = ["a", "b", "c"].map(of).into();
        let answer = vec![
            Value::Int(4),
            Value::Array(ids),
            Value::Array(vec![of("3"), of("5"), Value::Nil]),
            Value::Array(vec![Value::Nil, of("2:1"), Value::Nil]),
            Value::Array(Vec::new()),
            Value::Array(vec![Value::Nil, Value::Nil, of(r#"[["k","v"]]"#)]),
            Value::Array([2, 2, 3, 1].map(Value::Int).into()),
            of("payload"),
            Value::Nil,
        ];
        let read = reserved(answer, &["c".into(), "x".into()]);
        assert_eq!((read.taken, read.bare), (4, vec!["c".into()]));
        let told: Vec<_> = read
            .deliveries
            .iter()
            .map(|d| {
                (
                    d.claim.token.0.as_str(),
                    d.attempt,
                    d.attempts_max,
                    d.expired,
                )
            })
            .collect();
        let expected = [
            ("3/", 1, 4, false),
            ("5/2:1", 3, 8, true),
            ("/", 1, 1, false),
        ];
        assert_eq!(told, expected);
        let last = &read.deliveries[2];
        assert_eq!(last.headers, [("k".to_owned(), "v".to_owned())]);
        assert_eq!(last.payload.as_deref(), Some(&b"payload"[..]));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Nil),
            any::<i64>().prop_map(Value::Int),
            "[0-9]{1,12}(:[0-9]{1,12}){0,2}".prop_map(|text| Value::BulkString(text.into())),
            any::<Vec<u8>>().prop_map(Value::BulkString),
        ]
    }

    proptest! {
        #[test]
        fn reserved_messages_of_any_form_are_read(
            taken in any_value(),
            lists in prop::collection::vec(prop::collection::vec(any_value(), 0..6), 0..7),
            payloads in prop::collection::vec(any_value(), 0..3),
            prefetch in 0_usize..3,
        ) {
            let prefetch: Vec<MessageId> = (0..prefetch).map(|n| n.to_string().into()).collect();
            let count = lists.first().map_or(0, Vec::len);
            let lists = lists.into_iter().map(Value::Array);
            let answer = std::iter::once(taken).chain(lists).chain(payloads).collect();
            let read = reserved(answer, &prefetch).deliveries;
            prop_assert_eq!(read.len(), count);
            for delivery in read {
                prop_assert!(delivery.attempt >= 1 && delivery.attempt <= delivery.attempts_max);
                let mut command = redis::cmd("X");
                add_claim(&mut command, &delivery.claim);
                prop_assert_eq!(command.args_iter().len(), 4);
            }
        }
    }
}
