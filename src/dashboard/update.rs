//! What each event does to the screen's state, and what it asks of others. Pure: no terminal, no
//! store.

use std::sync::Arc;
use std::time::Instant;

use crossterm::event::KeyEvent;

use super::keymap::{self, Action, Key, Scope};
use super::prompt::{Grammar, Kind, Prompt, edit};
use super::state::{Modal, NOTICE_TIME, Opened, PayloadView, Screen, State};
use crate::control::{Command, Line, Notice, Seen, Snapshot, Stage};
use crate::message::{MessageId, QueueName};

mod act;
mod travel;

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// The terminal has another size: columns and rows.
    Resize(u16, u16),
    /// Things stand differently.
    Snapshot(Arc<Snapshot>),
    /// A command was done, or not.
    Notice(Notice),
    /// Time has passed.
    Tick,
}

/// What an event asks of others.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do this.
    Command(Command),
    /// Put this into the clipboard.
    Copy(String),
    /// Keep this line for later runs.
    Remember(String),
    /// Stop the process until the shell lets it go on.
    Suspend,
    /// Draw everything again.
    Redraw,
    /// Close the dashboard.
    Leave,
}

impl State {
    /// Takes an event in.
    pub fn update(&mut self, event: Event, grammar: &dyn Grammar, now: Instant) -> Vec<Effect> {
        let mut effects = match event {
            Event::Key(key) => self.on_key(key, grammar, now),
            Event::Paste(text) => {
                self.on_paste(&text);
                Vec::new()
            }
            Event::Resize(columns, rows) => {
                self.size = (columns, rows);
                Vec::new()
            }
            Event::Snapshot(snapshot) => {
                self.on_snapshot(snapshot);
                Vec::new()
            }
            Event::Notice(notice) => {
                self.on_notice(notice, now);
                Vec::new()
            }
            Event::Tick => Vec::new(),
        };
        if self
            .notice
            .as_ref()
            .is_some_and(|(_, at)| now.saturating_duration_since(*at) > NOTICE_TIME)
        {
            self.notice = None;
        }
        let wanted = self.wanted_look();
        if wanted != self.look {
            self.look = wanted.clone();
            effects.push(Effect::Command(Command::Look(wanted)));
        }
        effects
    }

    /// Says something on the line below.
    pub(super) fn say(&mut self, text: impl Into<String>, failed: bool, now: Instant) {
        self.notice = Some((
            Notice {
                text: text.into(),
                failed,
                made: None,
            },
            now,
        ));
    }

    fn on_notice(&mut self, notice: Notice, now: Instant) {
        if let Some((queue, id)) = notice.made.clone() {
            self.open(queue, id);
        }
        self.marks.clear();
        self.notice = Some((notice, now));
    }

    fn on_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        if let Some(at) = snapshot.read_at {
            for queue in &snapshot.queues {
                let rates = self.rates.entry(queue.name.clone()).or_default();
                rates.note(at, queue.overview.counts.totals);
            }
        }
        let selected = self.selected_key();
        if self.is_frozen {
            // What is opened now was not there to be held still.
            if self.snapshot.seen.look() != &self.look {
                Arc::make_mut(&mut self.snapshot).seen = snapshot.seen.clone();
            }
        } else {
            self.snapshot = snapshot;
        }
        // The line under a finger stays the same one, wherever it has moved.
        if let Some(key) = selected {
            self.select_key(&key);
        }
        let known = |name: &QueueName| self.snapshot.queues.iter().any(|queue| queue.name == *name);
        if !self.queue.as_ref().is_some_and(known) {
            self.queue = self.snapshot.queues.first().map(|queue| queue.name.clone());
        }
        if self.screen == Screen::Overview {
            let at = |queue: &crate::control::QueueView| Some(&queue.name) == self.queue.as_ref();
            self.selected = self.snapshot.queues.iter().position(at).unwrap_or(0);
        }
        if let (Some(opened), Seen::Message { look, record }) =
            (&mut self.opened, &self.snapshot.seen)
            && *look == self.look
        {
            opened.is_gone = record.is_none();
            if let Some(record) = record {
                opened.record = Some(Arc::clone(record));
            }
        }
        self.selected = self.selected.min(self.line_count().saturating_sub(1));
        // What was on this page has gone: one page back.
        if self
            .records()
            .is_some_and(|(records, ..)| records.is_empty())
            && self.offset > 0
        {
            self.offset = self.offset.saturating_sub(self.list_rows());
        }
    }

    fn on_paste(&mut self, text: &str) {
        if let Some(prompt) = &mut self.prompt {
            prompt.paste(text);
        } else if let Some(Modal::Editor { area, .. }) = &mut self.modal {
            area.insert_str(text.replace("\r\n", "\n").replace('\r', "\n"));
        }
    }

    fn on_key(&mut self, event: KeyEvent, grammar: &dyn Grammar, now: Instant) -> Vec<Effect> {
        let scope = self.scope();
        let binding = Key::of(event).and_then(|key| keymap::find(scope, key));
        let Some(binding) = binding else {
            if let Some(prompt) = &mut self.prompt {
                prompt.input(event);
            } else if let Some(Modal::Editor {
                area, is_leaving, ..
            }) = &mut self.modal
            {
                *is_leaving = false;
                edit(area, event);
            }
            return Vec::new();
        };
        if binding.changes && self.settings.read_only {
            self.say(
                "nothing is changed: the dashboard was started with --read-only",
                true,
                now,
            );
            return Vec::new();
        }
        match scope {
            Scope::Prompt => self.on_prompt(binding.action, grammar, now),
            Scope::Editor => self.on_editor(binding.action, now),
            Scope::Confirm => self.on_answer(binding.action),
            _ => self.act(binding.action, now),
        }
    }

    fn on_answer(&mut self, action: Action) -> Vec<Effect> {
        let asked = self.modal.take();
        match (action, asked) {
            (Action::Yes, Some(Modal::Confirm { then, .. })) => vec![Effect::Command(then)],
            (Action::QuitAtOnce, _) => self.quit_at_once(),
            (Action::Suspend, asked) => {
                self.modal = asked;
                vec![Effect::Suspend]
            }
            _ => Vec::new(),
        }
    }

    fn on_editor(&mut self, action: Action, now: Instant) -> Vec<Effect> {
        let Some(Modal::Editor {
            queue,
            id,
            area,
            is_leaving,
            before,
        }) = &mut self.modal
        else {
            return Vec::new();
        };
        let text = area.lines().join("\n");
        match action {
            Action::Save => {
                let command = Command::RedriveEdited {
                    queue: queue.clone(),
                    id: id.clone(),
                    payload: text.into_bytes(),
                    retries: None,
                };
                self.modal = None;
                vec![Effect::Command(command)]
            }
            Action::QuitAtOnce => self.quit_at_once(),
            _ if text != *before && !*is_leaving => {
                *is_leaving = true;
                self.say(
                    "the text has changed: Esc again throws the changes away",
                    true,
                    now,
                );
                Vec::new()
            }
            _ => {
                self.modal = None;
                Vec::new()
            }
        }
    }

    fn on_prompt(&mut self, action: Action, grammar: &dyn Grammar, now: Instant) -> Vec<Effect> {
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        match action {
            Action::Submit => return self.submit(grammar, now),
            Action::Complete => prompt.complete(grammar),
            Action::Newline => prompt.newline(),
            Action::Earlier if prompt.kind == Kind::Command => prompt.earlier(&self.lines),
            Action::Later if prompt.kind == Kind::Command => prompt.later(&self.lines),
            Action::Back => self.prompt = None,
            Action::QuitAtOnce => {
                self.prompt = None;
                return self.act(Action::Quit, now);
            }
            _ => {}
        }
        Vec::new()
    }

    /// Does what the prompt says, or shows under it what is wrong with it.
    fn submit(&mut self, grammar: &dyn Grammar, now: Instant) -> Vec<Effect> {
        let Some(mut prompt) = self.prompt.take() else {
            return Vec::new();
        };
        let text = prompt.text();
        if text.trim().is_empty() && prompt.kind == Kind::Command {
            return Vec::new();
        }
        let default = "default".parse().ok();
        let Some(queue) = self.queue.clone().or(default) else {
            return Vec::new();
        };
        let line = match prompt.understand(grammar, &queue) {
            Ok(line) => line,
            Err(error) => {
                prompt.error = Some(error);
                self.prompt = Some(prompt);
                return Vec::new();
            }
        };
        let mut effects = Vec::new();
        if prompt.kind == Kind::Command && self.lines.last() != Some(&text) {
            self.lines.push(text.clone());
            effects.push(Effect::Remember(text));
        }
        effects.extend(self.obey(line, now));
        effects
    }

    fn obey(&mut self, line: Line, now: Instant) -> Vec<Effect> {
        match line {
            Line::Do(command) => {
                if self.settings.read_only && !command.is_safe() {
                    self.say(
                        "nothing is changed: the dashboard was started with --read-only",
                        true,
                        now,
                    );
                    return Vec::new();
                }
                return self.ask_if_many(command);
            }
            Line::Open(id) => {
                if let Some(queue) = self.queue.clone() {
                    self.open(queue, id);
                }
            }
            Line::Filter(filter) => {
                self.filter = filter;
                self.first_page();
                if !matches!(self.screen, Screen::Messages | Screen::Dead) {
                    self.show(Screen::Messages);
                }
            }
            Line::Queue(queue) => {
                if self.snapshot.queues.iter().any(|known| known.name == queue) {
                    self.queue = Some(queue);
                    self.first_page();
                } else {
                    self.say(format!("no queue {queue} is shown here"), true, now);
                }
            }
            Line::Help => return self.act(Action::ShowHelp, now),
            Line::Quit => return self.act(Action::Quit, now),
        }
        Vec::new()
    }

    /// Opens one message.
    fn open(&mut self, queue: QueueName, id: MessageId) {
        self.modal = None;
        self.opened = Some(Opened {
            queue,
            id,
            record: None,
            is_gone: false,
            view: PayloadView::Json,
            scroll: 0,
        });
    }

    fn first_page(&mut self) {
        self.selected = 0;
        self.offset = 0;
        self.marks.clear();
    }

    fn quit_at_once(&mut self) -> Vec<Effect> {
        self.modal = None;
        match self.snapshot.host.as_ref().map(|host| host.stage) {
            None => vec![Effect::Leave],
            Some(Stage::Run) => vec![Effect::Command(Command::StopHost(Stage::Drain))],
            Some(_) => vec![Effect::Command(Command::StopHost(Stage::Now))],
        }
    }

    /// Leaves; asks first when messages are in hand. While the host drains, it is stopped at once.
    fn quit(&mut self) -> Vec<Effect> {
        let busy = self.snapshot.in_hand.len();
        match &self.snapshot.host {
            Some(host) if host.stage == Stage::Run && busy > 0 => {
                self.modal = Some(Modal::Confirm {
                    question: format!(
                        "{busy} {} in hand. Take no more, let the handlers finish, then leave?",
                        if busy == 1 {
                            "message is"
                        } else {
                            "messages are"
                        }
                    ),
                    then: Command::StopHost(Stage::Drain),
                });
                Vec::new()
            }
            _ => self.quit_at_once(),
        }
    }

    /// New prompts start with this text.
    fn prompt(&mut self, kind: Kind, text: &str) {
        self.prompt = Some(Prompt::new(kind, text));
    }
}
