//! What a screen is.

use std::fmt;
use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::{Effect, State};
use crate::control::Query;
use crate::dashboard::keymap::{Action, Scope};
use crate::message::{MessageId, QueueName};

/// A screen of the dashboard. One file holds all of it; [`screens`](crate::dashboard::screens) lists them.
pub trait Screen: fmt::Debug + Sync {
    /// What its tab says.
    fn name(&self) -> &'static str;

    /// What its tab tells before it is opened.
    fn badge(&self, _state: &State) -> Option<Span<'static>> {
        None
    }

    /// False if it is the same place whichever queue is selected.
    fn is_of_one_queue(&self) -> bool {
        true
    }

    /// The keys that work on it.
    fn scope(&self, state: &State) -> Scope;

    /// What it wants to see of the store.
    fn query(&self, _state: &State) -> Query {
        Query::Nothing
    }

    /// How many lines can be selected; none while they are not known. Here and below: those of a list of
    /// messages, if the screen has asked for one.
    fn line_count(&self, state: &State) -> Option<usize> {
        Some(state.records()?.0.len())
    }

    /// Rows above its list.
    fn rows_above(&self, _state: &State) -> usize {
        0
    }

    /// What a line is about, to find it again when lines move.
    fn line_key<'s>(&self, state: &'s State, line: usize) -> Option<&'s str> {
        Some(state.records()?.0.get(line)?.id.as_str())
    }

    /// The message on the selected line.
    fn current(&self, state: &State) -> Option<(QueueName, MessageId)> {
        Some((state.queue.clone()?, state.selected_record()?.id.clone()))
    }

    /// Opens what is selected.
    fn open(&self, state: &mut State) {
        if let Some((queue, id)) = self.current(state) {
            state.open(queue, id);
        }
    }

    /// Goes one step back within the screen; false at its start.
    fn back(&self, _state: &mut State) -> bool {
        false
    }

    /// Goes through its lines.
    fn navigate(&self, state: &mut State, action: Action) {
        state.navigate_list(action, self.line_count(state).unwrap_or(0));
    }

    /// Selects a line.
    fn select(&self, state: &mut State, line: usize) {
        state.selected = line;
    }

    /// Takes note that the screen was opened, or that things stand differently.
    fn refresh(&self, _state: &mut State) {}

    /// Does what this screen alone can do or does in its own way; none for anything else.
    fn act(&self, _state: &mut State, _action: Action) -> Option<Vec<Effect>> {
        None
    }

    /// True when it shows lines of the log.
    fn shows_log(&self) -> bool {
        false
    }

    /// Draws it.
    fn draw(&self, state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer);
}
