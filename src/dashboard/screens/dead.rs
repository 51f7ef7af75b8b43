//! Dead letters: by reason, and those of one reason.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::list::{self, List, TIME, filter_span, still_searching};
use crate::control::{Bulk, Command, Query};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Effect, Reasons, Screen, State};
use crate::dashboard::widgets::{depth, frame, put, row, safe, until};
use crate::message::State as MessageState;
use crate::text::short_number;

pub(super) const GROUPS: Scope = Scope::Screen(
    "Dead letters by reason",
    &[
        Action::Open,
        Action::Redrive,
        Action::RedriveAll,
        Action::Delete,
        Action::DeleteAll,
        Action::OpenFilter,
        Action::NextQueue,
    ],
);

pub(super) const LETTERS: Scope = Scope::Screen(
    "Dead letters",
    &[
        Action::Open,
        Action::Redrive,
        Action::RedriveAll,
        Action::Edit,
        Action::Delete,
        Action::DeleteAll,
        Action::Mark,
        Action::MarkAll,
        Action::OpenFilter,
        Action::CopyId,
        Action::NextQueue,
    ],
);

/// The screen.
#[derive(Debug)]
pub(super) struct Dead;

impl Screen for Dead {
    fn name(&self) -> &'static str {
        "Dead"
    }

    fn badge(&self, state: &State) -> Option<Span<'static>> {
        let dead = state.queue_view()?.overview.counts.dead;
        let style = state.settings.theme.bad();
        (dead > 0).then(|| Span::styled(format!(" {}", short_number(dead)), style))
    }

    fn scope(&self, state: &State) -> Scope {
        match state.group {
            Some(_) => LETTERS,
            None => GROUPS,
        }
    }

    fn query(&self, state: &State) -> Query {
        let filter = state.filter.clone();
        match (&state.group, state.queue.clone()) {
            (Some(reasons), _) => list::query(state, MessageState::Dead, reasons.filter(&filter)),
            (None, Some(queue)) => Query::Groups { queue, filter },
            (None, None) => Query::Nothing,
        }
    }

    fn line_count(&self, state: &State) -> Option<usize> {
        if state.group.is_some() {
            return Some(state.records()?.0.len());
        }
        // The first line stands for all.
        Some(state.groups()?.0.len() + 1)
    }

    fn line_key<'s>(&self, state: &'s State, line: usize) -> Option<&'s str> {
        if state.group.is_some() {
            return Some(state.records()?.0.get(line)?.id.as_str());
        }
        Some(&state.groups()?.0.get(line.checked_sub(1)?)?.reason)
    }

    fn open(&self, state: &mut State) {
        if let Some((queue, id)) = self.current(state) {
            state.open(queue, id);
        } else if let Some(reasons) = selected(state) {
            state.group = Some(reasons);
            state.first_page();
        }
    }

    fn back(&self, state: &mut State) -> bool {
        state.group.take().is_some()
    }

    fn act(&self, state: &mut State, action: Action) -> Option<Vec<Effect>> {
        let is_by_reason = state.group.is_none();
        let all = || Some(state.group.clone().unwrap_or(Reasons::All));
        let (reasons, bulk) = match action {
            Action::Redrive if is_by_reason => (selected(state), Bulk::REDRIVE),
            Action::Delete if is_by_reason => (selected(state), Bulk::Delete),
            Action::RedriveAll => (all(), Bulk::REDRIVE),
            Action::DeleteAll => (all(), Bulk::Delete),
            _ => return None,
        };
        Some(choose(state, reasons, bulk))
    }

    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
        let reason = match &state.group {
            None => return groups(state, now, area, buffer),
            Some(Reasons::All) => "all dead letters",
            Some(Reasons::One(reason)) => reason,
        };
        let list = List {
            name: "Dead letters",
            listed: MessageState::Dead,
            title: vec![Span::styled(
                safe(reason, 60),
                state.settings.theme.accent(),
            )],
        };
        list::draw(list, state, now, area, buffer);
    }
}

/// The reason on the selected line.
fn selected(state: &State) -> Option<Reasons> {
    let (groups, _) = state.groups()?;
    let Some(line) = state.selected.checked_sub(1) else {
        return Some(Reasons::All);
    };
    Some(Reasons::One(groups.get(line)?.reason.clone()))
}

/// Asks for the dead letters with these reasons that match the filter; the question comes with their
/// number.
fn choose(state: &State, reasons: Option<Reasons>, bulk: Bulk) -> Vec<Effect> {
    let (Some(queue), Some(reasons)) = (state.queue.clone(), reasons) else {
        return Vec::new();
    };
    let filter = reasons.filter(&state.filter);
    vec![Effect::Command(Command::Choose(queue, filter, bulk))]
}

fn groups(state: &State, now: Instant, area: Rect, buffer: &mut Buffer) {
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
        Some((groups, searched)) => {
            let now_ms = state.snapshot.now_ms(now);
            let counts = groups.iter().map(|group| group.count);
            let total = counts.fold(0, u64::saturating_add);
            let rows = state.list_rows();
            // The selected line stays in sight.
            let first = state.selected.saturating_sub(rows - 1);
            state.note_rows(area, 2, first);
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
            lines.extend(still_searching(state, searched, MessageState::Dead));
        }
    }
    put(lines, area, buffer);
}
