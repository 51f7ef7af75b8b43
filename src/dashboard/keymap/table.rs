//! The table itself: a line a key, and what keys do.

use crossterm::event::KeyCode;

use super::Reach::{EachScreen, Named, Only};
use super::Scope::{Confirm, Editor, Help, Prompt};
use super::{Binding, Key, Reach};

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
    FindQueue,
    SortQueues,
    Cause,
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
    PlaceBefore,
    PlaceAfter,
    Screen(u8),
    NextState,
    PreviousState,
    NextQueue,
    Freeze,
    ZoomIn,
    ZoomOut,
    ZoomAhead,
    ByHandler,
    Pause,
    Mark,
    MarkAll,
    CopyId,
    CopyPayload,
    PayloadView,
    Cancel,
    RunNow,
    Redrive,
    Try,
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

const SCREENS: Reach = EachScreen(&[]);
const LISTS: Reach = EachScreen(&[Help]);

const fn see(
    keys: &'static [Key],
    reach: Reach,
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        keys,
        reach,
        action,
        label,
        help,
        changes: false,
    }
}

const fn change(
    keys: &'static [Key],
    reach: Reach,
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    let mut binding = see(keys, reach, action, label, help);
    binding.changes = true;
    binding
}

/// The key of a tab, the number of which it is.
#[must_use]
pub const fn tab(keys: &'static [Key], number: u8, help: &'static str) -> Binding {
    see(keys, SCREENS, Action::Screen(number), "", help)
}

/// All keys but those of the tabs: what is listed before them.
#[rustfmt::skip]
pub const BEFORE_TABS: &[Binding] = &[
    see(&[Key::Char('y')], Only(&[Confirm]), Action::Yes, "yes", "do it; if its number must be typed, type it and press Enter"),
    see(&[Key::Char('n'), Key::Code(KeyCode::Esc), Key::Char('q')], Only(&[Confirm]), Action::No, "no", "leave it"),
    see(&[Key::Code(KeyCode::Enter)], Only(&[Confirm]), Action::Submit, "", "take the marked answer, which is no at first"),
    see(&[Key::Code(KeyCode::Tab), Key::Code(KeyCode::BackTab), Key::Code(KeyCode::Left), Key::Code(KeyCode::Right)], Only(&[Confirm]), Action::OtherAnswer, "", "mark the other answer"),
    see(&[Key::Code(KeyCode::Enter)], Only(&[Prompt]), Action::Submit, "do", "do what the line says"),
    see(&[Key::Code(KeyCode::Tab)], Only(&[Prompt]), Action::Complete, "complete", "complete the word"),
    see(&[Key::Alt(KeyCode::Enter)], Only(&[Prompt]), Action::Newline, "newline", "begin another line"),
    see(&[Key::Code(KeyCode::Up)], Only(&[Prompt]), Action::Earlier, "earlier", "an earlier line; the action above"),
    see(&[Key::Code(KeyCode::Down)], Only(&[Prompt]), Action::Later, "later", "a later line; the action below, which Enter does"),
    see(&[Key::Code(KeyCode::Esc)], Only(&[Prompt]), Action::Back, "leave", "leave the prompt"),
    see(&[Key::Ctrl('s')], Only(&[Editor]), Action::Save, "send", "send the edited payload as a new message; the dead letter is kept"),
    see(&[Key::Code(KeyCode::Esc)], Only(&[Editor]), Action::Back, "leave", "leave the editor"),
    change(&[Key::Char('s')], SCREENS, Action::OpenSend, "send", "send a message"),
    see(&[Key::Code(KeyCode::Enter)], Named, Action::Open, "open", "open what is selected"),
    see(&[Key::Code(KeyCode::Esc), Key::Code(KeyCode::Backspace)], LISTS, Action::Back, "", "back; clears marks and the filter"),
    change(&[Key::Char('p')], SCREENS, Action::Pause, "pause", "pause the queue for all hosts, or let it go on"),
    change(&[Key::Char('x')], Named, Action::RunNow, "run now", "make it due now (the marked ones, if there are)"),
    change(&[Key::Char('C')], Named, Action::Cancel, "cancel", "take it out of the queue (the marked ones, if there are)"),
    change(&[Key::Char('r')], Named, Action::Redrive, "redrive", "put it back as a new message (all of the reason; the marked ones; those that a tried handler acks)"),
    change(&[Key::Char('R')], Named, Action::RedriveAll, "redrive all", "put back all that match the filter"),
    change(&[Key::Char('e')], Named, Action::Edit, "edit", "edit the payload and send it as a new message; the dead letter is kept"),
    change(&[Key::Char('D')], Named, Action::Delete, "delete", "delete it for good (all of the reason; the marked ones, if there are)"),
    change(&[Key::Char('X')], Named, Action::DeleteAll, "delete all", "delete all that match the filter"),
    change(&[Key::Char('K')], Named, Action::StopHandler, "stop", "stop this handler, or the longest of the queue; the attempt counts as failed"),
    change(&[Key::Char('u')], SCREENS, Action::Undo, "", "undo a cancel or another time, for some seconds"),
    see(&[Key::Char('S')], SCREENS, Action::StopTask, "", "stop the task that is under way; what is done stays done"),
    see(&[Key::Char(' ')], Named, Action::Mark, "mark", "mark it, or not"),
    see(&[Key::Char('t')], Named, Action::Try, "try", "see which ones another handler acks (all of the reason; the marked ones, if there are); nothing is changed"),
    see(&[Key::Char('a')], Named, Action::MarkAll, "mark page", "mark all on this page, or none"),
    see(&[Key::Char('/')], Named, Action::OpenFilter, "filter", "show what matches only"),
    see(&[Key::Char('/')], Named, Action::FindQueue, "find", "select a queue by a part of its name"),
    see(&[Key::Char('!')], Named, Action::Cause, "", "show what the first warning is about; without one, why most messages died"),
    see(&[Key::Char('o')], Named, Action::SortQueues, "", "sort the queues by another column"),
    see(&[Key::Char(']'), Key::Code(KeyCode::Right), Key::Char('l')], Named, Action::NextState, "state", "the next state"),
    see(&[Key::Char('['), Key::Code(KeyCode::Left), Key::Char('h')], Named, Action::PreviousState, "", "the state before"),
    see(&[Key::Char('v')], Named, Action::PayloadView, "view", "the payload as JSON, as text, in hexadecimal"),
    see(&[Key::Char('y')], Named, Action::CopyId, "copy id", "copy the id to the clipboard of the terminal"),
    see(&[Key::Char('c')], Named, Action::CopyPayload, "", "copy the payload to the clipboard of the terminal"),
    see(&[Key::Char('w')], Named, Action::GuestsOnly, "handlers only", "show what handlers printed only, or all"),
    see(&[Key::Char('+'), Key::Char('=')], Named, Action::ZoomOut, "", "a longer time in the graphs"),
    see(&[Key::Char('-')], Named, Action::ZoomIn, "", "a shorter time in the graphs"),
    see(&[Key::Char('z')], Named, Action::ZoomAhead, "", "what falls due in the next minute, hour, day or week"),
    see(&[Key::Char('d')], Named, Action::ByHandler, "by handler", "what each handler did, before and after another took its place; or not"),
    see(&[Key::Char(':')], SCREENS, Action::OpenPrompt, "command", "type a command, or choose from all actions"),
    see(&[Key::Char('?'), Key::Code(KeyCode::F(1))], SCREENS, Action::ShowHelp, "help", "show the keys"),
    see(&[Key::Char('q'), Key::Ctrl('c')], SCREENS, Action::Quit, "quit", "leave; asks when messages are in flight"),
    see(&[Key::Char('q'), Key::Char('?')], Only(&[Help]), Action::Back, "close", "close the help"),
    see(&[Key::Ctrl('c')], Only(&[Help, Confirm, Prompt, Editor]), Action::QuitAtOnce, "", "leave without a question"),
    see(&[Key::Ctrl('z')], EachScreen(&[Help, Confirm]), Action::Suspend, "", "stop this process and go back to the shell, until fg"),
    see(&[Key::Ctrl('l')], LISTS, Action::Redraw, "", "draw everything again"),
    see(&[Key::Code(KeyCode::Up), Key::Char('k')], LISTS, Action::Up, "", "up"),
    see(&[Key::Code(KeyCode::Down), Key::Char('j')], LISTS, Action::Down, "", "down"),
    see(&[Key::Code(KeyCode::PageUp), Key::Ctrl('b')], LISTS, Action::PageUp, "", "a page up"),
    see(&[Key::Code(KeyCode::PageDown), Key::Ctrl('f')], LISTS, Action::PageDown, "", "a page down"),
    see(&[Key::Code(KeyCode::Home), Key::Char('g')], LISTS, Action::Top, "", "to the top"),
    see(&[Key::Code(KeyCode::End), Key::Char('G')], LISTS, Action::Bottom, "", "to the bottom of the page"),
    see(&[Key::Code(KeyCode::Tab)], SCREENS, Action::NextScreen, "", "the next screen"),
    see(&[Key::Code(KeyCode::BackTab)], SCREENS, Action::PreviousScreen, "", "the screen before"),
    see(&[Key::Char('<'), Key::Alt(KeyCode::Left)], SCREENS, Action::PlaceBefore, "", "back to where you were before: a screen, a message, a filter"),
    see(&[Key::Char('>'), Key::Alt(KeyCode::Right)], SCREENS, Action::PlaceAfter, "", "forward again"),
];

/// And what is listed after them.
#[rustfmt::skip]
pub const AFTER_TABS: &[Binding] = &[
    see(&[Key::Char('n')], Named, Action::NextQueue, "", "the next queue"),
    see(&[Key::Char('f')], SCREENS, Action::Freeze, "freeze", "hold the screen still, or let it go on"),
];
