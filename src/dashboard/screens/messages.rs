//! The messages of one state.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::list::{self, List};
use crate::control::Query;
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Effect, STATES, Screen, State};
use crate::message::State as MessageState;
use crate::text::short_number;

pub(super) const SCOPE: Scope = Scope::Screen(
    "Messages",
    &[
        Action::Open,
        Action::RunNow,
        Action::Cancel,
        Action::Mark,
        Action::MarkAll,
        Action::OpenFilter,
        Action::NextState,
        Action::PreviousState,
        Action::CopyId,
        Action::NextQueue,
    ],
);

/// The screen.
#[derive(Debug)]
pub struct Messages;

impl Screen for Messages {
    fn name(&self) -> &'static str {
        "Messages"
    }

    fn scope(&self, _: &State) -> Scope {
        SCOPE
    }

    fn query(&self, state: &State) -> Query {
        list::query(state, STATES[state.state], state.filter.clone())
    }

    fn act(&self, state: &mut State, action: Action) -> Option<Vec<Effect>> {
        let by = match action {
            Action::NextState => 1,
            Action::PreviousState => STATES.len() - 1,
            _ => return None,
        };
        state.state = (state.state + by) % STATES.len();
        state.first_page();
        Some(Vec::new())
    }

    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer) {
        let list = List {
            name: "Messages",
            listed: STATES[state.state],
            title: states(state),
        };
        list::draw(list, state, now, area, buffer);
    }
}

/// The states with their depths.
fn states(state: &State) -> Vec<Span<'static>> {
    let theme = state.settings.theme;
    let counts = state.queue_view().map(|view| view.overview.counts);
    let one = |(at, shown): (usize, MessageState)| {
        let depth = counts.map_or(0, |counts| match shown {
            MessageState::Pending => counts.pending,
            MessageState::Ready => counts.ready,
            MessageState::Unack => counts.unack,
            MessageState::Retry => counts.retry,
            _ => counts.dead,
        });
        let text = format!("{} {}", shown.as_str(), short_number(depth));
        if at == state.state {
            Span::styled(format!("[{text}]"), theme.accent())
        } else {
            Span::styled(format!(" {text} "), theme.dim())
        }
    };
    STATES.into_iter().enumerate().map(one).collect()
}
