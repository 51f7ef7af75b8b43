//! Brings results home, many in one request: while one request is under way, what finishes
//! meanwhile gathers for the next. A lone result goes at once; while there are many, a request waits
//! a moment for more of them, since what it costs depends little on how many it brings.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::Shared;
use super::error_backoff::ErrorBackoff;
use super::record::{self, Run};
use crate::message::{Claim, Outgoing};
use crate::store::{BATCH_MAX, Settled, Settlement, StoreResult};
use crate::verdict::{self, Outcome};

/// How long results wait for others, while there are many; up to as much again, since such timers
/// count whole milliseconds.
const GATHER: Duration = Duration::from_millis(1);

/// A handler has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub claim: Claim,
    /// None if the message is to be released.
    pub settlement: Option<Settlement>,
    pub run: Run,
}

impl Finished {
    /// What follows from a run that sent this.
    pub(super) fn new(
        shared: &Shared,
        served: usize,
        claim: Claim,
        run: Run,
        outbox: Vec<Outgoing>,
    ) -> Self {
        let handler = shared.queues[served].handler.digest();
        let kept = || record::attempt(run.attempt, &run.report, &shared.config.host_id, handler);
        let settlement = verdict::settlement(
            &run.report.outcome,
            outbox,
            (run.attempt, kept),
            shared.config.backoff,
            fastrand::f64(),
        );
        Self {
            claim,
            settlement,
            run,
        }
    }
}

/// Settles what one queue's handlers bring, until all senders are gone.
pub(super) async fn settle(
    shared: Arc<Shared>,
    served: usize,
    mut finished: UnboundedReceiver<Finished>,
) {
    let mut batch = Vec::new();
    let mut are_many = false;
    while finished.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if are_many && batch.len() < BATCH_MAX {
            // Not woken by each that comes.
            tokio::time::sleep(GATHER).await;
            while batch.len() < BATCH_MAX
                && let Ok(one) = finished.try_recv()
            {
                batch.push(one);
            }
        }
        are_many = batch.len() > 1;
        let (mut left, mut released) = (Vec::new(), Vec::new());
        for Finished {
            claim,
            settlement,
            run,
        } in batch.drain(..)
        {
            match settlement {
                Some(settlement) => left.push((claim, settlement, run)),
                None => released.push((claim, run)),
            }
        }
        while !left.is_empty() {
            left = settle_batch(&shared, served, left).await;
        }
        if !released.is_empty() {
            release(&shared, served, released).await;
        }
        shared.queues[served].progress.notify_one();
        shared.may_be_empty.notify_one();
    }
}

/// A delivery, what it is settled with, and its run.
type Settling = (Claim, Settlement, Run);

/// Settles one batch. Returns those whose outbox the store has no room for, as nacks.
async fn settle_batch(shared: &Shared, served: usize, batch: Vec<Settling>) -> Vec<Settling> {
    let queue = &shared.queues[served].queue;
    let (settlements, runs): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|(claim, settlement, run)| ((claim, settlement), run))
        .unzip();
    let settle = || shared.store.settle(queue, &settlements);
    let answers = answers(shared, served, &runs, settle).await;
    let mut left = Vec::new();
    for ((mut run, (claim, settlement)), answer) in runs.into_iter().zip(settlements).zip(answers) {
        if answer == Settled::Refused {
            run.report.outcome = Outcome::SendsRefused;
            let nack = Finished::new(shared, served, claim, run, Vec::new());
            left.extend(
                nack.settlement
                    .map(|nack_of| (nack.claim, nack_of, nack.run)),
            );
            continue;
        }
        shared.in_flight.remove(run.in_flight_id);
        shared.totals.settled(&settlement, answer);
        if answer == Settled::Done {
            shared.queues[served]
                .requeued
                .settled(&settlement, run.attempt >= run.attempts_max);
        }
        record::log(queue, &claim.id, &run, &settlement, answer);
    }
    left
}

/// Gives back messages that the host could not handle, with their attempts.
async fn release(shared: &Shared, served: usize, batch: Vec<(Claim, Run)>) {
    let queue = &shared.queues[served].queue;
    let (claims, runs): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let answers = answers(shared, served, &runs, || {
        shared.store.release(queue, &claims)
    })
    .await;
    for ((run, claim), answer) in runs.into_iter().zip(claims).zip(answers) {
        shared.in_flight.remove(run.in_flight_id);
        if answer == Settled::Done {
            shared.totals.released(1);
            shared.queues[served].requeued.released();
        }
        record::log_released(queue, &claim.id, &run, answer);
    }
}

/// The store's answers about these runs, however often it has to be asked. A repeat is safe, since the
/// store refuses a settlement that has taken effect. Meanwhile the leases are renewed like those of
/// running handlers; when the last of them is given up, so are the results, for another host has
/// the messages then.
async fn answers<F>(
    shared: &Shared,
    served: usize,
    runs: &[Run],
    ask: impl Fn() -> F,
) -> Vec<Settled>
where
    F: Future<Output = StoreResult<Vec<Settled>>>,
{
    let queue = &shared.queues[served].queue;
    let mut pause = ErrorBackoff::default();
    loop {
        match ask().await {
            Ok(answers) => return answers,
            Err(error) => {
                if pause.failed() {
                    tracing::warn!(%queue, "{} results wait: {error}", runs.len());
                }
                if !runs
                    .iter()
                    .any(|run| shared.in_flight.holds(run.in_flight_id))
                {
                    return vec![Settled::LeaseLost; runs.len()];
                }
                tokio::time::sleep(pause.remaining()).await;
            }
        }
    }
}
