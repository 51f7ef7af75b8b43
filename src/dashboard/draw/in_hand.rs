//! What this host has in hand.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::super::state::State;
use super::{put, row, safe};
use crate::text::for_people;

pub(super) fn draw(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let snapshot = &state.snapshot;
    let head = match &snapshot.host {
        Some(host) => format!("{} of {} slots busy in this process", host.busy, host.slots),
        None => "no host runs in this process: look at the messages in unack".to_owned(),
    };
    let mut lines = vec![
        Line::raw(head),
        Line::styled(
            format!(
                "  {:<36} {:<8} {:<8} {:<8} QUEUE",
                "ID", "ATTEMPT", "RUNS FOR", "LEASE"
            ),
            theme.dim(),
        ),
    ];
    let rows = state.list_rows();
    let first = state.selected.saturating_sub(rows - 1);
    for (at, flight) in snapshot.in_hand.iter().enumerate().skip(first) {
        let runs = if flight.finished {
            "settling".to_owned()
        } else {
            for_people(now.saturating_duration_since(flight.since))
        };
        let lease = flight.lease_end.saturating_duration_since(now);
        let text = format!(
            " {:<36} {:<8} {runs:<8} {:<8} {}",
            safe(flight.id.as_str(), 36),
            format!("{}/{}", flight.attempt, flight.attempts_max),
            for_people(lease),
            safe(flight.queue.as_str(), 20),
        );
        lines.push(row(theme, at == state.selected, &text, Style::new()));
    }
    if snapshot.in_hand.is_empty() && snapshot.host.is_some() {
        lines.push(Line::styled("  nothing is in hand", theme.dim()));
    }
    put(lines, area, buffer);
}
