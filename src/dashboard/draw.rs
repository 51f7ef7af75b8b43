//! Draws the state. Every text from outside passes [`safe`] on its way into a cell, and the whole
//! frame passes [`Theme::finish`](super::theme::Theme::finish) on its way to the terminal.
//!
//! ```text
//! dqhost  1 Overview  2 Messages  3 Dead  4 In flight  5 Log      queue orders
//! sqlite:///home/me/.local/share/dqhost/dqhost.db         read 0.4s ago
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
use ratatui::widgets::{Clear, Widget};

use super::keymap::{self, Action, Binding};
use super::state::{Modal, Screen, State};
use super::theme::Theme;
use crate::control::{Overview, Stage};
use crate::message::State as MessageState;
use crate::text::{cut, human_duration, printable, short_number};

mod attempts;
mod graphs;
mod in_flight;
mod lists;
mod log;
mod message;
mod modal;
mod overview;

pub use modal::key_lines;

/// Smaller than this there is one line only.
const COLUMNS_MIN: u16 = 40;
const ROWS_MIN: u16 = 10;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, now: Instant) {
    let area = frame.area();
    let theme = state.settings.theme;
    state.note_drawn();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        one_line(state, now).render(area, frame.buffer_mut());
        theme.finish(frame.buffer_mut());
        return;
    }
    let [tabs, status, body, notice, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(area);
    tab_line(state, tabs.width).render(tabs, frame.buffer_mut());
    status_line(state, now, status.width).render(status, frame.buffer_mut());
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
    notice_line(state, now, notice.width).render(notice, buffer);
    footer_line(state, footer.width).render(footer, buffer);
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

/// Text from outside as a line of at most `width` columns or so.
fn safe(text: &str, width: usize) -> String {
    // Four bytes a column are enough for any character that has a width.
    let text = if text.len() > width * 4 + 16 {
        cut(text, width * 4)
    } else {
        text.into()
    };
    let text = printable(&text);
    match text.char_indices().nth(width) {
        Some((end, _)) if width > 0 => {
            let end = text[..end]
                .char_indices()
                .next_back()
                .map_or(0, |(at, _)| at);
            format!("{}…", &text[..end])
        }
        _ => text.into_owned(),
    }
}

fn tab_line(state: &State, width: u16) -> Line<'static> {
    let theme = state.settings.theme;
    let narrow = width < 70;
    let mut spans = vec![Span::styled("dqhost ", theme.accent())];
    for (number, screen) in (1..).zip(Screen::ALL) {
        let is_here = screen == state.screen;
        let text = match (narrow, is_here) {
            (true, false) => format!("{number} "),
            (_, true) => format!(
                "[{number} {}]{}",
                screen.name(),
                if narrow { " " } else { "" }
            ),
            (false, false) => format!(" {number} {} ", screen.name()),
        };
        let style = if is_here {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            theme.dim()
        };
        spans.push(Span::styled(text, style));
    }
    let marks = marks(state, narrow);
    if let Some(queue) = &state.queue {
        let is_named = width >= 100 || (marks.is_empty() && !narrow);
        spans.push(Span::raw(if is_named { "  queue " } else { " " }));
        let used: usize = spans.iter().chain(&marks).map(Span::width).sum();
        let room = usize::from(width).saturating_sub(used).clamp(4, 40);
        spans.push(Span::styled(safe(queue.as_str(), room), theme.accent()));
    }
    spans.extend(marks);
    Line::from(spans)
}

/// What must be seen before anything is done; a long queue name gives way to it.
fn marks(state: &State, narrow: bool) -> Vec<Span<'static>> {
    let paused = state.queue_view().is_some_and(|view| view.overview.paused);
    let read_only = if narrow { " [ro]" } else { " [read only]" };
    let all = [
        (paused, " [paused]"),
        (state.settings.read_only, read_only),
        (state.is_frozen, " [frozen]"),
    ];
    let shown = all.into_iter().filter(|(is_so, _)| *is_so);
    shown
        .map(|(_, text)| Span::styled(text, state.settings.theme.warn()))
        .collect()
}

/// Which store, and how old what is shown is: never an old number as a new one.
fn status_line(state: &State, now: Instant, width: u16) -> Line<'static> {
    let theme = state.settings.theme;
    let snapshot = &state.snapshot;
    let age = snapshot.read_at.map(|at| now.saturating_duration_since(at));
    let (text, style) = match (&snapshot.outage, age) {
        (Some(error), Some(age)) => (
            format!(
                "! figures are {} old: {}",
                human_duration(age),
                safe(error, 200)
            ),
            theme.bad(),
        ),
        (Some(error), None) => (format!("! {}", safe(error, 200)), theme.bad()),
        (None, Some(age)) if state.is_stale(now) => (
            format!("! the store has not answered for {}", human_duration(age)),
            theme.bad(),
        ),
        (None, Some(_)) => ("live".to_owned(), theme.good()),
        (None, None) => ("reading…".to_owned(), theme.dim()),
    };
    let drains = snapshot
        .host
        .as_ref()
        .filter(|host| host.stage > Stage::Run)
        .map(|host| {
            let left = host
                .drained_by
                .map_or(Duration::ZERO, |end| end.saturating_duration_since(now));
            format!(
                "stopping: {} in flight, {} left, q stops them at once  ",
                snapshot.in_flight.len(),
                human_duration(left)
            )
        });
    let store = safe(&snapshot.store, usize::from(width) / 2);
    Line::from(vec![
        Span::styled(drains.unwrap_or_default(), theme.warn()),
        Span::styled(format!("{store}  "), theme.dim()),
        Span::styled(text, style),
    ])
}

fn notice_line(state: &State, now: Instant, width: u16) -> Line<'static> {
    let theme = state.settings.theme;
    if let Some((notice, at)) = &state.notice {
        let style = if notice.failed {
            theme.bad()
        } else {
            theme.good()
        };
        let mark = if notice.failed { "! " } else { "" };
        let fresh = now.saturating_duration_since(*at) < Duration::from_secs(4);
        let style = if fresh {
            style.add_modifier(Modifier::BOLD)
        } else {
            style
        };
        return Line::styled(
            safe(&format!("{mark}{}", notice.text), usize::from(width)),
            style,
        );
    }
    if let Some(task) = &state.snapshot.task {
        let text = format!(
            "{}: {} done, {} not; :stop ends it",
            task.what, task.done, task.failed
        );
        return Line::styled(text, theme.warn());
    }
    Line::default()
}

/// The keys that matter here, as many as fit, the help and the way out among them.
fn footer_line(state: &State, width: u16) -> Line<'static> {
    let theme = state.settings.theme;
    let shown = |binding: &&'static Binding| {
        let is_refused = binding.changes && state.settings.read_only;
        !binding.label.is_empty() && !is_refused && fits_message(state, binding.action)
    };
    let label = |binding: &&'static Binding| {
        let key = binding.keys.first().map_or(String::new(), |key| key.name());
        (key, format!(" {}  ", binding.label))
    };
    let length = |(key, label): &(String, String)| key.chars().count() + label.chars().count();
    let is_last =
        |binding: &&'static Binding| matches!(binding.action, Action::ShowHelp | Action::Quit);
    let (last, first): (Vec<_>, Vec<_>) = keymap::in_scope(state.scope())
        .filter(shown)
        .partition(is_last);
    let mut last: Vec<(String, String)> = last.iter().map(label).collect();
    let mut left = usize::from(width).saturating_sub(last.iter().map(length).sum());
    let mut all: Vec<(String, String)> = Vec::new();
    for part in first.iter().map(label) {
        if length(&part) <= left {
            left -= length(&part);
            all.push(part);
        }
    }
    all.append(&mut last);
    let spans = all
        .into_iter()
        .flat_map(|(key, label)| [Span::styled(key, theme.accent()), Span::raw(label)]);
    Line::from(spans.collect::<Vec<_>>())
}

/// False for what the open message is in no state for.
fn fits_message(state: &State, action: Action) -> bool {
    let record = state
        .opened
        .as_ref()
        .and_then(|opened| opened.record.as_deref());
    let Some(record) = record else { return true };
    let is_dead = record.state == MessageState::Dead;
    match action {
        Action::Redrive | Action::Edit | Action::Delete => is_dead,
        Action::RunNow | Action::Cancel => !is_dead,
        _ => true,
    }
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

/// How far away a time is, by the store's clock.
fn until(at_ms: u64, now_ms: u64) -> String {
    let wait = |ms| human_duration(Duration::from_millis(ms));
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

/// Lines one below the other, as many as there is room for.
fn put(lines: Vec<Line<'static>>, area: Rect, buffer: &mut Buffer) {
    for (line, row) in lines.into_iter().zip(area.rows()) {
        line.render(row, buffer);
    }
}

/// An empty box with a title on top of what is there; what is inside of it.
fn pop_up(theme: Theme, title: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    use ratatui::widgets::Block;
    Clear.render(area, buffer);
    let block = Block::bordered().title(Span::styled(format!(" {title} "), theme.accent()));
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}
