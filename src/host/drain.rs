//! How a host stops: handlers finish, or are stopped and their messages given back.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::watch;

use super::queues::{HostQueues, ServedQueue};
use super::{RELEASE_LIMIT, Stage, events, reached};
use crate::message::Claim;
use crate::store::Settled;

/// Stops the handlers that still run when the future of [`Host::run`] is dropped.
pub(super) struct StopHandlers<'a>(pub &'a HostQueues);

impl Drop for StopHandlers<'_> {
    fn drop(&mut self) {
        self.0.shared.tasks.close();
        give_up_running(&self.0.all());
    }
}

/// Stops all handlers that still run; returns their deliveries, queue by queue.
fn give_up_running(queues: &[Arc<ServedQueue>]) -> Vec<Vec<Claim>> {
    let stop = |served: &Arc<ServedQueue>| served.in_flight.give_up_running();
    queues.iter().map(stop).collect()
}

/// Lets handlers finish, then stops those that have not and gives their messages back, with their
/// attempts.
pub(super) async fn drain(queues: &HostQueues, stage: &mut watch::Receiver<Stage>) {
    let (shared, queues) = (&queues.shared, queues.all());
    shared.tasks.close();
    let running: usize = queues.iter().map(|served| served.in_flight.count()).sum();
    if running > 0 {
        let limit = shared.config.drain.as_secs_f64();
        tracing::info!(running, limit, "waiting for handlers to finish");
        tokio::select! {
            () = shared.tasks.wait() => {}
            () = tokio::time::sleep(shared.config.drain) => {}
            () = reached(stage, Stage::Now) => {}
        }
    }
    let given_up = give_up_running(&queues);
    // A message is given back only when its handler has really ended.
    if tokio::time::timeout(RELEASE_LIMIT, shared.tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            "a handler has not ended; {} messages wait for their leases to end",
            given_up.iter().map(Vec::len).sum::<usize>()
        );
        return;
    }
    let releases = queues.iter().zip(given_up);
    join_all(releases.map(|(served, claims)| give_back(served, claims))).await;
}

/// Gives back messages of one queue; says how many, or why not.
async fn give_back(served: &ServedQueue, claims: Vec<Claim>) {
    if claims.is_empty() {
        return;
    }
    let ServedQueue { shared, queue, .. } = served;
    let release = shared.store.release(queue, &claims);
    match tokio::time::timeout(RELEASE_LIMIT, release).await {
        Ok(Ok(answers)) => {
            let done = answers
                .iter()
                .filter(|answer| **answer == Settled::Done)
                .count();
            shared.totals.released(done as u64);
            events::given_back(served, &claims, &answers);
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
