//! The table of the dashboard: which keys do what.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys;
use crate::dashboard::{Key, Keys, NamedAction, actions, bind};

/// Keys that the file gives to an action.
#[derive(Debug, Clone)]
pub(super) struct KeySetting {
    pub action: &'static str,
    pub words: Vec<String>,
    /// Where it stands in the file.
    pub at: usize,
}

/// The table, as it was read and checked.
#[derive(Debug, Clone, Default)]
pub(super) struct DashboardTable {
    pub settings: Vec<KeySetting>,
    pub keys: Keys,
}

/// What is wrong, and where.
type Problems = Vec<(usize, String)>;

/// Reads `dashboard`.
pub(super) fn read(value: &Spanned<DeValue<'_>>) -> Result<DashboardTable, Problems> {
    let at = value.span().start;
    let DeValue::Table(table) = value.get_ref() else {
        return Err(vec![(
            at,
            "`dashboard` must be a table: write [dashboard.keys]".to_owned(),
        )]);
    };
    let mut problems = Problems::new();
    let mut read = DashboardTable::default();
    for (name, value) in table {
        match (&**name.get_ref(), value.get_ref()) {
            ("keys", DeValue::Table(keys)) => read = read_keys(keys, &mut problems),
            ("keys", _) => {
                let text = "`dashboard.keys` must be a table: write [dashboard.keys]";
                problems.push((value.span().start, text.to_owned()));
            }
            (other, _) => {
                let text =
                    format!("there is no key `{other}` in [dashboard]; did you mean `keys`?");
                problems.push((name.span().start, text));
            }
        }
    }
    if problems.is_empty() {
        Ok(read)
    } else {
        Err(problems)
    }
}

fn read_keys(table: &DeTable<'_>, problems: &mut Problems) -> DashboardTable {
    let actions = actions();
    let (mut settings, mut wanted) = (Vec::new(), Vec::new());
    let mut entries: Vec<_> = table.iter().collect();
    // In the order of the file.
    entries.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in entries {
        let Some(action) = action(&actions, name.get_ref()) else {
            let names = actions.iter().map(|action| action.name);
            let remedy = match keys::nearest(name.get_ref(), names) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => "`dqhost config schema` has all actions".to_owned(),
            };
            let text = format!(
                "there is no action `{}` of the dashboard; {remedy}",
                name.get_ref()
            );
            problems.push((name.span().start, text));
            continue;
        };
        let (words, keys) = match words_of(value) {
            Ok(words) => match keys_of(action.name, &words) {
                Ok(keys) => (words.into_iter().map(|(_, word)| word).collect(), keys),
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            },
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        settings.push(KeySetting {
            action: action.name,
            words,
            at: name.span().start,
        });
        wanted.push((action.name, keys));
    }
    let keys = bind(&wanted).unwrap_or_else(|wrong| {
        problems.extend(
            wrong
                .into_iter()
                .map(|(number, text)| (settings[number].at, text)),
        );
        Keys::default()
    });
    DashboardTable { settings, keys }
}

fn action<'a>(actions: &'a [NamedAction], name: &str) -> Option<&'a NamedAction> {
    actions.iter().find(|action| action.name == name)
}

/// One key, or a list of them, each with its place.
fn words_of(value: &Spanned<DeValue<'_>>) -> Result<Vec<(usize, String)>, (usize, String)> {
    let one = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Ok((value.span().start, text.to_string())),
        other => Err((
            value.span().start,
            format!(
                "a key such as \"ctrl-r\" is wanted, or a list of keys, and not a value of the type {}",
                other.type_str()
            ),
        )),
    };
    match value.get_ref() {
        DeValue::Array(items) => items.iter().map(one).collect(),
        _ => one(value).map(|one| vec![one]),
    }
}

fn keys_of(action: &str, words: &[(usize, String)]) -> Result<Vec<Key>, (usize, String)> {
    let key = |(at, word): &(usize, String)| {
        Key::of_word(word).ok_or_else(|| {
            let known = Key::words();
            let known = || known.iter().map(String::as_str);
            let ends_so = |other: &&str| other.chars().next_back() == word.chars().next_back();
            let nearest = keys::nearest(word, known().filter(ends_so));
            let remedy = match nearest.or_else(|| keys::nearest(word, known())) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => {
                    "a key is a character, or a name such as `ctrl-r`, `enter` or `f5`".to_owned()
                }
            };
            (
                *at,
                format!("`{action}` is {word:?}, which is no key; {remedy}"),
            )
        })
    };
    words.iter().map(key).collect()
}
