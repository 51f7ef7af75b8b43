//! The log.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use crate::control::{LogLevel, LogLine};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Effect, Screen, State};
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{frame, put, safe, short_id};

pub(super) const SCOPE: Scope = Scope::Screen("Log", &[Action::GuestsOnly]);

/// The screen.
#[derive(Debug)]
pub(super) struct Log;

impl Screen for Log {
    fn name(&self) -> &'static str {
        "Log"
    }

    fn scope(&self, _: &State) -> Scope {
        SCOPE
    }

    fn shows_log(&self) -> bool {
        true
    }

    /// The latest line is at the bottom, so up is further back.
    fn navigate(&self, state: &mut State, action: Action) {
        let page = state.list_rows();
        state.offset = match action {
            Action::Up => state.offset + 1,
            Action::Down => state.offset.saturating_sub(1),
            Action::PageUp => state.offset + page,
            Action::PageDown => state.offset.saturating_sub(page),
            Action::Top => usize::MAX / 2,
            _ => 0,
        };
    }

    fn act(&self, state: &mut State, action: Action) -> Option<Vec<Effect>> {
        if action != Action::GuestsOnly {
            return None;
        }
        state.guests_only = !state.guests_only;
        state.offset = 0;
        Some(Vec::new())
    }

    fn draw(&self, state: &mut State, _: Instant, area: Rect, buffer: &mut Buffer) {
        draw(state, area, buffer);
    }
}

/// Columns of an id.
const ID_MAX: usize = 13;

/// The line with the second of the day only, if it begins with a time.
fn without_date(line: &str) -> String {
    let is_dated = line
        .get(..20)
        .is_some_and(|time| time.as_bytes()[10] == b'T' && time.is_ascii());
    let end = line.find('Z').filter(|_| is_dated);
    match end {
        Some(end) => format!("{}{}", &line[11..19], &line[end + 1..]),
        None => line.to_owned(),
    }
}

/// The line as it is shown: its time of the day, and ids so short that what comes after them has room.
fn in_short(line: &str) -> String {
    let word = |word: &str| match word.strip_prefix("id=") {
        Some(id) if id.len() > ID_MAX => format!("id={}", short_id(id, ID_MAX)),
        _ => word.to_owned(),
    };
    let words: Vec<String> = without_date(line).split(' ').map(word).collect();
    words.join(" ")
}

fn draw(state: &mut State, area: Rect, buffer: &mut Buffer) {
    let theme = state.settings.theme;
    let area = frame(theme, "Log", area, buffer);
    let rows = usize::from(area.height.saturating_sub(1));
    let guests_only = state.guests_only;
    let which = |line: &LogLine| line.is_guest || !guests_only;
    let mut shown = state.logs.latest(rows, state.offset, which);
    if shown.len() < rows && state.offset > 0 {
        // The top is reached.
        let all = state.logs.latest(usize::MAX, 0, which).len();
        state.offset = all.saturating_sub(rows);
        shown = state.logs.latest(rows, state.offset, which);
    }
    let file = state.logs.file();
    let mut head = match file {
        Some(file) => format!("all of it is in {file}"),
        None => "it is kept on this screen only".to_owned(),
    };
    if guests_only {
        head.insert_str(0, "what handlers printed; ");
    }
    if state.offset > 0 {
        head.insert_str(0, &format!("{} lines back; ", state.offset));
    }
    let width = usize::from(area.width);
    let mut lines = vec![Line::styled(safe(&head, width), theme.dim())];
    lines.extend(shown.iter().map(|line| log_line(theme, line, width)));
    put(lines, area, buffer);
}

/// The last lines.
pub(super) fn latest(state: &State, count: usize, width: usize) -> Vec<Line<'static>> {
    let theme = state.settings.theme;
    let lines = state.logs.latest(count, 0, |_| true);
    lines
        .iter()
        .map(|line| log_line(theme, line, width))
        .collect()
}

fn log_line(theme: Theme, line: &LogLine, width: usize) -> Line<'static> {
    let style = match line.level {
        LogLevel::Error => theme.bad(),
        LogLevel::Warn => theme.warn(),
        LogLevel::Info if line.is_guest => theme.good(),
        LogLevel::Info => Style::new(),
    };
    Line::styled(safe(&in_short(&line.text), width), style)
}
