//! What each action of the table does.

use std::time::Instant;

use super::Effect;
use crate::control::{Bulk, Command, Letters, UNDO_MAX};
use crate::dashboard::keymap::Action;
use crate::dashboard::prompt::{Kind, Prompt, text_area};
use crate::dashboard::screens::{SettingsScreen, TABS, in_flight};
use crate::dashboard::state::{Modal, Question, State};
use crate::message::{Due, MessageId, QueueName, State as MessageState};
use crate::text::printable;

/// Bytes that are put into a clipboard at most: some terminals take no more in one piece.
const COPIED_MAX: usize = 50_000;

impl State {
    pub(super) fn act(&mut self, action: Action, now: Instant) -> Vec<Effect> {
        if let Some(effects) = self.shown().act(self, action) {
            return effects;
        }
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
            Action::FindQueue => {
                let mut prompt = Prompt::new(Kind::Queue, "");
                prompt.queue_before.clone_from(&self.queue);
                self.prompt = Some(prompt);
            }
            Action::Back => self.back(),
            Action::Open => self.shown().open(self),
            Action::Up
            | Action::Down
            | Action::PageUp
            | Action::PageDown
            | Action::Top
            | Action::Bottom => {
                self.navigate(action);
            }
            Action::PlaceBefore | Action::PlaceAfter => {
                if !self.go_to_place(action == Action::PlaceBefore) {
                    self.say("there is no other place this way", false, now);
                }
            }
            Action::NextScreen => self.turn(1),
            Action::PreviousScreen => self.turn(TABS.len() - 1),
            Action::ShowSettings => self.show(&SettingsScreen),
            Action::Screen(number) => self.show(TABS[usize::from(number) - 1]),
            Action::NextQueue => self.next_queue(),
            Action::Cause => self.show_cause(now),
            Action::Freeze => self.is_frozen = !self.is_frozen,
            Action::Mark | Action::MarkAll => self.mark(action == Action::MarkAll),
            Action::CopyId => return self.copy_id(now),
            Action::CopyPayload => return self.copy_payload(now),
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
                } else {
                    self.say(in_flight::nothing_to_stop(self), false, now);
                }
            }
            Action::Undo => return vec![Effect::Command(Command::Undo)],
            Action::StopTask => return vec![Effect::Command(Command::StopTask)],
            Action::Edit => self.edit_payload(now),
            Action::Try => {
                if let Some((queue, ids)) = self.chosen() {
                    self.ask_for_handler(queue, Letters::Named(ids));
                }
            }
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
                let bulk = match action {
                    Action::Delete => Bulk::Delete,
                    _ => Bulk::REDRIVE,
                };
                if let Some((queue, ids)) = self.chosen() {
                    self.confirm_bulk(queue, ids, bulk);
                }
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
            format!("{} undoes it for some seconds.", self.key_of(Action::Undo))
        } else {
            "That cannot be undone.".to_owned()
        };
        let question = format!("Cancel {what}? {after}");
        self.confirm(question, Command::Cancel(queue, ids));
    }

    fn confirm_kill(&mut self, queue: QueueName, ids: Vec<MessageId>) {
        let what = this_or(&ids, "messages");
        let question = format!("Cancel {what}, and stop what runs? That cannot be undone.");
        self.confirm(question, Command::Kill(queue, ids));
    }

    fn confirm_bulk(&mut self, queue: QueueName, ids: Vec<MessageId>, bulk: Bulk) {
        let what = this_or(&ids, "dead letters");
        let question = match bulk {
            Bulk::Redrive { .. } => format!("Put {what} back into {queue}, as new messages?"),
            Bulk::Delete => format!("Delete {what} of {queue}? That cannot be undone."),
        };
        self.confirm(question, Command::Bulk(queue, ids, bulk));
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
            Command::Kill(queue, ids) => {
                self.confirm_kill(queue, ids);
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
                let key = self.key_of(Action::Edit);
                self.say(format!("press {key} again to edit it"), false, now);
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
        let id = printable(id.as_str()).into_owned();
        self.say(format!("copied {id}"), false, now);
        vec![Effect::Copy(id)]
    }

    /// Of control characters only line ends get into the clipboard.
    fn copy_payload(&mut self, now: Instant) -> Vec<Effect> {
        let opened = self.opened.as_ref();
        let record = opened.and_then(|opened| opened.record.as_deref());
        let Some(payload) = record.and_then(|record| record.payload.as_deref()) else {
            return Vec::new();
        };
        let text = match std::str::from_utf8(payload) {
            Ok(text) if payload.len() <= COPIED_MAX => text,
            Ok(_) => {
                let text = format!("more than the {COPIED_MAX} bytes that a terminal takes");
                self.say(text, true, now);
                return Vec::new();
            }
            Err(_) => {
                self.say(
                    "it is not text: `dqhost get` writes it to a file",
                    true,
                    now,
                );
                return Vec::new();
            }
        };
        let lines = text
            .lines()
            .map(|line| printable(&line.replace('\t', "    ")).into_owned());
        let lines: Vec<String> = lines.collect();
        self.say(format!("copied {} bytes", payload.len()), false, now);
        vec![Effect::Copy(lines.join("\n"))]
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

/// `this message`, or how many of what.
fn this_or(ids: &[MessageId], what: &str) -> String {
    match ids {
        [id] => printable(id.as_str()).into_owned(),
        ids => format!("{} {what}", ids.len()),
    }
}
