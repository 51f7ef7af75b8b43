//! What this host has in flight.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::{put, row, safe};
use crate::dashboard::state::State;
use crate::text::human_duration;

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
    for (at, delivery) in snapshot.in_flight.iter().enumerate().skip(first) {
        let runs = if delivery.finished {
            "settling".to_owned()
        } else {
            human_duration(now.saturating_duration_since(delivery.since))
        };
        let lease = delivery.lease_end.saturating_duration_since(now);
        let text = format!(
            " {:<36} {:<8} {runs:<8} {:<8} {}",
            safe(delivery.id.as_str(), 36),
            format!("{}/{}", delivery.attempt, delivery.attempts_max),
            human_duration(lease),
            safe(delivery.queue.as_str(), 20),
        );
        lines.push(row(theme, at == state.selected, &text, Style::new()));
    }
    if snapshot.in_flight.is_empty() && snapshot.host.is_some() {
        lines.push(Line::styled("  nothing is in flight", theme.dim()));
    }
    put(lines, area, buffer);
}
