//! Lists of messages, and dead letters by reason.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::queues::depth;
use super::{COLUMNS_OF_SPLIT, columns, frame, padded, put, row, safe, short, short_id, until};
use crate::control::{FILTERED_MAX, GROUPED_MAX};
use crate::dashboard::state::{
    ROWS_OF_PANELS, ROWS_OF_STATUS_AND_KEYS, Reasons, STATES, Screen, State,
};
use crate::message::{Record, State as MessageState};
use crate::text::{payload, short_number};

/// Bytes of a payload that are shown at most; four more tell a cut character from a wrong one.
const SHOWN_MAX: usize = 400;

/// Columns of a time.
const TIME: usize = 14;

pub(super) fn messages(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let (area, beside) = split(area);
    if let (Some(beside), Some(record)) = (beside, state.selected_record()) {
        super::message::beside_list(theme, record, state.snapshot.now_ms(now), beside, buffer);
    }
    let name = match state.screen {
        Screen::Dead => "Dead letters",
        _ => "Messages",
    };
    let area = frame(theme, name, area, buffer);
    let mut lines = vec![title(state)];
    let width = usize::from(area.width);
    let state_of_list = state.listed_state();
    let when = match state_of_list {
        MessageState::Unack => "LEASE ENDS",
        MessageState::Dead => "DIED",
        MessageState::Pending => "DUE",
        _ => "",
    };
    lines.push(Line::styled(
        format!(
            "  {:<id_width$} {when:<TIME$} {:<6} PAYLOAD, LAST FAILURE",
            "ID",
            "TRIED",
            id_width = id_width(width)
        ),
        theme.dim(),
    ));
    match state.records() {
        None => lines.push(Line::styled("  reading…", theme.dim())),
        Some((records, _, cut)) => {
            let now_ms = state.snapshot.now_ms(now);
            for (at, record) in records.iter().enumerate() {
                lines.push(message_line(
                    state,
                    record,
                    at == state.selected,
                    (now_ms, width),
                ));
            }
            if records.is_empty() {
                lines.push(Line::styled(nothing(state), theme.dim()));
            }
            if cut {
                lines.push(Line::styled(
                    format!("  the filter has stopped after {FILTERED_MAX} messages"),
                    theme.warn(),
                ));
            }
        }
    }
    put(lines, area, buffer);
}

/// The place of a list, and that of what is selected where there is room for it.
fn split(area: Rect) -> (Rect, Option<Rect>) {
    if area.width < COLUMNS_OF_SPLIT || area.height < ROWS_OF_PANELS - ROWS_OF_STATUS_AND_KEYS {
        return (area, None);
    }
    let [list, beside] =
        Layout::horizontal([Constraint::Percentage(56), Constraint::Fill(1)]).areas(area);
    (list, Some(beside))
}

/// Columns of an id: all of it where there is room.
fn id_width(width: usize) -> usize {
    if width < 100 { 13 } else { 36 }
}

/// What is listed: the states with their depths, or the reason.
fn title(state: &State) -> Line<'static> {
    let theme = state.settings.theme;
    let mut spans = Vec::new();
    let counts = state.queue_view().map(|view| view.overview.counts);
    if let Some(group) = &state.group {
        let reason = match group {
            Reasons::All => "all dead letters",
            Reasons::One(reason) => reason,
        };
        spans.push(Span::styled(safe(reason, 60), theme.accent()));
    } else if state.screen == Screen::Messages {
        for (at, shown) in STATES.into_iter().enumerate() {
            let depth = counts.map_or(0, |counts| match shown {
                MessageState::Pending => counts.pending,
                MessageState::Ready => counts.ready,
                MessageState::Unack => counts.unack,
                MessageState::Retry => counts.retry,
                _ => counts.dead,
            });
            let text = format!("{} {}", shown.as_str(), short_number(depth));
            if at == state.state {
                spans.push(Span::styled(format!("[{text}]"), theme.accent()));
            } else {
                spans.push(Span::styled(format!(" {text} "), theme.dim()));
            }
        }
    }
    spans.extend(filter_span(state));
    if state.offset > 0 {
        spans.push(Span::raw(format!("  from {}", short(state.offset + 1))));
    }
    if !state.marks.is_empty() {
        spans.push(Span::styled(
            format!("  {} marked", short(state.marks.len())),
            theme.warn(),
        ));
    }
    Line::from(spans)
}

fn filter_span(state: &State) -> Option<Span<'static>> {
    let text = state.filter.text();
    let theme = state.settings.theme;
    (!text.is_empty()).then(|| Span::styled(format!("  /{}", safe(text, 40)), theme.warn()))
}

fn nothing(state: &State) -> String {
    if !state.filter.is_empty() {
        return "  nothing matches; Esc shows all".to_owned();
    }
    match state.listed_state() {
        MessageState::Dead => "  no dead letters".to_owned(),
        MessageState::Pending => "  no message waits for a time; s sends one".to_owned(),
        other => format!("  no message is {}", other.as_str()),
    }
}

fn message_line(
    state: &State,
    record: &Record,
    is_selected: bool,
    (now_ms, width): (u64, usize),
) -> Line<'static> {
    let theme = state.settings.theme;
    let mark = if state.marks.contains(&record.id) {
        "*"
    } else {
        " "
    };
    let when = record
        .at_ms
        .map_or(String::new(), |at_ms| until(at_ms, now_ms));
    // One step from dead.
    let last = record.retries_left == 0 && record.state != MessageState::Dead;
    let tried = format!(
        "{}{}",
        short_number(record.attempts.into()),
        if last { "!" } else { "" }
    );
    let id_width = id_width(width);
    let mut text = format!(
        "{mark}{} {when:<TIME$} {tried:<6} ",
        padded(&short_id(record.id.as_str(), id_width), id_width)
    );
    let room = width.saturating_sub(columns(&text) + 1);
    let reason = record
        .last_attempt()
        .map(|last| format!("{}: {}", last.class, last.reason));
    let body = match &record.payload {
        Some(bytes) if bytes.is_empty() => "(empty payload)".to_owned(),
        Some(bytes) => payload(&bytes[..bytes.len().min(SHOWN_MAX + 4)], SHOWN_MAX),
        None => "(payload missing)".to_owned(),
    };
    match reason {
        Some(reason) if record.state == MessageState::Dead => {
            text.push_str(&safe(&format!("{reason}  {body}"), room));
        }
        Some(reason) => text.push_str(&safe(&format!("{body}  {reason}"), room)),
        None => text.push_str(&safe(&body, room)),
    }
    let style = if last && record.attempts > 0 {
        theme.warn()
    } else {
        Style::new()
    };
    row(theme, is_selected, &text, style)
}

pub(super) fn groups(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let area = frame(theme, "Dead letters by reason", area, buffer);
    let dead = state
        .queue_view()
        .map_or(0, |view| view.overview.counts.dead);
    let mut head = vec![
        Span::raw("dead letters by reason: "),
        Span::styled(
            short_number(dead),
            if dead > 0 { theme.bad() } else { depth(0) },
        ),
    ];
    head.extend(filter_span(state));
    let mut lines = vec![
        Line::from(head),
        Line::styled(
            format!(" {:>6}  {:<TIME$}  REASON", "COUNT", "LATEST"),
            theme.dim(),
        ),
    ];
    let width = usize::from(area.width);
    match state.groups() {
        None => lines.push(Line::styled("  reading…", theme.dim())),
        Some((groups, cut)) => {
            let now_ms = state.snapshot.now_ms(now);
            let counts = groups.iter().map(|group| group.count);
            let total = counts.fold(0, u64::saturating_add);
            let rows = state.list_rows();
            // The selected line stays in sight.
            let first = state.selected.saturating_sub(rows - 1);
            let all = if dead == 0 {
                "no dead letters"
            } else {
                "all of them"
            };
            let all = (total, String::new(), all.to_owned());
            let others = groups.iter().map(|group| {
                (
                    group.count,
                    until(group.latest_ms, now_ms),
                    safe(&group.reason, width.saturating_sub(26)),
                )
            });
            for (at, (count, latest, reason)) in
                std::iter::once(all).chain(others).enumerate().skip(first)
            {
                let text = format!("{:>6}  {latest:<TIME$}  {reason}", short_number(count));
                lines.push(row(theme, at == state.selected, &text, Style::new()));
            }
            if cut {
                lines.push(Line::styled(
                    format!("  of the latest {GROUPED_MAX} dead letters"),
                    theme.warn(),
                ));
            }
        }
    }
    put(lines, area, buffer);
}
