//! From screen to screen, from line to line.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use crate::control::Filter;
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::screens::TABS;
use crate::dashboard::state::{Modal, State, scrolled};

impl State {
    /// One step back: out of a help, a message, a reason, or to everything from a filter.
    pub(super) fn back(&mut self) {
        if self.modal.take().is_some() || self.opened.take().is_some() {
            return;
        }
        if self.open_trial.take().is_some() {
            self.first_page();
        } else if !self.marks.is_empty() {
            self.marks.clear();
        } else if !self.filter.is_empty() {
            self.filter = Filter::default();
            self.first_page();
        } else if self.screen.back(self) {
            self.first_page();
        } else if self.is_frozen {
            self.is_frozen = false;
        } else {
            self.notice = None;
        }
    }

    /// Shows the tab that is so many further.
    pub(super) fn turn(&mut self, by: usize) {
        let name = self.screen.name();
        let at = TABS.iter().position(|screen| screen.name() == name);
        self.show(TABS[(at.unwrap_or(0) + by) % TABS.len()]);
    }

    pub(super) fn next_queue(&mut self) {
        let queues = &self.snapshot.queues;
        let at = queues
            .iter()
            .position(|view| Some(&view.name) == self.queue.as_ref());
        if let Some(next) = queues.get(at.map_or(0, |at| (at + 1) % queues.len())) {
            self.queue = Some(next.name.clone());
            self.group = None;
            self.open_trial = None;
            self.first_page();
        }
    }

    /// The wheel goes through lines. A click shows a tab or selects a line, and opens the selected one.
    pub(super) fn on_mouse(&mut self, event: MouseEvent) {
        let scope = self.scope();
        let is_screen = matches!(scope, Scope::Screen(..));
        match event.kind {
            MouseEventKind::ScrollUp if is_screen || scope == Scope::Help => {
                self.navigate(Action::Up);
            }
            MouseEventKind::ScrollDown if is_screen || scope == Scope::Help => {
                self.navigate(Action::Down);
            }
            MouseEventKind::Down(MouseButton::Left) if is_screen => {
                self.click(event.column, event.row);
            }
            _ => {}
        }
    }

    fn click(&mut self, column: u16, row: u16) {
        let tab = self
            .tabs
            .iter()
            .position(|columns| columns.contains(&column));
        if let Some(tab) = tab.filter(|_| row == 0) {
            return self.show(TABS[tab]);
        }
        let at = Position { x: column, y: row };
        let Some((rows, first)) = self.rows.get().filter(|(rows, _)| rows.contains(at)) else {
            return;
        };
        let line = first + usize::from(row - rows.y);
        if self.opened.is_some() || line >= self.line_count().unwrap_or(0) {
            return;
        }
        if line == self.selected {
            self.screen.open(self);
        } else {
            self.screen.select(self, line);
        }
    }

    /// Through lines, pages and texts.
    pub(super) fn navigate(&mut self, action: Action) {
        let page = self.list_rows();
        if let Some(Modal::Help { scroll, .. }) = &mut self.modal {
            *scroll = scrolled(*scroll, action, page);
        } else {
            self.shown().navigate(self, action);
        }
    }
}
