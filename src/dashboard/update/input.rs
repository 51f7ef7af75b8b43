//! Answers, edits and typed lines.

use std::path::PathBuf;
use std::time::Instant;

use super::Effect;
use crate::control::{Command, Letters, Line, TrialRequest};
use crate::dashboard::keymap::Action;
use crate::dashboard::prompt::{CommandParser, Kind, Named, Prompt};
use crate::dashboard::screens::{self, Dead, Messages};
use crate::dashboard::state::{Modal, Screen, State};
use crate::message::QueueName;

impl State {
    pub(super) fn on_answer(&mut self, action: Action, now: Instant) -> Vec<Effect> {
        let Some(Modal::Confirm(question)) = &mut self.modal else {
            return Vec::new();
        };
        let is_yes = match action {
            Action::Yes => true,
            Action::Submit => question.is_on_yes || !question.typed.is_empty(),
            Action::OtherAnswer => {
                question.is_on_yes = !question.is_on_yes;
                return Vec::new();
            }
            Action::QuitAtOnce => return self.quit_at_once(),
            Action::Suspend => return vec![Effect::Suspend],
            _ => false,
        };
        if let Some(number) = question.missing_number().filter(|_| is_yes) {
            self.say(
                format!("type {number} and press Enter, or press n to leave it"),
                true,
                now,
            );
            return Vec::new();
        }
        match self.modal.take() {
            Some(Modal::Confirm(question)) if is_yes => vec![Effect::Command(question.then)],
            _ => Vec::new(),
        }
    }

    pub(super) fn on_editor(&mut self, action: Action, now: Instant) -> Vec<Effect> {
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

    pub(super) fn on_prompt(
        &mut self,
        action: Action,
        parser: &dyn CommandParser,
        now: Instant,
    ) -> Vec<Effect> {
        let actions = screens::palette(self).len();
        let (queues, ids) = self.names_on_screen();
        let names = |named| match named {
            Named::Queue => queues,
            Named::Message => ids,
        };
        let Some(prompt) = &mut self.prompt else {
            return Vec::new();
        };
        match action {
            Action::Submit => return self.submit(parser, now),
            Action::Complete => prompt.complete(parser, names),
            Action::Earlier if prompt.chosen.is_some() => {
                prompt.chosen = prompt.chosen.and_then(|chosen| chosen.checked_sub(1));
            }
            Action::Later if actions > 0 => {
                let next = prompt.chosen.map_or(0, |chosen| chosen + 1);
                prompt.chosen = Some(next.min(actions - 1));
            }
            Action::Newline => prompt.newline(),
            Action::Earlier if prompt.kind == Kind::Command => prompt.earlier(&self.lines),
            Action::Later if prompt.kind == Kind::Command => prompt.later(&self.lines),
            Action::Back => self.leave_prompt(),
            Action::QuitAtOnce => {
                self.prompt = None;
                return self.act(Action::Quit, now);
            }
            _ => {}
        }
        Vec::new()
    }

    /// The queues, and the messages that are listed, open or in flight. An id that would have to be
    /// quoted is left out.
    fn names_on_screen(&self) -> (Vec<String>, Vec<String>) {
        let queues = self.snapshot.queues.iter();
        let queues = queues.map(|view| view.name.as_str().to_owned());
        let listed = self.records().map_or(&[][..], |(records, ..)| records);
        let in_flight = self.snapshot.in_flight.iter().map(|delivery| &delivery.id);
        let open = self.opened.iter().map(|opened| &opened.id);
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        let mut ids: Vec<String> = (listed.iter().map(|record| &record.id))
            .chain(in_flight)
            .chain(open)
            .map(|id| id.as_str().to_owned())
            .filter(|id| id.chars().all(is_word) && !id.starts_with('-'))
            .collect();
        ids.sort();
        ids.dedup();
        (queues.collect(), ids)
    }

    /// Closes the prompt; a queue that was looked for is left for the one before.
    fn leave_prompt(&mut self) {
        let Some(prompt) = self.prompt.take() else {
            return;
        };
        if let Some(queue) = prompt.queue_before {
            self.queue = Some(queue);
            self.screen.refresh(self);
        }
    }

    /// Selects the first queue that has in its name what is typed, one that begins with it first.
    pub(super) fn find_queue(&mut self) {
        let Some(prompt) = self
            .prompt
            .as_mut()
            .filter(|prompt| prompt.kind == Kind::Queue)
        else {
            return;
        };
        let text = prompt.text();
        let names = self.snapshot.queues.iter().map(|view| &view.name);
        let mut found: Vec<&QueueName> =
            names.filter(|name| name.as_str().contains(&text)).collect();
        found.sort_by_key(|name| !name.as_str().starts_with(&text));
        prompt.candidates = found.iter().map(|name| name.as_str().to_owned()).collect();
        match found.first() {
            Some(first) => self.queue = Some((*first).clone()),
            None => prompt.error = Some("no queue has this in its name".to_owned()),
        }
        self.screen.refresh(self);
    }

    /// Does what the prompt says, or shows under it what is wrong with it.
    fn submit(&mut self, parser: &dyn CommandParser, now: Instant) -> Vec<Effect> {
        let chosen = self.prompt.as_ref().and_then(|prompt| prompt.chosen);
        let chosen = chosen.and_then(|chosen| screens::palette(self).get(chosen).copied());
        let Some(mut prompt) = self.prompt.take() else {
            return Vec::new();
        };
        if let Some(binding) = chosen {
            return self.act(binding.action, now);
        }
        match prompt.kind {
            Kind::Queue => return Vec::new(),
            Kind::Handler => return self.try_handler(prompt),
            Kind::Command | Kind::Filter => {}
        }
        let text = prompt.text();
        if text.trim().is_empty() && prompt.kind == Kind::Command {
            return Vec::new();
        }
        // A host serves some queue, which is known in a moment.
        let has_host = self.snapshot.host.is_some() && prompt.kind == Kind::Command;
        let default = "default".parse().ok().filter(|_| !has_host);
        let Some(queue) = self.queue.clone().or(default) else {
            prompt.error = Some("the queues are not known yet: try again in a moment".to_owned());
            self.prompt = Some(prompt);
            return Vec::new();
        };
        let chosen = self.chosen().filter(|(of, _)| *of == queue);
        let chosen = chosen.map_or(Vec::new(), |(_, ids)| ids);
        let line = match prompt.understand(parser, &queue, &chosen) {
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

    /// Tries the handler that was typed.
    fn try_handler(&mut self, mut prompt: Prompt) -> Vec<Effect> {
        let file = prompt.text().trim().to_owned();
        if file.is_empty() {
            prompt.error = Some("give the file of a handler, such as handler.wasm".to_owned());
            self.prompt = Some(prompt);
            return Vec::new();
        }
        match prompt.letters {
            Some((queue, letters)) => self.begin_trial(queue, letters, file.into()),
            None => Vec::new(),
        }
    }

    /// Begins a trial and shows it.
    fn begin_trial(&mut self, queue: QueueName, letters: Letters, file: PathBuf) -> Vec<Effect> {
        let number = self.tried.as_ref().map_or(1, |last| last.number + 1);
        let request = TrialRequest {
            number,
            queue,
            letters,
            file,
        };
        self.tried = Some(request.clone());
        if self.screen.name() != Dead.name() {
            self.show(&Dead);
        }
        self.opened = None;
        self.open_trial = Some(number);
        self.notice = None;
        self.first_page();
        vec![Effect::Command(Command::Try(request))]
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
            Line::Try(queue, letters, file) => return self.begin_trial(queue, letters, file),
            Line::Open(id) => {
                if let Some(queue) = self.queue.clone() {
                    self.open(queue, id);
                }
            }
            Line::Filter(filter) => {
                self.filter = filter;
                self.first_page();
                let here = self.screen.scope(self);
                if !here.has(Action::OpenFilter) {
                    self.show(&Messages);
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
}
