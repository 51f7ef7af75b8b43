//! One message, or how it ended: as it is, or as soon as it has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::access::{OfMessage, ToView};
use super::guard::{ClientGone, WAIT_MAX};
use super::problem::Problem;
use super::queues::wrong_query;
use super::schemas::AnyProblem;
use super::{Answer, Shared, answer, schemas};
use crate::control::{how_ended, result_of};
use crate::format;
use crate::format::time;
use crate::message::{Record, State as MessageState};
use crate::store::Ended;

/// The pauses between two looks: each is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Within this time after an ack, the host has told how the message ended.
const TOLD_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GetQuery {
    wait: Option<String>,
}

impl GetQuery {
    fn wait(&self) -> Result<Duration, Problem> {
        let Some(text) = &self.wait else {
            return Ok(Duration::ZERO);
        };
        let wait = time::duration(text)
            .map_err(|error| Problem::bad_request(format!("wait {text:?}: {error}")))?;
        if wait > WAIT_MAX {
            return Err(Problem::bad_request("wait must be at most 60s"));
        }
        Ok(wait)
    }
}

/// What is known of a message.
enum Found {
    Message(Record),
    Ended(Ended, Option<Vec<u8>>),
    Nothing,
}

async fn find(shared: &Shared, message: &OfMessage<ToView>) -> Result<Found, Problem> {
    let (store, queue, id) = (&*shared.store, &message.queue, &message.id);
    if let Some(record) = shared.asked(store.get(queue, id).await)? {
        return Ok(Found::Message(record));
    }
    let Some(ended) = shared.asked(how_ended(store, queue, id).await)? else {
        return Ok(Found::Nothing);
    };
    let result = shared.asked(result_of(store, queue, &ended).await)?;
    Ok(Found::Ended(ended, result))
}

/// Show one message, or how it ended
///
/// With `wait`, the answer comes as soon as the message was acked or is a dead letter, or after that time
/// with the message as it is then.
#[utoipa::path(
    get,
    path = "/queues/{queue}/messages/{id}",
    tag = "messages",
    params(("queue" = String, Path, description = "Name of the queue"), ("id" = String, Path, description = "Id of the message"), ("wait" = Option<String>, Query, description = "Wait so long for its end, such as 30s; at most 60s")),
    responses((status = 200, description = "The message, or how it ended", body = schemas::MessageOrEnded), AnyProblem)
)]
pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    message: OfMessage<ToView>,
    Extension(ClientGone(gone)): Extension<ClientGone>,
    query: Result<Query<GetQuery>, QueryRejection>,
) -> Answer {
    let Query(query) = query.map_err(wrong_query)?;
    let until = Instant::now() + query.wait()?;
    let mut stop = shared.stop.clone();
    let (mut pause, mut gone_since) = (PAUSE_MIN, None);
    let found = loop {
        let found = find(&shared, &message).await?;
        let now = Instant::now();
        let is_over = match &found {
            Found::Message(record) => record.state == MessageState::Dead,
            Found::Ended(..) => true,
            Found::Nothing => now - *gone_since.get_or_insert(now) >= TOLD_WITHIN,
        };
        let left = until.saturating_duration_since(now);
        if is_over || left.is_zero() {
            break found;
        }
        tokio::select! {
            () = tokio::time::sleep(pause.min(left)) => {}
            () = gone.cancelled() => break found,
            () = async { let _ = stop.wait_for(|stop| *stop).await; } => break found,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    };
    let value = match found {
        Found::Message(record) => format::json::record(&record),
        Found::Ended(ended, result) => format::json::ended(&ended, result.as_deref()),
        Found::Nothing => return Err(message.unknown("message")),
    };
    Ok(answer::json(StatusCode::OK, &value))
}
