//! The line that commands are typed on.

use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui_textarea::{CursorMove, TextArea};

use crate::control::{Filter, Letters, Line};
use crate::message::{MessageId, QueueName};

/// Lines that are remembered.
pub(super) const REMEMBERED_MAX: usize = 500;

/// What understands a typed line. It is the command line's own parser; the dashboard knows no other.
pub trait CommandParser: Send + Sync {
    /// What a line asks for, on this queue unless it names another, and of these messages where it
    /// names none; else what is wrong with it and what to do.
    fn parse(&self, line: &str, queue: &QueueName, chosen: &[MessageId]) -> Result<Line, String>;

    /// The words that could stand in the place of the last one of what is before the cursor.
    fn complete(&self, before: &str) -> Vec<String>;

    /// The paths of files and folders that begin so.
    fn paths(&self, _begin: &str) -> Vec<String> {
        Vec::new()
    }

    /// What that last word names, if it names something that the screen knows.
    fn names(&self, _before: &str) -> Option<Named> {
        None
    }
}

/// What a word names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A queue.
    Queue,
    /// A message.
    Message,
}

/// What is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A command.
    Command,
    /// A filter.
    Filter,
    /// A part of the name of a queue, which is selected meanwhile.
    Queue,
    /// The file of a handler that is to be tried.
    Handler,
}

/// The prompt while it is open.
#[derive(Debug)]
pub struct Prompt {
    /// What is typed.
    pub kind: Kind,
    /// The text.
    pub area: TextArea<'static>,
    /// What is wrong with it.
    pub error: Option<String>,
    /// What the word could be.
    pub candidates: Vec<String>,
    /// The chosen one of the actions that are listed, if one is.
    pub chosen: Option<usize>,
    /// The queue that was selected before one was looked for.
    pub queue_before: Option<QueueName>,
    /// What a handler is to be tried on.
    pub letters: Option<(QueueName, Letters)>,
    /// Where in the earlier lines it is, counted from the end; none on a line of its own.
    back: Option<usize>,
    /// The line of its own, while an earlier one is shown.
    own: String,
}

impl Prompt {
    /// A prompt with this text in it and the cursor behind.
    #[must_use]
    pub fn new(kind: Kind, text: &str) -> Self {
        let mut prompt = Self {
            kind,
            area: TextArea::default(),
            error: None,
            candidates: Vec::new(),
            chosen: None,
            queue_before: None,
            letters: None,
            back: None,
            own: String::new(),
        };
        prompt.set(text);
        prompt
    }

    /// What is typed so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// The same with the text selected, so that what is typed takes its place.
    #[must_use]
    pub fn selected(mut self) -> Self {
        if !self.text().is_empty() {
            self.area.select_all();
        }
        self
    }

    fn set(&mut self, text: &str) {
        self.area = text_area(text);
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
    }

    /// A key that is no binding's.
    pub fn input(&mut self, key: KeyEvent) {
        edit(&mut self.area, key);
        self.changed();
    }

    /// Text from the clipboard, lines and all.
    pub fn paste(&mut self, text: &str) {
        self.area
            .insert_str(text.replace("\r\n", "\n").replace('\r', "\n"));
        self.changed();
    }

    /// Begins another line.
    pub fn newline(&mut self) {
        self.area.insert_newline();
        self.changed();
    }

    fn changed(&mut self) {
        self.error = None;
        self.candidates.clear();
        self.chosen = None;
        self.back = None;
    }

    /// Completes the word before the cursor as far as it is certain, and shows what it could be.
    pub fn complete(
        &mut self,
        parser: &dyn CommandParser,
        known: impl FnOnce(Named) -> Vec<String>,
    ) {
        if self.kind == Kind::Handler {
            return self.complete_path(parser);
        }
        let before = self.before_cursor();
        let word = before
            .rsplit(char::is_whitespace)
            .next()
            .unwrap_or_default();
        let mut candidates = parser.complete(&before);
        let names = parser.names(&before).map(known).unwrap_or_default();
        candidates.extend(names.into_iter().filter(|name| name.starts_with(word)));
        let common = common_start(&candidates);
        if let Some(rest) = common.strip_prefix(word) {
            let sure = candidates.len() == 1;
            self.area
                .insert_str(format!("{rest}{}", if sure { " " } else { "" }));
        }
        self.changed();
        if candidates.len() != 1 {
            self.candidates = candidates;
        }
    }

    /// Completes the path of a handler, which may have blanks.
    fn complete_path(&mut self, parser: &dyn CommandParser) {
        self.area.cancel_selection();
        let before = self.before_cursor();
        let is_handler = |path: &str| Path::new(path).extension().is_some_and(|end| end == "wasm");
        let is_of_use = |path: &String| path.ends_with('/') || is_handler(path);
        let paths = parser.paths(&before).into_iter();
        let candidates: Vec<String> = paths.filter(is_of_use).collect();
        if let Some(rest) = common_start(&candidates).strip_prefix(&before) {
            self.area.insert_str(rest);
        }
        self.changed();
        if candidates.len() != 1 {
            self.candidates = candidates;
        }
    }

    fn before_cursor(&self) -> String {
        let cursor = self.area.cursor();
        let mut lines: Vec<String> = self.area.lines()[..cursor.0].to_vec();
        let line = &self.area.lines()[cursor.0];
        lines.push(line.chars().take(cursor.1).collect());
        lines.join("\n")
    }

    /// True while actions are listed above it: no earlier line is shown, and nothing below it.
    #[must_use]
    pub fn lists_actions(&self) -> bool {
        let shows_more = self.back.is_some() || self.error.is_some();
        self.kind == Kind::Command && !shows_more && self.candidates.is_empty()
    }

    /// Shows an earlier line.
    pub fn earlier(&mut self, lines: &[String]) {
        let back = self.back.map_or(1, |back| back + 1);
        if back > lines.len() {
            return;
        }
        if self.back.is_none() {
            self.own = self.text();
        }
        self.set(&lines[lines.len() - back].clone());
        self.changed();
        self.back = Some(back);
    }

    /// Shows a later line, at last the own one.
    pub fn later(&mut self, lines: &[String]) {
        let Some(back) = self.back else { return };
        if back == 1 {
            let own = std::mem::take(&mut self.own);
            self.set(&own);
            self.changed();
        } else {
            self.set(&lines[lines.len() - back + 1].clone());
            self.changed();
            self.back = Some(back - 1);
        }
    }

    /// What the text asks for.
    pub fn understand(
        &self,
        parser: &dyn CommandParser,
        queue: &QueueName,
        chosen: &[MessageId],
    ) -> Result<Line, String> {
        match self.kind {
            Kind::Command => parser.parse(&self.text(), queue, chosen),
            Kind::Filter | Kind::Queue | Kind::Handler => Filter::parse(&self.text())
                .map(Line::Filter)
                .map_err(|error| error.to_string()),
        }
    }
}

/// An editor with a text, without decorations.
pub(super) fn text_area(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.split('\n').map(str::to_owned).collect());
    area.set_cursor_line_style(Style::new());
    // A colour would be gone where there are none.
    area.set_selection_style(Style::new().add_modifier(Modifier::REVERSED));
    area.set_max_histories(100);
    area
}

/// A key in an editor: as readline has them, which is the editor's own way but for Ctrl-U.
pub(super) fn edit(area: &mut TextArea<'static>, key: KeyEvent) {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('u') if control => {
            area.delete_line_by_head();
        }
        _ => {
            area.input(key);
        }
    }
}

/// What all words start with.
fn common_start(words: &[String]) -> String {
    let Some((first, others)) = words.split_first() else {
        return String::new();
    };
    let mut common = first.as_str();
    for word in others {
        let same = common.chars().zip(word.chars()).take_while(|(a, b)| a == b);
        let length: usize = same.map(|(c, _)| c.len_utf8()).sum();
        common = &common[..length];
    }
    common.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Words;

    impl CommandParser for Words {
        fn parse(&self, line: &str, _: &QueueName, _: &[MessageId]) -> Result<Line, String> {
            Err(format!("{line}?"))
        }

        fn complete(&self, before: &str) -> Vec<String> {
            let word = before
                .rsplit(char::is_whitespace)
                .next()
                .unwrap_or_default();
            let known = ["pause", "paste", "quit"];
            known
                .iter()
                .filter(|k| k.starts_with(word))
                .map(|&k| k.to_owned())
                .collect()
        }
    }

    fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    fn typed(prompt: &mut Prompt, text: &str) {
        for c in text.chars() {
            prompt.input(key(KeyCode::Char(c), KeyModifiers::NONE));
        }
    }

    #[test]
    fn words_are_completed_as_far_as_they_are_certain() {
        let mut prompt = Prompt::new(Kind::Command, "");
        typed(&mut prompt, "p");
        prompt.complete(&Words, |_| Vec::new());
        assert_eq!(prompt.text(), "pa");
        assert_eq!(prompt.candidates, ["pause", "paste"]);
        typed(&mut prompt, "u");
        // A blank of several bytes is one as well.
        prompt.paste("\u{a0}\u{3000}");
        prompt.complete(&Words, |_| Vec::new());
        assert_eq!(prompt.text(), "pau\u{a0}\u{3000}");
        assert_eq!(prompt.candidates.len(), 3);
        let mut prompt = Prompt::new(Kind::Command, "pau");
        prompt.complete(&Words, |_| Vec::new());
        assert_eq!(prompt.text(), "pause ");
    }

    #[test]
    fn earlier_lines_come_back_and_so_does_the_own_one() {
        let lines = ["one".to_owned(), "two\nlines".to_owned()];
        let mut prompt = Prompt::new(Kind::Command, "");
        typed(&mut prompt, "own");
        prompt.earlier(&lines);
        assert_eq!(prompt.text(), "two\nlines");
        prompt.earlier(&lines);
        prompt.earlier(&lines);
        assert_eq!(prompt.text(), "one");
        prompt.later(&lines);
        prompt.later(&lines);
        assert_eq!(prompt.text(), "own");
        prompt.later(&lines);
        assert_eq!(prompt.text(), "own");
    }

    #[test]
    fn the_keys_are_those_of_a_shell() {
        let mut prompt = Prompt::new(Kind::Command, "send one two");
        let (ctrl, alt) = (KeyModifiers::CONTROL, KeyModifiers::ALT);
        prompt.input(key(KeyCode::Char('w'), ctrl));
        assert_eq!(prompt.text(), "send one ");
        prompt.input(key(KeyCode::Char('a'), ctrl));
        prompt.input(key(KeyCode::Char('f'), alt));
        typed(&mut prompt, "!");
        prompt.input(key(KeyCode::Char('e'), ctrl));
        typed(&mut prompt, "?");
        prompt.input(key(KeyCode::Char('b'), alt));
        prompt.input(key(KeyCode::Char('k'), ctrl));
        assert!(
            prompt.text().contains('!') && !prompt.text().contains('?'),
            "{}",
            prompt.text()
        );
        prompt.input(key(KeyCode::Char('u'), ctrl));
        assert_eq!(prompt.text(), "");
        prompt.paste("{\r\n\"a\": 1}\r");
        assert_eq!(prompt.text(), "{\n\"a\": 1}\n");
    }

    fn any_key() -> impl Strategy<Value = KeyEvent> {
        let codes = [
            KeyCode::Backspace,
            KeyCode::Delete,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::Enter,
            KeyCode::Tab,
            KeyCode::Esc,
            KeyCode::PageUp,
            KeyCode::Null,
            KeyCode::F(1),
        ];
        let code = prop_oneof![
            prop::sample::select(codes.to_vec()),
            prop::sample::select("wuknpfbaehdycxv".chars().collect::<Vec<_>>())
                .prop_map(KeyCode::Char),
            any::<char>().prop_map(KeyCode::Char),
        ];
        (code, 0_u8..8).prop_map(|(code, bits)| key(code, KeyModifiers::from_bits_truncate(bits)))
    }

    proptest! {
        #[test]
        fn no_keys_are_a_panic(
            keys in prop::collection::vec(any_key(), 0..40),
            pasted in ".*|[a\r\n\t\u{3000}é]{0,9}",
            lines in prop::collection::vec("[a\n]{0,5}", 0..4),
        ) {
            let mut prompt = Prompt::new(Kind::Command, "");
            for (at, key) in keys.into_iter().enumerate() {
                prompt.input(key);
                match at % 7 {
                    0 => prompt.paste(&pasted),
                    1 => prompt.complete(&Words, |_| Vec::new()),
                    2 => prompt.earlier(&lines),
                    3 => prompt.later(&lines),
                    4 => prompt.newline(),
                    _ => {}
                }
            }
            prop_assert!(!prompt.text().contains('\r'));
        }
    }
}
