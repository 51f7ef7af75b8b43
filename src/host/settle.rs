//! Brings results home, many in one request: while one request is under way, what finishes
//! meanwhile gathers for the next. A lone result goes at once.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::Shared;
use super::pause::Pause;
use super::record::{self, Run};
use crate::message::Claim;
use crate::store::{BATCH_MAX, Settled, Settlement};

/// A handler has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub claim: Claim,
    pub settlement: Settlement,
    pub run: Run,
}

/// Settles what one queue's handlers bring, until all senders are gone.
pub(super) async fn settle(
    shared: Arc<Shared>,
    lane: usize,
    mut finished: UnboundedReceiver<Finished>,
) {
    let mut batch = Vec::new();
    while finished.recv_many(&mut batch, BATCH_MAX).await > 0 {
        settle_batch(&shared, lane, std::mem::take(&mut batch)).await;
        shared.progress.notify_one();
    }
}

/// Settles one batch, however often the store has to be asked. A repeat is safe, since the store
/// refuses a settlement that has taken effect. Meanwhile the leases are renewed like those of
/// running handlers; when the last of them is given up, so are the results, for another host has
/// the messages then.
async fn settle_batch(shared: &Shared, lane: usize, batch: Vec<Finished>) {
    let queue = &shared.lanes[lane].queue;
    let (settlements, batch): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|f| ((f.claim, f.settlement), f.run))
        .unzip();
    let mut pause = Pause::default();
    let answers = loop {
        match shared.store.settle(queue, &settlements).await {
            Ok(answers) => break answers,
            Err(error) => {
                if pause.failed() {
                    tracing::warn!(%queue, "{} results wait: {error}", settlements.len());
                }
                if !batch.iter().any(|run| shared.flights.holds(run.flight)) {
                    break vec![Settled::LeaseLost; batch.len()];
                }
                tokio::time::sleep(pause.remaining()).await;
            }
        }
    };
    for ((run, (claim, settlement)), answer) in batch.iter().zip(&settlements).zip(answers) {
        shared.flights.remove(run.flight);
        shared.totals.settled(settlement, answer);
        if answer == Settled::Done {
            shared.lanes[lane]
                .news
                .settled(settlement, run.attempt >= run.attempts_max);
        }
        record::log(queue, &claim.id, run, settlement, answer);
    }
}
