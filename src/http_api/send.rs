//! Messages on their way in: one, or a batch that is accepted whole or not at all.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::Value;
use serde_json::value::RawValue;

use super::access::{OfQueue, ToSend};
use super::body::{Received, content_type};
use super::options::Options;
use super::problem::Problem;
use super::schemas::{AnyProblem, BodyProblem};
use super::send_span::SendSpan;
use super::{Answer, Shared, answer, schemas};
use crate::format::{self, line, message};
use crate::message::{Headers, NewMessage, QueueName, SendOutcome, Sent};
use crate::store::BATCH_MAX;

/// The most bytes of payloads that a batch has: what a store accepts in one step.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Wrong messages of a batch that are told at most.
const ERRORS_MAX: usize = 20;

/// What a body is.
enum Form {
    /// The payload itself.
    Payload,
    /// A message, or an array of messages.
    Json,
    /// A message in each line.
    Lines,
}

impl Form {
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let content_type = content_type(headers)?.unwrap_or_default();
        // An event in binary mode: its data is the body, and all else about it is in headers.
        if headers.contains_key("ce-specversion") {
            return Ok(Self::Payload);
        }
        match content_type.as_str() {
            "application/json" => Ok(Self::Json),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Self::Lines),
            name if name.starts_with("multipart/")
                || name.starts_with("application/cloudevents") =>
            {
                Err(Problem::wrong_type(format!(
                    "{name} is not taken: send the payload itself, application/json or \
                     application/x-ndjson"
                )))
            }
            _ => Ok(Self::Payload),
        }
    }
}

/// Send a message or a batch
#[utoipa::path(
    post,
    path = "/queues/{queue}/messages",
    tag = "messages",
    params(("queue" = String, Path, description = "Name of the queue"), ("dqhost-in" = Option<String>, Header, description = "A delay, such as 30s"), ("dqhost-at" = Option<String>, Header, description = "A time, such as 2026-12-31T14:00:00Z"), ("dqhost-retries" = Option<u32>, Header, description = "Deliver again so often after a first failure"), ("dqhost-dedup-window" = Option<String>, Header, description = "Recognise repeats so long after the due time"), ("dqhost-replace" = Option<bool>, Header, description = "Take the place of the message under the same key"), ("dqhost-extend" = Option<bool>, Header, description = "Give the message under the same key the due time"), ("dqhost-max-wait" = Option<String>, Header, description = "With dqhost-replace or dqhost-extend: due at most so long after the first send, such as 10m"), ("dqhost-expires-in" = Option<String>, Header, description = "Make it a dead letter if it has not begun so long from now, such as 10m"), ("idempotency-key" = Option<String>, Header, description = "Send once under this key")),
    request_body(content((schemas::NewMessage = "application/json"), (String = "application/x-ndjson"), (String = "text/plain"), (Vec<u8> = "application/octet-stream")), description = "The payload; in JSON a message or an array of messages"),
    responses((status = 201, description = "Accepted; of a batch an array of these", body = schemas::Sent), (status = 200, description = "A repeat: nothing was sent, or what is there was changed", body = schemas::Sent), (status = 422, description = "The key was used with another payload", body = schemas::ProblemDocument, content_type = "application/problem+json"), AnyProblem, BodyProblem)
)]
pub(super) async fn send(
    State(shared): State<Arc<Shared>>,
    of: OfQueue<ToSend>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let (incoming, _memory) = read(&shared, &headers, body).await?;
    match incoming {
        Incoming::One(message) => send_one(&shared, &of.queue, *message).await,
        Incoming::Batch(of_each, messages) => {
            send_batch(&shared, &of.queue, &of_each, messages).await
        }
    }
}

/// What a request brings.
pub(super) enum Incoming {
    One(Box<NewMessage>),
    /// With the headers that all of them have.
    Batch(Headers, Vec<NewMessage>),
}

/// The messages of a request with the memory that its body holds, or why no host would take one of them.
pub(super) async fn read(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Incoming, Received), Problem> {
    let form = Form::of(headers)?;
    let options = Options::read(headers)?;
    let max = match form {
        Form::Payload => shared.max_payload,
        Form::Json | Form::Lines => shared.body_max(),
    };
    let mut body = shared.bodies.read(body, max).await?;
    let message = match form {
        Form::Payload => options.message(std::mem::take(&mut body.bytes))?,
        Form::Json if body.bytes.trim_ascii_start().starts_with(b"[") => {
            let messages: Vec<&RawValue> =
                serde_json::from_slice(&body.bytes).map_err(|error| {
                    Problem::bad_request(format!("it is not a JSON array: {error}"))
                })?;
            let messages = messages.iter().map(|message| message.get().as_bytes());
            let batch = parse_batch(shared, &options, messages)?;
            return Ok((Incoming::Batch(options.headers().clone(), batch), body));
        }
        Form::Json => options.parse(&body.bytes).map_err(Problem::bad_request)?,
        Form::Lines => {
            let lines = body.bytes.split(|byte| *byte == b'\n');
            let lines = lines.filter(|line| !line.trim_ascii().is_empty());
            let batch = parse_batch(shared, &options, lines)?;
            return Ok((Incoming::Batch(options.headers().clone(), batch), body));
        }
    };
    let message = checked(shared, message)?;
    Ok((Incoming::One(Box::new(message)), body))
}

/// Refuses what no host would take.
pub(super) fn checked(shared: &Shared, new: NewMessage) -> Result<NewMessage, Problem> {
    message::check(&new.payload, &new.headers, shared.max_payload).map_err(Problem::too_large)?;
    Ok(new)
}

pub(super) async fn send_one(shared: &Shared, queue: &QueueName, message: NewMessage) -> Answer {
    let mut messages = [message];
    let of = messages[0].headers.clone();
    let span = SendSpan::begin(&shared.spans, queue.as_str(), &of, &mut messages);
    let answer = send_this(shared, queue, messages).await;
    if let Some(span) = span {
        span.end(&answer);
    }
    answer
}

async fn send_this(shared: &Shared, queue: &QueueName, messages: [NewMessage; 1]) -> Answer {
    let sent = shared.asked(shared.store.send(queue, &messages).await)?;
    let ([message], Some(sent)) = (messages, sent.into_iter().next()) else {
        return Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the store did not say what became of the message",
        ));
    };
    let status = match sent.outcome {
        SendOutcome::Sent => StatusCode::CREATED,
        SendOutcome::Repeat => {
            check_repeat(shared, queue, &message).await?;
            StatusCode::OK
        }
        SendOutcome::Replaced | SendOutcome::Extended | SendOutcome::AfterRunning => StatusCode::OK,
    };
    let mut response = answer::json(status, &format::json::sent(&sent));
    // Ours are UUIDs, which need no escapes.
    let location = format!("/queues/{queue}/messages/{}", sent.id);
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Refuses a repeat that has another payload than the message that is there. A message that is gone
/// cannot be compared.
async fn check_repeat(
    shared: &Shared,
    queue: &QueueName,
    message: &NewMessage,
) -> Result<(), Problem> {
    let record = shared.asked(shared.store.get(queue, &message.id).await)?;
    let is_other = |payload: &Vec<u8>| *payload != message.payload;
    if record
        .and_then(|record| record.payload)
        .is_some_and(|payload| is_other(&payload))
    {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!(
                "message {} was sent under this idempotency key with another payload",
                message.id
            ),
        ));
    }
    Ok(())
}

/// Sends all of these messages in one step.
async fn send_batch(
    shared: &Shared,
    queue: &QueueName,
    of_each: &Headers,
    mut batch: Vec<NewMessage>,
) -> Answer {
    let span = SendSpan::begin(&shared.spans, queue.as_str(), of_each, &mut batch);
    let answer = send_these(shared, queue, &batch).await;
    if let Some(span) = span {
        span.end(&answer);
    }
    answer
}

async fn send_these(shared: &Shared, queue: &QueueName, batch: &[NewMessage]) -> Answer {
    let sent = shared.asked(shared.store.send(queue, batch).await)?;
    let status = if sent.iter().any(Sent::is_new) {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    let sent: Vec<Value> = sent.iter().map(format::json::sent).collect();
    Ok(answer::json(status, &Value::Array(sent)))
}

fn parse_batch<'b>(
    shared: &Shared,
    options: &Options,
    messages: impl Iterator<Item = &'b [u8]>,
) -> Result<Vec<NewMessage>, Problem> {
    if options.has_key() {
        return Err(Problem::bad_request(
            "idempotency-key is for one message: give each message of a batch an idempotency_key",
        ));
    }
    let (mut batch, mut errors, mut bytes, mut is_large) = (Vec::new(), Vec::new(), 0, false);
    for (at, text) in messages.enumerate() {
        if at == BATCH_MAX {
            return Err(Problem::too_large(format!(
                "a batch has at most {BATCH_MAX} messages"
            )));
        }
        let parsed = options.parse(text).and_then(|new| {
            let fits = message::check(&new.payload, &new.headers, shared.max_payload);
            is_large |= fits.is_err();
            fits.map(|()| new)
        });
        match parsed {
            Ok(message) => {
                bytes += message.payload.len();
                batch.push(message);
            }
            Err(error) if errors.len() < ERRORS_MAX => errors.push((at + 1, error)),
            Err(_) => {}
        }
    }
    if !errors.is_empty() {
        let detail = "nothing is sent, since some messages are wrong";
        let problem = if is_large {
            Problem::too_large(detail)
        } else {
            Problem::bad_request(detail)
        };
        return Err(problem.with_errors(errors));
    }
    if batch.is_empty() {
        return Err(Problem::bad_request("the batch has no message"));
    }
    if bytes > BATCH_BYTES_MAX {
        return Err(Problem::too_large(format!(
            "the payloads of the batch have {bytes} bytes, and the limit is {BATCH_BYTES_MAX}"
        )));
    }
    Ok(batch)
}

/// The most bytes of a body in JSON: a batch, or one message whose payload has this limit.
pub(super) fn body_max(max_payload: usize) -> usize {
    let one = usize::try_from(line::size_max(max_payload)).unwrap_or(usize::MAX);
    one.max(BATCH_BYTES_MAX)
}
