//! Sends the messages of schedules. Every host of a queue does so, and the store keeps one message for each
//! tick, so that there is no leader and nothing to repair: a host that begins looks back for what was
//! missed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{ServedQueue, is_refused};
use crate::message::{NewMessage, QueueName};
use crate::schedule::Schedule;

/// The longest sleep, since clocks may be set.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A schedule, and until when its ticks were looked at.
struct Looked {
    schedule: Schedule,
    until: Option<Timestamp>,
    /// True once it was said that ticks are left out.
    is_told: bool,
}

/// Sends what is due, again and again. A tick that the store did not accept is sent again a second later,
/// and is missed if that takes too long.
pub(super) async fn send(served: Arc<ServedQueue>) {
    let (store, queue) = (&served.shared.store, &served.queue);
    let schedules = served.settings.schedules.iter();
    let mut schedules: Vec<Looked> = schedules
        .map(|schedule| Looked {
            schedule: schedule.clone(),
            until: None,
            is_told: false,
        })
        .collect();
    if schedules.is_empty() {
        return;
    }
    let mut is_told = false;
    loop {
        let now = Timestamp::now();
        let messages = due(queue, &mut schedules, now);
        let sent = if messages.is_empty() {
            Ok(Vec::new())
        } else {
            store.send(queue, &messages).await
        };
        let next = match sent {
            Ok(sent) => {
                is_told = false;
                let new = sent.iter().filter(|sent| sent.due_at_ms.is_some()).count();
                if new > 0 {
                    tracing::debug!(%queue, new, "sent by schedule");
                }
                for one in &mut schedules {
                    (one.until, one.is_told) = (Some(now), false);
                }
                schedules
                    .iter()
                    .filter_map(|one| one.schedule.next(now))
                    .min()
            }
            Err(error) => {
                if is_refused(&error) && !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%queue, "a scheduled message was not accepted: {error}");
                }
                None
            }
        };
        let left = next.map(|next| next.duration_since(Timestamp::now()));
        let left = left.map_or(SLEEP_MAX, |left| left.try_into().unwrap_or(Duration::ZERO));
        tokio::time::sleep(left.min(SLEEP_MAX)).await;
    }
}

fn due(queue: &QueueName, schedules: &mut [Looked], now: Timestamp) -> Vec<NewMessage> {
    let mut messages = Vec::new();
    for Looked {
        schedule,
        until,
        is_told,
    } in schedules
    {
        let due = schedule.due(*until, now);
        if due.has_skipped && !std::mem::replace(is_told, true) {
            let name = &schedule.name;
            tracing::warn!(%queue, schedule = name, "ticks were missed, and are left out");
        }
        messages.extend(due.ticks.iter().map(|tick| schedule.message(queue, *tick)));
    }
    messages
}
