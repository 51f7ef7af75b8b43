//! From screen to screen, from line to line.

use crate::control::Filter;
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::state::{Modal, STATES, Screen, State, ZOOMS};

impl State {
    /// Shows a screen from its start.
    pub(super) fn show(&mut self, screen: Screen) {
        self.opened = None;
        self.group = None;
        self.screen = screen;
        self.first_page();
        if screen == Screen::Overview {
            self.selected = self.selected_queue();
        }
    }

    pub(super) fn zoom(&mut self, longer: bool) {
        self.zoom = if longer {
            (self.zoom + 1).min(ZOOMS.len() - 1)
        } else {
            self.zoom.saturating_sub(1)
        };
    }

    /// One step back: out of a help, a message, a reason, or to everything from a filter.
    pub(super) fn back(&mut self) {
        if self.modal.take().is_some() || self.opened.take().is_some() {
            return;
        }
        if !self.marks.is_empty() {
            self.marks.clear();
        } else if !self.filter.is_empty() {
            self.filter = Filter::default();
            self.first_page();
        } else if self.screen == Screen::Dead && self.group.take().is_some() {
            self.first_page();
        } else if self.is_frozen {
            self.is_frozen = false;
        } else {
            self.notice = None;
        }
    }

    pub(super) fn open_selected(&mut self) {
        match self.scope() {
            Scope::Overview => self.show(Screen::Messages),
            Scope::Groups => {
                if let Some(group) = self.selected_group() {
                    self.group = Some(group);
                    self.first_page();
                }
            }
            Scope::Messages | Scope::Letters | Scope::InFlight => {
                if let Some((queue, id)) = self.current() {
                    self.open(queue, id);
                }
            }
            _ => {}
        }
    }

    pub(super) fn turn(&mut self, by: usize) {
        let at = Screen::ALL
            .iter()
            .position(|screen| *screen == self.screen)
            .unwrap_or(0);
        self.show(Screen::ALL[(at + by) % Screen::ALL.len()]);
    }

    pub(super) fn list_state(&mut self, by: usize) {
        self.state = (self.state + by) % STATES.len();
        self.first_page();
    }

    pub(super) fn next_queue(&mut self) {
        let queues = &self.snapshot.queues;
        let at = queues
            .iter()
            .position(|view| Some(&view.name) == self.queue.as_ref());
        if let Some(next) = queues.get(at.map_or(0, |at| (at + 1) % queues.len())) {
            self.queue = Some(next.name.clone());
            self.group = None;
            self.first_page();
        }
    }

    /// Through lines, pages and texts.
    pub(super) fn navigate(&mut self, action: Action) {
        let page = self.list_rows();
        let scrolled = |scroll: usize| match action {
            Action::Up => scroll.saturating_sub(1),
            Action::Down => scroll + 1,
            Action::PageUp => scroll.saturating_sub(page),
            Action::PageDown => scroll + page,
            Action::Top => 0,
            _ => usize::MAX / 2,
        };
        if let Some(Modal::Help { scroll, .. }) = &mut self.modal {
            *scroll = scrolled(*scroll);
        } else if let Some(opened) = &mut self.opened {
            opened.scroll = scrolled(opened.scroll);
        } else if self.screen == Screen::Log {
            // The latest line is at the bottom, so up is further back.
            let oldest = usize::MAX / 2;
            self.offset = match action {
                Action::Up => self.offset + 1,
                Action::Down => self.offset.saturating_sub(1),
                Action::PageUp => self.offset + page,
                Action::PageDown => self.offset.saturating_sub(page),
                Action::Top => oldest,
                _ => 0,
            };
        } else {
            self.navigate_list(action, page);
        }
    }

    fn navigate_list(&mut self, action: Action, page: usize) {
        let last = self.line_count().unwrap_or(0).saturating_sub(1);
        let more = self.records().is_some_and(|(_, more, _)| more);
        match action {
            Action::Up if self.selected > 0 => self.selected -= 1,
            Action::Up if self.offset > 0 => {
                self.offset = self.offset.saturating_sub(page);
                self.selected = page - 1;
            }
            Action::Down if self.selected < last => self.selected += 1,
            Action::Down | Action::PageDown if more => {
                self.offset += page;
                self.selected = 0;
            }
            Action::PageUp if self.offset > 0 => self.offset = self.offset.saturating_sub(page),
            Action::PageUp => self.selected = self.selected.saturating_sub(page),
            Action::PageDown => self.selected = (self.selected + page).min(last),
            Action::Top => {
                self.selected = 0;
                self.offset = 0;
            }
            Action::Bottom => self.selected = last,
            _ => {}
        }
        if self.screen == Screen::Overview
            && let Some(view) = self.snapshot.queues.get(self.selected)
        {
            self.queue = Some(view.name.clone());
        }
    }
}
