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

/// What `ready_to_unack` answers, with the payloads of those that were prefetched.
pub(super) fn reserved(mut answer: Vec<Value>, prefetch: &[MessageId]) -> Reserved {
    let mut fields = answer.split_off(answer.len().min(1));
    let taken = match answer.first() {
        Some(Value::Int(taken)) => usize::try_from(*taken).unwrap_or(0),
        _ => 0,
    };
    let payloads = fields.split_off(fields.len().saturating_sub(prefetch.len()));
    let mut deliveries = Vec::with_capacity(fields.len() / 6);
    let mut bare = Vec::new();
    for parts in fields.chunks_exact_mut(6) {
        let mut part = |index: usize| text(std::mem::replace(&mut parts[index], Value::Nil));
        let (id, left, attempts, due, headers) = (part(0), part(1), part(2), part(3), part(4));
        let failed = decode::failed(&attempts);
        let id = MessageId::from(id);
        let flags = match parts[5] {
            Value::Int(flags) => flags,
            _ => 0,
        };
        if flags & 1 != 0 {
            bare.push(id.clone());
        }
        deliveries.push(Delivery {
            claim: Claim {
                id,
                token: Token(format!("{left}/{attempts}")),
            },
            payload: None,
            headers: common::headers(&headers),
            attempt: failed.saturating_add(1),
            attempts_max: failed
                .saturating_add(1)
                .saturating_add(left.parse::<u32>().unwrap_or(0)),
            due_at_ms: due.parse().ok(),
            expired: flags & 2 != 0,
        });
    }
    for (id, payload) in prefetch.iter().zip(payloads) {
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

    proptest! {
        #[test]
        fn reserved_messages_of_any_form_are_read(
            fields in prop::collection::vec(
                prop_oneof![
                    Just(Value::Nil),
                    any::<i64>().prop_map(Value::Int),
                    "[0-9]{1,12}(:[0-9]{1,12}){0,2}".prop_map(|text| Value::BulkString(text.into())),
                    any::<Vec<u8>>().prop_map(Value::BulkString),
                ],
                0..24,
            ),
            prefetch in 0_usize..3,
        ) {
            let prefetch: Vec<MessageId> = (0..prefetch).map(|n| n.to_string().into()).collect();
            let (count, prefetched) = (fields.len().saturating_sub(1), prefetch.len());
            let read = reserved(fields, &prefetch).deliveries;
            prop_assert_eq!(read.len(), count.saturating_sub(prefetched) / 6);
            for delivery in read {
                prop_assert!(delivery.attempt >= 1 && delivery.attempt <= delivery.attempts_max);
                let mut command = redis::cmd("X");
                add_claim(&mut command, &delivery.claim);
                prop_assert_eq!(command.args_iter().len(), 4);
            }
        }
    }
}
