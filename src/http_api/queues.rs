//! Queues: stats, pause, resume.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{Allowed, OfQueue, ToOperate, ToView};
use super::problem::Problem;
use super::schemas::AnyProblem;
use super::{Answer, Shared, answer, schemas};
use crate::control::is_known;
use crate::format;
use crate::message::QueueName;
use crate::store::{HOST_SILENCE, StoreError, StoreResult};

/// Queues that one request reads at a time.
const AT_A_TIME: usize = 8;

async fn stats_of(shared: &Shared, queue: &QueueName) -> StoreResult<Value> {
    let overview = shared.store.overview(queue).await?;
    let hosts = shared.store.hosts(queue, HOST_SILENCE).await?;
    Ok(format::json::stats(queue, &overview, &hosts))
}

/// Count the messages of all queues
///
/// These are the queues that the client may see. One that is broken hides no other.
#[utoipa::path(
    get,
    path = "/stats",
    tag = "queues",
    responses((status = 200, description = "The queues", body = schemas::AllStats), AnyProblem)
)]
pub(super) async fn all_stats(
    State(shared): State<Arc<Shared>>,
    allowed: Allowed<ToView>,
) -> Answer {
    let mut queues = shared.asked(shared.store.queues().await)?;
    queues.retain(|queue| allowed.covers(queue));
    let stats = queues.into_iter().map(|queue| {
        let shared = Arc::clone(&shared);
        async move {
            let stats = stats_of(&shared, &queue).await;
            (queue, stats)
        }
    });
    let stats: Vec<_> = stream::iter(stats).buffered(AT_A_TIME).collect().await;
    let mut values = Vec::with_capacity(stats.len());
    for (queue, stats) in stats {
        values.push(match stats {
            Err(error @ StoreError::Refused { .. }) => {
                json!({"queue": queue, "error": error.to_string()})
            }
            stats => shared.asked(stats)?,
        });
    }
    let value = json!({"store": shared.store.describe(), "queues": values});
    Ok(answer::json(StatusCode::OK, &value))
}

/// Count the messages of one queue
#[utoipa::path(
    get,
    path = "/queues/{queue}/stats",
    tag = "queues",
    params(("queue" = String, Path, description = "Name of the queue")),
    responses((status = 200, description = "The queue", body = schemas::QueueStats), AnyProblem)
)]
pub(super) async fn stats(State(shared): State<Arc<Shared>>, of: OfQueue<ToView>) -> Answer {
    check_known(&shared, &of.queue).await?;
    let stats = shared.asked(stats_of(&shared, &of.queue).await)?;
    Ok(answer::json(StatusCode::OK, &stats))
}

pub(super) async fn check_known(shared: &Shared, queue: &QueueName) -> Result<(), Problem> {
    if shared.asked(is_known(&*shared.store, queue).await)? {
        return Ok(());
    }
    Err(Problem::not_found(format!("there is no queue {queue}")))
}

/// What may be asked of a pause.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseQuery {
    /// Make the queue if it is not there.
    #[serde(default)]
    create: bool,
}

/// Pause delivery of a queue
#[utoipa::path(
    post,
    path = "/queues/{queue}/pause",
    tag = "queues",
    params(("queue" = String, Path, description = "Name of the queue"), ("create" = Option<bool>, Query, description = "Make the queue if it is not there")),
    responses((status = 200, description = "It is paused", body = schemas::Paused), AnyProblem)
)]
pub(super) async fn pause(
    State(shared): State<Arc<Shared>>,
    of: OfQueue<ToOperate>,
    query: Result<Query<PauseQuery>, QueryRejection>,
) -> Answer {
    let Query(PauseQuery { create }) = query.map_err(wrong_query)?;
    set_paused(&shared, &of, true, create).await
}

/// Resume delivery of a queue
#[utoipa::path(
    post,
    path = "/queues/{queue}/resume",
    tag = "queues",
    params(("queue" = String, Path, description = "Name of the queue")),
    responses((status = 200, description = "It is resumed", body = schemas::Paused), AnyProblem)
)]
pub(super) async fn resume(State(shared): State<Arc<Shared>>, of: OfQueue<ToOperate>) -> Answer {
    set_paused(&shared, &of, false, false).await
}

async fn set_paused(
    shared: &Shared,
    of: &OfQueue<ToOperate>,
    paused: bool,
    create: bool,
) -> Answer {
    if !create {
        check_known(shared, &of.queue).await?;
    }
    shared.asked(shared.store.set_paused(&of.queue, paused).await)?;
    of.log(if paused { "paused" } else { "resumed" });
    let value = json!({"queue": of.queue, "paused": paused});
    Ok(answer::json(StatusCode::OK, &value))
}

/// What is said of a query that is not understood.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn wrong_query(error: QueryRejection) -> Problem {
    Problem::bad_request(format!(
        "the query is not understood: {}",
        error.body_text()
    ))
}
