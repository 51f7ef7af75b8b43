//! The table itself: a line a key.

use crossterm::event::KeyCode;

use super::Scope::{
    Confirm, Editor, Groups, Help, InFlight, Letters, Log, Message, Messages, Overview, Prompt,
};
use super::{Action, Binding, Key, Scope};

const SCREENS: &[Scope] = &[Overview, Messages, Groups, Letters, Message, InFlight, Log];
const LISTS: &[Scope] = &[
    Overview, Messages, Groups, Letters, Message, InFlight, Log, Help,
];
const CHOOSING: &[Scope] = &[Overview, Messages, Groups, Letters];
const WITH_MESSAGE: &[Scope] = &[Messages, Letters, Message, InFlight];
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
    let mut binding = see(keys, scopes, action, label, help);
    binding.changes = true;
    binding
}

/// All keys.
#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    see(&[Key::Char('y')], &[Confirm], Action::Yes, "yes", "do it; if its number must be typed, type it and press Enter"),
    see(&[Key::Char('n'), Key::Code(KeyCode::Esc), Key::Char('q')], &[Confirm], Action::No, "no", "leave it"),
    see(&[Key::Code(KeyCode::Enter)], &[Confirm], Action::Submit, "", "take the marked answer, which is no at first"),
    see(&[Key::Code(KeyCode::Tab), Key::Code(KeyCode::BackTab), Key::Code(KeyCode::Left), Key::Code(KeyCode::Right)], &[Confirm], Action::OtherAnswer, "", "mark the other answer"),
    see(&[Key::Code(KeyCode::Enter)], &[Prompt], Action::Submit, "do", "do what the line says"),
    see(&[Key::Code(KeyCode::Tab)], &[Prompt], Action::Complete, "complete", "complete the word"),
    see(&[Key::Alt(KeyCode::Enter)], &[Prompt], Action::Newline, "newline", "begin another line"),
    see(&[Key::Code(KeyCode::Up)], &[Prompt], Action::Earlier, "earlier", "an earlier line"),
    see(&[Key::Code(KeyCode::Down)], &[Prompt], Action::Later, "later", "a later line"),
    see(&[Key::Code(KeyCode::Esc)], &[Prompt], Action::Back, "leave", "leave the prompt"),
    see(&[Key::Ctrl('s')], &[Editor], Action::Save, "send", "send the edited payload as a new message; the dead letter is kept"),
    see(&[Key::Code(KeyCode::Esc)], &[Editor], Action::Back, "leave", "leave the editor"),
    change(&[Key::Char('s')], SCREENS, Action::OpenSend, "send", "send a message"),
    see(&[Key::Code(KeyCode::Enter)], &[Overview, Messages, Groups, Letters, InFlight], Action::Open, "open", "open what is selected"),
    see(&[Key::Code(KeyCode::Esc), Key::Code(KeyCode::Backspace)], LISTS, Action::Back, "", "back; clears marks and the filter"),
    change(&[Key::Char('p')], SCREENS, Action::Pause, "pause", "pause the queue for all hosts, or let it go on"),
    change(&[Key::Char('x')], &[Messages, Message], Action::RunNow, "run now", "make it due now (the marked ones, if there are)"),
    change(&[Key::Char('C')], &[Messages, Message], Action::Cancel, "cancel", "take it out of the queue (the marked ones, if there are)"),
    change(&[Key::Char('r')], DEAD, Action::Redrive, "redrive", "put it back as a new message (all of the reason; the marked ones, if there are)"),
    change(&[Key::Char('R')], &[Groups, Letters], Action::RedriveAll, "redrive all", "put back all that match the filter"),
    change(&[Key::Char('e')], &[Letters, Message], Action::Edit, "edit", "edit the payload and send it as a new message; the dead letter is kept"),
    change(&[Key::Char('D')], DEAD, Action::Delete, "delete", "delete it for good (all of the reason; the marked ones, if there are)"),
    change(&[Key::Char('X')], &[Groups, Letters], Action::DeleteAll, "delete all", "delete all that match the filter"),
    change(&[Key::Char('K')], &[InFlight], Action::StopHandler, "stop", "stop this handler; the attempt counts as failed"),
    change(&[Key::Char('u')], SCREENS, Action::Undo, "", "undo a cancel or another time, for some seconds"),
    change(&[Key::Char('S')], SCREENS, Action::StopTask, "", "stop the task that is under way; what is done stays done"),
    see(&[Key::Char(' ')], &[Messages, Letters], Action::Mark, "mark", "mark it, or not"),
    see(&[Key::Char('a')], &[Messages, Letters], Action::MarkAll, "mark page", "mark all on this page, or none"),
    see(&[Key::Char('/')], &[Messages, Groups, Letters], Action::OpenFilter, "filter", "show what matches only"),
    see(&[Key::Char(']'), Key::Code(KeyCode::Right), Key::Char('l')], &[Messages], Action::NextState, "state", "the next state"),
    see(&[Key::Char('['), Key::Code(KeyCode::Left), Key::Char('h')], &[Messages], Action::PreviousState, "", "the state before"),
    see(&[Key::Char('v')], &[Message], Action::PayloadView, "view", "the payload as JSON, as text, in hexadecimal"),
    see(&[Key::Char('y')], WITH_MESSAGE, Action::CopyId, "copy id", "copy the id to the clipboard of the terminal"),
    see(&[Key::Char('w')], &[Log], Action::GuestsOnly, "handlers only", "show what handlers printed only, or all"),
    see(&[Key::Char('+'), Key::Char('=')], &[Overview], Action::ZoomOut, "", "a longer time in the graphs"),
    see(&[Key::Char('-')], &[Overview], Action::ZoomIn, "", "a shorter time in the graphs"),
    see(&[Key::Char(':')], SCREENS, Action::OpenPrompt, "command", "type a command"),
    see(&[Key::Char('?'), Key::Code(KeyCode::F(1))], SCREENS, Action::ShowHelp, "help", "show the keys"),
    see(&[Key::Char('q'), Key::Ctrl('c')], SCREENS, Action::Quit, "quit", "leave; asks when messages are in flight"),
    see(&[Key::Char('q'), Key::Char('?')], &[Help], Action::Back, "close", "close the help"),
    see(&[Key::Ctrl('c')], &[Help, Confirm, Prompt, Editor], Action::QuitAtOnce, "", "leave without a question"),
    see(&[Key::Ctrl('z')], &[Overview, Messages, Groups, Letters, Message, InFlight, Log, Help, Confirm], Action::Suspend, "", "stop this process and go back to the shell, until fg"),
    see(&[Key::Ctrl('l')], LISTS, Action::Redraw, "", "draw everything again"),
    see(&[Key::Code(KeyCode::Up), Key::Char('k')], LISTS, Action::Up, "", "up"),
    see(&[Key::Code(KeyCode::Down), Key::Char('j')], LISTS, Action::Down, "", "down"),
    see(&[Key::Code(KeyCode::PageUp), Key::Ctrl('b')], LISTS, Action::PageUp, "", "a page up"),
    see(&[Key::Code(KeyCode::PageDown), Key::Ctrl('f')], LISTS, Action::PageDown, "", "a page down"),
    see(&[Key::Code(KeyCode::Home), Key::Char('g')], LISTS, Action::Top, "", "to the top"),
    see(&[Key::Code(KeyCode::End), Key::Char('G')], LISTS, Action::Bottom, "", "to the bottom of the page"),
    see(&[Key::Code(KeyCode::Tab)], SCREENS, Action::NextScreen, "", "the next screen"),
    see(&[Key::Code(KeyCode::BackTab)], SCREENS, Action::PreviousScreen, "", "the screen before"),
    see(&[Key::Char('1')], SCREENS, Action::Screen(1), "", "overview"),
    see(&[Key::Char('2')], SCREENS, Action::Screen(2), "", "messages"),
    see(&[Key::Char('3')], SCREENS, Action::Screen(3), "", "dead letters"),
    see(&[Key::Char('4')], SCREENS, Action::Screen(4), "", "in flight"),
    see(&[Key::Char('5')], SCREENS, Action::Screen(5), "", "log"),
    see(&[Key::Char('n')], CHOOSING, Action::NextQueue, "", "the next queue"),
    see(&[Key::Char('f')], SCREENS, Action::Freeze, "freeze", "hold the screen still, or let it go on"),
];
