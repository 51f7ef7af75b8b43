//! What is printed with `--json`, which is also what the HTTP API answers.

use serde_json::{Value, json};

use super::time::rfc3339;
use crate::message::{MessageId, QueueName, RETRIES_MAX, Record, Sent, State};
use crate::store::{Ended, Heard, Overview, SeenHost};
use crate::text::printable_json;

/// JSON as it is printed.
pub(crate) fn text(value: &Value) -> String {
    printable_json(&value.to_string()).into_owned()
}

/// When a message is due.
pub(crate) fn due(id: &MessageId, due_at_ms: Option<u64>) -> Value {
    json!({"id": id, "due_at_ms": due_at_ms, "due_at": due_at_ms.map(rfc3339)})
}

/// The answer to one message sent.
pub(crate) fn sent(sent: &Sent) -> Value {
    let mut answer = due(&sent.id, sent.due_at_ms);
    answer["outcome"] = json!(sent.outcome);
    answer
}

/// One queue: its counts, its totals and its hosts.
pub(crate) fn stats(queue: &QueueName, overview: &Overview, hosts: &[SeenHost]) -> Value {
    let c = overview.counts;
    json!({
        "queue": queue, "pending": c.pending, "ready": c.ready, "unack": c.unack,
        "retry": c.retry, "dead": c.dead, "moving": c.moving, "totals": c.totals,
        "paused": overview.paused, "limited": overview.limited,
        "next_due_ms": overview.next_due_ms,
        "oldest_ready_ms": overview.oldest_ready_ms,
        "hosts": hosts,
    })
}

/// Bytes as text when they are text, else as base64.
pub(crate) fn payload(bytes: &[u8]) -> (Option<String>, Option<String>) {
    use base64::Engine;
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (
            None,
            Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
        ),
    }
}

/// The retries that a message's producer gave it: those that failed attempts have used, and those
/// that are left.
pub(crate) fn retries(record: &Record) -> u32 {
    // The attempt that made it a dead letter has used none.
    let used = match record.state {
        State::Dead | State::Garbage => record.attempts.saturating_sub(1),
        _ => record.attempts,
    };
    used.saturating_add(record.retries_left).min(RETRIES_MAX)
}

/// How a message ended, and what its handler returned.
pub(crate) fn ended(ended: &Ended, result: Option<&[u8]>) -> Value {
    let (result, result_base64) = result.map_or((None, None), payload);
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "id": ended.id,
        "state": ended.end,
        "at_ms": ended.at_ms,
        "at": rfc3339(ended.at_ms),
        "attempts": ended.attempt,
        "duration_ms": ended.duration_ms,
        "due_at_ms": ended.due_at_ms,
        "host": ended.host,
        "handler": ended.handler,
        "class": some(&ended.class),
        "reason": some(&ended.reason),
        "result": result,
        "result_base64": result_base64,
    })
}

/// Something that happened.
pub(crate) fn event(heard: &Heard) -> Value {
    let mut value = json!(heard.event);
    value["at"] = json!(rfc3339(heard.event.at_ms));
    if let Some(queue) = &heard.queue {
        value["queue"] = json!(queue);
    }
    if heard.is_delayqueue {
        value["source"] = json!("delayqueue");
    }
    value
}

/// A record as JSON: the payload as text when it is text, else as base64. `send --ndjson` takes it.
pub(crate) fn record(record: &Record) -> Value {
    let (text, base64) = record.payload.as_deref().map_or((None, None), payload);
    json!({
        "id": record.id,
        "state": record.state,
        "at_ms": record.at_ms,
        "at": record.at_ms.map(rfc3339),
        "attempts": record.attempts,
        "retries": retries(record),
        "retries_left": record.retries_left,
        "redrives": record.redrives(),
        "headers": record.headers,
        "payload": text,
        "payload_base64": base64,
        "payload_missing": record.payload.is_none(),
        "history": record.history,
    })
}
