//! What each event does to the screen's state, and what it asks of others. Pure: no terminal, no
//! store.

use std::sync::Arc;
use std::time::Instant;

use crossterm::event::{KeyEvent, MouseEvent};

use super::keymap::{Key, Scope};
use super::prompt::{CommandParser, Kind, Prompt, edit};
use super::screens;
pub use super::state::Effect;
use super::state::{Modal, NOTICE_TIME, Question, State};
use crate::control::{Command, LogLine, LogRing, Notice, Query, QueryResult, Snapshot, Stage};
use crate::message::QueueName;

mod act;
mod input;
mod navigation;

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Paste(String),
    /// A button of the mouse was pressed, or its wheel was turned.
    Mouse(MouseEvent),
    /// The terminal has another size: columns and rows.
    Resize(u16, u16),
    /// Things stand differently.
    Snapshot(Arc<Snapshot>),
    /// A command was done, or not.
    Notice(Notice),
    /// Time has passed.
    Tick,
}

/// How a message has ended, if the log of the host in this process tells it.
fn end_in_log(logs: &LogRing, id: &str) -> Option<String> {
    let id = format!("id={id}");
    let tells = |line: &LogLine| {
        // The time, the level, the event; then what it is about.
        let mut words = line.text.split(' ').filter(|word| !word.is_empty()).skip(2);
        !line.is_guest && words.next() == Some("acked") && words.any(|word| word == id)
    };
    let line = logs.latest(1, 0, tells).pop()?;
    let field = |name: &str| {
        let mut words = line.text.split(' ');
        words.find_map(|word| word.strip_prefix(name))
    };
    let (attempt, took) = field("attempt=").zip(field("took="))?;
    Some(format!("acked at attempt {attempt}, after {took}"))
}

impl State {
    /// Takes an event in.
    pub fn update(
        &mut self,
        event: Event,
        parser: &dyn CommandParser,
        now: Instant,
    ) -> Vec<Effect> {
        let had_question = self.has_question();
        let mut key = match &event {
            Event::Key(key) => Some(*key),
            _ => None,
        };
        let is_step = !matches!(event, Event::Snapshot(_));
        let mut effects = match event {
            Event::Key(late) if self.comes_late(late, now) => {
                key = None;
                if self.has_question() {
                    let text = "pressed before the question could be read: answer it now";
                    self.say(text, false, now);
                } else if self.has_opened_by_itself() {
                    let text = "pressed before this message was here: press it again";
                    self.say(text, false, now);
                }
                Vec::new()
            }
            Event::Key(key) => self.on_key(key, parser, now),
            Event::Paste(text) => {
                self.on_paste(&text);
                Vec::new()
            }
            Event::Mouse(event) => {
                self.on_mouse(event);
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
        self.note_question(had_question, key, now);
        self.after_commands(&effects);
        let wanted = self.wanted_query();
        if wanted == self.query {
            let here = self.selected_key().map(str::to_owned);
            self.anchor = here.or(self.anchor.take());
        } else {
            let is_message = |query: &Query| matches!(query, Query::Message { .. });
            // A list that is left for one of its messages, or come back to, is the same list.
            if !is_message(&wanted) && !is_message(&self.query) {
                self.anchor = None;
            }
            self.query = wanted.clone();
            effects.push(Effect::Command(Command::Query(wanted)));
        }
        self.note_place(is_step);
        effects
    }

    /// Marks have served once something is done to what they mark.
    fn after_commands(&mut self, effects: &[Effect]) {
        let uses_marks = |effect: &Effect| {
            matches!(
                effect,
                Effect::Command(
                    Command::Cancel(..)
                        | Command::Kill(..)
                        | Command::Reschedule(..)
                        | Command::Bulk(..)
                )
            )
        };
        if effects.iter().any(uses_marks) {
            self.marks.clear();
            self.open_trial = None;
        }
    }

    /// Says something on the line below.
    pub(super) fn say(&mut self, text: impl Into<String>, failed: bool, now: Instant) {
        self.notice = Some((
            Notice {
                text: text.into(),
                failed,
                made: None,
                then: None,
                can_undo: false,
            },
            now,
        ));
    }

    /// An answer may come when the person is at something else already, which it leaves alone.
    fn on_notice(&mut self, mut notice: Notice, now: Instant) {
        let is_free = self.modal.is_none() && self.prompt.is_none();
        match notice.then.take() {
            Some(then) if is_free => {
                self.modal = Some(Modal::Confirm(Question::new(notice.text, then)));
                return;
            }
            Some(_) => {
                notice
                    .text
                    .push_str(" (not asked while something else was open: do it again)");
                notice.failed = true;
            }
            None => {}
        }
        if let Some((queue, id)) = notice.made.clone().filter(|_| is_free) {
            self.open(queue, id);
            self.note_opened(now);
        }
        self.notice = Some((notice, now));
    }

    fn on_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        for queue in &snapshot.queues {
            let rates = self.rates.entry(queue.name.clone()).or_default();
            rates.note(queue.read_at, queue.overview.counts);
        }
        if self.is_frozen {
            self.thaw_what_must_be_true(&snapshot);
        } else {
            self.snapshot = snapshot;
        }
        let known = |name: &QueueName| self.snapshot.queues.iter().any(|queue| queue.name == *name);
        // Before the store was read there are no queues. What is selected stays, or a message that is sent now
        // would go to another queue.
        if self.snapshot.read_at.is_some() && !self.queue.as_ref().is_some_and(known) {
            self.queue = self.snapshot.queues.first().map(|queue| queue.name.clone());
        }
        self.screen.refresh(self);
        if let (
            Some(opened),
            QueryResult::Message {
                query,
                record,
                ended,
            },
        ) = (&mut self.opened, &self.snapshot.result)
            && *query == self.query
        {
            opened.is_gone = record.is_none();
            // The list may have told it before, and it may be kept no longer.
            opened.ended = ended.clone().or(opened.ended.take());
            if opened.is_gone && opened.end.is_none() {
                opened.end = end_in_log(&self.logs, opened.id.as_str());
            }
            if let Some(record) = record {
                opened.record = Some(Arc::clone(record));
            }
        }
        // The line under a finger stays the same one, wherever it has moved.
        if let Some(key) = self.anchor.clone() {
            self.select_key(&key);
        }
        if let Some(count) = self.line_count() {
            self.selected = self.selected.min(count.saturating_sub(1));
        }
        // What was on this page has gone: one page back.
        if self
            .records()
            .is_some_and(|(records, ..)| records.is_empty())
            && self.offset > 0
        {
            self.offset = self.offset.saturating_sub(self.list_rows());
        }
    }

    /// What a frozen screen goes on to tell: whether the store is there, what the host was told to do, and
    /// what is paused. It also tells of what was opened since, which was not there to be held still.
    fn thaw_what_must_be_true(&mut self, new: &Snapshot) {
        let shown = Arc::make_mut(&mut self.snapshot);
        shown.outage.clone_from(&new.outage);
        shown.host.clone_from(&new.host);
        shown.task.clone_from(&new.task);
        shown.trial.clone_from(&new.trial);
        shown.refused_trial.clone_from(&new.refused_trial);
        for queue in &mut shown.queues {
            let now = new.queues.iter().find(|other| other.name == queue.name);
            queue.overview.paused = now.map_or(queue.overview.paused, |now| now.overview.paused);
        }
        if shown.result.query() != &self.query {
            shown.result = new.result.clone();
        }
    }

    fn on_paste(&mut self, text: &str) {
        if let Some(prompt) = &mut self.prompt {
            prompt.paste(text);
            self.find_queue();
        } else if let Some(Modal::Editor { area, .. }) = &mut self.modal {
            area.insert_str(text.replace("\r\n", "\n").replace('\r', "\n"));
        }
    }

    /// True for a key that was pressed for what was there before.
    fn comes_late(&mut self, event: KeyEvent, now: Instant) -> bool {
        let scopes = [self.scope(), Scope::Confirm];
        Key::of(event).is_some_and(|key| {
            let does = scopes.map(|scope| screens::find(&self.settings.keys, scope, key));
            self.is_late(key, does, now)
        })
    }

    fn on_key(&mut self, event: KeyEvent, parser: &dyn CommandParser, now: Instant) -> Vec<Effect> {
        let scope = self.scope();
        let keys = &self.settings.keys;
        let binding = Key::of(event).and_then(|key| screens::find(keys, scope, key));
        let Some(binding) = binding else {
            if let Some(prompt) = &mut self.prompt {
                prompt.input(event);
                self.find_queue();
            } else if let Some(Modal::Editor {
                area, is_leaving, ..
            }) = &mut self.modal
            {
                *is_leaving = false;
                edit(area, event);
            } else if let Some(Modal::Confirm(question)) = &mut self.modal {
                question.input(event);
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
            Scope::Prompt => self.on_prompt(binding.action, parser, now),
            Scope::Editor => self.on_editor(binding.action, now),
            Scope::Confirm => self.on_answer(binding.action, now),
            _ => self.act(binding.action, now),
        }
    }

    fn quit_at_once(&mut self) -> Vec<Effect> {
        self.modal = None;
        match self.snapshot.host.as_ref().map(|host| host.stage) {
            None => vec![Effect::Leave],
            Some(Stage::Run) => vec![Effect::Command(Command::StopHost(Stage::Drain))],
            Some(_) => vec![Effect::Command(Command::StopHost(Stage::Now))],
        }
    }

    /// Leaves; asks first when messages are in flight. While the host drains, it is stopped at once.
    fn quit(&mut self) -> Vec<Effect> {
        let host = self.snapshot.host.as_ref();
        let Some(host) = host.filter(|host| host.stage == Stage::Run) else {
            return self.quit_at_once();
        };
        // A frozen screen has only the number of the host.
        let in_flight = if self.is_frozen {
            host.busy
        } else {
            self.snapshot.in_flight.len()
        };
        let mut reasons = Vec::new();
        match in_flight {
            0 => {}
            1 => reasons.push("1 message is in flight".to_owned()),
            n => reasons.push(format!("{n} messages are in flight")),
        }
        if let Some(task) = &self.snapshot.task {
            reasons.push(format!(
                "{} is under way and would stop half done",
                task.what
            ));
        }
        if reasons.is_empty() {
            return self.quit_at_once();
        }
        let question = format!(
            "{}. Take no more, let the handlers finish, then leave?",
            reasons.join("; ")
        );
        self.confirm(question, Command::StopHost(Stage::Drain));
        Vec::new()
    }

    /// New prompts start with this text.
    fn prompt(&mut self, kind: Kind, text: &str) {
        self.prompt = Some(Prompt::new(kind, text));
    }
}
