//! The lines above a screen: the tabs, and which store and queue it is about.

use std::ops::Range;
use std::time::{Duration, Instant};

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::control::Stage;
use crate::dashboard::keymap::Action;
use crate::dashboard::screens::TABS;
use crate::dashboard::state::State;
use crate::dashboard::widgets::{safe, wait};

/// How much the tabs tell: each step takes less room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tabs {
    Badges,
    Names,
    OneName,
    Numbers,
}

/// The tabs, and the columns of each.
pub(super) fn tab_line(state: &State, width: u16) -> (Line<'static>, Vec<Range<u16>>) {
    let steps = [Tabs::Badges, Tabs::Names, Tabs::OneName, Tabs::Numbers];
    let mut lines = steps.into_iter().map(|step| tabs(state, step));
    let fits = |(line, _): &(Line<'_>, _)| line.width() <= usize::from(width);
    lines.find(fits).unwrap_or_default()
}

fn tabs(state: &State, how: Tabs) -> (Line<'static>, Vec<Range<u16>>) {
    let theme = state.settings.theme;
    let mut line = Line::from(Span::styled("dqhost ", theme.accent()));
    let mut places = Vec::new();
    let end = |line: &Line<'_>| u16::try_from(line.width()).unwrap_or(u16::MAX);
    for (number, screen) in (1..).zip(TABS) {
        let is_here = screen.name() == state.screen.name();
        let is_named = match how {
            Tabs::Badges | Tabs::Names => true,
            Tabs::OneName => is_here,
            Tabs::Numbers => false,
        };
        let name = if is_named { screen.name() } else { "" };
        let (before, after) = if is_here { ("[", "]") } else { (" ", " ") };
        let style = if is_here {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            theme.dim()
        };
        let blank = if is_named { " " } else { "" };
        let from = end(&line);
        line.push_span(Span::styled(
            format!("{before}{number}{blank}{name}"),
            style,
        ));
        if how == Tabs::Badges {
            line.spans.extend(screen.badge(state));
        }
        line.push_span(Span::styled(after, style));
        places.push(from..end(&line));
    }
    (line, places)
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

/// Which store, and how old what is shown is: never an old number as a new one. The queue and its
/// marks stand at the end.
pub(super) fn status_line(state: &State, now: Instant, width: u16) -> Line<'static> {
    let theme = state.settings.theme;
    let width = usize::from(width);
    let narrow = width < 70;
    let mut right = Vec::new();
    let marks = marks(state, narrow);
    if let Some(queue) = &state.queue {
        let used: usize = marks.iter().map(Span::width).sum();
        let room = (width / 2).saturating_sub(used).clamp(4, 40);
        right.push(Span::raw(if narrow { " " } else { "  queue " }));
        right.push(Span::styled(safe(queue.as_str(), room), theme.accent()));
    }
    right.extend(marks);
    let right_width: usize = right.iter().map(Span::width).sum();
    let room = width.saturating_sub(right_width);
    let (text, style) = how_old(state, now, narrow);
    let mut left = vec![Span::styled(safe(&text, room), style)];
    let others = [stopping(state, now), state.snapshot.store.clone()];
    for (text, style) in others.into_iter().zip([theme.warn(), theme.dim()]) {
        let used: usize = left.iter().map(Span::width).sum();
        let room = room.saturating_sub(used + 2);
        if !text.is_empty() && room > 8 {
            left.push(Span::styled(format!("  {}", safe(&text, room)), style));
        }
    }
    let used: usize = left.iter().map(Span::width).sum();
    left.push(Span::raw(" ".repeat(room.saturating_sub(used))));
    left.extend(right);
    Line::from(left)
}

/// Whether the figures are new.
fn how_old(state: &State, now: Instant, narrow: bool) -> (String, Style) {
    let theme = state.settings.theme;
    let snapshot = &state.snapshot;
    let age = snapshot.read_at.map(|at| now.saturating_duration_since(at));
    match (&snapshot.outage, age) {
        (Some(error), Some(age)) if narrow => {
            (format!("! {} old: {error}", wait(age)), theme.bad())
        }
        (Some(error), Some(age)) => (
            format!("! figures are {} old: {error}", wait(age)),
            theme.bad(),
        ),
        (Some(error), None) => (format!("! {error}"), theme.bad()),
        (None, Some(age)) if state.is_stale(now) && narrow => {
            (format!("! {} old", wait(age)), theme.bad())
        }
        (None, Some(age)) if state.is_stale(now) => (
            format!("! the store has not answered for {}", wait(age)),
            theme.bad(),
        ),
        (None, Some(_)) => ("● live".to_owned(), theme.good()),
        (None, None) => ("reading…".to_owned(), theme.dim()),
    }
}

/// What is left to do before the host in this process ends, if it was told to.
fn stopping(state: &State, now: Instant) -> String {
    let host = state.snapshot.host.as_ref();
    let Some(host) = host.filter(|host| host.stage > Stage::Run) else {
        return String::new();
    };
    let left = host
        .drained_by
        .map_or(Duration::ZERO, |end| end.saturating_duration_since(now));
    format!(
        "stopping: {} in flight, {} left, {} stops them at once",
        state.snapshot.in_flight.len(),
        wait(left),
        state.key_of(Action::Quit)
    )
}
