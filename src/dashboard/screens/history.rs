//! What happened lately: how messages ended, and what each handler did.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::list::{TIME, filter_span, id_width};
use super::message::timeline;
use crate::control::{End, Ended, History as Past, Query, ended_failure, ended_text};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Effect, Screen, State};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{
    by_words, columns, frame, padded, panel, put, row, safe, short, short_id, split, title, until,
    wrapped,
};
use crate::message::{MessageId, QueueName};
use crate::text::short_number;

mod handlers;

pub(super) const SCOPE: Scope = Scope::Screen(
    "History",
    &[
        Action::Open,
        Action::OpenFilter,
        Action::ByHandler,
        Action::CopyId,
        Action::NextQueue,
    ],
);

/// From so many columns on the hosts have one, and the handlers.
const COLUMNS_OF_HOST: usize = 100;
const COLUMNS_OF_HANDLER: usize = 76;

/// On so few there is no room for how long it took.
const COLUMNS_OF_TOOK: usize = 60;

/// The screen.
#[derive(Debug)]
pub(super) struct History;

impl Screen for History {
    fn name(&self) -> &'static str {
        "History"
    }

    fn scope(&self, _: &State) -> Scope {
        SCOPE
    }

    fn query(&self, state: &State) -> Query {
        let filter = state.filter.clone();
        let queue = state.queue.clone();
        queue.map_or(Query::Nothing, |queue| Query::Ended { queue, filter })
    }

    fn line_count(&self, state: &State) -> Option<usize> {
        match handlers::place(state) {
            handlers::Place::Instead => Some(0),
            _ => Some(state.history()?.map_or(0, |past| past.lines.len())),
        }
    }

    fn rows_above(&self, state: &State) -> usize {
        match handlers::place(state) {
            handlers::Place::Above(rows) => usize::from(rows),
            _ => 0,
        }
    }

    fn line_key<'s>(&self, state: &'s State, line: usize) -> Option<&'s str> {
        Some(&state.history()?.ok()?.lines.get(line)?.key)
    }

    fn current(&self, state: &State) -> Option<(QueueName, MessageId)> {
        Some((state.queue.clone()?, selected(state)?.id.clone()))
    }

    fn open(&self, state: &mut State) {
        let ended = selected(state).cloned().map(Arc::new);
        if let Some((queue, id)) = self.current(state) {
            state.open(queue, id);
        }
        if let Some(opened) = &mut state.opened {
            opened.ended = ended;
        }
    }

    fn act(&self, state: &mut State, action: Action) -> Option<Vec<Effect>> {
        if action != Action::ByHandler {
            return None;
        }
        state.is_by_handler = !state.is_by_handler;
        Some(Vec::new())
    }

    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
        draw(state, now, area, buffer);
    }
}

fn selected(state: &State) -> Option<&Ended> {
    if handlers::place(state) == handlers::Place::Instead {
        return None;
    }
    let past = state.history()?.ok()?;
    past.lines.get(state.selected).map(|line| &line.ended)
}

fn draw(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let now_ms = state.snapshot.now_ms(now);
    let past = state.history();
    let known = past.and_then(Result::ok);
    let area = match (handlers::place(state), known) {
        (handlers::Place::Instead, Some(past)) => {
            let area = frame(theme, "History by handler", area, buffer);
            return put(
                handlers::table(theme, past, now_ms, area.width),
                area,
                buffer,
            );
        }
        (handlers::Place::Above(rows), Some(past)) => {
            let [above, below] =
                Layout::vertical([Constraint::Length(rows), Constraint::Fill(1)]).areas(area);
            let above = panel(theme, title(theme, "By handler (d)"), above, buffer);
            put(
                handlers::table(theme, past, now_ms, above.width),
                above,
                buffer,
            );
            below
        }
        _ => area,
    };
    let (area, beside) = split(area);
    if let (Some(beside), Some(ended)) = (beside, selected(state)) {
        let area = frame(theme, "Selected", beside, buffer);
        put(
            about(theme, ended, now_ms, usize::from(area.width)),
            area,
            buffer,
        );
    }
    let area = frame(theme, "History", area, buffer);
    let columns = Columns::of(usize::from(area.width));
    let mut lines = vec![
        summary(state, known),
        Line::styled(columns.head(), theme.dim()),
    ];
    match past {
        None => lines.push(Line::styled("  reading…", theme.dim())),
        Some(Err(error)) => lines.extend(wrapped(error, usize::from(area.width), false)),
        Some(Ok(past)) if past.lines.is_empty() => {
            lines.push(Line::styled(nothing(state, past), theme.dim()));
        }
        Some(Ok(past)) => {
            let rows = state.list_rows();
            // The selected line stays in sight.
            let first = state.selected.saturating_sub(rows - 1);
            state.note_rows(area, 2, first);
            let shown = past.lines.iter().enumerate().skip(first).take(rows);
            lines.extend(
                shown.map(|(at, line)| {
                    columns.line(theme, &line.ended, at == state.selected, now_ms)
                }),
            );
        }
    }
    put(lines, area, buffer);
}

/// How many there are, and how many of them were acked.
fn summary(state: &State, past: Option<&Past>) -> Line<'static> {
    let theme = state.settings.theme;
    let mut spans = Vec::new();
    if let Some(past) = past {
        let more = if past.is_more { "the latest " } else { "" };
        let text = format!("{more}{} ended", short(past.looked_at));
        spans.push(Span::raw(text));
        if past.looked_at > 0 {
            let acked = handlers::percent(past.acked(), past.looked_at as u64);
            spans.push(Span::raw(", "));
            spans.push(Span::styled(format!("{acked} acked"), theme.good()));
        }
    }
    spans.extend(filter_span(state));
    if let Some(past) = past.filter(|_| !state.filter.is_empty()) {
        let found = format!("  {} match", short(past.lines.len()));
        spans.push(Span::styled(found, theme.dim()));
    }
    Line::from(spans)
}

fn nothing(state: &State, past: &Past) -> String {
    if past.looked_at > 0 && !state.filter.is_empty() {
        return "  nothing matches; Esc shows all".to_owned();
    }
    "  nothing is kept of how messages of this queue ended".to_owned()
}

/// The columns of the list.
struct Columns {
    width: usize,
    id: usize,
}

impl Columns {
    fn of(width: usize) -> Self {
        let id = id_width(width);
        Self { width, id }
    }

    fn head(&self) -> String {
        self.cells(["ID", "ENDED", "HOW", "TOOK", "TRIED", "HANDLER", "HOST"]) + "REASON"
    }

    fn cells(&self, [id, ended, how, took, tried, handler, host]: [&str; 7]) -> String {
        let all = [
            (id, self.id, 0),
            (ended, TIME, 0),
            (how, 5, 0),
            (took, 9, COLUMNS_OF_TOOK),
            (tried, 5, COLUMNS_OF_TOOK),
            (handler, 9, COLUMNS_OF_HANDLER),
            (host, 9, COLUMNS_OF_HOST),
        ];
        let shown = all.into_iter().filter(|(_, _, from)| self.width >= *from);
        let cells = shown.map(|(text, width, _)| padded(text, width) + " ");
        format!(" {}", cells.collect::<String>())
    }

    fn line(&self, theme: Theme, ended: &Ended, is_selected: bool, now_ms: u64) -> Line<'static> {
        let mut text = self.cells([
            &short_id(ended.id.as_str(), self.id),
            &until(ended.at_ms, now_ms),
            ended.end.as_str(),
            &handlers::took(Duration::from_millis(ended.duration_ms)),
            &short_number(ended.attempt.into()),
            &safe(&ended.handler, 9),
            &safe(&ended.host, 9),
        ]);
        // The mark of the line takes the first column.
        text.remove(0);
        let room = self.width.saturating_sub(columns(&text) + 1);
        text.push_str(&safe(&ended_failure(ended), room));
        let style = match ended.end {
            End::Acked | End::Cancelled => Style::new(),
            End::Died => theme.warn(),
        };
        row(theme, is_selected, &text, style)
    }
}

/// What is known of the selected one.
fn about(theme: Theme, ended: &Ended, now_ms: u64, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(safe(ended.id.as_str(), width), theme.accent())];
    lines.extend(by_words(&ended_text(ended, now_ms), width));
    lines.push(Line::raw(format!("handler {}", safe(&ended.handler, 17))));
    lines.push(Line::default());
    let known = timeline::Known {
        id: &ended.id,
        record: None,
        ended: Some(ended),
    };
    lines.extend(known.lines(theme, now_ms, width));
    lines
}
