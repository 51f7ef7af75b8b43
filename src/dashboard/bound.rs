//! Which keys do what: those of the table, but for actions to which a file of settings gives others.

use std::collections::BTreeSet;

use super::keymap::{Binding, Key, Keys, Scope};
use super::screens::{PLACES, bindings, in_scope};

/// An action that can have other keys, as a file names it.
#[derive(Debug, Clone)]
pub struct NamedAction {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub help: &'static str,
    /// The keys that it has by default, as a file names them.
    pub keys: Vec<String>,
}

/// All actions.
#[must_use]
pub fn actions() -> Vec<NamedAction> {
    let named = |binding: &Binding| NamedAction {
        name: binding.name,
        help: binding.help,
        keys: binding.keys.iter().map(|key| key.word()).collect(),
    };
    bindings().map(named).collect()
}

/// Gives actions other keys.
///
/// # Errors
///
/// The numbers of those that cannot have theirs, and why.
pub fn bind(wanted: &[(&'static str, Vec<Key>)]) -> Result<Keys, Vec<(usize, String)>> {
    let keys = Keys::of_names(wanted.iter().cloned());
    let mut wrong = Vec::new();
    for (at, (name, own)) in wanted.iter().enumerate() {
        let is_it = |binding: &&Binding| binding.name == *name;
        let Some(binding) = bindings().find(is_it) else {
            continue;
        };
        let typed = own.iter().find(|key| is_typed(binding, **key));
        let twice = (1..own.len()).find(|at| own[..*at].contains(&own[*at]));
        if own.is_empty() {
            wrong.push((at, format!("give `{name}` at least one key")));
        } else if let Some(key) = typed {
            let text = format!(
                "`{}` is typed where `{name}` works: give it a key with ctrl- or alt-, or one with a name",
                key.word()
            );
            wrong.push((at, text));
        } else if let Some(twice) = twice {
            wrong.push((
                at,
                format!("`{name}` has the key `{}` twice", own[twice].word()),
            ));
        }
    }
    let number = |name: &str| wanted.iter().position(|(other, _)| *other == name);
    let mut told = BTreeSet::new();
    for scope in PLACES {
        for (key, [one, other]) in clashes(&keys, scope) {
            // That of the later line, if both are set.
            let at = number(one).max(number(other));
            let Some(at) = at.filter(|_| told.insert((one, other))) else {
                continue;
            };
            let set = wanted[at].0;
            let kept = if set == one { other } else { one };
            let text = format!(
                "`{}` is the key of `{kept}` as well, in the place {:?}: give one of them another key",
                key.word(),
                scope.name()
            );
            wrong.push((at, text));
        }
    }
    if wrong.is_empty() {
        Ok(keys)
    } else {
        wrong.sort();
        Err(wrong)
    }
}

/// True for a key with which an operator writes something where the action works.
fn is_typed(binding: &Binding, key: Key) -> bool {
    let works_in = |scope| binding.works_in(scope);
    match key {
        Key::Char(_) if works_in(Scope::Prompt) || works_in(Scope::Editor) => true,
        Key::Char(c) => works_in(Scope::Confirm) && c.is_ascii_digit(),
        _ => false,
    }
}

/// The keys that would do two things there, with the names of both.
fn clashes(keys: &Keys, scope: Scope) -> Vec<(Key, [&'static str; 2])> {
    let mut all: Vec<(Key, &'static str)> = Vec::new();
    let mut found = Vec::new();
    for binding in in_scope(scope) {
        for key in keys.of(binding) {
            match all.iter().find(|(other, _)| other == key) {
                Some((_, name)) if *name != binding.name => {
                    found.push((*key, [*name, binding.name]));
                }
                Some(_) => {}
                None => all.push((*key, binding.name)),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(word: &str) -> Key {
        Key::of_word(word).unwrap()
    }

    /// `up=i,k down=j`.
    fn bound(wanted: &'static str) -> Result<Keys, String> {
        let set = |one: &'static str| {
            let (name, words) = one.split_once('=').unwrap();
            let words = words.split(',').filter(|word| !word.is_empty());
            (name, words.map(key).collect())
        };
        let wanted: Vec<(&'static str, Vec<Key>)> = wanted.split(' ').map(set).collect();
        bind(&wanted).map_err(|wrong| format!("{wrong:?}"))
    }

    #[test]
    fn every_action_has_a_name_of_its_own_and_keys_that_a_file_can_name() {
        let actions = actions();
        let names: BTreeSet<&str> = actions.iter().map(|action| action.name).collect();
        assert_eq!(names.len(), actions.len());
        for action in &actions {
            let is_word = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(action.name.chars().all(is_word), "{}", action.name);
            let binding = bindings()
                .find(|binding| binding.name == action.name)
                .unwrap();
            let keys: Vec<Key> = action.keys.iter().map(|word| key(word)).collect();
            assert_eq!(keys, binding.keys);
            // What the table says can be set as well.
            bind(&[(binding.name, keys)]).unwrap();
        }
    }

    #[test]
    fn a_key_that_would_do_two_things_is_refused_where_it_is_set() {
        for (wanted, at, why) in [
            ("redrive=ctrl-r", 9, ""),
            ("redrive=j", 0, "`j` is the key of `down`"),
            // It works elsewhere only.
            ("redrive=d", 9, ""),
            ("up=i down=i", 1, "`i` is the key of `up`"),
            // One gives its key away.
            ("down=i redrive=j", 9, ""),
            ("redrive=i,i", 0, "twice"),
            ("prompt-leave=x", 0, "`x` is typed where"),
            ("yes=7", 0, "`7` is typed where"),
            ("redrive=", 0, "at least one key"),
        ] {
            match bound(wanted) {
                Ok(_) => assert_eq!(why, "", "{wanted:?}"),
                Err(text) => {
                    assert!(!why.is_empty() && text.contains(why), "{text}");
                    assert!(text.starts_with(&format!("[({at},")), "{text}");
                }
            }
        }
    }
}
