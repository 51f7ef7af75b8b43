//! What each action of the table does.

use std::time::Instant;

use super::Effect;
use crate::control::{Bulk, Command, UNDO_MAX};
use crate::dashboard::keymap::{Action, Scope};
use crate::dashboard::prompt::{Kind, Prompt, text_area};
use crate::dashboard::state::{Modal, PayloadView, Question, Reasons, STATES, Screen, State};
use crate::message::{Due, MessageId, QueueName, State as MessageState};
use crate::text::printable;

impl State {
    pub(super) fn act(&mut self, action: Action, now: Instant) -> Vec<Effect> {
        match action {
            Action::Quit => return self.quit(),
            Action::QuitAtOnce => return self.quit_at_once(),
            Action::Suspend => return vec![Effect::Suspend],
            Action::Redraw => return vec![Effect::Redraw],
            Action::ShowHelp => {
                self.modal = Some(Modal::Help {
                    of: self.scope(),
                    scroll: 0,
                });
            }
            Action::OpenPrompt => self.prompt(Kind::Command, ""),
            Action::OpenSend => self.prompt(Kind::Command, "send "),
            Action::OpenFilter => {
                self.prompt = Some(Prompt::new(Kind::Filter, self.filter.text()).selected());
            }
            Action::Back => self.back(),
            Action::Open => self.open_selected(),
            Action::Up
            | Action::Down
            | Action::PageUp
            | Action::PageDown
            | Action::Top
            | Action::Bottom => {
                self.navigate(action);
            }
            Action::NextScreen => self.turn(1),
            Action::PreviousScreen => self.turn(Screen::ALL.len() - 1),
            Action::Screen(number) => self.show(Screen::ALL[usize::from(number) - 1]),
            Action::NextState => self.list_state(1),
            Action::PreviousState => self.list_state(STATES.len() - 1),
            Action::NextQueue => self.next_queue(),
            Action::Freeze => self.is_frozen = !self.is_frozen,
            Action::ZoomIn => self.zoom(false),
            Action::ZoomOut => self.zoom(true),
            Action::PayloadView => self.turn_payload(),
            Action::GuestsOnly => {
                self.guests_only = !self.guests_only;
                self.offset = 0;
            }
            Action::Mark | Action::MarkAll => self.mark(action == Action::MarkAll),
            Action::CopyId => return self.copy_id(now),
            _ => return self.act_on_messages(action, now),
        }
        Vec::new()
    }

    fn act_on_messages(&mut self, action: Action, now: Instant) -> Vec<Effect> {
        match action {
            Action::Pause => return self.pause(),
            Action::StopHandler => {
                if let Some((queue, id)) = self.current() {
                    self.confirm(
                        format!(
                            "Stop the handler of {}? Its attempt counts as failed.",
                            printable(id.as_str())
                        ),
                        Command::StopHandler(queue, id),
                    );
                }
            }
            Action::Undo => return vec![Effect::Command(Command::Undo)],
            Action::StopTask => return vec![Effect::Command(Command::StopTask)],
            Action::Edit => self.edit_payload(now),
            Action::RunNow => {
                let chosen = self.chosen();
                return chosen.map_or(Vec::new(), |(queue, ids)| {
                    vec![Effect::Command(Command::Reschedule(queue, ids, Due::NOW))]
                });
            }
            Action::Cancel => {
                if let Some((queue, ids)) = self.chosen() {
                    self.confirm_cancel(queue, ids);
                }
            }
            Action::Redrive | Action::Delete => {
                let bulk = bulk_of(action == Action::Delete);
                if self.scope() == Scope::Groups {
                    return self.choose(self.selected_group(), bulk);
                }
                if let Some((queue, ids)) = self.chosen() {
                    self.confirm_bulk(queue, ids, bulk);
                }
            }
            Action::RedriveAll | Action::DeleteAll => {
                let shown = self.group.clone().unwrap_or(Reasons::All);
                return self.choose(Some(shown), bulk_of(action == Action::DeleteAll));
            }
            _ => {}
        }
        Vec::new()
    }

    pub(super) fn confirm(&mut self, question: String, then: Command) {
        self.modal = Some(Modal::Confirm(Question::new(question, then)));
    }

    fn confirm_cancel(&mut self, queue: QueueName, ids: Vec<MessageId>) {
        let what = this_or(&ids, "messages");
        let after = if ids.len() <= UNDO_MAX {
            "u undoes it for some seconds."
        } else {
            "That cannot be undone."
        };
        let question = format!("Cancel {what}? {after}");
        self.confirm(question, Command::Cancel(queue, ids));
    }

    fn confirm_bulk(&mut self, queue: QueueName, ids: Vec<MessageId>, bulk: Bulk) {
        let what = this_or(&ids, "dead letters");
        let question = match bulk {
            Bulk::Redrive { .. } => format!("Put {what} back into {queue}, as new messages?"),
            Bulk::Delete => format!("Delete {what} of {queue}? That cannot be undone."),
        };
        self.confirm(question, Command::Bulk(queue, ids, bulk));
    }

    /// Asks for the dead letters with these reasons that match the filter; the question comes with
    /// their number.
    fn choose(&self, reasons: Option<Reasons>, bulk: Bulk) -> Vec<Effect> {
        let (Some(queue), Some(reasons)) = (self.queue.clone(), reasons) else {
            return Vec::new();
        };
        let filter = reasons.filter(&self.filter);
        vec![Effect::Command(Command::Choose(queue, filter, bulk))]
    }

    /// A typed command that is about several messages, or destroys some, is asked about like a key.
    pub(super) fn ask_if_many(&mut self, command: Command) -> Vec<Effect> {
        match command {
            Command::Bulk(queue, ids, bulk) if ids.len() > 1 || bulk == Bulk::Delete => {
                self.confirm_bulk(queue, ids, bulk);
                Vec::new()
            }
            Command::Cancel(queue, ids) => {
                self.confirm_cancel(queue, ids);
                Vec::new()
            }
            command => vec![Effect::Command(command)],
        }
    }

    /// The marked messages, else the current one.
    pub(super) fn chosen(&self) -> Option<(QueueName, Vec<MessageId>)> {
        if self.opened.is_none() && !self.marks.is_empty() {
            return Some((self.queue.clone()?, self.marks.iter().cloned().collect()));
        }
        self.current().map(|(queue, id)| (queue, vec![id]))
    }

    /// The reason on the selected line.
    pub(super) fn selected_group(&self) -> Option<Reasons> {
        let (groups, _) = self.groups()?;
        match self.selected {
            0 => Some(Reasons::All),
            line => groups
                .get(line - 1)
                .map(|group| Reasons::One(group.reason.clone())),
        }
    }

    fn pause(&mut self) -> Vec<Effect> {
        let Some(view) = self.queue_view() else {
            return Vec::new();
        };
        // It is on the screen, so it is there, or a host serves it.
        let command = Command::Pause {
            queue: view.name.clone(),
            paused: !view.overview.paused,
            create: true,
        };
        vec![Effect::Command(command)]
    }

    fn edit_payload(&mut self, now: Instant) {
        let record = match &self.opened {
            Some(opened) => opened.record.as_deref(),
            None => self.selected_record(),
        };
        let Some(record) = record else { return };
        // A list has only the beginning of a payload; the whole is there once it is open.
        if self.opened.is_none() {
            if let Some((queue, id)) = self.current() {
                self.open(queue, id);
                self.say("press e again to edit it", false, now);
            }
            return;
        }
        if record.state != MessageState::Dead {
            self.say("only dead letters can be edited", true, now);
            return;
        }
        let text = match record.payload.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => text.to_owned(),
            None => String::new(),
            Some(Err(_)) => {
                self.say(
                    "it is not text: give it as a file, with `dead redrive ID --payload @FILE`",
                    true,
                    now,
                );
                return;
            }
        };
        let id = record.id.clone();
        if let Some(opened) = &self.opened {
            self.modal = Some(Modal::Editor {
                queue: opened.queue.clone(),
                id,
                area: Box::new(text_area(&text)),
                is_leaving: false,
                before: text,
            });
        }
    }

    fn copy_id(&mut self, now: Instant) -> Vec<Effect> {
        let Some((_, id)) = self.current() else {
            return Vec::new();
        };
        self.say(format!("copied {}", printable(id.as_str())), false, now);
        vec![Effect::Copy(id.as_str().to_owned())]
    }

    fn turn_payload(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.scroll = 0;
            opened.view = match opened.view {
                PayloadView::Json => PayloadView::Text,
                PayloadView::Text => PayloadView::Hex,
                PayloadView::Hex => PayloadView::Json,
            };
        }
    }

    fn mark(&mut self, all: bool) {
        let Some((records, ..)) = self.records() else {
            return;
        };
        let ids: Vec<MessageId> = if all {
            records.iter().map(|record| record.id.clone()).collect()
        } else {
            records
                .get(self.selected)
                .map(|record| record.id.clone())
                .into_iter()
                .collect()
        };
        if ids.iter().all(|id| self.marks.contains(id)) {
            for id in &ids {
                self.marks.remove(id);
            }
        } else {
            self.marks.extend(ids);
        }
        if !all && self.selected + 1 < self.line_count().unwrap_or(0) {
            self.selected += 1;
        }
    }
}

fn bulk_of(delete: bool) -> Bulk {
    if delete {
        Bulk::Delete
    } else {
        Bulk::Redrive {
            retries: None,
            rate: None,
        }
    }
}

/// `this message`, or how many of what.
fn this_or(ids: &[MessageId], what: &str) -> String {
    match ids {
        [id] => printable(id.as_str()).into_owned(),
        ids => format!("{} {what}", ids.len()),
    }
}
