//! What operators are told of a command.

use super::Notice;

pub(super) fn done(text: impl Into<String>) -> Notice {
    Notice {
        text: text.into(),
        failed: false,
        made: None,
        then: None,
        can_undo: false,
    }
}

pub(super) fn failed(text: impl Into<String>) -> Notice {
    Notice {
        text: text.into(),
        failed: true,
        made: None,
        then: None,
        can_undo: false,
    }
}

/// The answer to what was asked of several messages.
pub(super) fn several(did: &str, must: &str, answers: impl Iterator<Item = bool>) -> Notice {
    let answers: Vec<bool> = answers.collect();
    let count = answers.iter().filter(|done| **done).count();
    if count == answers.len() {
        let messages = if count == 1 { "message" } else { "messages" };
        return done(format!("{count} {messages} {did}"));
    }
    failed(format!(
        "{count} of {} {did}: the others do not {must}",
        answers.len()
    ))
}
