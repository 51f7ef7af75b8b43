//! The parts of the state.

use std::sync::Arc;

use ratatui_textarea::TextArea;

use super::question::Question;
use crate::control::{Command, Ended, Filter};
use crate::dashboard::keymap::Scope;
use crate::message::{MessageId, QueueName, Record};

/// Dead letters by reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reasons {
    /// Whatever their reasons.
    All,
    /// With this one, as [`Group::reason`] has it.
    One(String),
}

impl Reasons {
    /// What a filter means of them.
    #[must_use]
    pub fn filter(&self, filter: &Filter) -> Filter {
        match self {
            Self::All => filter.clone(),
            Self::One(reason) => filter.clone().in_group(Some(reason.clone())),
        }
    }
}

/// How a payload is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadView {
    /// As JSON, indented; as text or in hexadecimal when it is none.
    Json,
    /// As text.
    Text,
    /// In hexadecimal.
    Hex,
}

/// One message, open.
#[derive(Debug)]
pub struct Opened {
    /// Its queue.
    pub queue: QueueName,
    /// The message.
    pub id: MessageId,
    /// What was last known of it.
    pub record: Option<Arc<Record>>,
    /// True when it was looked for and not found.
    pub is_gone: bool,
    /// How it ended, if this host's log tells it.
    pub end: Option<String>,
    /// How it ended, if the store tells it.
    pub ended: Option<Arc<Ended>>,
    /// How its payload is shown.
    pub view: PayloadView,
    /// Lines that are scrolled past.
    pub scroll: usize,
}

/// Something that the program runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// What those after it are about.
    Heading(String),
    /// A setting.
    Value {
        /// Its name.
        name: String,
        /// As it is shown, without secrets.
        value: String,
        /// A flag, a variable, a line of a file.
        origin: String,
    },
}

/// What can be changed while the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// Dark or light.
    Theme,
    /// All signs, or those of ASCII.
    Signs,
    /// What rates are told per.
    Rates,
    /// The dashboard has the mouse, or the terminal.
    Mouse,
}

/// What is on top of the screen.
#[derive(Debug)]
pub enum Modal {
    /// The keys, scrolled past so many lines.
    Help {
        /// Of which screen.
        of: Scope,
        /// Lines that are scrolled past.
        scroll: usize,
    },
    /// A question.
    Confirm(Question),
    /// A payload that is edited.
    Editor {
        /// Its queue.
        queue: QueueName,
        /// The dead letter.
        id: MessageId,
        /// The text.
        area: Box<TextArea<'static>>,
        /// True once Esc was pressed on a changed text.
        is_leaving: bool,
        /// As it was.
        before: String,
    },
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
