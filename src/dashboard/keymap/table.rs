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
    ShowSettings,
    ChangeSetting,
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
    (name, keys): (&'static str, &'static [Key]),
    reach: Reach,
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        name,
        keys,
        reach,
        action,
        label,
        help,
        changes: false,
    }
}

const fn change(
    named: (&'static str, &'static [Key]),
    reach: Reach,
    action: Action,
    label: &'static str,
    help: &'static str,
) -> Binding {
    let mut binding = see(named, reach, action, label, help);
    binding.changes = true;
    binding
}

/// The key of a tab, the number of which it is.
#[must_use]
pub const fn tab(
    name: &'static str,
    keys: &'static [Key],
    number: u8,
    help: &'static str,
) -> Binding {
    see((name, keys), SCREENS, Action::Screen(number), "", help)
}

/// All keys but those of the tabs: what is listed before them.
#[rustfmt::skip]
pub const BEFORE_TABS: &[Binding] = &[
    see(("yes", &[Key::Char('y')]), Only(&[Confirm]), Action::Yes, "yes", "do it; if its number must be typed, type it and press Enter"),
    see(("no", &[Key::Char('n'), Key::Code(KeyCode::Esc), Key::Char('q')]), Only(&[Confirm]), Action::No, "no", "leave it"),
    see(("take-answer", &[Key::Code(KeyCode::Enter)]), Only(&[Confirm]), Action::Submit, "", "take the marked answer, which is no at first"),
    see(("other-answer", &[Key::Code(KeyCode::Tab), Key::Code(KeyCode::BackTab), Key::Code(KeyCode::Left), Key::Code(KeyCode::Right)]), Only(&[Confirm]), Action::OtherAnswer, "", "mark the other answer"),
    see(("prompt-submit", &[Key::Code(KeyCode::Enter)]), Only(&[Prompt]), Action::Submit, "do", "do what the line says"),
    see(("prompt-complete", &[Key::Code(KeyCode::Tab)]), Only(&[Prompt]), Action::Complete, "complete", "complete the word"),
    see(("prompt-newline", &[Key::Alt(KeyCode::Enter)]), Only(&[Prompt]), Action::Newline, "newline", "begin another line"),
    see(("prompt-earlier", &[Key::Code(KeyCode::Up)]), Only(&[Prompt]), Action::Earlier, "earlier", "an earlier line; the action above"),
    see(("prompt-later", &[Key::Code(KeyCode::Down)]), Only(&[Prompt]), Action::Later, "later", "a later line; the action below, which Enter does"),
    see(("prompt-leave", &[Key::Code(KeyCode::Esc)]), Only(&[Prompt]), Action::Back, "leave", "leave the prompt"),
    see(("editor-send", &[Key::Ctrl('s')]), Only(&[Editor]), Action::Save, "send", "send the edited payload as a new message; the dead letter is kept"),
    see(("editor-leave", &[Key::Code(KeyCode::Esc)]), Only(&[Editor]), Action::Back, "leave", "leave the editor"),
    change(("send", &[Key::Char('s')]), SCREENS, Action::OpenSend, "send", "send a message"),
    see(("open", &[Key::Code(KeyCode::Enter)]), Named, Action::Open, "open", "open what is selected"),
    see(("back", &[Key::Code(KeyCode::Esc), Key::Code(KeyCode::Backspace)]), LISTS, Action::Back, "", "back; clears marks and the filter"),
    change(("pause", &[Key::Char('p')]), SCREENS, Action::Pause, "pause", "pause the queue for all hosts, or let it go on"),
    change(("run-now", &[Key::Char('x')]), Named, Action::RunNow, "run now", "make it due now (the marked ones, if there are)"),
    change(("cancel", &[Key::Char('C')]), Named, Action::Cancel, "cancel", "take it out of the queue (the marked ones, if there are)"),
    change(("redrive", &[Key::Char('r')]), Named, Action::Redrive, "redrive", "put it back as a new message (all of the reason; the marked ones; those that a tried handler acks)"),
    change(("redrive-all", &[Key::Char('R')]), Named, Action::RedriveAll, "redrive all", "put back all that match the filter"),
    change(("edit", &[Key::Char('e')]), Named, Action::Edit, "edit", "edit the payload and send it as a new message; the dead letter is kept"),
    change(("delete", &[Key::Char('D')]), Named, Action::Delete, "delete", "delete it for good (all of the reason; the marked ones, if there are)"),
    change(("delete-all", &[Key::Char('X')]), Named, Action::DeleteAll, "delete all", "delete all that match the filter"),
    change(("stop-handler", &[Key::Char('K')]), Named, Action::StopHandler, "stop", "stop this handler, or the longest of the queue; the attempt counts as failed"),
    change(("undo", &[Key::Char('u')]), SCREENS, Action::Undo, "", "undo a cancel or another time, for some seconds"),
    see(("stop-task", &[Key::Char('S')]), SCREENS, Action::StopTask, "", "stop the task that is under way; what is done stays done"),
    see(("mark", &[Key::Char(' ')]), Named, Action::Mark, "mark", "mark it, or not"),
    see(("try", &[Key::Char('t')]), Named, Action::Try, "try", "see which ones another handler acks (all of the reason; the marked ones, if there are); nothing is changed"),
    see(("mark-page", &[Key::Char('a')]), Named, Action::MarkAll, "mark page", "mark all on this page, or none"),
    see(("filter", &[Key::Char('/')]), Named, Action::OpenFilter, "filter", "show what matches only"),
    see(("find-queue", &[Key::Char('/')]), Named, Action::FindQueue, "find", "select a queue by a part of its name"),
    see(("cause", &[Key::Char('!')]), Named, Action::Cause, "", "show what the first warning is about; without one, why most messages died"),
    see(("sort-queues", &[Key::Char('o')]), Named, Action::SortQueues, "", "sort the queues by another column"),
    see(("next-state", &[Key::Char(']'), Key::Code(KeyCode::Right), Key::Char('l')]), Named, Action::NextState, "state", "the next state"),
    see(("previous-state", &[Key::Char('['), Key::Code(KeyCode::Left), Key::Char('h')]), Named, Action::PreviousState, "", "the state before"),
    see(("payload-view", &[Key::Char('v')]), Named, Action::PayloadView, "view", "the payload as JSON, as text, in hexadecimal"),
    see(("copy-id", &[Key::Char('y')]), Named, Action::CopyId, "copy id", "copy the id to the clipboard of the terminal"),
    see(("copy-payload", &[Key::Char('c')]), Named, Action::CopyPayload, "", "copy the payload to the clipboard of the terminal"),
    see(("handlers-only", &[Key::Char('w')]), Named, Action::GuestsOnly, "handlers only", "show what handlers printed only, or all"),
    see(("longer-time", &[Key::Char('+'), Key::Char('=')]), Named, Action::ZoomOut, "", "a longer time in the graphs"),
    see(("shorter-time", &[Key::Char('-')]), Named, Action::ZoomIn, "", "a shorter time in the graphs"),
    see(("due-ahead", &[Key::Char('z')]), Named, Action::ZoomAhead, "", "what falls due in the next minute, hour, day or week"),
    see(("by-handler", &[Key::Char('d')]), Named, Action::ByHandler, "by handler", "what each handler did, before and after another took its place; or not"),
    see(("command", &[Key::Char(':')]), SCREENS, Action::OpenPrompt, "command", "type a command, or choose from all actions"),
    see(("help", &[Key::Char('?'), Key::Code(KeyCode::F(1))]), SCREENS, Action::ShowHelp, "help", "show the keys"),
    see(("settings", &[Key::Char(',')]), SCREENS, Action::ShowSettings, "", "show the settings and where they came from, or go back"),
    see(("change-setting", &[Key::Code(KeyCode::Enter), Key::Char(' ')]), Named, Action::ChangeSetting, "change", "change the setting until this program ends"),
    see(("quit", &[Key::Char('q'), Key::Ctrl('c')]), SCREENS, Action::Quit, "quit", "leave; asks when messages are in flight"),
    see(("help-close", &[Key::Char('q'), Key::Char('?')]), Only(&[Help]), Action::Back, "close", "close the help"),
    see(("leave-at-once", &[Key::Ctrl('c')]), Only(&[Help, Confirm, Prompt, Editor]), Action::QuitAtOnce, "", "leave without a question"),
    see(("suspend", &[Key::Ctrl('z')]), EachScreen(&[Help, Confirm]), Action::Suspend, "", "stop this process and go back to the shell, until fg"),
    see(("redraw", &[Key::Ctrl('l')]), LISTS, Action::Redraw, "", "draw everything again"),
    see(("up", &[Key::Code(KeyCode::Up), Key::Char('k')]), LISTS, Action::Up, "", "up"),
    see(("down", &[Key::Code(KeyCode::Down), Key::Char('j')]), LISTS, Action::Down, "", "down"),
    see(("page-up", &[Key::Code(KeyCode::PageUp), Key::Ctrl('b')]), LISTS, Action::PageUp, "", "a page up"),
    see(("page-down", &[Key::Code(KeyCode::PageDown), Key::Ctrl('f')]), LISTS, Action::PageDown, "", "a page down"),
    see(("top", &[Key::Code(KeyCode::Home), Key::Char('g')]), LISTS, Action::Top, "", "to the top"),
    see(("bottom", &[Key::Code(KeyCode::End), Key::Char('G')]), LISTS, Action::Bottom, "", "to the bottom of the page"),
    see(("next-screen", &[Key::Code(KeyCode::Tab)]), SCREENS, Action::NextScreen, "", "the next screen"),
    see(("previous-screen", &[Key::Code(KeyCode::BackTab)]), SCREENS, Action::PreviousScreen, "", "the screen before"),
    see(("place-before", &[Key::Char('<'), Key::Alt(KeyCode::Left)]), SCREENS, Action::PlaceBefore, "", "back to where you were before: a screen, a message, a filter"),
    see(("place-after", &[Key::Char('>'), Key::Alt(KeyCode::Right)]), SCREENS, Action::PlaceAfter, "", "forward again"),
];

/// And what is listed after them.
#[rustfmt::skip]
pub const AFTER_TABS: &[Binding] = &[
    see(("next-queue", &[Key::Char('n')]), Named, Action::NextQueue, "", "the next queue"),
    see(("freeze", &[Key::Char('f')]), SCREENS, Action::Freeze, "freeze", "hold the screen still, or let it go on"),
];
