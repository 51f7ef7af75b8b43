//! Messages to topics.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::access::{OfTopic, ToSend};
use super::problem::Problem;
use super::schemas::{AnyProblem, BodyProblem};
use super::send::{Incoming, read};
use super::send_span::SendSpan;
use super::{Answer, Shared, answer, schemas};
use crate::format;
use crate::message::{NewMessage, OnRepeat, Sent};
use crate::store::TopicSent;

/// Send a message or a batch to a topic
#[utoipa::path(
    post,
    path = "/topics/{topic}/messages",
    tag = "messages",
    params(("topic" = String, Path, description = "Name of the topic"), ("dqhost-in" = Option<String>, Header, description = "A delay, such as 30s"), ("dqhost-at" = Option<String>, Header, description = "A time, such as 2026-12-31T14:00:00Z"), ("dqhost-retries" = Option<u32>, Header, description = "Deliver again so often after a first failure"), ("dqhost-dedup-window" = Option<String>, Header, description = "Recognise repeats so long after the due time"), ("dqhost-expires-in" = Option<String>, Header, description = "Make it a dead letter if it has not begun so long from now, such as 10m"), ("idempotency-key" = Option<String>, Header, description = "Send once under this key to each queue")),
    request_body(content((schemas::NewMessage = "application/json"), (String = "application/x-ndjson"), (String = "text/plain"), (Vec<u8> = "application/octet-stream")), description = "The payload; in JSON a message or an array of messages"),
    responses((status = 201, description = "Accepted by all queues of the topic", body = schemas::TopicSent), (status = 200, description = "A repeat; nothing was sent", body = schemas::TopicSent), AnyProblem, BodyProblem)
)]
pub(super) async fn send(
    State(shared): State<Arc<Shared>>,
    of: OfTopic<ToSend>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (incoming, _memory) = read(&shared, &headers, body).await?;
    let (of_each, mut messages) = match incoming {
        Incoming::One(message) => (message.headers.clone(), vec![*message]),
        Incoming::Batch(headers, messages) => (headers, messages),
    };
    if messages.iter().any(|new| new.on_repeat != OnRepeat::Ignore) {
        return Err(Problem::bad_request(
            "replace and extend are for one queue, and a topic may have several",
        ));
    }
    let span = SendSpan::begin(&shared.spans, of.topic.as_str(), &of_each, &mut messages);
    let answer = send_to(&shared, &of, &messages).await;
    if let Some(span) = span {
        span.end(&answer);
    }
    answer
}

async fn send_to(shared: &Shared, of: &OfTopic<ToSend>, messages: &[NewMessage]) -> Answer {
    let topic = &of.topic;
    let subscriptions = shared.asked(shared.store.subscriptions().await)?;
    let mut queues = subscriptions.iter().filter(|(of, _)| of == topic);
    if let Some((_, queue)) = queues.find(|(_, queue)| !of.covers(queue)) {
        return Err(Problem::forbidden(format!(
            "the token is not for queue {queue}, which gets what is sent to topic {topic}"
        )));
    }
    let sent = shared.asked(shared.store.send_to_topic(topic, messages).await)?;
    if sent.is_empty() {
        return Err(Problem::not_found(format!(
            "nothing is sent, since no queue has subscribed to topic {topic}"
        )));
    }
    let is_new = sent.iter().any(|(_, sent)| sent.iter().any(Sent::is_new));
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let copies = copies(&sent, messages.len());
    Ok(answer::json(
        status,
        &json!({"topic": topic, "copies": copies}),
    ))
}

/// What became of each copy, message by message.
fn copies(sent: &TopicSent, messages: usize) -> Vec<Value> {
    let of_message = |number: usize| {
        sent.iter().filter_map(move |(queue, sent)| {
            let mut copy = format::json::sent(sent.get(number)?);
            copy["queue"] = json!(queue);
            Some(copy)
        })
    };
    (0..messages).flat_map(of_message).collect()
}
