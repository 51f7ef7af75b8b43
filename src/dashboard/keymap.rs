//! The one table of keys: it drives the input, the footer and the help. Those of the tabs stand with the
//! [screens](super::screens).
//!
//! A lower-case letter does what can be done again or undone, an upper-case one what cannot.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

mod table;
mod words;

pub use table::{AFTER_TABS, Action, BEFORE_TABS, tab};

/// Where keys go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A screen, or one message: its name, and what not every screen can do.
    Screen(&'static str, &'static [Action]),
    /// The help.
    Help,
    /// A question.
    Confirm,
    /// The prompt.
    Prompt,
    /// The editor of a payload.
    Editor,
}

impl Scope {
    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Screen(name, _) => name,
            Self::Help => "Help",
            Self::Confirm => "Question",
            Self::Prompt => "Prompt",
            Self::Editor => "Editor",
        }
    }

    /// True for a screen that names this action.
    #[must_use]
    pub fn has(self, action: Action) -> bool {
        matches!(self, Self::Screen(_, actions) if actions.contains(&action))
    }
}

/// Where a line of the table works.
#[derive(Debug, Clone, Copy)]
pub enum Reach {
    /// On each screen, and there.
    EachScreen(&'static [Scope]),
    /// On the screens that name its action.
    Named,
    /// There only.
    Only(&'static [Scope]),
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
    /// What a file of settings calls what they do.
    pub name: &'static str,
    /// The keys, the first being the one that the footer shows.
    pub keys: &'static [Key],
    /// Where they work.
    pub reach: Reach,
    /// What they do.
    pub action: Action,
    /// One word, for the footer; empty for what it does not show.
    pub label: &'static str,
    /// For the help.
    pub help: &'static str,
    /// True for what changes messages or queues, which `--read-only` refuses.
    pub changes: bool,
}

impl Binding {
    /// True when the keys do something there.
    #[must_use]
    pub fn works_in(&self, scope: Scope) -> bool {
        match (self.reach, scope) {
            (Reach::EachScreen(_), Scope::Screen(..)) => true,
            (Reach::Named, _) => scope.has(self.action),
            (Reach::EachScreen(scopes) | Reach::Only(scopes), _) => scopes.contains(&scope),
        }
    }
}

/// Which keys an action has: those of the table, if it has no others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys(Arc<BTreeMap<&'static str, Vec<Key>>>);

impl Keys {
    /// The actions with these names have these keys.
    #[must_use]
    pub(super) fn of_names(set: impl Iterator<Item = (&'static str, Vec<Key>)>) -> Self {
        Self(Arc::new(set.collect()))
    }

    /// The keys of a line of the table.
    #[must_use]
    pub fn of<'k>(&'k self, binding: &'static Binding) -> &'k [Key] {
        self.0.get(binding.name).map_or(binding.keys, Vec::as_slice)
    }

    /// The key that is shown for it.
    #[must_use]
    pub fn shown(&self, binding: &'static Binding) -> String {
        self.of(binding)
            .first()
            .map_or(String::new(), |key| key.name())
    }

    /// True if all are those of the table.
    #[must_use]
    pub fn are_of_the_table(&self) -> bool {
        self.0.is_empty()
    }
}
