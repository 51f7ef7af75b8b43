//! Keeps leases alive while their handlers run, and stops a handler whose lease cannot be kept
//! before that lease expires.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use crate::store::Settled;

/// How often leases are looked at: ten times a lease, at most once a second.
fn tick(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1))
}

/// So long before its end a lease counts as over: time enough to notice and to stop the handler.
pub(super) fn margin(lease: Duration) -> Duration {
    tick(lease) * 2
}

/// Runs until dropped. At each tick:
///
/// 1. leases of which a third is over are renewed, one request a queue; a request that is under
///    way is not repeated, and one that takes longer than a third of a lease is given up;
/// 2. deliveries whose lease expires within the margin are given up, whatever the requests do.
pub(super) async fn keep(shared: Arc<Shared>) {
    let every = tick(shared.config.lease);
    let mut clock = tokio::time::interval(every);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut renewals: Vec<Option<tokio::task::JoinHandle<()>>> =
        shared.queues.iter().map(|_| None).collect();
    loop {
        clock.tick().await;
        for (served, renewal) in renewals.iter_mut().enumerate() {
            if renewal
                .as_ref()
                .is_none_or(tokio::task::JoinHandle::is_finished)
            {
                *renewal = Some(tokio::spawn(renew(Arc::clone(&shared), served)));
            }
        }
        for (served, claim) in shared.in_flight.give_up_ending(margin(shared.config.lease)) {
            tracing::warn!(
                queue = %shared.queues[served].queue,
                id = %crate::text::printable(claim.id.as_str()),
                "stopped: its lease could not be renewed in time, so it will be delivered again"
            );
            shared.totals.lost(1);
            shared.slots_are_free();
        }
    }
}

async fn renew(shared: Arc<Shared>, served: usize) {
    let due = shared.in_flight.to_renew(served);
    if due.is_empty() {
        return;
    }
    let (in_flight, claims): (Vec<_>, Vec<_>) = due.into_iter().unzip();
    let (queue, lease) = (&shared.queues[served].queue, shared.config.lease);
    let asked_at = Instant::now();
    let request = shared.store.extend(queue, &claims, lease);
    let Ok(answer) = tokio::time::timeout(lease / 3, request).await else {
        return;
    };
    match answer {
        Ok(settled) => {
            for ((in_flight_id, claim), settled) in in_flight.into_iter().zip(&claims).zip(settled)
            {
                match settled {
                    Settled::Done => shared.in_flight.renewed(in_flight_id, asked_at, lease),
                    Settled::LeaseLost | Settled::Refused => {
                        if shared.in_flight.remove(in_flight_id) {
                            tracing::info!(
                                %queue,
                                id = %crate::text::printable(claim.id.as_str()),
                                "stopped: its lease was lost, and another has taken the message back"
                            );
                            shared.totals.lost(1);
                        }
                        shared.slots_are_free();
                    }
                }
            }
        }
        Err(error) => tracing::debug!(%queue, "leases were not renewed: {error}"),
    }
}
