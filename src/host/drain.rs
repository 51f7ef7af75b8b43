//! How a host stops: handlers finish, or are stopped and their messages given back.

use futures_util::future::join_all;
use tokio::sync::watch;

use super::{RELEASE_LIMIT, Shared, Stage, reached};
use crate::message::{Claim, QueueName};
use crate::store::Settled;

/// Stops the handlers that still run when the future of [`Host::run`] is dropped.
pub(super) struct StopHandlers<'a>(pub &'a Shared);

impl Drop for StopHandlers<'_> {
    fn drop(&mut self) {
        self.0.tasks.close();
        self.0.in_flight.give_up_running();
    }
}

/// Lets handlers finish, then stops those that have not and gives their messages back, with their
/// attempts.
pub(super) async fn drain(shared: &Shared, stage: &mut watch::Receiver<Stage>) {
    shared.tasks.close();
    let running = shared.in_flight.count(None);
    if running > 0 {
        let limit = shared.config.drain.as_secs_f64();
        tracing::info!(running, limit, "waiting for handlers to finish");
        tokio::select! {
            () = shared.tasks.wait() => {}
            () = tokio::time::sleep(shared.config.drain) => {}
            () = reached(stage, Stage::Now) => {}
        }
    }
    let mut given_up = shared.in_flight.give_up_running();
    // A message is given back only when its handler has really ended.
    if tokio::time::timeout(RELEASE_LIMIT, shared.tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            "a handler has not ended; {} messages wait for their leases to end",
            given_up.len()
        );
        return;
    }
    let releases = shared.queues.iter().enumerate().map(|(index, served)| {
        let claims = given_up
            .extract_if(.., |(of, _)| *of == index)
            .map(|(_, claim)| claim)
            .collect();
        give_back(shared, &served.queue, claims)
    });
    join_all(releases).await;
}

/// Gives back messages of one queue; says how many, or why not.
async fn give_back(shared: &Shared, queue: &QueueName, claims: Vec<Claim>) {
    if claims.is_empty() {
        return;
    }
    let release = shared.store.release(queue, &claims);
    match tokio::time::timeout(RELEASE_LIMIT, release).await {
        Ok(Ok(answers)) => {
            let done = answers
                .iter()
                .filter(|answer| **answer == Settled::Done)
                .count();
            shared.totals.released(done as u64);
            tracing::info!(%queue, "{done} messages given back unhandled");
        }
        Ok(Err(error)) => tracing::warn!(%queue,
            "{} messages could not be given back and wait for their leases to end: {error}",
            claims.len()),
        Err(_) => tracing::warn!(%queue,
            "{} messages could not be given back in time and wait for their leases to end",
            claims.len()),
    }
}
