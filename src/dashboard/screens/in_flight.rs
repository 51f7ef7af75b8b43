//! What this host has in flight.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::control::{Command, IN_FLIGHT_MAX, InFlightDelivery};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Modal, Question, Screen, State};
use crate::dashboard::widgets::{columns, frame, gauge, put, row, safe, short, short_id, wait};
use crate::message::{MessageId, QueueName};
use crate::text::{printable, short_number};

/// Columns of the gauge of a lease.
const GAUGE: usize = 10;

pub(super) const SCOPE: Scope = Scope::Screen(
    "In flight",
    &[Action::Open, Action::StopHandler, Action::CopyId],
);

/// The screen.
#[derive(Debug)]
pub(super) struct InFlight;

impl Screen for InFlight {
    fn name(&self) -> &'static str {
        "In flight"
    }

    fn badge(&self, state: &State) -> Option<Span<'static>> {
        let in_flight = state.queue_view()?.overview.counts.unack;
        let text = match &state.snapshot.host {
            Some(host) => format!(" {}/{}", short(host.busy), short(host.slots)),
            None if in_flight > 0 => format!(" {}", short_number(in_flight)),
            None => return None,
        };
        Some(Span::styled(text, state.settings.theme.good()))
    }

    fn scope(&self, _: &State) -> Scope {
        SCOPE
    }

    fn line_count(&self, state: &State) -> Option<usize> {
        Some(state.snapshot.in_flight.len())
    }

    fn line_key<'s>(&self, state: &'s State, line: usize) -> Option<&'s str> {
        Some(state.snapshot.in_flight.get(line)?.id.as_str())
    }

    fn current(&self, state: &State) -> Option<(QueueName, MessageId)> {
        let delivery = state.snapshot.in_flight.get(state.selected)?;
        Some((delivery.queue.clone(), delivery.id.clone()))
    }

    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
        draw(state, now, area, buffer);
    }
}

/// The handler of the selected queue that has run for longest.
pub(super) fn longest(state: &State) -> Option<&InFlightDelivery> {
    let mut all = state.snapshot.in_flight.iter();
    all.find(|one| Some(&one.queue) == state.queue.as_ref() && !one.finished)
}

/// Asks whether to stop it; false if none is known.
pub(super) fn ask_to_stop_longest(state: &mut State) -> bool {
    let Some(one) = longest(state) else {
        return false;
    };
    let question = format!(
        "Stop the handler of {}, which has run for longest in {}? Its attempt counts as failed.",
        printable(one.id.as_str()),
        one.queue
    );
    let then = Command::StopHandler(one.queue.clone(), one.id.clone());
    state.modal = Some(Modal::Confirm(Question::new(question, then)));
    true
}

/// Why there is no handler to stop.
pub(in crate::dashboard) fn nothing_to_stop(state: &State) -> String {
    let snapshot = &state.snapshot;
    let what = match &state.queue {
        Some(queue) if !snapshot.in_flight.is_empty() => format!("handler of {queue}"),
        _ => "handler".to_owned(),
    };
    if snapshot.host.is_none() {
        "no host runs in this process, so there is no handler to stop here".to_owned()
    } else if snapshot.in_flight.len() >= IN_FLIGHT_MAX {
        format!(
            "no {what} runs among the {IN_FLIGHT_MAX} messages that are in flight for longest here"
        )
    } else {
        format!("no {what} runs in this process")
    }
}

/// How many slots the host has found for the queue, and why.
fn found_slots(state: &State) -> String {
    let view = state.queue_view();
    let report = view.and_then(|view| view.report.as_ref());
    let found = report.and_then(|report| report.slots);
    found.map_or_else(String::new, |(slots, reason)| {
        let slots = short(slots);
        format!("; {slots} for this queue: {}", reason.words())
    })
}

fn draw(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let area = frame(theme, "In flight", area, buffer);
    let snapshot = &state.snapshot;
    let head = match &snapshot.host {
        Some(host) => format!(
            "{} of {} slots busy in this process",
            short(host.busy),
            short(host.slots)
        ),
        None => "no host runs in this process: look at the messages in unack".to_owned(),
    };
    let head = head + &found_slots(state);
    let id_width = if area.width < 100 { 13 } else { 36 };
    let mut lines = vec![
        Line::raw(head),
        Line::styled(
            format!(
                "  {:<id_width$} {:<8} {:<9} {:<9} QUEUE",
                "ID", "ATTEMPT", "RUNS FOR", "LEASE"
            ),
            theme.dim(),
        ),
    ];
    let rows = state.list_rows();
    let first = state.selected.saturating_sub(rows - 1);
    state.note_rows(area, 2, first);
    let width = usize::from(area.width);
    for (at, delivery) in snapshot.in_flight.iter().enumerate().skip(first).take(rows) {
        let lease = delivery.lease_end.saturating_duration_since(now);
        let mut text = format!(
            " {:<id_width$} {:<8} {:<9} {:<9} {}",
            short_id(delivery.id.as_str(), id_width),
            attempt(delivery),
            runs(delivery, now),
            wait(lease),
            safe(delivery.queue.as_str(), 20),
        );
        if columns(&text) + GAUGE + 2 < width {
            text.push_str("  ");
            text.push_str(&left_of_lease(delivery, now));
        }
        lines.push(row(theme, at == state.selected, &text, Style::new()));
    }
    if snapshot.in_flight.is_empty() && snapshot.host.is_some() {
        lines.push(Line::styled("  nothing is in flight", theme.dim()));
    }
    put(lines, area, buffer);
}

/// Those that have been there longest, for a small place.
pub(super) fn few(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let room = usize::from(area.width).saturating_sub(31);
    let line = |delivery: &InFlightDelivery| {
        Line::raw(format!(
            " {} {:>5} {:>8}  {}",
            short_id(delivery.id.as_str(), 13),
            attempt(delivery),
            runs(delivery, now),
            safe(delivery.queue.as_str(), room)
        ))
    };
    let mut lines: Vec<Line<'static>> = (state.snapshot.in_flight.iter())
        .take(usize::from(area.height))
        .map(line)
        .collect();
    if lines.is_empty() {
        let text = match &state.snapshot.host {
            Some(_) => " nothing is in flight",
            None => " no host runs in this process",
        };
        lines.push(Line::styled(text, theme.dim()));
    }
    put(lines, area, buffer);
}

fn attempt(delivery: &InFlightDelivery) -> String {
    let [attempt, of] = [delivery.attempt, delivery.attempts_max].map(|n| short_number(n.into()));
    format!("{attempt}/{of}")
}

pub(super) fn runs(delivery: &InFlightDelivery, now: Instant) -> String {
    if delivery.finished {
        return "settling".to_owned();
    }
    wait(now.saturating_duration_since(delivery.since))
}

/// The time that is left of a lease, as a gauge.
fn left_of_lease(delivery: &InFlightDelivery, now: Instant) -> String {
    let ms = |from, to: Instant| {
        let time = to.saturating_duration_since(from);
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    };
    let whole = ms(delivery.since, delivery.lease_end);
    gauge(ms(now, delivery.lease_end), whole, GAUGE)
}
