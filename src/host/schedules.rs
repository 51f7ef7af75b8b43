//! Sends the messages of schedules. Every host of a queue does so, and the store keeps one message for each
//! tick, so that there is no leader and nothing to repair: a host that begins looks back for what was
//! missed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{ServedQueue, is_refused};
use crate::message::QueueName;
use crate::schedule::{Overlap, Schedule};
use crate::store::{ScheduleState, StoreResult, Tick, TickSent};

/// The longest sleep, since clocks may be set.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A schedule, and until when its ticks were looked at.
struct Looked {
    schedule: Schedule,
    until: Option<Timestamp>,
    /// True once it was said that ticks are left out.
    is_told: bool,
    /// True while it is paused, as far as the store has said so.
    is_paused: bool,
    /// When it began or went on, by the store's clock, and when that was learned, by that of this host: the
    /// first may be a day ahead.
    resumed: Option<(i64, Timestamp)>,
}

/// Sends what is due, again and again. A tick that the store did not accept is sent again a second later,
/// and is missed if that takes too long.
pub(super) async fn send(served: Arc<ServedQueue>) {
    let queue = &served.queue;
    let schedules = served.settings.schedules.iter();
    let mut schedules: Vec<Looked> = schedules
        .map(|schedule| Looked {
            schedule: schedule.clone(),
            until: None,
            is_told: false,
            is_paused: false,
            resumed: None,
        })
        .collect();
    if schedules.is_empty() {
        return;
    }
    let mut is_told = false;
    loop {
        let now = Timestamp::now();
        let next = match send_due(&served, &mut schedules, now).await {
            Ok(()) => {
                is_told = false;
                schedules
                    .iter()
                    .filter(|one| !one.is_paused)
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

/// Sends what is due at `now`. What the store has not answered is looked at again.
async fn send_due(
    served: &ServedQueue,
    schedules: &mut [Looked],
    now: Timestamp,
) -> StoreResult<()> {
    let (store, queue) = (&served.shared.store, &served.queue);
    let may_send = |one: &Looked| {
        one.is_paused
            || one.until.is_none()
            || !one.schedule.due(one.until, None, now).ticks.is_empty()
    };
    let states = if schedules.iter().any(may_send) {
        known(served, schedules).await?
    } else {
        Vec::new()
    };
    let states: HashMap<&str, &ScheduleState> = states
        .iter()
        .map(|state| (state.name.as_str(), state))
        .collect();
    for one in schedules {
        let state = states.get(one.schedule.name.as_str()).copied();
        let ticks = one.due(queue, state, now);
        let mut is_paused = state.is_some_and(|state| state.paused_since_ms.is_some());
        if !ticks.is_empty() {
            let answers = store.send_ticks(queue, &ticks).await?;
            log(served, &ticks, &answers);
            // Paused since it was looked at.
            is_paused |= answers.contains(&TickSent::Paused);
        }
        one.is_paused = is_paused;
        if !is_paused {
            (one.until, one.is_told) = (Some(now), false);
        }
    }
    Ok(())
}

/// What the store keeps of schedules. One that it does not know begins now: its ticks of the last minute
/// were nobody's.
async fn known(served: &ServedQueue, schedules: &[Looked]) -> StoreResult<Vec<ScheduleState>> {
    let (store, queue) = (&served.shared.store, &served.queue);
    let states = store.schedules(queue).await?;
    let is_new = |one: &&Looked| {
        let name = &one.schedule.name;
        one.until.is_none() && !states.iter().any(|state| state.name == *name)
    };
    let new: Vec<&Looked> = schedules.iter().filter(is_new).collect();
    for one in &new {
        let name = &one.schedule.name;
        store.set_schedule_paused(queue, name, false).await?;
    }
    if new.is_empty() {
        return Ok(states);
    }
    // Another host may have seen it first, and someone may have paused it.
    store.schedules(queue).await
}

impl Looked {
    /// The ticks that are to be sent. Those of a pause were missed, and what becomes of them is said by the
    /// schedule.
    fn due(
        &mut self,
        queue: &QueueName,
        state: Option<&ScheduleState>,
        now: Timestamp,
    ) -> Vec<Tick> {
        let schedule = &self.schedule;
        if state.is_some_and(|state| state.paused_since_ms.is_some()) {
            return Vec::new();
        }
        let resumed_at_ms = state.and_then(|state| i64::try_from(state.resumed_at_ms?).ok());
        if let Some(at_ms) = resumed_at_ms
            && self.resumed.is_none_or(|(known, _)| known != at_ms)
        {
            self.resumed = Some((at_ms, now));
        }
        let resumed = self.resumed.and_then(|(at_ms, learned)| {
            let at = Timestamp::from_millisecond(at_ms).ok()?;
            Some(at.min(learned))
        });
        let due = schedule.due(self.until, resumed, now);
        let was_paused = resumed > self.until;
        if due.has_skipped && !was_paused && !std::mem::replace(&mut self.is_told, true) {
            let name = &schedule.name;
            tracing::warn!(%queue, schedule = name, "ticks were missed, and are left out");
        }
        let tick = |tick: &Timestamp| Tick {
            schedule: schedule.name.clone(),
            message: schedule.message(queue, *tick),
            may_overlap: schedule.overlap == Overlap::Run,
        };
        due.ticks.iter().map(tick).collect()
    }
}

fn log(served: &ServedQueue, ticks: &[Tick], answers: &[TickSent]) {
    let queue = &served.queue;
    let sent = |answer: &&TickSent| **answer == TickSent::Sent;
    let new = answers.iter().filter(sent).count();
    if new > 0 {
        tracing::debug!(%queue, new, "sent by schedule");
    }
    let skipped = ticks.iter().zip(answers);
    for (tick, _) in skipped.filter(|(_, answer)| **answer == TickSent::Skipped) {
        served.shared.totals.skipped();
        let (schedule, id) = (&tick.schedule, &tick.message.id);
        tracing::info!(%queue, schedule, %id, "tick skipped: the last one has not ended");
    }
}
