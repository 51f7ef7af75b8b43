//! Keys as a file of settings names them.

use crossterm::event::KeyCode;

use super::Key;

/// Keys that have a name.
const NAMED: [(&str, KeyCode); 15] = [
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("shift-tab", KeyCode::BackTab),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("page-up", KeyCode::PageUp),
    ("page-down", KeyCode::PageDown),
];

const SPACE: &str = "space";

/// A terminal sends the same for these as for Tab and Enter.
const NO_KEYS: [char; 2] = ['i', 'm'];

impl Key {
    /// The key that a file names so; none for what no terminal tells apart from others.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        let mut chars = word.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            return (!c.is_control() && c != ' ').then_some(Self::Char(c));
        }
        let word = word.to_ascii_lowercase();
        if let Some(letter) = word.strip_prefix("ctrl-") {
            let mut letters = letter.chars();
            let letter = letters.next().filter(char::is_ascii_lowercase)?;
            let is_key = letters.next().is_none() && !NO_KEYS.contains(&letter);
            return is_key.then_some(Self::Ctrl(letter));
        }
        if let Some(rest) = word.strip_prefix("alt-") {
            return code(rest).map(Self::Alt);
        }
        match word.as_str() {
            SPACE => Some(Self::Char(' ')),
            word => code(word).map(Self::Code),
        }
    }

    /// What a file calls it.
    #[must_use]
    pub fn word(self) -> String {
        match self {
            Self::Char(' ') => SPACE.to_owned(),
            Self::Char(c) => c.to_string(),
            Self::Ctrl(c) => format!("ctrl-{c}"),
            Self::Alt(code) => format!("alt-{}", Self::Code(code).word()),
            Self::Code(KeyCode::F(number)) => format!("f{number}"),
            Self::Code(code) => {
                let mut named = NAMED.iter().filter(|(_, other)| *other == code);
                named
                    .next()
                    .map_or(String::new(), |(name, _)| (*name).to_owned())
            }
        }
    }

    /// Words of which one may have been meant by another.
    #[must_use]
    pub fn words() -> Vec<String> {
        let codes = NAMED.iter().map(|(name, _)| (*name).to_owned());
        let codes: Vec<String> = codes.collect();
        let alt = codes.iter().map(|name| format!("alt-{name}"));
        let ctrl = ('a'..='z').filter(|c| !NO_KEYS.contains(c));
        let ctrl = ctrl.map(|c| format!("ctrl-{c}"));
        let others = (1..=12).map(|number| format!("f{number}"));
        let all = alt.chain(ctrl).chain(others).chain([SPACE.to_owned()]);
        all.chain(codes.iter().cloned()).collect()
    }
}

fn code(word: &str) -> Option<KeyCode> {
    let number = word
        .strip_prefix('f')
        .and_then(|number| number.parse().ok());
    if let Some(number @ 1..=12) = number {
        return Some(KeyCode::F(number));
    }
    let mut named = NAMED.iter().filter(|(name, _)| *name == word);
    named.next().map(|(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_key_and_a_key_one_word() {
        for word in Key::words() {
            assert_eq!(Key::of_word(&word).map(Key::word), Some(word));
        }
        for (word, expected) in [
            ("R", Some(Key::Char('R'))),
            ("ctrl-r", Some(Key::Ctrl('r'))),
            ("Ctrl-R", Some(Key::Ctrl('r'))),
            ("ä", Some(Key::Char('ä'))),
            ("alt-left", Some(Key::Alt(KeyCode::Left))),
            ("", None),
            (" ", None),
            ("\u{1b}", None),
            ("ctrl-i", None),
            ("ctrl-M", None),
            ("ctrl-", None),
            ("ctrl-1", None),
            ("alt-x", None),
            ("f13", None),
            ("rr", None),
        ] {
            assert_eq!(Key::of_word(word), expected, "{word}");
        }
    }
}
