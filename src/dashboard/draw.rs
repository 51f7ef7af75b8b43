//! Draws the state. Every text from outside passes [`safe`] on its way into a cell, and the whole
//! frame passes [`Theme::finish`](super::theme::Theme::finish) on its way to the terminal.
//!
//! ```text
//! dqhost [1 Overview] 2 Messages  3 Dead 412  4 In flight 3/16  5 Log
//! ● live  sqlite:///home/me/.local/share/dqhost/dqhost.db   queue orders
//! (the screen)
//! (what became of the last command, or the prompt)
//! s send  Enter open  p pause  : command  ? help  q quit
//! ```

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Widget};

use super::state::{
    COLUMNS_OF_PANELS, Modal, ROWS_OF_PANELS, ROWS_OF_STATUS_AND_KEYS, Screen, State,
};
use super::theme::Theme;
use crate::control::Overview;
use crate::text::{cut, human_duration, printable, short_number};

mod attempts;
mod footer;
mod graphs;
mod header;
mod hosts;
mod in_flight;
mod json;
mod lists;
mod log;
mod message;
mod modal;
mod overview;
mod pipeline;
mod queues;
mod warnings;

pub use modal::key_lines;

/// Smaller than this there is one line only.
const COLUMNS_MIN: u16 = 30;
const ROWS_MIN: u16 = 6;

/// From so many rows on there are a line for the status and one for notices.
const ROWS_OF_STATUS: u16 = 10;

/// From so many columns on the selected message is shown beside its list.
const COLUMNS_OF_SPLIT: u16 = 120;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, now: Instant) {
    let area = frame.area();
    let theme = state.settings.theme;
    state.note_drawn();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        put(vec![one_line(state, now)], area, frame.buffer_mut());
        theme.finish(frame.buffer_mut());
        return;
    }
    let has_status = area.height >= ROWS_OF_STATUS;
    let more = u16::from(has_status);
    let [tabs, status, body, notice, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(more),
        Constraint::Fill(1),
        Constraint::Length(more),
        Constraint::Length(1),
    ])
    .areas(area);
    let is_live = state.snapshot.outage.is_none() && !state.is_stale(now);
    let notice = if has_status { notice } else { footer };
    if has_status || is_live {
        header::tab_line(state, tabs.width).render(tabs, frame.buffer_mut());
    }
    if has_status || !is_live {
        let place = if has_status { status } else { tabs };
        header::status_line(state, now, place.width).render(place, frame.buffer_mut());
    }
    let buffer = frame.buffer_mut();
    if state.opened.is_some() {
        message::draw(state, now, body, buffer);
    } else {
        match state.screen {
            Screen::Overview => overview::draw(state, now, body, buffer),
            Screen::Messages => lists::messages(state, now, body, buffer),
            Screen::Dead if state.group.is_some() => lists::messages(state, now, body, buffer),
            Screen::Dead => lists::groups(state, now, body, buffer),
            Screen::InFlight => in_flight::draw(state, now, body, buffer),
            Screen::Log => log::draw(state, body, buffer),
        }
    }
    let said = footer::notice_line(state, now, notice.width);
    if has_status || said.width() == 0 {
        footer::footer_line(state, footer.width).render(footer, buffer);
    }
    if said.width() > 0 {
        said.render(notice, buffer);
    }
    match &state.modal {
        Some(Modal::Help { .. }) => modal::help(state, body, buffer),
        Some(Modal::Confirm(question)) => modal::confirm(theme, question, body, buffer),
        Some(Modal::Editor { id, area, .. }) => modal::editor(theme, id, area, body, buffer),
        None => {}
    }
    if let Some(prompt) = &state.prompt {
        modal::prompt(theme, prompt, body, notice, buffer);
    }
    theme.finish(frame.buffer_mut());
}

/// Text from outside as a line of at most `width` columns, with a mark where it is cut.
fn safe(text: &str, width: usize) -> String {
    // Four bytes a column are enough for any character that has a width.
    let text = if text.len() > width * 4 + 16 {
        cut(text, width * 4)
    } else {
        text.into()
    };
    let text = printable(&text);
    if columns(&text) <= width {
        return text.into_owned();
    }
    let (mut shown, mut used) = (String::new(), 0);
    for c in text.chars() {
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used >= width {
            break;
        }
        shown.push(c);
    }
    if width > 0 {
        shown.push('…');
    }
    shown
}

/// Columns that a text takes.
fn columns(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    Span::raw(text).width()
}

/// The text with blanks behind it up to so many columns.
fn padded(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(columns(text));
    format!("{text}{}", " ".repeat(blanks))
}

fn short(number: usize) -> String {
    short_number(number as u64)
}

/// An id in at most `width` columns: of a long one its start, which tells when it was made, and its
/// end, which tells it from others of that time.
fn short_id(id: &str, width: usize) -> String {
    let safe_id = safe(id, 80);
    let count = safe_id.chars().count();
    if count <= width || width < 10 {
        return safe(&safe_id, width);
    }
    let end: String = safe_id.chars().skip(count - (width - 9)).collect();
    let start: String = safe_id.chars().take(8).collect();
    format!("{start}…{end}")
}

/// For what is too small for anything else.
fn one_line(state: &State, now: Instant) -> Line<'static> {
    let theme = state.settings.theme;
    let Some(view) = state.queue_view() else {
        return Line::raw("dqhost");
    };
    let counts = view.overview.counts;
    let mut text = format!(
        "p{} r{} u{} t{} d{}",
        short_number(counts.pending),
        short_number(counts.ready),
        short_number(counts.unack),
        short_number(counts.retry),
        short_number(counts.dead),
    );
    if view.overview.paused {
        text.push_str(" paused");
    }
    if state.is_stale(now) || state.snapshot.outage.is_some() {
        return Line::styled(format!("! old {text}"), theme.bad());
    }
    Line::raw(text)
}

/// A line of a list, marked and reversed when selected.
fn row(theme: Theme, is_selected: bool, text: &str, style: Style) -> Line<'static> {
    let mark = if is_selected { ">" } else { " " };
    let style = if is_selected {
        style.patch(theme.selected())
    } else {
        style
    };
    Line::styled(format!("{mark}{text}"), style)
}

/// A length of time in at most nine columns.
fn wait(duration: Duration) -> String {
    const DAYS_MAX: u64 = 9999;
    if duration.as_secs() / 86_400 > DAYS_MAX {
        return format!(">{DAYS_MAX}d");
    }
    human_duration(duration)
}

/// How far away a time is, by the store's clock.
fn until(at_ms: u64, now_ms: u64) -> String {
    let wait = |ms| wait(Duration::from_millis(ms));
    match at_ms.checked_sub(now_ms) {
        Some(0) => "now".to_owned(),
        Some(left) => format!("in {}", wait(left)),
        None => format!("{} ago", wait(now_ms - at_ms)),
    }
}

/// How long the first in line has been ready.
fn oldest(overview: &Overview, now_ms: u64) -> Option<Duration> {
    let since = overview.oldest_ready_ms?;
    Some(Duration::from_millis(now_ms.saturating_sub(since)))
}

/// Lines one below the other, as many as there is room for. Where a line is too long, its last words
/// are left out: no number loses a digit.
fn put(lines: Vec<Line<'static>>, area: Rect, buffer: &mut Buffer) {
    for (line, row) in lines.into_iter().zip(area.rows()) {
        fitted(line, usize::from(area.width)).render(row, buffer);
    }
}

/// The line in so many columns, cut between two words.
fn fitted(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let text: String = line.iter().map(|span| span.content.as_ref()).collect();
    let mut used = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        if c == ' ' {
            end = at;
        }
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used >= width {
            break;
        }
    }
    let end = text[..end].trim_end().len();
    let mut spans = Vec::new();
    let mut left = end;
    for span in line.spans {
        let part = span.content.len().min(left);
        left -= part;
        spans.push(Span::styled(span.content[..part].to_owned(), span.style));
    }
    spans.push(Span::raw("…"));
    Line::from(spans).style(line.style)
}

/// A box with a title, which leaves what is inside.
fn panel(theme: Theme, title: Line<'static>, area: Rect, buffer: &mut Buffer) -> Rect {
    let room = usize::from(area.width.saturating_sub(4));
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(theme.dim())
        .title(fitted(title, room));
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}

/// A title of a panel.
fn title(theme: Theme, text: &str) -> Line<'static> {
    let style = theme.accent().remove_modifier(Modifier::DIM);
    Line::styled(format!(" {text} "), style)
}

/// A box around a screen where there is room for one; what is left.
fn frame(theme: Theme, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    if area.height < ROWS_OF_PANELS - ROWS_OF_STATUS_AND_KEYS || area.width < COLUMNS_OF_PANELS {
        return area;
    }
    panel(theme, title(theme, text), area, buffer)
}

/// An empty box with a title on top of what is there; what is inside of it.
fn pop_up(theme: Theme, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    Clear.render(area, buffer);
    panel(theme, title(theme, text), area, buffer)
}
