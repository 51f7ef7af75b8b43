//! Settles results, many in one request: while one request is under way, what finishes
//! meanwhile gathers for the next. A lone result goes at once; while there are many, a request waits
//! a moment for more of them, since what it costs depends little on how many it brings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use super::error_backoff::ErrorBackoff;
use super::finished::Finished;
use super::{ServedQueue, attempt_span, events, record, tell};
use crate::store::{BATCH_MAX, Settled, StoreResult};
use crate::verdict::Outcome;

/// How long results wait for others, while there are many; up to as much again, since such timers
/// count whole milliseconds.
const GATHER: Duration = Duration::from_millis(1);

/// Settles what one queue's handlers bring, until all senders are gone, and tells how messages ended.
pub(super) async fn settle(served: Arc<ServedQueue>, finished: UnboundedReceiver<Box<Finished>>) {
    let settled = async {
        settle_all(&served, finished).await;
        served.ended.end();
    };
    tokio::join!(settled, tell::tell(&served));
}

async fn settle_all(served: &ServedQueue, mut finished: UnboundedReceiver<Box<Finished>>) {
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
        let (mut left, released): (Vec<_>, Vec<_>) = batch
            .drain(..)
            .partition(|finished| finished.settlement.is_some());
        while !left.is_empty() {
            left = settle_batch(served, left).await;
        }
        if !released.is_empty() {
            release(served, released).await;
        }
        served.slots.progress.notify_one();
        served.shared.may_be_empty.notify_one();
    }
}

/// Settles one batch. Returns those whose outbox the store has no room for, as nacks.
#[expect(clippy::vec_box, reason = "each goes from list to list several times")]
async fn settle_batch(served: &ServedQueue, mut batch: Vec<Box<Finished>>) -> Vec<Box<Finished>> {
    let ServedQueue { shared, queue, .. } = served;
    let mut settlements = Vec::with_capacity(batch.len());
    settlements.extend(batch.iter_mut().filter_map(|finished| {
        let settlement = finished.settlement.take()?;
        Some((finished.take_claim(), settlement))
    }));
    let settle = || shared.store.settle(queue, &settlements);
    let answers = answers(served, &batch, settle).await;
    let (mut left, mut ended) = (Vec::new(), Vec::new());
    let (keep, now) = (served.settings.keep_ended, Instant::now());
    for ((mut finished, (claim, settlement)), answer) in
        batch.into_iter().zip(settlements).zip(answers)
    {
        finished.claim = claim;
        if answer == Settled::Refused {
            finished.report.outcome = Outcome::SendsRefused;
            finished.decide(served).await;
            left.push(finished);
            continue;
        }
        served.in_flight.remove(finished.in_flight_id);
        if let Some(span) = finished.span.take() {
            attempt_span::settled(span, queue, attempt_span::operation(&settlement), answer);
        }
        shared.totals.settled(&settlement, answer);
        if answer == Settled::Done {
            let is_last = finished.attempt >= finished.attempts_max;
            served.requeued.settled(&settlement, is_last);
            events::settled(served, &finished, &settlement);
        }
        record::log(queue, &finished, &settlement, answer);
        if answer == Settled::Done && keep > 0 {
            ended.extend(finished.note(&settlement, now));
        }
    }
    served.ended.add(ended, keep, served.settings.keep_results);
    left
}

/// Gives back messages that the host could not handle, with their attempts.
#[expect(clippy::vec_box, reason = "as for `settle_batch`")]
async fn release(served: &ServedQueue, batch: Vec<Box<Finished>>) {
    let ServedQueue { shared, queue, .. } = served;
    let claims: Vec<_> = batch.iter().map(|one| one.claim.clone()).collect();
    let answers = answers(served, &batch, || shared.store.release(queue, &claims)).await;
    for (mut finished, answer) in batch.into_iter().zip(answers) {
        served.in_flight.remove(finished.in_flight_id);
        if let Some(span) = finished.span.take() {
            attempt_span::settled(span, queue, "release", answer);
        }
        if answer == Settled::Done {
            shared.totals.released(1);
            served.requeued.released();
            events::released(served, &finished);
        }
        record::log_released(queue, &finished, answer);
    }
}

/// The store's answers about these runs, however often it has to be asked. A repeat is safe, since the
/// store refuses a settlement that has taken effect. Meanwhile the leases are renewed like those of
/// running handlers; when the last of them is given up, so are the results, for another host has
/// the messages then.
async fn answers<F>(
    served: &ServedQueue,
    batch: &[Box<Finished>],
    ask: impl Fn() -> F,
) -> Vec<Settled>
where
    F: Future<Output = StoreResult<Vec<Settled>>>,
{
    let mut pause = ErrorBackoff::default();
    loop {
        let asked_at = Instant::now();
        match ask().await {
            Ok(answers) => {
                served.slots.meter.asked_store(asked_at.elapsed());
                return answers;
            }
            Err(error) => {
                if pause.failed() {
                    tracing::warn!(queue = %served.queue, "{} results wait: {error}", batch.len());
                }
                let mut ids = batch.iter().map(|one| one.in_flight_id);
                if !ids.any(|id| served.in_flight.holds(id)) {
                    return vec![Settled::LeaseLost; batch.len()];
                }
                tokio::time::sleep(pause.remaining()).await;
            }
        }
    }
}
