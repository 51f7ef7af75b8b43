//! What each action of the table does.

use std::time::Instant;

use super::super::keymap::{Action, Scope};
use super::super::prompt::{Kind, text_area};
use super::super::state::{Modal, PayloadView, Reasons, STATES, Screen, State};
use super::Effect;
use crate::control::{Command, Filter, GROUPED_MAX, Which};
use crate::message::{Due, MessageId, QueueName, State as MessageState};
use crate::text::{printable, short_number};

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
                let text = self.filter.text().to_owned();
                self.prompt(Kind::Filter, &text);
            }
            Action::Back => self.back(),
            Action::Open => self.open_selected(),
            Action::Up
            | Action::Down
            | Action::PageUp
            | Action::PageDown
            | Action::Top
            | Action::Bottom => {
                self.travel(action);
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
                    self.modal = Some(Modal::Confirm {
                        question: format!(
                            "Stop the handler of {}? Its attempt counts as failed.",
                            printable(id.as_str())
                        ),
                        then: Command::StopHandler(queue, id),
                    });
                }
            }
            Action::Edit => self.edit_payload(now),
            Action::RunNow => {
                let chosen = self.chosen();
                return chosen.map_or(Vec::new(), |(queue, ids)| {
                    vec![Effect::Command(Command::Reschedule(queue, ids, Due::NOW))]
                });
            }
            Action::Cancel => {
                if let Some((queue, ids)) = self.chosen() {
                    self.confirm(
                        format!(
                            "Cancel {}? That cannot be undone.",
                            this_or(&ids, "messages")
                        ),
                        Command::Cancel(queue, ids),
                    );
                }
            }
            Action::Redrive | Action::Delete => {
                if let Some((queue, which, what)) = self.chosen_dead() {
                    self.confirm_dead(action == Action::Delete, queue, which, &what);
                }
            }
            Action::RedriveAll | Action::DeleteAll => {
                if let Some((queue, which, what)) = self.all_dead() {
                    self.confirm_dead(action == Action::DeleteAll, queue, which, &what);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn confirm(&mut self, question: String, then: Command) {
        self.modal = Some(Modal::Confirm { question, then });
    }

    fn confirm_dead(&mut self, delete: bool, queue: QueueName, which: Which, what: &str) {
        if delete {
            self.confirm(
                format!("Delete {what}? That cannot be undone."),
                Command::Delete(queue, which),
            );
        } else {
            self.confirm(
                format!("Put {what} back into {queue}, each as a new message?"),
                Command::Redrive {
                    queue,
                    which,
                    retries: None,
                    rate: None,
                },
            );
        }
    }

    /// A typed command that is about many dead letters is asked about like a key.
    pub(super) fn ask_if_many(&mut self, command: Command) -> Vec<Effect> {
        let (delete, queue, which) = match &command {
            Command::Redrive { queue, which, .. } => (false, queue, which),
            Command::Delete(queue, which) => (true, queue, which),
            _ => return vec![Effect::Command(command)],
        };
        let what = match which {
            Which::Ids(ids) if ids.len() == 1 && !delete => return vec![Effect::Command(command)],
            Which::Ids(ids) => this_or(ids, "dead letters"),
            Which::Matching(filter) => {
                let view = self.snapshot.queues.iter().find(|view| view.name == *queue);
                let dead = view.map_or(0, |view| view.overview.counts.dead);
                match filter.text() {
                    "" => format!("all {} dead letters", short_number(dead)),
                    text => format!(
                        "those of {} dead letters that match {text:?}",
                        short_number(dead)
                    ),
                }
            }
        };
        let question = if delete {
            format!("Delete {what}? That cannot be undone.")
        } else {
            format!("Put {what} back into {queue}, each as a new message?")
        };
        self.confirm(question, command);
        Vec::new()
    }

    /// The marked messages, else the current one.
    fn chosen(&self) -> Option<(QueueName, Vec<MessageId>)> {
        if self.opened.is_none() && !self.marks.is_empty() {
            return Some((self.queue.clone()?, self.marks.iter().cloned().collect()));
        }
        self.current().map(|(queue, id)| (queue, vec![id]))
    }

    /// Dead letters: the marked ones, those of the selected reason, or the current one.
    fn chosen_dead(&self) -> Option<(QueueName, Which, String)> {
        if self.scope() != Scope::Groups {
            let (queue, ids) = self.chosen()?;
            let what = this_or(&ids, "dead letters");
            return Some((queue, Which::Ids(ids), what));
        }
        let Reasons::One(group) = self.selected_group()? else {
            return self.all_dead();
        };
        let (groups, cut) = self.groups()?;
        let count = groups.iter().find(|known| known.reason == group)?.count;
        let count = short_number(count);
        let what = if cut {
            format!("all dead letters with this reason, {count} of the latest {GROUPED_MAX},")
        } else {
            format!("the {count} dead letters with this reason")
        };
        let filter = self.filter.clone().in_group(Some(group));
        Some((self.queue.clone()?, Which::Matching(filter), what))
    }

    /// All dead letters that are shown, with their number as far as it is known.
    fn all_dead(&self) -> Option<(QueueName, Which, String)> {
        let filter: Filter = match &self.group {
            Some(reasons) => reasons.filter(&self.filter),
            None => self.filter.clone(),
        };
        let what = if filter.is_empty() {
            let dead = self.queue_view()?.overview.counts.dead;
            format!("all {} dead letters", short_number(dead))
        } else if let Some((groups, cut)) = self.groups() {
            let count: u64 = groups.iter().map(|group| group.count).sum();
            let at_least = if cut { "at least " } else { "" };
            format!("{at_least}{} matching dead letters", short_number(count))
        } else {
            let (records, more, _) = self.records()?;
            let at_least = if more { "more than " } else { "" };
            format!(
                "{at_least}{} matching dead letters",
                self.offset + records.len()
            )
        };
        Some((self.queue.clone()?, Which::Matching(filter), what))
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
        let command = Command::Pause(view.name.clone(), !view.overview.paused);
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
        if !all && self.selected + 1 < self.line_count() {
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
