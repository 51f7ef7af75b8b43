//! The one table of keys: it drives the input, the footer and the help.
//!
//! A lower-case letter does what can be done again or undone, an upper-case one what cannot.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

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
    /// What this host has in hand.
    InHand,
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
    Confirm, Editor, Groups, Help, InHand, Letters, Log, Message, Messages, Overview, Prompt,
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
    GuestsOnly,
    Yes,
    No,
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

const SCREENS: &[Scope] = &[Overview, Messages, Groups, Letters, Message, InHand, Log];
const LISTS: &[Scope] = &[
    Overview, Messages, Groups, Letters, Message, InHand, Log, Help,
];
const CHOOSING: &[Scope] = &[Overview, Messages, Groups, Letters];
const WITH_MESSAGE: &[Scope] = &[Messages, Letters, Message, InHand];
const DEAD: &[Scope] = &[Groups, Letters, Message];

const fn see(
    keys: &'static [Key],
    scopes: &'static [Scope],
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        keys,
        scopes,
        action,
        label,
        help,
        changes: false,
    }
}

const fn change(
    keys: &'static [Key],
    scopes: &'static [Scope],
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        keys,
        scopes,
        action,
        label,
        help,
        changes: true,
    }
}

/// All keys.
pub const BINDINGS: &[Binding] = &[
    see(
        &[Key::Char('y'), Key::Code(KeyCode::Enter)],
        &[Confirm],
        Action::Yes,
        "yes",
        "do it",
    ),
    see(
        &[Key::Char('n'), Key::Code(KeyCode::Esc), Key::Char('q')],
        &[Confirm],
        Action::No,
        "no",
        "leave it",
    ),
    see(
        &[Key::Code(KeyCode::Enter)],
        &[Prompt],
        Action::Submit,
        "do",
        "do what the line says",
    ),
    see(
        &[Key::Code(KeyCode::Tab)],
        &[Prompt],
        Action::Complete,
        "complete",
        "complete the word",
    ),
    see(
        &[Key::Alt(KeyCode::Enter)],
        &[Prompt],
        Action::Newline,
        "newline",
        "begin another line",
    ),
    see(
        &[Key::Code(KeyCode::Up)],
        &[Prompt],
        Action::Earlier,
        "earlier",
        "an earlier line",
    ),
    see(
        &[Key::Code(KeyCode::Down)],
        &[Prompt],
        Action::Later,
        "later",
        "a later line",
    ),
    see(
        &[Key::Code(KeyCode::Esc)],
        &[Prompt],
        Action::Back,
        "leave",
        "leave the prompt",
    ),
    see(
        &[Key::Ctrl('s')],
        &[Editor],
        Action::Save,
        "send",
        "send the edited payload as a new message; the dead letter is kept",
    ),
    see(
        &[Key::Code(KeyCode::Esc)],
        &[Editor],
        Action::Back,
        "leave",
        "leave the editor",
    ),
    change(
        &[Key::Char('s')],
        SCREENS,
        Action::OpenSend,
        "send",
        "send a message",
    ),
    see(
        &[Key::Code(KeyCode::Enter)],
        &[Overview, Messages, Groups, Letters, InHand],
        Action::Open,
        "open",
        "open what is selected",
    ),
    see(
        &[Key::Code(KeyCode::Esc), Key::Code(KeyCode::Backspace)],
        LISTS,
        Action::Back,
        "",
        "back; clears marks and the filter",
    ),
    change(
        &[Key::Char('p')],
        SCREENS,
        Action::Pause,
        "pause",
        "pause the queue for all hosts, or let it go on",
    ),
    change(
        &[Key::Char('x')],
        &[Messages, Message],
        Action::RunNow,
        "run now",
        "make it due now (the marked ones, if there are)",
    ),
    change(
        &[Key::Char('C')],
        &[Messages, Message],
        Action::Cancel,
        "cancel",
        "take it out of the queue (the marked ones, if there are)",
    ),
    change(
        &[Key::Char('r')],
        DEAD,
        Action::Redrive,
        "redrive",
        "put it back as a new message (all of the reason; the marked ones, if there are)",
    ),
    change(
        &[Key::Char('R')],
        &[Groups, Letters],
        Action::RedriveAll,
        "redrive all",
        "put back all that match the filter",
    ),
    change(
        &[Key::Char('e')],
        &[Letters, Message],
        Action::Edit,
        "edit",
        "edit the payload and send it as a new message; the dead letter is kept",
    ),
    change(
        &[Key::Char('D')],
        DEAD,
        Action::Delete,
        "delete",
        "delete it for good (all of the reason; the marked ones, if there are)",
    ),
    change(
        &[Key::Char('X')],
        &[Groups, Letters],
        Action::DeleteAll,
        "delete all",
        "delete all that match the filter",
    ),
    change(
        &[Key::Char('K')],
        &[InHand],
        Action::StopHandler,
        "stop",
        "stop this handler; the attempt counts as failed",
    ),
    see(
        &[Key::Char(' ')],
        &[Messages, Letters],
        Action::Mark,
        "mark",
        "mark it, or not",
    ),
    see(
        &[Key::Char('a')],
        &[Messages, Letters],
        Action::MarkAll,
        "mark page",
        "mark all on this page, or none",
    ),
    see(
        &[Key::Char('/')],
        &[Messages, Groups, Letters],
        Action::OpenFilter,
        "filter",
        "show what matches only",
    ),
    see(
        &[Key::Char(']'), Key::Code(KeyCode::Right), Key::Char('l')],
        &[Messages],
        Action::NextState,
        "state",
        "the next state",
    ),
    see(
        &[Key::Char('['), Key::Code(KeyCode::Left), Key::Char('h')],
        &[Messages],
        Action::PreviousState,
        "",
        "the state before",
    ),
    see(
        &[Key::Char('v')],
        &[Message],
        Action::PayloadView,
        "view",
        "the payload as JSON, as text, in hexadecimal",
    ),
    see(
        &[Key::Char('y')],
        WITH_MESSAGE,
        Action::CopyId,
        "copy id",
        "copy the id to the clipboard of the terminal",
    ),
    see(
        &[Key::Char('w')],
        &[Log],
        Action::GuestsOnly,
        "handlers only",
        "show what handlers printed only, or all",
    ),
    see(
        &[Key::Char('+'), Key::Char('=')],
        &[Overview],
        Action::ZoomOut,
        "",
        "a longer time in the graphs",
    ),
    see(
        &[Key::Char('-')],
        &[Overview],
        Action::ZoomIn,
        "",
        "a shorter time in the graphs",
    ),
    see(
        &[Key::Char(':')],
        SCREENS,
        Action::OpenPrompt,
        "command",
        "type a command",
    ),
    see(
        &[Key::Char('?'), Key::Code(KeyCode::F(1))],
        SCREENS,
        Action::ShowHelp,
        "help",
        "show the keys",
    ),
    see(
        &[Key::Char('q'), Key::Ctrl('c')],
        SCREENS,
        Action::Quit,
        "quit",
        "leave; asks when messages are in hand",
    ),
    see(
        &[Key::Char('q'), Key::Char('?')],
        &[Help],
        Action::Back,
        "close",
        "close the help",
    ),
    see(
        &[Key::Ctrl('c')],
        &[Help, Confirm, Prompt, Editor],
        Action::QuitAtOnce,
        "",
        "leave without a question",
    ),
    see(
        &[Key::Ctrl('z')],
        &[
            Overview, Messages, Groups, Letters, Message, InHand, Log, Help, Confirm,
        ],
        Action::Suspend,
        "",
        "stop this process and go back to the shell, until fg",
    ),
    see(
        &[Key::Ctrl('l')],
        LISTS,
        Action::Redraw,
        "",
        "draw everything again",
    ),
    see(
        &[Key::Code(KeyCode::Up), Key::Char('k')],
        LISTS,
        Action::Up,
        "",
        "up",
    ),
    see(
        &[Key::Code(KeyCode::Down), Key::Char('j')],
        LISTS,
        Action::Down,
        "",
        "down",
    ),
    see(
        &[Key::Code(KeyCode::PageUp), Key::Ctrl('b')],
        LISTS,
        Action::PageUp,
        "",
        "a page up",
    ),
    see(
        &[Key::Code(KeyCode::PageDown), Key::Ctrl('f')],
        LISTS,
        Action::PageDown,
        "",
        "a page down",
    ),
    see(
        &[Key::Code(KeyCode::Home), Key::Char('g')],
        LISTS,
        Action::Top,
        "",
        "to the top",
    ),
    see(
        &[Key::Code(KeyCode::End), Key::Char('G')],
        LISTS,
        Action::Bottom,
        "",
        "to the bottom of the page",
    ),
    see(
        &[Key::Code(KeyCode::Tab)],
        SCREENS,
        Action::NextScreen,
        "",
        "the next screen",
    ),
    see(
        &[Key::Code(KeyCode::BackTab)],
        SCREENS,
        Action::PreviousScreen,
        "",
        "the screen before",
    ),
    see(
        &[Key::Char('1')],
        SCREENS,
        Action::Screen(1),
        "",
        "overview",
    ),
    see(
        &[Key::Char('2')],
        SCREENS,
        Action::Screen(2),
        "",
        "messages",
    ),
    see(
        &[Key::Char('3')],
        SCREENS,
        Action::Screen(3),
        "",
        "dead letters",
    ),
    see(&[Key::Char('4')], SCREENS, Action::Screen(4), "", "in hand"),
    see(&[Key::Char('5')], SCREENS, Action::Screen(5), "", "log"),
    see(
        &[Key::Char('Q')],
        CHOOSING,
        Action::NextQueue,
        "",
        "the next queue",
    ),
    see(
        &[Key::Char('f')],
        SCREENS,
        Action::Freeze,
        "freeze",
        "hold the screen still, or let it go on",
    ),
];

/// All places, as people call them.
pub const PLACES: [(&str, Scope); 11] = [
    ("Overview", Overview),
    ("Messages", Messages),
    ("Dead letters by reason", Groups),
    ("Dead letters", Letters),
    ("One message", Message),
    ("In hand", InHand),
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
                Action::Cancel | Action::Delete | Action::DeleteAll | Action::StopHandler
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
