//! Questions, and the keys around them.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent};

use super::{Modal, State};
use crate::control::Command;
use crate::dashboard::keymap::{Action, Binding, Key};

/// More messages than this are destroyed only after their number was typed.
const DESTROYED_BY_ONE_KEY_MAX: usize = 100;

/// So long after a question has come or gone, a key may still be meant for what was there before. It is
/// longer than a person needs to see a change, and than the pause of a key that repeats.
const QUIET: Duration = Duration::from_millis(500);

/// A question. It stands on no, and Enter takes the answer on which it stands.
#[derive(Debug)]
pub struct Question {
    /// In words, with the count of what it is about.
    pub text: String,
    /// What is done after a yes.
    pub then: Command,
    /// True once it stands on yes.
    pub is_on_yes: bool,
    /// What was typed of the number.
    pub typed: String,
}

impl Question {
    /// A question on which nothing was pressed yet.
    #[must_use]
    pub fn new(text: String, then: Command) -> Self {
        Self {
            text,
            then,
            is_on_yes: false,
            typed: String::new(),
        }
    }

    /// The number that has to be typed for a yes, if so many messages would be destroyed.
    #[must_use]
    pub fn number(&self) -> Option<usize> {
        Some(self.then.destroyed()).filter(|count| *count > DESTROYED_BY_ONE_KEY_MAX)
    }

    /// The number, while it is not typed.
    #[must_use]
    pub fn missing_number(&self) -> Option<usize> {
        self.number()
            .filter(|number| self.typed != number.to_string())
    }

    /// Takes a key that the table does not name: a digit of the number, or Backspace.
    pub fn input(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Char(digit @ '0'..='9')
                if self.number().is_some() && self.typed.len() < 20 =>
            {
                self.typed.push(digit);
            }
            KeyCode::Backspace => {
                self.typed.pop();
            }
            _ => {}
        }
    }
}

/// A question that has come or gone, with the keys that may have been pressed before that was seen.
#[derive(Debug)]
pub struct QuestionTurn {
    at: Instant,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// It came by itself: any key may be meant for what it covers.
    Came,
    /// A message has opened by itself: a key that changes something may be meant for the screen before.
    Opened,
    /// It is gone: a key that answers may be meant for it.
    Gone {
        /// The key that closed it, if one did.
        by: Option<Key>,
        /// True once the screen was drawn without it.
        is_drawn: bool,
    },
}

impl State {
    /// True while a question is open.
    #[must_use]
    pub fn has_question(&self) -> bool {
        matches!(self.modal, Some(Modal::Confirm(_)))
    }

    /// Notes that a question has come or gone in what was just done, by this key or by itself.
    pub(in crate::dashboard) fn note_question(
        &mut self,
        had_one: bool,
        key: Option<KeyEvent>,
        now: Instant,
    ) {
        if key.is_some() && self.has_opened_by_itself() {
            // Whoever goes on has seen it.
            self.question_turn = None;
        }
        let kind = match (had_one, self.has_question(), key) {
            (false, true, None) => Kind::Came,
            (true, false, key) => Kind::Gone {
                by: key.and_then(Key::of),
                is_drawn: false,
            },
            // Who pressed a key for a question waits for it.
            (false, true, Some(_)) => {
                self.question_turn = None;
                return;
            }
            _ => return,
        };
        self.question_turn = Some(QuestionTurn { at: now, kind });
    }

    /// Notes that a message has opened by itself.
    pub(in crate::dashboard) fn note_opened(&mut self, now: Instant) {
        let kind = Kind::Opened;
        self.question_turn = Some(QuestionTurn { at: now, kind });
    }

    /// True while keys may be meant for what was there before a message has opened by itself.
    pub(in crate::dashboard) fn has_opened_by_itself(&self) -> bool {
        let turn = self.question_turn.as_ref();
        turn.is_some_and(|turn| matches!(turn.kind, Kind::Opened))
    }

    /// Notes that the screen is drawn, so that the operator sees whether there is a question.
    pub(in crate::dashboard) fn note_drawn(&mut self) {
        let has_question = self.has_question();
        if let Some(QuestionTurn {
            kind: Kind::Gone { is_drawn, .. },
            ..
        }) = &mut self.question_turn
        {
            *is_drawn |= !has_question;
        }
    }

    /// True for a key that was pressed for what was there before a question came or went. It says what
    /// the key does now, and what it does to a question. What stops the program or leaves it is never
    /// late.
    pub(in crate::dashboard) fn is_late(
        &mut self,
        key: Key,
        [here, to_question]: [Option<&Binding>; 2],
        now: Instant,
    ) -> bool {
        let Some(turn) = &mut self.question_turn else {
            return false;
        };
        let action = to_question.map(|binding| binding.action);
        if matches!(action, Some(Action::QuitAtOnce | Action::Suspend)) {
            return false;
        }
        if now.saturating_duration_since(turn.at) >= QUIET {
            self.question_turn = None;
            return false;
        }
        let is_answer = to_question.is_some() || matches!(key, Key::Char('0'..='9'));
        match &turn.kind {
            Kind::Came => true,
            Kind::Opened => here.is_some_and(|binding| binding.changes),
            // A key that is held down goes on until it is let go.
            Kind::Gone { by: Some(by), .. } if *by == key => {
                turn.at = now;
                true
            }
            Kind::Gone { by, is_drawn } => is_answer && (by.is_none() || !is_drawn),
        }
    }
}
