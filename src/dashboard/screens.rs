//! The screens. A new one is a file that implements [`Screen`], and its lines in this one.

mod dead;
mod history;
pub(in crate::dashboard) mod in_flight;
mod list;
mod log;
mod message;
mod messages;
mod overview;
mod settings;

pub use dead::Dead;
use in_flight::InFlight;
use log::Log;
pub use messages::Messages;
pub use settings::SettingsScreen;

use super::keymap::{AFTER_TABS, Action, BEFORE_TABS, Binding, Key, Keys, Scope, tab};
use super::state::{Screen, State};
use crate::control::Query;
use crate::message::{MessageId, QueueName};

/// The tabs, in their order.
pub const TABS: [&dyn Screen; 6] = [
    &overview::Overview,
    &Messages,
    &Dead,
    &InFlight,
    &history::History,
    &Log,
];

/// Their keys.
static TAB_KEYS: [Binding; TABS.len()] = [
    tab("overview", &[Key::Char('1')], 1, "overview"),
    tab("messages", &[Key::Char('2')], 2, "messages"),
    tab("dead-letters", &[Key::Char('3')], 3, "dead letters"),
    tab("in-flight", &[Key::Char('4')], 4, "in flight"),
    tab("history", &[Key::Char('5')], 5, "history"),
    tab("log", &[Key::Char('6')], 6, "log"),
];

/// All places where keys go.
pub const PLACES: [Scope; 14] = [
    overview::SCOPE,
    messages::SCOPE,
    dead::GROUPS,
    dead::LETTERS,
    dead::TRIAL,
    message::SCOPE,
    in_flight::SCOPE,
    history::SCOPE,
    log::SCOPE,
    settings::SCOPE,
    Scope::Help,
    Scope::Confirm,
    Scope::Prompt,
    Scope::Editor,
];

/// The line of the table for a key, if it does something there.
#[must_use]
pub fn find(keys: &Keys, scope: Scope, key: Key) -> Option<&'static Binding> {
    in_scope(scope).find(|binding| keys.of(binding).contains(&key))
}

/// The lines of the table that hold somewhere.
pub fn in_scope(scope: Scope) -> impl Iterator<Item = &'static Binding> {
    bindings().filter(move |binding| binding.works_in(scope))
}

pub(super) fn bindings() -> impl Iterator<Item = &'static Binding> {
    BEFORE_TABS.iter().chain(&TAB_KEYS).chain(AFTER_TABS)
}

/// The actions that the prompt lists: those of the place below it of which the key is what is typed, or of
/// which the help or the label has each word of it.
#[must_use]
pub fn palette(state: &State) -> Vec<&'static Binding> {
    let typed = match &state.prompt {
        Some(prompt) if prompt.lists_actions() => prompt.text(),
        _ => return Vec::new(),
    };
    let text = typed.to_lowercase();
    let below = in_scope(state.shown().scope(state));
    let is_listed = |binding: &&'static Binding| {
        let is_refused = binding.changes && state.settings.read_only;
        let has = |word: &str| binding.help.contains(word) || binding.label.contains(word);
        let has_text = text.split_whitespace().all(has);
        let mut keys = state.settings.keys.of(binding).iter();
        let is_key = keys.any(|key| key.name() == typed);
        !is_refused && binding.action != Action::OpenPrompt && (has_text || is_key)
    };
    below.filter(is_listed).collect()
}

impl State {
    /// What is shown below the help and the like: one message, or the screen.
    #[must_use]
    pub fn shown(&self) -> &'static dyn Screen {
        match self.opened {
            Some(_) => &message::Message,
            None => self.screen,
        }
    }

    /// Where keys go now.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let on_top = self.scope_on_top();
        on_top.unwrap_or_else(|| self.shown().scope(self))
    }

    /// The key of an action, as it is shown.
    #[must_use]
    pub(super) fn key_of(&self, action: Action) -> String {
        let mut all = bindings().filter(|binding| binding.action == action);
        let keys = &self.settings.keys;
        all.next()
            .map_or(String::new(), |binding| keys.shown(binding))
    }

    /// The message that an action is about: the open one or the selected one.
    #[must_use]
    pub fn current(&self) -> Option<(QueueName, MessageId)> {
        self.shown().current(self)
    }

    /// What the screen wants to see of the store.
    #[must_use]
    pub fn wanted_query(&self) -> Query {
        self.shown().query(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_one_thing_in_one_place() {
        for scope in PLACES {
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
        for binding in bindings() {
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
        for binding in bindings() {
            assert!(!binding.help.is_empty());
            assert!(PLACES.iter().any(|scope| binding.works_in(*scope)));
            assert!(binding.keys.iter().all(|key| !key.name().is_empty()));
        }
    }

    #[test]
    fn the_key_of_a_tab_shows_it_and_its_place_is_listed() {
        for (at, binding) in TAB_KEYS.iter().enumerate() {
            let number = u8::try_from(at + 1).unwrap();
            assert_eq!(binding.action, Action::Screen(number));
            assert_eq!(binding.keys, [Key::Char(char::from(b'0' + number))]);
        }
    }
}
