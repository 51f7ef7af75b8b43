//! `/livez` and `/readyz`, for programs that watch a process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;

use super::problem::Problem;
use super::schemas::AnyProblem;
use super::{Answer, Shared, answer};
use crate::host::Stage;

/// For how long an answer of the store holds: whoever asks often costs it nothing.
const ANSWER_HOLDS: Duration = Duration::from_secs(1);

/// How long the store may take for its answer.
const STORE_LIMIT: Duration = Duration::from_secs(3);

/// When the store last answered, or did not.
#[derive(Debug, Default)]
pub(super) struct StoreHealth(Mutex<Option<(Instant, bool)>>);

/// Whether the process answers
#[utoipa::path(
    get,
    path = "/livez",
    tag = "process",
    responses((status = 200, description = "It does"), AnyProblem)
)]
pub(super) async fn livez() -> Answer {
    Ok(answer::json(StatusCode::OK, &json!({"live": true})))
}

/// Whether it is ready
///
/// The store is reachable and does what the host asks of it, all handlers were loaded, and the host is not
/// about to stop.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "process",
    responses((status = 200, description = "It is"), AnyProblem)
)]
pub(super) async fn readyz(State(shared): State<Arc<Shared>>) -> Answer {
    let not_ready = |why: String| {
        Err(Problem::try_again(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}"),
        ))
    };
    if let Some(host) = &shared.host {
        if *host.stage.borrow() > Stage::Run {
            return not_ready("the host is stopping".to_owned());
        }
        if let Some(queue) = host.not_served.borrow().first() {
            return not_ready(format!("the handler of queue {queue} could not be loaded"));
        }
        if let Some(queue) = host.monitor.failing().first() {
            return not_ready(format!(
                "the store is not reachable, or refuses what queue {queue} needs; the log of the host says why"
            ));
        }
    }
    if !is_reachable(&shared).await {
        return not_ready("the store is not reachable".to_owned());
    }
    Ok(answer::json(StatusCode::OK, &json!({"ready": true})))
}

async fn is_reachable(shared: &Shared) -> bool {
    let lock = || {
        shared
            .health
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    };
    let known = *lock();
    if let Some((at, is_reachable)) = known
        && at.elapsed() < ANSWER_HOLDS
    {
        return is_reachable;
    }
    let queues = tokio::time::timeout(STORE_LIMIT, shared.store.queues()).await;
    let is_reachable = matches!(queues, Ok(Ok(_)));
    *lock() = Some((Instant::now(), is_reachable));
    is_reachable
}
