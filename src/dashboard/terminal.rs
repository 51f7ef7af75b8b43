//! The terminal: taken over, and given back as it was, whatever happens.

use std::io::{self, Stdout, Write};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect, Size};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::getpgrp;
use rustix::termios::{Action, QueueSelector, tcflow, tcflush, tcgetpgrp};
use tokio::signal::unix::{SignalKind, signal};

/// The signal with which a shell lets a stopped process go on.
const SIGCONT: i32 = rustix::process::Signal::CONT.as_raw();

/// The terminal while it is taken; dropping it gives it back, also when the dashboard panics.
pub(super) struct Screen {
    /// Never dropped: it would show the cursor, which is done here, and panic when the terminal is gone.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// What is drawn of it.
    area: Rect,
    has_mouse: bool,
    unread: Arc<Unread>,
}

/// Buttons and the wheel are told, and moves are not: those would come in floods.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

fn enter(has_mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    execute!(
        io::stdout(),
        EnterAlternateScreen,
        EnableBracketedPaste,
        cursor::Hide,
        Print(if has_mouse { MOUSE_ON } else { "" })
    )
}

/// How often what gives the terminal back is tried to be written.
const LEAVE_TRIES: usize = 10;

/// How long it waits each time for a terminal that is read slowly.
const LEAVE_WITHIN: Duration = Duration::from_millis(50);

/// Errors are left: there is nothing more that could be done for the terminal.
fn leave() {
    let mut bytes = Vec::new();
    let _ = queue!(
        bytes,
        // One may have begun.
        EndSynchronizedUpdate,
        Print(MOUSE_OFF),
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show
    );
    write_whole(&bytes);
    let _ = disable_raw_mode();
}

/// Writes all of it in one piece, and waits for no reader: where there is no room, what was not read is
/// discarded. What was written in part is written again from its start.
fn write_whole(bytes: &[u8]) {
    let stdout = rustix::stdio::stdout();
    let Ok(flags) = fcntl_getfl(stdout) else {
        return;
    };
    let _ = fcntl_setfl(stdout, flags | OFlags::NONBLOCK);
    for _ in 0..LEAVE_TRIES {
        if rustix::io::write(stdout, bytes) == Ok(bytes.len()) {
            break;
        }
        if !has_room(LEAVE_WITHIN) {
            discard_output();
        }
    }
    let _ = fcntl_setfl(stdout, flags);
}

/// More columns or rows than this are left empty: each cell costs memory, and a terminal may say that it
/// has billions.
const SIZE_MAX: u16 = 500;

/// The columns and rows that are drawn.
pub(super) fn size() -> io::Result<(u16, u16)> {
    let (columns, rows) = crossterm::terminal::size()?;
    Ok((columns.min(SIZE_MAX), rows.min(SIZE_MAX)))
}

fn area() -> io::Result<Rect> {
    Ok(Rect::from((Position::ORIGIN, Size::from(size()?))))
}

/// How often a program in the background looks whether the terminal is its own.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// True when this program may use the terminal. The system stops one that does so in the background,
/// with all its threads.
fn is_ours() -> bool {
    let stdin = rustix::stdio::stdin();
    // Without job control there is no background.
    tcgetpgrp(stdin).map_or(true, |foreground| foreground == getpgrp())
}

/// Makes writes wait for room. Another program on the same terminal may have switched that off.
fn wait_for_room() -> io::Result<()> {
    let stdout = rustix::stdio::stdout();
    let flags = fcntl_getfl(stdout)?;
    if flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(stdout, flags - OFlags::NONBLOCK)?;
    }
    Ok(())
}

/// What becomes of output that nobody reads, at the end. A std mutex: nothing that waits is done while it
/// is held.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<Ending>);

#[derive(Debug, Default)]
struct Ending {
    discards: bool,
    /// What is written from now on gives the terminal back and is not discarded.
    gives_back: bool,
}

impl Unread {
    /// Discards what was written and not read, so that whoever waits to write goes on.
    pub(super) fn discard(&self) {
        let mut ending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ending.discards = true;
        if !ending.gives_back {
            discard_output();
        }
    }

    /// From now on nothing is discarded that gives the terminal back.
    fn give_back(&self) {
        let mut ending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ending.gives_back = true;
        if ending.discards {
            discard_output();
        }
    }
}

fn discard_output() {
    let stdout = rustix::stdio::stdout();
    let _ = tcflush(stdout, QueueSelector::OFlush);
    // Linux makes room by that and wakes nobody who waits for it. The start of a stopped output does.
    let _ = tcflow(stdout, Action::OOff);
    let _ = tcflow(stdout, Action::OOn);
}

/// False when the terminal stays full for so long.
fn has_room(within: Duration) -> bool {
    let stdout = rustix::stdio::stdout();
    let mut wait = [PollFd::new(&stdout, PollFlags::OUT)];
    let within = Timespec::try_from(within).ok();
    poll(&mut wait, within.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Gives back only what can be given back without writing to the terminal. It never waits.
pub(super) fn restore_settings() {
    if is_ours() {
        let _ = disable_raw_mode();
    }
}

impl Screen {
    /// Waits until the program is in the foreground, and takes the terminal.
    pub(super) async fn take(unread: Arc<Unread>, has_mouse: bool) -> io::Result<Self> {
        while !is_ours() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        enter(has_mouse)?;
        let area = area()?;
        let options = TerminalOptions {
            viewport: Viewport::Fixed(area),
        };
        match Terminal::with_options(CrosstermBackend::new(io::stdout()), options) {
            Ok(terminal) => Ok(Self {
                terminal: ManuallyDrop::new(terminal),
                area,
                has_mouse,
                unread,
            }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    /// Takes the mouse or leaves it to the terminal, if it is not so already.
    pub(super) fn set_mouse(&mut self, has_mouse: bool) -> io::Result<()> {
        if has_mouse != self.has_mouse {
            self.has_mouse = has_mouse;
            execute!(
                io::stdout(),
                Print(if has_mouse { MOUSE_ON } else { MOUSE_OFF })
            )?;
        }
        Ok(())
    }

    /// Draws a frame, which the terminal shows whole or not at all, if it knows of such (DEC 2026).
    pub(super) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        wait_for_room()?;
        match self.draw_once(frame) {
            // Switched off in the middle: the next frame is a whole one.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for_room()?;
                self.draw_all()
            }
            result => result,
        }
    }

    fn draw_once(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let area = area()?;
        if area != self.area {
            self.terminal.resize(area)?;
            self.area = area;
        }
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(frame)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Makes the next frame draw every cell. (`Terminal::clear` would ask the terminal where its
    /// cursor is, and wait for an answer that may not come.)
    pub(super) fn draw_all(&mut self) -> io::Result<()> {
        self.terminal.resize(self.area)
    }

    /// Puts text into the clipboard of the terminal, over any distance (OSC 52). The text goes in
    /// base64, so nothing in it is a command to the terminal.
    pub(super) fn copy(text: &str) -> io::Result<()> {
        use base64::Engine;
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        let mut out = io::stdout();
        write!(out, "\x1b]52;c;{encoded}\x07")?;
        out.flush()
    }
}

/// Stops the process as Ctrl-Z does, and returns when the shell lets it go on. The terminal is not taken
/// meanwhile.
pub(super) async fn stop() -> io::Result<()> {
    let mut continued = signal(SignalKind::from_raw(SIGCONT))?;
    // Another thread may take it, so this one may go on for a moment.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
    continued.recv().await;
    Ok(())
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.unread.give_back();
        // In the background it is somebody else's, who has it as they want it.
        if is_ours() {
            leave();
        }
    }
}
