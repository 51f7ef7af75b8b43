//! The one table of keys: it drives the input, the footer and the help.
//!
//! A lower-case letter does what can be done again or undone, an upper-case one what cannot.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

mod table;

pub use table::BINDINGS;

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The queues and how they stand.
    Overview,
    /// The messages of one state.
    Messages,
    /// Dead letters by reason.
    Groups,
    /// The dead letters of one reason.
    Letters,
    /// One message.
    Message,
    /// What this host has in flight.
    InFlight,
    /// The log.
    Log,
    /// The help.
    Help,
    /// A question.
    Confirm,
    /// The prompt.
    Prompt,
    /// The editor of a payload.
    Editor,
}

use Scope::{
    Confirm, Editor, Groups, Help, InFlight, Letters, Log, Message, Messages, Overview, Prompt,
};

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table says it in words")]
pub enum Action {
    Quit,
    QuitAtOnce,
    Suspend,
    Redraw,
    ShowHelp,
    OpenPrompt,
    OpenSend,
    OpenFilter,
    Back,
    Open,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
    NextScreen,
    PreviousScreen,
    Screen(u8),
    NextState,
    PreviousState,
    NextQueue,
    Freeze,
    ZoomIn,
    ZoomOut,
    Pause,
    Mark,
    MarkAll,
    CopyId,
    PayloadView,
    Cancel,
    RunNow,
    Redrive,
    RedriveAll,
    Edit,
    Delete,
    DeleteAll,
    StopHandler,
    Undo,
    StopTask,
    GuestsOnly,
    Yes,
    No,
    OtherAnswer,
    Submit,
    Complete,
    Newline,
    Earlier,
    Later,
    Save,
}

/// A key as the table names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character, with Shift if it needs that.
    Char(char),
    /// Ctrl and a letter.
    Ctrl(char),
    /// Any other key.
    Code(KeyCode),
    /// Alt and any other key.
    Alt(KeyCode),
}

impl Key {
    /// The key of an event; none for what the table never names.
    #[must_use]
    pub fn of(event: KeyEvent) -> Option<Self> {
        let has = |modifier| event.modifiers.contains(modifier);
        match event.code {
            KeyCode::Char(c) if has(KeyModifiers::CONTROL) => {
                Some(Self::Ctrl(c.to_ascii_lowercase()))
            }
            KeyCode::Char(_) if has(KeyModifiers::ALT) => None,
            KeyCode::Char(c) => Some(Self::Char(c)),
            code if has(KeyModifiers::ALT) => Some(Self::Alt(code)),
            code => Some(Self::Code(code)),
        }
    }

    /// How people read it.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Char(' ') => "Space".to_owned(),
            Self::Char(c) => c.to_string(),
            Self::Ctrl(c) => format!("^{}", c.to_ascii_uppercase()),
            Self::Alt(code) => format!("Alt-{}", Self::Code(code).name()),
            Self::Code(code) => match code {
                KeyCode::Up => "↑".to_owned(),
                KeyCode::Down => "↓".to_owned(),
                KeyCode::Left => "←".to_owned(),
                KeyCode::Right => "→".to_owned(),
                KeyCode::BackTab => "Shift-Tab".to_owned(),
                KeyCode::PageUp => "PgUp".to_owned(),
                KeyCode::PageDown => "PgDn".to_owned(),
                other => other.to_string(),
            },
        }
    }
}

/// A line of the table.
#[derive(Debug)]
pub struct Binding {
    /// The keys, the first being the one that the footer shows.
    pub keys: &'static [Key],
    /// Where they work.
    pub scopes: &'static [Scope],
    /// What they do.
    pub action: Action,
    /// One word, for the footer; empty for what it does not show.
    pub label: &'static str,
    /// For the help.
    pub help: &'static str,
    /// True for what changes messages or queues, which `--read-only` refuses.
    pub changes: bool,
}

/// All places, as people call them.
pub const PLACES: [(&str, Scope); 11] = [
    ("Overview", Overview),
    ("Messages", Messages),
    ("Dead letters by reason", Groups),
    ("Dead letters", Letters),
    ("One message", Message),
    ("In flight", InFlight),
    ("Log", Log),
    ("Help", Help),
    ("Question", Confirm),
    ("Prompt", Prompt),
    ("Editor", Editor),
];

/// The line of the table for a key, if it does something there.
#[must_use]
pub fn find(scope: Scope, key: Key) -> Option<&'static Binding> {
    in_scope(scope).find(|binding| binding.keys.contains(&key))
}

/// The lines of the table that hold somewhere.
pub fn in_scope(scope: Scope) -> impl Iterator<Item = &'static Binding> {
    BINDINGS
        .iter()
        .filter(move |binding| binding.scopes.contains(&scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_one_thing_in_one_place() {
        for (_, scope) in PLACES {
            let keys: Vec<Key> = in_scope(scope)
                .flat_map(|binding| binding.keys)
                .copied()
                .collect();
            for (at, key) in keys.iter().enumerate() {
                assert!(!keys[..at].contains(key), "{key:?} twice in {scope:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_undone_needs_shift() {
        for binding in BINDINGS {
            let destroys = matches!(
                binding.action,
                Action::Cancel
                    | Action::Delete
                    | Action::DeleteAll
                    | Action::StopHandler
                    | Action::StopTask
            );
            if destroys {
                assert!(
                    matches!(binding.keys, [Key::Char('A'..='Z')]),
                    "{binding:?}"
                );
            }
        }
    }

    #[test]
    fn every_key_has_a_name_and_every_line_a_help() {
        for binding in BINDINGS {
            assert!(!binding.help.is_empty() && !binding.scopes.is_empty());
            assert!(binding.keys.iter().all(|key| !key.name().is_empty()));
        }
    }
}
