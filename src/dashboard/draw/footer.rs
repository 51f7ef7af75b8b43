//! The lines below a screen: what became of the last command, and the keys.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use crate::control::{TaskView, UNDO_TIME};
use crate::dashboard::keymap::{Action, Binding};
use crate::dashboard::screens;
use crate::dashboard::state::State;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::{columns, fitted, gauge, safe};
use crate::message::State as MessageState;
use crate::text::short_number;

pub(super) fn notice_line(state: &State, now: Instant, width: u16) -> Line<'static> {
    let theme = state.settings.theme;
    let width = usize::from(width);
    if let Some((notice, at)) = &state.notice {
        let style = if notice.failed {
            theme.bad()
        } else {
            theme.good()
        };
        let mark = if notice.failed { "! " } else { "" };
        let age = now.saturating_duration_since(*at);
        let style = if age < Duration::from_secs(4) {
            style.add_modifier(Modifier::BOLD)
        } else {
            style
        };
        let left = UNDO_TIME.saturating_sub(age).as_secs();
        let undo = if notice.can_undo && left > 0 {
            format!("   {} undoes it ({left}s)", state.key_of(Action::Undo))
        } else {
            String::new()
        };
        let room = width.saturating_sub(columns(&undo));
        return Line::from(vec![
            Span::styled(safe(&format!("{mark}{}", notice.text), room), style),
            Span::styled(undo, theme.accent()),
        ]);
    }
    let task = state.snapshot.task.as_ref();
    let stop = state.key_of(Action::StopTask);
    task.map_or(Line::default(), |task| task_line(theme, task, &stop, width))
}

/// How far a task is, as a bar.
fn task_line(theme: Theme, task: &TaskView, stop: &str, width: usize) -> Line<'static> {
    const BAR: usize = 20;
    let mut text = format!("{}: {}", task.what, short_number(task.done));
    let ended = task.done.saturating_add(task.failed);
    let bar = task.total.map(|total| {
        let _ = write!(text, " of {}", short_number(total));
        gauge(ended, total, BAR)
    });
    if task.failed > 0 {
        let _ = write!(text, ", {} not", short_number(task.failed));
    }
    let _ = write!(text, "; {stop} stops it ");
    let bar = bar.filter(|_| columns(&text) + BAR <= width);
    fitted(
        Line::from(vec![
            Span::styled(text, theme.warn()),
            Span::styled(
                bar.unwrap_or_default(),
                theme.accent().remove_modifier(Modifier::BOLD),
            ),
        ]),
        width,
    )
}

/// The keys that matter here, as many as fit, the help and the way out among them.
pub(super) fn footer_line(state: &State, width: u16) -> Line<'static> {
    let theme = state.settings.theme;
    let shown = |binding: &&'static Binding| {
        let is_refused = binding.changes && state.settings.read_only;
        !binding.label.is_empty() && !is_refused && fits_message(state, binding.action)
    };
    let label = |binding: &&'static Binding| {
        let key = state.settings.keys.shown(binding);
        (key, format!(" {}  ", binding.label))
    };
    let length = |(key, label): &(String, String)| key.chars().count() + label.chars().count();
    let is_last =
        |binding: &&'static Binding| matches!(binding.action, Action::ShowHelp | Action::Quit);
    let (last, first): (Vec<_>, Vec<_>) = screens::in_scope(state.scope())
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
        Action::Redrive | Action::Try | Action::Edit | Action::Delete => is_dead,
        Action::RunNow | Action::Cancel => !is_dead,
        _ => true,
    }
}
