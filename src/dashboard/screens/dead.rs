//! Dead letters: by reason, and those of one reason.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::list::{self, List};
use crate::control::{Bulk, Command, Group, Letters, Query};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Effect, Reasons, Screen, State};
use crate::dashboard::widgets::safe;
use crate::message::{MessageId, QueueName, State as MessageState};
use crate::text::short_number;

mod groups;
mod trial;

pub(super) use trial::SCOPE as TRIAL;

pub(super) const GROUPS: Scope = Scope::Screen(
    "Dead letters by reason",
    &[
        Action::Open,
        Action::Redrive,
        Action::RedriveAll,
        Action::Try,
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
        Action::Try,
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
pub struct Dead;

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
            _ if state.open_trial.is_some() => TRIAL,
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
        if state.open_trial.is_some() {
            return Some(state.trial().map_or(0, |trial| trial.tried.len()));
        }
        if state.group.is_some() {
            return Some(state.records()?.0.len());
        }
        // The first line stands for all.
        Some(state.groups()?.0.len() + 1)
    }

    fn line_key<'s>(&self, state: &'s State, line: usize) -> Option<&'s str> {
        if state.open_trial.is_some() {
            return Some(state.trial()?.tried.get(line)?.id.as_str());
        }
        if state.group.is_some() {
            return Some(state.records()?.0.get(line)?.id.as_str());
        }
        Some(&state.groups()?.0.get(line.checked_sub(1)?)?.reason)
    }

    fn current(&self, state: &State) -> Option<(QueueName, MessageId)> {
        if state.open_trial.is_some() {
            let trial = state.trial()?;
            let one = trial.tried.get(state.selected)?;
            return Some((trial.queue.clone(), one.id.clone()));
        }
        Some((state.queue.clone()?, state.selected_record()?.id.clone()))
    }

    fn open(&self, state: &mut State) {
        if let Some((queue, id)) = self.current(state) {
            state.open(queue, id);
        } else if let Some((queue, id)) = only_match(state) {
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
        if state.open_trial.is_some() {
            return trial::act(state, action);
        }
        let is_by_reason = state.group.is_none();
        let all = || Some(state.group.clone().unwrap_or(Reasons::All));
        let (reasons, bulk) = match action {
            Action::Redrive if is_by_reason => (selected(state), Bulk::REDRIVE),
            Action::Delete if is_by_reason => (selected(state), Bulk::Delete),
            Action::RedriveAll => (all(), Bulk::REDRIVE),
            Action::DeleteAll => (all(), Bulk::Delete),
            Action::Try if is_by_reason => {
                let chosen = selected(state).zip(state.queue.clone());
                if let Some((reasons, queue)) = chosen {
                    let letters = Letters::Matching(reasons.filter(&state.filter));
                    state.ask_for_handler(queue, letters);
                }
                return Some(Vec::new());
            }
            _ => return None,
        };
        Some(choose(state, reasons, bulk))
    }

    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
        let reason = match &state.group {
            _ if state.open_trial.is_some() => return trial::draw(state, now, area, buffer),
            None => return groups::draw(state, now, area, buffer),
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

/// The dead letter that a search has found, if it is the only one.
fn only_match(state: &State) -> Option<(QueueName, MessageId)> {
    let (groups, _) = state.groups()?;
    let [
        Group {
            count: 1, example, ..
        },
    ] = groups
    else {
        return None;
    };
    let example = example.as_ref().filter(|_| !state.filter.is_empty())?;
    Some((state.queue.clone()?, example.id.clone()))
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
