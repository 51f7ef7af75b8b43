//! Keeps leases alive while their handlers run, and stops a handler whose lease cannot be kept
//! before that lease expires.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ServedQueue;
use super::ended::Note;
use super::in_flight::Lost;
use super::is_refused;
use crate::store::Settled;

/// How often leases are looked at: ten times a lease, at most once a second.
fn tick(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1))
}

/// So long before its end a lease counts as over: time enough to notice and to stop the handler.
pub(super) fn margin(lease: Duration) -> Duration {
    tick(lease) * 2
}

/// Runs for one queue until dropped:
///
/// 1. at each tick, leases of which a third is over are renewed in one request. A request that is under way
///    is not repeated. One that takes longer than a third of a lease is given up;
/// 2. when a message in flight was cancelled, all leases are renewed: what is refused is not this host's;
/// 3. a delivery is given up as soon as its lease expires within the margin, whatever the requests do.
pub(super) async fn keep(served: Arc<ServedQueue>) {
    let (queue, lease) = (&served.queue, served.settings.lease);
    let hints = served.shared.store.subscribe(std::slice::from_ref(queue));
    let mut clock = tokio::time::interval(tick(lease));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut renewal: Option<tokio::task::JoinHandle<()>> = None;
    let mut is_kill_told = false;
    loop {
        // A lease that begins meanwhile ends after the next tick.
        let next_end = served.in_flight.next_end();
        let give_up_at = next_end.and_then(|end| end.checked_sub(margin(lease)));
        let give_up = tokio::time::sleep_until(give_up_at.unwrap_or_else(Instant::now).into());
        let is_time = tokio::select! {
            _ = clock.tick() => true,
            () = hints.killed() => {
                is_kill_told = true;
                true
            }
            () = give_up, if give_up_at.is_some() => false,
        };
        let is_over = tokio::task::JoinHandle::is_finished;
        if is_time && renewal.as_ref().is_none_or(is_over) {
            let why = if std::mem::take(&mut is_kill_told) {
                Why::Killed
            } else {
                Why::Time
            };
            renewal = Some(tokio::spawn(renew(Arc::clone(&served), why)));
        }
        for claim in served.in_flight.give_up_ending(margin(lease)) {
            tracing::warn!(
                %queue,
                id = %crate::text::printable(claim.id.as_str()),
                "stopped: its lease could not be renewed in time, so it will be delivered again"
            );
            served.shared.totals.lost(1);
            served.shared.slots.are_free();
        }
    }
}

/// Why leases are renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A third of them is over.
    Time,
    /// An operator has taken a message from its host, perhaps from this one.
    Killed,
}

async fn renew(served: Arc<ServedQueue>, why: Why) {
    let due = served.in_flight.to_renew(why == Why::Killed);
    if due.is_empty() {
        return;
    }
    let (in_flight, claims): (Vec<_>, Vec<_>) = due.into_iter().unzip();
    let (queue, lease) = (&served.queue, served.settings.lease);
    let asked_at = Instant::now();
    let request = served.shared.store.extend(queue, &claims, lease);
    let Ok(answer) = tokio::time::timeout(lease / 3, request).await else {
        return;
    };
    let settled = match answer {
        Ok(settled) => settled,
        Err(error) => {
            tracing::debug!(%queue, "leases were not renewed: {error}");
            return;
        }
    };
    let mut stopped = Vec::new();
    for (in_flight_id, settled) in in_flight.into_iter().zip(settled) {
        match settled {
            Settled::Done => served.in_flight.renewed(in_flight_id, asked_at, lease),
            Settled::LeaseLost | Settled::Refused => {
                stopped.extend(served.in_flight.lose(in_flight_id));
                served.shared.slots.are_free();
            }
        }
    }
    if stopped.is_empty() {
        return;
    }
    // What the others had in unack may be what a limit waits for.
    served.slots.progress.notify_one();
    // Beside the renewals, which must not wait for it.
    tokio::spawn(async move {
        for lost in stopped {
            tell_of(&served, lost, why).await;
        }
    });
}

/// Says why a handler was stopped. A message that is gone when a host was told of a kill was cancelled. If
/// it is there, or nobody told of one, another host has taken it back.
async fn tell_of(served: &ServedQueue, lost: Lost, why: Why) {
    let ServedQueue { shared, queue, .. } = served;
    let id = crate::text::printable(lost.id.as_str()).into_owned();
    let is_gone = async {
        match shared.store.get(queue, &lost.id).await {
            Ok(found) => found.is_none(),
            // A host need not have the right to look.
            Err(error) => is_refused(&error),
        }
    };
    if why == Why::Killed && is_gone.await {
        tracing::info!(%queue, %id, "stopped: an operator cancelled its message");
        let keep = served.settings.keep_ended;
        if keep > 0 {
            let note = Note::of_cancelled(lost, Instant::now());
            served
                .ended
                .add(vec![note], keep, served.settings.keep_results);
        }
        return;
    }
    tracing::info!(%queue, %id,
        "stopped: its lease was lost, and another has taken the message back or it was cancelled");
    shared.totals.lost(1);
}
