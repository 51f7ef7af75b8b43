//! A list of messages of one state, as several screens have it.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::message;
use crate::control::{Filter, Query, SEARCHED_MAX, Searched};
use crate::dashboard::keymap::Action;
use crate::dashboard::state::State;
use crate::dashboard::widgets::{
    columns, frame, padded, put, row, safe, short, short_id, split, until,
};
use crate::message::{Record, State as MessageState};
use crate::text::{payload, short_number};

/// Bytes of a payload that are shown at most; four more tell a cut character from a wrong one.
const SHOWN_MAX: usize = 400;

/// Columns of a time.
pub(super) const TIME: usize = 14;

/// A page of the messages in a state.
pub(super) fn query(state: &State, listed: MessageState, filter: Filter) -> Query {
    let page = |queue| Query::Messages {
        queue,
        state: listed,
        offset: state.offset,
        limit: state.list_rows(),
        filter,
    };
    state.queue.clone().map_or(Query::Nothing, page)
}

/// A list: what its panel is called, the state of its messages, and what is said above them.
pub(super) struct List {
    pub(super) name: &'static str,
    pub(super) listed: MessageState,
    pub(super) title: Vec<Span<'static>>,
}

pub(super) fn draw(list: List, state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let (area, beside) = split(area);
    if let (Some(beside), Some(record)) = (beside, state.selected_record()) {
        message::beside_list(theme, record, state.snapshot.now_ms(now), beside, buffer);
    }
    let area = frame(theme, list.name, area, buffer);
    state.note_rows(area, 2, 0);
    let mut title = list.title;
    title.extend(notes(state));
    let mut lines = vec![Line::from(title)];
    let width = usize::from(area.width);
    let when = match list.listed {
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
        Some((records, _, searched)) => {
            let now_ms = state.snapshot.now_ms(now);
            for (at, record) in records.iter().enumerate() {
                lines.push(message_line(
                    state,
                    record,
                    at == state.selected,
                    (now_ms, width),
                ));
            }
            let goes_on = still_searching(state, searched, list.listed);
            if records.is_empty() && goes_on.is_none() {
                lines.push(Line::styled(nothing(state, list.listed), theme.dim()));
            }
            lines.extend(goes_on);
        }
    }
    put(lines, area, buffer);
}

/// Columns of an id: all of it where there is room.
pub(super) fn id_width(width: usize) -> usize {
    if width < 100 { 13 } else { 36 }
}

/// How far a search is that goes on.
pub(super) fn still_searching(
    state: &State,
    searched: Searched,
    listed: MessageState,
) -> Option<Line<'static>> {
    let Searched::SoFar(looked_at) = searched else {
        return None;
    };
    let counts = state.queue_view().map(|view| view.overview.counts);
    let all = counts.map_or(0, |counts| counts.of(listed));
    let text = format!(
        "  looked at {} of {}, goes on…",
        short(looked_at),
        short_number(all)
    );
    Some(Line::styled(text, state.settings.theme.warn()))
}

/// What the list has beside what is listed.
fn notes(state: &State) -> Vec<Span<'static>> {
    let theme = state.settings.theme;
    let mut spans: Vec<Span<'static>> = filter_span(state).into_iter().collect();
    if let Some((_, _, Searched::Enough(looked_at))) = state.records()
        && looked_at > SEARCHED_MAX
    {
        let text = format!("  found in the first {}", short(looked_at));
        spans.push(Span::styled(text, theme.dim()));
    }
    if state.offset > 0 {
        spans.push(Span::raw(format!("  from {}", short(state.offset + 1))));
    }
    if !state.marks.is_empty() {
        spans.push(Span::styled(
            format!("  {} marked", short(state.marks.len())),
            theme.warn(),
        ));
    }
    spans
}

pub(super) fn filter_span(state: &State) -> Option<Span<'static>> {
    let text = state.filter.text();
    let theme = state.settings.theme;
    (!text.is_empty()).then(|| Span::styled(format!("  /{}", safe(text, 40)), theme.warn()))
}

fn nothing(state: &State, listed: MessageState) -> String {
    if !state.filter.is_empty() {
        return "  nothing matches; Esc shows all".to_owned();
    }
    match listed {
        MessageState::Dead => "  no dead letters".to_owned(),
        MessageState::Pending => format!(
            "  no message waits for a time; {} sends one",
            state.key_of(Action::OpenSend)
        ),
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
