//! What is done to one message: cancel, reschedule; and to one dead letter: redrive, delete.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::access::{OfMessage, ToOperate};
use super::problem::Problem;
use super::queues::wrong_query;
use super::schemas::{AnyProblem, BodyProblem};
use super::{Answer, Shared, answer, schemas};
use crate::format;
use crate::format::time;
use crate::message::{Due, Headers, RETRIES_MAX};
use crate::store::{Cancelled, Redrive, Redriven, Rescheduled};
use crate::text::times;

/// Bytes of a body that says only when a message is due.
const TIMING_MAX: usize = 16 * 1024;

fn in_flight() -> Problem {
    Problem::conflict("a host is handling the message")
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelQuery {
    #[serde(default)]
    kill: bool,
}

/// Cancel a waiting message, or one in flight
#[utoipa::path(
    post,
    path = "/queues/{queue}/messages/{id}/cancel",
    tag = "messages",
    params(("queue" = String, Path, description = "Name of the queue"), ("id" = String, Path, description = "Id of the message"),
        ("kill" = Option<bool>, Query, description = "Cancel it also in flight; its host stops the handler")),
    responses((status = 204, description = "It is cancelled"), AnyProblem)
)]
pub(super) async fn cancel(
    State(shared): State<Arc<Shared>>,
    message: OfMessage<ToOperate>,
    query: Result<Query<CancelQuery>, QueryRejection>,
) -> Answer {
    let Query(CancelQuery { kill }) = query.map_err(wrong_query)?;
    let (store, queue, ids) = (&shared.store, &message.queue, [message.id.clone()]);
    let answers = if kill {
        store.kill(queue, &ids).await
    } else {
        store.cancel(queue, &ids).await
    };
    match shared.asked(answers)?.first() {
        Some(Cancelled::Done) => {
            message.log("cancelled");
            Ok(answer::done())
        }
        Some(Cancelled::Killed) => {
            message.log("cancelled in flight");
            Ok(answer::done())
        }
        Some(Cancelled::InFlight) => Err(in_flight()),
        Some(Cancelled::Unknown) | None if kill => {
            Err(message.unknown("message that waits or is in flight"))
        }
        Some(Cancelled::Unknown) | None => Err(message.unknown("waiting message")),
    }
}

/// When a message is due; now if nothing is said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Timing {
    #[serde(rename = "in")]
    delay: Option<String>,
    at: Option<String>,
    at_ms: Option<u64>,
}

impl Timing {
    fn due(self) -> Result<Due, Problem> {
        let wrong = |name: &str, error: String| Problem::bad_request(format!("{name}: {error}"));
        match (self.delay, self.at, self.at_ms) {
            (None, None, None) => Ok(Due::NOW),
            (Some(delay), None, None) => {
                let delay = time::duration(&delay).map_err(|error| wrong("in", error))?;
                Ok(Due::In(delay))
            }
            (None, Some(at), None) => {
                let at = time::at(&at).map_err(|error| wrong("at", error))?;
                Ok(Due::At(at))
            }
            (None, None, Some(at_ms)) if time::is_allowed(at_ms) => Ok(Due::At(at_ms)),
            (None, None, Some(_)) => Err(wrong(
                "at_ms",
                "it must not be more than 100 years away".to_owned(),
            )),
            _ => Err(Problem::bad_request("give one of in, at and at_ms")),
        }
    }
}

/// Change when a waiting message is due
#[utoipa::path(
    post,
    path = "/queues/{queue}/messages/{id}/reschedule",
    tag = "messages",
    params(("queue" = String, Path, description = "Name of the queue"), ("id" = String, Path, description = "Id of the message")),
    request_body = Option<Timing>,
    responses((status = 200, description = "It is due then", body = schemas::Sent), AnyProblem, BodyProblem)
)]
pub(super) async fn reschedule(
    State(shared): State<Arc<Shared>>,
    message: OfMessage<ToOperate>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let timing: Timing = shared.bodies.read_json(&headers, body, TIMING_MAX).await?;
    let due = timing.due()?;
    let ids = [message.id.clone()];
    let answers = shared.store.reschedule(&message.queue, &ids, due).await;
    match shared.asked(answers)?.first() {
        Some(Rescheduled::At(due_at_ms)) => {
            message.log("rescheduled");
            let due = format::json::due(&message.id, Some(*due_at_ms));
            Ok(answer::json(StatusCode::OK, &due))
        }
        Some(Rescheduled::InFlight) => Err(in_flight()),
        Some(Rescheduled::Unknown) | None => Err(message.unknown("waiting message")),
    }
}

/// How a dead letter is sent again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct How {
    retries: Option<u32>,
    payload: Option<String>,
    payload_base64: Option<String>,
    /// Redrive it whatever number of times that was done before.
    #[serde(default)]
    force: bool,
}

impl How {
    fn payload(&self, max: usize) -> Result<Option<Vec<u8>>, Problem> {
        let bytes = match (&self.payload, &self.payload_base64) {
            (None, None) => return Ok(None),
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(text)) => base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| {
                    Problem::bad_request(format!("payload_base64 is not base64: {error}"))
                })?,
            (Some(_), Some(_)) => {
                return Err(Problem::bad_request("it has payload and payload_base64"));
            }
        };
        format::message::check(&bytes, &Headers::new(), max).map_err(Problem::too_large)?;
        Ok(Some(bytes))
    }
}

/// Send a dead letter again
#[utoipa::path(
    post,
    path = "/queues/{queue}/dead/{id}/redrive",
    tag = "dead letters",
    params(("queue" = String, Path, description = "Name of the queue"), ("id" = String, Path, description = "Id of the message")),
    request_body = Option<How>,
    responses((status = 201, description = "It is sent as a new message", body = schemas::Redriven), AnyProblem, BodyProblem)
)]
pub(super) async fn redrive(
    State(shared): State<Arc<Shared>>,
    message: OfMessage<ToOperate>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let max = shared.body_max();
    let how: How = shared.bodies.read_json(&headers, body, max).await?;
    if how.retries.is_some_and(|retries| retries > RETRIES_MAX) {
        return Err(Problem::bad_request(format!(
            "retries must be at most {RETRIES_MAX}"
        )));
    }
    let (store, queue, id) = (&shared.store, &message.queue, &message.id);
    let redriven = if let Some(payload) = how.payload(shared.max_payload)? {
        let answer = store.redrive_edited(queue, id, &payload, how.retries);
        Some(shared.asked(answer.await)?)
    } else {
        let host = shared.host.as_ref();
        let of_queue = host.and_then(|host| host.monitor.max_redrives(queue));
        let redrive = Redrive {
            retries: how.retries,
            max_redrives: of_queue.filter(|_| !how.force),
        };
        let answers = store.redrive(queue, std::slice::from_ref(id), redrive);
        shared.asked(answers.await)?.into_iter().next()
    };
    match redriven {
        Some(Redriven::As(new)) => {
            message.log("redriven");
            let value = json!({"id": new, "redriven_from": id});
            Ok(answer::json(StatusCode::CREATED, &value))
        }
        Some(Redriven::PayloadMissing) => Err(Problem::conflict(
            "its payload is missing from the store: give another one as payload",
        )),
        Some(Redriven::TooOften(number)) => Err(Problem::conflict(format!(
            "it was redriven {} already: {{\"force\": true}} goes over that",
            times(number)
        ))),
        Some(Redriven::Unknown) | None => Err(message.unknown("dead letter")),
    }
}

/// Delete a dead letter
#[utoipa::path(
    delete,
    path = "/queues/{queue}/dead/{id}",
    tag = "dead letters",
    params(("queue" = String, Path, description = "Name of the queue"), ("id" = String, Path, description = "Id of the message")),
    responses((status = 204, description = "It is deleted"), AnyProblem)
)]
pub(super) async fn delete_dead(
    State(shared): State<Arc<Shared>>,
    message: OfMessage<ToOperate>,
) -> Answer {
    let ids = [message.id.clone()];
    let deleted = shared.asked(shared.store.delete_dead(&message.queue, &ids).await)?;
    if deleted.first() != Some(&true) {
        return Err(message.unknown("dead letter"));
    }
    message.log("deleted");
    Ok(answer::done())
}
