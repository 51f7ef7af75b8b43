//! The JSON of requests and answers, described for the OpenAPI document. A test compares what is answered
//! with these descriptions.

#![expect(
    dead_code,
    reason = "they describe JSON that `format` reads and writes, and none is ever made"
)]

use std::collections::BTreeMap;

use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// A message to be sent, as in a line of `dqhost send --ndjson`.
#[derive(ToSchema)]
pub(super) struct NewMessage {
    /// A string is sent as its text, any other JSON as it is written.
    payload: Option<serde_json::Value>,
    /// Bytes in base64, instead of `payload`.
    payload_base64: Option<String>,
    /// A delay, such as `30s`.
    r#in: Option<String>,
    /// A time, such as `2026-12-31T14:00:00Z`.
    at: Option<String>,
    /// A time in unix milliseconds.
    at_ms: Option<u64>,
    /// Deliver again so often after a first failure.
    retries: Option<u32>,
    /// An object of strings, or a list of pairs of strings.
    headers: Option<serde_json::Value>,
    /// Send once under this key.
    idempotency_key: Option<String>,
    /// Recognise repeats so long after the due time, such as `1d`.
    dedup_window: Option<String>,
    /// Make it a dead letter if it has not begun so long from now, such as `10m`.
    expires_in: Option<String>,
    /// Put it in the place of the message that is there under the key.
    replace: Option<bool>,
    /// Give the message that is there under the key the due time.
    extend: Option<bool>,
    /// With `replace` or `extend`: so long after the first send it is due at the latest, such as `10m`.
    max_wait: Option<String>,
}

/// What became of a message that was sent.
#[derive(ToSchema)]
pub(super) struct Sent {
    /// The id of the message.
    id: String,
    /// Unix milliseconds. Null if it is a repeat and nothing was done.
    due_at_ms: Option<u64>,
    /// The same in RFC 3339.
    due_at: Option<String>,
    /// What a send did: sent, repeat, replaced, extended or after-running. Absent if nothing was sent.
    outcome: Option<String>,
}

/// What became of messages that were sent to a topic.
#[derive(ToSchema)]
pub(super) struct TopicSent {
    topic: String,
    /// For each message a copy in each queue, message by message.
    copies: Vec<TopicCopy>,
}

/// A copy of a message that was sent to a topic.
#[derive(ToSchema)]
pub(super) struct TopicCopy {
    /// The queue that has it.
    queue: String,
    /// The id of the message, the same in each queue.
    id: String,
    /// Unix milliseconds. Null if it is a repeat and nothing was done.
    due_at_ms: Option<u64>,
    /// The same in RFC 3339.
    due_at: Option<String>,
    /// sent or repeat.
    outcome: String,
}

/// A message.
#[derive(ToSchema)]
pub(super) struct Message {
    /// Its id.
    id: String,
    /// Where it is: pending, ready, unack, retry, garbage, dead or moving.
    state: String,
    /// Unix milliseconds: when it is due (pending), its lease expires (unack), or it died (dead).
    at_ms: Option<u64>,
    /// The same in RFC 3339.
    at: Option<String>,
    /// Deliveries that failed so far.
    attempts: u32,
    /// The retries that its producer gave it.
    retries: u32,
    /// Those that are left.
    retries_left: u32,
    /// How often it was redriven.
    redrives: u32,
    /// Pairs of a name and a value.
    headers: Vec<Vec<String>>,
    /// The payload, if it is text.
    payload: Option<String>,
    /// The payload in base64, if it is no text.
    payload_base64: Option<String>,
    /// True if the store has lost the payload.
    payload_missing: bool,
    /// Failed attempts, oldest first.
    history: Vec<serde_json::Value>,
}

/// How a message ended.
#[derive(ToSchema)]
pub(super) struct Ended {
    /// Its id.
    id: String,
    /// `acked`; or `died`, if its dead letter is no longer there either.
    state: String,
    /// Unix milliseconds at which it ended.
    at_ms: u64,
    /// The same in RFC 3339.
    at: String,
    /// Its attempts, the last one included.
    attempts: u32,
    /// How long the handler ran in the last attempt.
    duration_ms: u64,
    /// Unix milliseconds at which that attempt became due, if it waited for a time.
    due_at_ms: Option<u64>,
    /// The host that ran it.
    host: String,
    /// The SHA-256 of the handler that ran it.
    handler: String,
    /// What kind of end a failed attempt was.
    class: Option<String>,
    /// Why it failed, in words.
    reason: Option<String>,
    /// What the handler returned, if it is text and still kept.
    result: Option<String>,
    /// The same in base64, if it is no text.
    result_base64: Option<String>,
}

/// Something that happened on a queue: the data of a server-sent event. It has the fields that apply.
#[derive(ToSchema)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON")]
pub(super) struct Event {
    /// What happened, such as `sent`, `started`, `acked` or `gap`.
    event: String,
    /// Unix milliseconds, by the clock of whoever tells it.
    at_ms: u64,
    /// The same in RFC 3339.
    at: String,
    /// The queue; absent for a gap that may concern any.
    queue: Option<String>,
    /// The message; absent for what concerns several, or the queue.
    id: Option<String>,
    /// How many messages, if there may be several.
    count: Option<u64>,
    /// The number of the attempt.
    attempt: Option<u32>,
    /// The host that tells it.
    host: Option<String>,
    /// How long the handler ran.
    duration_ms: Option<u64>,
    /// When the message is due, if not at once.
    due_at_ms: Option<u64>,
    /// What kind of end a failed attempt was.
    class: Option<String>,
    /// Why it failed, in words.
    reason: Option<String>,
    /// The id under which a dead letter was sent again.
    new_id: Option<String>,
}

/// A message, or how it ended.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum MessageOrEnded {
    Message(Message),
    Ended(Ended),
}

/// A page of messages.
#[derive(ToSchema)]
pub(super) struct Page {
    messages: Vec<Message>,
    /// The cursor of the next page, if there may be one.
    next: Option<String>,
}

/// A queue.
#[derive(ToSchema)]
pub(super) struct QueueStats {
    queue: String,
    pending: u64,
    ready: u64,
    unack: u64,
    retry: u64,
    dead: u64,
    moving: u64,
    /// What happened to messages since the queue exists.
    totals: serde_json::Value,
    paused: bool,
    /// Messages that wait for a limit of the queue.
    limited: u64,
    /// When the next pending message is due, unix milliseconds.
    next_due_ms: Option<u64>,
    /// When the ready message that is next became due, unix milliseconds.
    oldest_ready_ms: Option<u64>,
    hosts: Vec<serde_json::Value>,
}

/// All queues.
#[derive(ToSchema)]
pub(super) struct AllStats {
    /// The store, without secrets.
    store: String,
    /// Queues as `QueueStats`; of one that cannot be read, its name and an `error`.
    queues: Vec<serde_json::Value>,
}

/// A queue that was paused or resumed.
#[derive(ToSchema)]
pub(super) struct Paused {
    queue: String,
    paused: bool,
}

/// A dead letter that was sent again.
#[derive(ToSchema)]
pub(super) struct Redriven {
    /// The id of the new message.
    id: String,
    /// The id of the dead letter.
    redriven_from: String,
}

/// What is wrong (RFC 9457).
#[derive(ToSchema)]
pub(super) struct ProblemDocument {
    r#type: String,
    title: String,
    status: u16,
    detail: String,
    /// The messages of a batch that are wrong: their numbers from 1, and why.
    errors: Option<Vec<serde_json::Value>>,
}

/// Problems that every request may have.
pub(super) struct AnyProblem;

/// Problems of requests with a body.
pub(super) struct BodyProblem;

/// Problems of requests that are signed.
pub(super) struct WebhookProblem;

fn problem(description: &str) -> RefOr<Response> {
    let schema = Ref::from_schema_name("ProblemDocument");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let described = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content);
    RefOr::T(described.build())
}

fn problems(of: &[(&str, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let described = of.iter();
    described
        .map(|(status, description)| ((*status).to_owned(), problem(description)))
        .collect()
}

impl IntoResponses for AnyProblem {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            ("400", "The request is not understood"),
            ("401", "The token is missing or not known"),
            ("403", "It is not allowed"),
            ("404", "There is no such queue or message"),
            (
                "409",
                "A host is handling the message, or its payload is missing",
            ),
            ("429", "The client has too many requests under way"),
            (
                "503",
                "The store is not reachable or has no room, or the API is at a limit",
            ),
        ])
    }
}

impl IntoResponses for WebhookProblem {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            ("400", "The request is not understood"),
            ("401", "It is not signed by a sender of this queue"),
            ("403", "It is not allowed"),
            ("404", "No webhooks are taken here"),
            ("429", "The client has too many requests under way"),
            (
                "503",
                "The store is not reachable or has no room, or the API is at a limit",
            ),
        ])
    }
}

impl IntoResponses for BodyProblem {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            ("408", "The body did not arrive in time"),
            ("413", "The body is too large"),
            (
                "415",
                "The body is compressed or of a type that is not taken",
            ),
        ])
    }
}
