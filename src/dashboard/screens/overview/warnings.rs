//! What an operator would want to be told.

use std::time::{Duration, Instant};

use ratatui::style::Style;
use ratatui::text::Line;

use crate::control::QueueView;
use crate::dashboard::rates::{Flow, Rates};
use crate::dashboard::state::State;
use crate::dashboard::widgets::{oldest, rate_text, wait};
use crate::text::{printable, short_number};

/// A message that is ready for longer waits for a slot.
const WAITS_LONG: Duration = Duration::from_secs(30);

/// A message that is due for longer should have been moved by a host.
const OVERDUE: Duration = Duration::from_secs(5);

/// The worst first.
pub(super) fn lines(state: &State, view: &QueueView, now: Instant) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let mut found: Vec<(String, Style)> = Vec::new();
    found.extend(unserved(state, view, now).map(|text| (text, theme.bad())));
    let refusal = view
        .report
        .as_ref()
        .and_then(|report| report.refusal.as_ref());
    if let Some(reason) = refusal {
        let text = format!("the old handler goes on: {}", printable(reason));
        found.push((text, theme.bad()));
    }
    let rates = state.rates.get(&view.name);
    let dying = rates.and_then(|rates: &Rates| rates.now(Flow::Dead));
    if let Some(rate) = dying.filter(|rate| *rate > 0.0) {
        let text = format!(
            "{} messages a minute become dead letters: 3 shows why",
            rate_text(rate * 60.0)
        );
        found.push((text, theme.bad()));
    }
    found.extend(
        others(state, view, now)
            .into_iter()
            .map(|text| (text, theme.warn())),
    );
    let line = |(text, style)| Line::styled(format!(" ! {text}"), style);
    found.into_iter().map(line).collect()
}

/// Messages that nobody will handle.
fn unserved(state: &State, view: &QueueView, now: Instant) -> Option<String> {
    // A host in this process is seen by the store a moment after it began.
    if !view.hosts.is_empty() || view.report.is_some() {
        return None;
    }
    let overview = &view.overview;
    let counts = overview.counts;
    let now_ms = state.snapshot.now_ms(now);
    let overdue = overview.next_due_ms.and_then(|at| now_ms.checked_sub(at));
    let overdue = overdue
        .map(Duration::from_millis)
        .filter(|late| *late >= OVERDUE);
    let age = oldest(overview, now_ms).into_iter().chain(overdue).max();
    let waiting = counts.ready.saturating_add(counts.retry);
    let since = age.map_or(String::new(), |age| format!(" since {}", wait(age)));
    match (waiting, overdue) {
        (0, None) => None,
        (0, Some(_)) => Some(format!(
            "no host serves this queue: messages are overdue{since}"
        )),
        (waiting, _) => Some(format!(
            "no host serves this queue: {} messages wait{since}",
            short_number(waiting)
        )),
    }
}

fn others(state: &State, view: &QueueView, now: Instant) -> Vec<String> {
    let overview = &view.overview;
    let mut found = Vec::new();
    if overview.paused {
        found.push("the queue is paused: p lets it go on".to_owned());
    }
    if overview.counts.moving > 0 {
        found.push(format!(
            "{} messages are on their way to or from another store: end it with `dqhost move`",
            short_number(overview.counts.moving)
        ));
    }
    let has_hosts = !view.hosts.is_empty() || view.report.is_some();
    let is_held = overview.paused || overview.limited > 0;
    let age = oldest(overview, state.snapshot.now_ms(now));
    let age = age.filter(|age| *age > WAITS_LONG && !is_held && has_hosts);
    if let Some(age) = age {
        let age = wait(age);
        found.push(match free_slots(state, view) {
            0 => format!("messages wait {age} for a slot: more slots, hosts or a faster handler"),
            free => format!(
                "messages wait {age} while {} slots are free: the log says what hinders the host",
                short_number(free)
            ),
        });
    }
    if let Some(late) = view.report.as_ref().map(|report| report.late)
        && late.count > 0
        && late.p50 > Duration::from_secs(5)
        && overview.counts.ready == 0
    {
        found.push("messages come late though none wait: is this host's clock right?".to_owned());
    }
    let host = state.snapshot.host.as_ref();
    if let Some(refused) = host.map(|host| host.summary.refused).filter(|n| *n > 0) {
        found.push(format!(
            "{} calls of handlers were refused here: the log says which",
            short_number(refused)
        ));
    }
    found
}

/// Slots that no handler uses, of the hosts that serve the queue.
fn free_slots(state: &State, view: &QueueView) -> u64 {
    let own = state
        .snapshot
        .host
        .as_ref()
        .filter(|_| view.report.is_some());
    let own_id = own.map(|host| host.id.as_str());
    let own_free = own.map_or(0, |host| host.slots.saturating_sub(host.busy));
    let others = view.hosts.iter().map(|host| &host.info);
    let others = others.filter(|info| own_id != Some(info.id.as_str()));
    let free = others.map(|info| info.slots.saturating_sub(info.in_flight));
    free.fold(own_free, usize::saturating_add) as u64
}
