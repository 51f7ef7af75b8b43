//! What every store does the same way: how long a step is, and how headers and histories are
//! written.

use std::collections::HashMap;
use std::time::Duration;

use super::{BATCH_MAX, Settlement};
use crate::message::{
    Claim, Headers, HistoryEntry, NewMessage, Outgoing, QueueName, Record, expiry,
};

/// The most payload bytes that one step takes in, so that others get their turn.
const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most entries of a history that are kept.
const HISTORY_ENTRIES_MAX: usize = 20;

/// The most bytes of a history that are kept, unless the last entry alone has more.
const HISTORY_BYTES_MAX: usize = 6144;

/// Why a move may not begin: messages are under way to or from the store called `known`.
pub(super) fn third_store(known: &str) -> String {
    format!(
        "messages of this queue are moving to or from {known} since a copy that was interrupted; \
         end that copy first, or say that the store has a new name"
    )
}

/// Why a move may not go on.
pub(super) const OTHER_RUN: &str =
    "another copy of this queue has begun since and goes on with what this one left";

/// Milliseconds, rounded up.
pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Splits what goes in where a step would have too many of them or too many bytes.
fn steps<T>(items: &[T], payload_bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut steps = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, item) in items.iter().enumerate() {
        let size = payload_bytes(item);
        if index > start && (index - start == BATCH_MAX || bytes + size > STEP_BYTES_MAX) {
            steps.push(&items[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < items.len() {
        steps.push(&items[start..]);
    }
    steps
}

/// The steps of a send.
pub(super) fn send_steps(messages: &[NewMessage]) -> Vec<&[NewMessage]> {
    steps(messages, |message| message.payload.len())
}

/// The steps of a send to a topic with so many queues: the copies in all are within what one step of a send
/// takes, unless those of one message have more.
pub(super) fn topic_steps(messages: &[NewMessage], queues: usize) -> Vec<&[NewMessage]> {
    // So much each at least, so that a step has no more than BATCH_MAX copies.
    let least = STEP_BYTES_MAX / BATCH_MAX;
    steps(messages, |message| {
        message.payload.len().max(least).saturating_mul(queues)
    })
}

/// The steps of an import.
pub(super) fn import_steps(records: &[Record]) -> Vec<&[Record]> {
    steps(records, |record| {
        record.payload.as_ref().map_or(0, Vec::len)
    })
}

/// The steps of a settlement: what their outboxes have in all is within what one step of a send
/// takes, unless one alone has more.
pub(super) fn settle_steps(settlements: &[(Claim, Settlement)]) -> Vec<&[(Claim, Settlement)]> {
    // So much each at least, so that a step has no more than BATCH_MAX messages.
    let size = |sent: &Outgoing| sent.message.payload.len().max(STEP_BYTES_MAX / BATCH_MAX);
    steps(settlements, |(_, settlement)| {
        outbox(settlement).iter().map(size).sum()
    })
}

/// What goes with a settlement.
pub(super) fn outbox(settlement: &Settlement) -> &[Outgoing] {
    match settlement {
        Settlement::Ack { outbox } => outbox,
        _ => &[],
    }
}

/// What an outbox has for each queue, in the order in which it was sent.
pub(super) fn by_queue(outbox: &[Outgoing]) -> Vec<(&QueueName, Vec<&NewMessage>)> {
    let mut queues: Vec<(&QueueName, Vec<&NewMessage>)> = Vec::new();
    let mut places: HashMap<&QueueName, usize> = HashMap::new();
    for Outgoing { queue, message } in outbox {
        let place = *places.entry(queue).or_insert(queues.len());
        if place == queues.len() {
            queues.push((queue, Vec::new()));
        }
        queues[place].1.push(message);
    }
    queues
}

/// Headers as they are stored: a JSON list of pairs, or nothing.
pub(super) fn headers_json(headers: &Headers) -> String {
    if headers.is_empty() {
        String::new()
    } else {
        serde_json::json!(headers).to_string()
    }
}

/// Headers from what is stored, as a message made from a dead letter has them: it need not begin by any
/// time. What is not understood stays as it is.
pub(super) fn without_expiry(json: String) -> String {
    if !json.contains(expiry::EXPIRES_AT) {
        return json;
    }
    match serde_json::from_str::<Headers>(&json) {
        Ok(mut headers) => {
            expiry::remove(&mut headers);
            headers_json(&headers)
        }
        Err(_) => json,
    }
}

/// Headers from what is stored; none from what is not understood.
pub(super) fn headers(json: &str) -> Headers {
    if json.is_empty() {
        return Headers::new();
    }
    serde_json::from_str(json).unwrap_or_default()
}

/// A history from what is stored: JSON objects, one a line. A line that is not one is left out.
pub(super) fn history(lines: &str) -> Vec<HistoryEntry> {
    lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// A history as it is stored.
pub(super) fn history_lines(history: &[HistoryEntry]) -> String {
    let lines: Vec<String> = history
        .iter()
        .map(|entry| serde_json::json!(entry).to_string())
        .collect();
    lines.join("\n")
}

/// Adds a line to a stored history, of which the first and the latest are kept: the first says since when
/// the message fails. `lua/include/fail.lua` does the same.
pub(super) fn append_history(lines: &str, line: &str) -> String {
    let mut older = lines.lines();
    let Some(first) = older.next() else {
        return line.to_owned();
    };
    let mut bytes = first.len() + 1 + line.len();
    if bytes > HISTORY_BYTES_MAX {
        return line.to_owned();
    }
    let mut kept: Vec<&str> = vec![line];
    for later in older.rev() {
        bytes += later.len() + 1;
        if kept.len() == HISTORY_ENTRIES_MAX - 1 || bytes > HISTORY_BYTES_MAX {
            break;
        }
        kept.push(later);
    }
    kept.push(first);
    kept.reverse();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Token;
    use proptest::prelude::*;

    #[test]
    fn a_history_keeps_its_first_and_its_latest_lines() {
        assert_eq!(append_history("", "a"), "a");
        assert_eq!(append_history("a", "b"), "a\nb");
        let many = (0..20)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join("\n");
        let kept = append_history(&many, "20");
        assert!(kept.starts_with("0\n2\n"), "{kept}");
        assert!(kept.ends_with("\n19\n20"), "{kept}");
        let large = ["first", &"x".repeat(3000), &"y".repeat(3000)].join("\n");
        let kept = append_history(&large, &"z".repeat(2000));
        assert_eq!(
            kept,
            ["first", &"y".repeat(3000), &"z".repeat(2000)].join("\n")
        );
        let long = "x".repeat(4000);
        assert_eq!(append_history(&long, &long), long);
        assert_eq!(append_history("short", &"x".repeat(9000)), "x".repeat(9000));
    }

    #[test]
    fn a_send_is_cut_by_number_and_by_size() {
        let light = vec![NewMessage::new("x"); BATCH_MAX + 1];
        let sizes: Vec<usize> = send_steps(&light).iter().map(|step| step.len()).collect();
        assert_eq!(sizes, [BATCH_MAX, 1]);
        let heavy = vec![NewMessage::new(vec![0; STEP_BYTES_MAX / 2]); 5];
        let sizes: Vec<usize> = send_steps(&heavy).iter().map(|step| step.len()).collect();
        assert_eq!(sizes, [2, 2, 1]);
        assert!(send_steps(&[]).is_empty());
    }

    #[test]
    fn a_send_to_a_topic_is_cut_by_all_of_its_copies() {
        let sizes = |messages: &[NewMessage], queues| -> Vec<usize> {
            let steps = topic_steps(messages, queues);
            steps.iter().map(|step| step.len()).collect()
        };
        let light = vec![NewMessage::new("x"); 25];
        assert_eq!(sizes(&light, 1), [25]);
        assert_eq!(sizes(&light, 100), [10, 10, 5]);
        let heavy = vec![NewMessage::new(vec![0; STEP_BYTES_MAX / 4]); 3];
        assert_eq!(sizes(&heavy, 2), [2, 1]);
        assert_eq!(sizes(&heavy, 100), [1, 1, 1]);
    }

    fn ack_of(count: usize, size: usize) -> (Claim, Settlement) {
        let claim = Claim {
            id: "a".into(),
            token: Token(String::new()),
        };
        let queue: QueueName = "q".parse().unwrap();
        let sent = Outgoing {
            queue,
            message: NewMessage::new(vec![0; size]),
        };
        let outbox = vec![sent; count];
        (claim, Settlement::Ack { outbox })
    }

    #[test]
    fn a_settlement_is_cut_by_what_goes_with_it() {
        let lengths = |some: &[_]| -> Vec<usize> {
            settle_steps(some).iter().map(|step| step.len()).collect()
        };
        assert_eq!(lengths(&vec![ack_of(0, 0); BATCH_MAX + 1]), [BATCH_MAX, 1]);
        assert_eq!(lengths(&vec![ack_of(BATCH_MAX / 2, 1); 3]), [2, 1]);
        assert_eq!(lengths(&vec![ack_of(1, STEP_BYTES_MAX / 2); 3]), [2, 1]);
        assert_eq!(lengths(&vec![ack_of(2, STEP_BYTES_MAX); 2]), [1, 1]);
    }

    #[test]
    fn an_outbox_is_sorted_by_queue_and_keeps_its_order() {
        let outbox: Vec<Outgoing> = ["a", "b", "a"]
            .map(|queue| Outgoing {
                queue: queue.parse().unwrap(),
                message: NewMessage::new(queue),
            })
            .into();
        let sorted = by_queue(&outbox);
        let [a, b, c] = [0, 1, 2].map(|place| &outbox[place]);
        assert_eq!(
            sorted,
            [
                (&a.queue, vec![&a.message, &c.message]),
                (&b.queue, vec![&b.message])
            ]
        );
    }

    proptest! {
        #[test]
        fn stored_values_of_any_kind_are_survived(text in ".*") {
            let _ = (headers(&text), history(&text), append_history(&text, &text));
        }

        #[test]
        fn headers_and_histories_come_back_as_they_were(
            pairs: Vec<(String, String)>,
            texts in prop::collection::vec(any::<(u32, u64, Option<u64>, String, String)>(), 0..5),
        ) {
            prop_assert_eq!(headers(&headers_json(&pairs)), pairs);
            let entries: Vec<HistoryEntry> = texts
                .into_iter()
                .map(|(attempt, at_ms, duration_ms, class, reason)| {
                    let (host, handler, log) = (reason.clone(), class.clone(), reason.clone());
                    HistoryEntry::Attempt(crate::message::Attempt {
                        attempt, at_ms, class, reason, duration_ms, host, handler, log,
                    })
                })
                .collect();
            prop_assert_eq!(history(&history_lines(&entries)), entries);
        }

        #[test]
        fn a_history_has_a_bound_whatever_it_was(
            lines in prop::collection::vec("[a\n]{0,30}|[b]{6000}", 0..30),
            line in "[a-z]{1,50}",
        ) {
            let kept = append_history(&lines.join("\n"), &line);
            prop_assert!(kept.ends_with(&line));
            prop_assert!(kept.lines().count() <= HISTORY_ENTRIES_MAX);
            prop_assert!(kept.len() <= HISTORY_BYTES_MAX.max(line.len()));
        }
    }
}
