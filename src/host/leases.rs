//! Keeps leases alive while their handlers run, and stops a handler whose lease cannot be kept
//! before that lease expires.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ServedQueue;
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
/// 2. a delivery is given up as soon as its lease expires within the margin, whatever the requests do.
pub(super) async fn keep(served: Arc<ServedQueue>) {
    let (queue, lease) = (&served.queue, served.settings.lease);
    let mut clock = tokio::time::interval(tick(lease));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut renewal: Option<tokio::task::JoinHandle<()>> = None;
    loop {
        // A lease that begins meanwhile ends after the next tick.
        let next_end = served.in_flight.next_end();
        let give_up_at = next_end.and_then(|end| end.checked_sub(margin(lease)));
        let give_up = tokio::time::sleep_until(give_up_at.unwrap_or_else(Instant::now).into());
        tokio::select! {
            _ = clock.tick() => {
                let is_over = tokio::task::JoinHandle::is_finished;
                if renewal.as_ref().is_none_or(is_over) {
                    renewal = Some(tokio::spawn(renew(Arc::clone(&served))));
                }
            }
            () = give_up, if give_up_at.is_some() => {}
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

async fn renew(served: Arc<ServedQueue>) {
    let due = served.in_flight.to_renew();
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
    match answer {
        Ok(settled) => {
            for ((in_flight_id, claim), settled) in in_flight.into_iter().zip(&claims).zip(settled)
            {
                match settled {
                    Settled::Done => served.in_flight.renewed(in_flight_id, asked_at, lease),
                    Settled::LeaseLost | Settled::Refused => {
                        if served.in_flight.remove(in_flight_id) {
                            tracing::info!(
                                %queue,
                                id = %crate::text::printable(claim.id.as_str()),
                                "stopped: its lease was lost, and another has taken the message back"
                            );
                            served.shared.totals.lost(1);
                        }
                        served.shared.slots.are_free();
                    }
                }
            }
        }
        Err(error) => tracing::debug!(%queue, "leases were not renewed: {error}"),
    }
}
