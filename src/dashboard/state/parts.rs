//! The parts of the state.

use std::sync::Arc;

use ratatui_textarea::TextArea;

use super::question::Question;
use crate::control::Filter;
use crate::dashboard::keymap::Scope;
use crate::message::{MessageId, QueueName, Record};

/// The screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// The queues and how they stand.
    Overview,
    /// The messages of one state.
    Messages,
    /// Dead letters by reason.
    Dead,
    /// What this host has in flight.
    InFlight,
    /// The log.
    Log,
}

impl Screen {
    /// In their order.
    pub const ALL: [Self; 5] = [
        Self::Overview,
        Self::Messages,
        Self::Dead,
        Self::InFlight,
        Self::Log,
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Messages => "Messages",
            Self::Dead => "Dead",
            Self::InFlight => "In flight",
            Self::Log => "Log",
        }
    }
}

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
    /// How its payload is shown.
    pub view: PayloadView,
    /// Lines that are scrolled past.
    pub scroll: usize,
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
