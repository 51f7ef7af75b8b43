//! Draws the state. Every text from outside passes [`safe`](super::widgets::safe) on its way into a cell, and the whole
//! frame passes [`Theme::finish`](super::theme::Theme::finish) on its way to the terminal.
//!
//! ```text
//! dqhost [1 Overview] 2 Messages  3 Dead 412  4 In flight 3/16  5 History  6 Log
//! ● live  sqlite:///home/me/.local/share/dqhost/dqhost.db   queue orders
//! (the screen)
//! (what became of the last command, or the prompt)
//! s send  Enter open  p pause  : command  ? help  q quit
//! ```

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::state::{Modal, State};
use super::widgets::put;
use crate::text::short_number;

mod footer;
mod header;
mod modal;

pub use modal::key_lines;

/// Smaller than this there is one line only.
const COLUMNS_MIN: u16 = 30;
const ROWS_MIN: u16 = 6;

/// From so many rows on there are a line for the status and one for notices.
const ROWS_OF_STATUS: u16 = 10;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, now: Instant) {
    let area = frame.area();
    let theme = state.settings.theme;
    state.note_drawn();
    state.tabs.clear();
    state.rows.set(None);
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
        let (line, places) = header::tab_line(state, tabs.width);
        line.render(tabs, frame.buffer_mut());
        state.tabs = places;
    }
    if has_status || !is_live {
        let place = if has_status { status } else { tabs };
        header::status_line(state, now, place.width).render(place, frame.buffer_mut());
    }
    let buffer = frame.buffer_mut();
    state.shown().draw(state, now, body, buffer);
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
        Some(Modal::Editor { id, area, .. }) => modal::editor(state, (id, &**area), body, buffer),
        None => {}
    }
    if let Some(prompt) = &state.prompt {
        modal::palette(state, body, buffer);
        modal::prompt(theme, prompt, body, notice, buffer);
    }
    theme.finish(frame.buffer_mut());
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
