//! The terminal: taken over, and given back as it was, whatever happens.

use std::io::{self, Stdout, Write};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};
use tokio::signal::unix::{SignalKind, signal};

/// The signal with which a shell lets a stopped process go on.
const SIGCONT: i32 = rustix::process::Signal::CONT.as_raw();

/// The terminal while it is ours; dropping it gives it back, also when the dashboard panics.
pub(super) struct Screen {
    /// Never dropped: it would show the cursor, which is done here, and panic when the terminal is gone.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    unread: Arc<Unread>,
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(
        io::stdout(),
        EnterAlternateScreen,
        EnableBracketedPaste,
        cursor::Hide
    )
}

/// Errors are left: there is nothing more that could be done for the terminal.
fn leave() {
    let _ = execute!(
        io::stdout(),
        // One may have begun.
        EndSynchronizedUpdate,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = disable_raw_mode();
}

/// Columns and rows.
pub(super) fn size() -> io::Result<(u16, u16)> {
    crossterm::terminal::size()
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

    /// Makes room for what gives the terminal back, if it would have to wait.
    fn give_back(&self) {
        let mut ending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ending.gives_back = true;
        if ending.discards || !has_room() {
            discard_output();
        }
    }
}

fn discard_output() {
    let _ = tcflush(rustix::stdio::stdout(), QueueSelector::OFlush);
}

/// False when the terminal is full.
fn has_room() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut wait = [PollFd::new(&stdout, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut wait, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Gives back only what can be given back without writing to the terminal. It never waits.
pub(super) fn restore_settings() {
    let _ = disable_raw_mode();
}

impl Screen {
    pub(super) fn take(unread: Arc<Unread>) -> io::Result<Self> {
        enter()?;
        match Terminal::new(CrosstermBackend::new(io::stdout())) {
            Ok(terminal) => Ok(Self {
                terminal: ManuallyDrop::new(terminal),
                unread,
            }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    /// Draws a frame, which the terminal shows whole or not at all, if it knows of such (DEC 2026).
    pub(super) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(frame)?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Gives the terminal back, stops the process as Ctrl-Z does, and takes the terminal again when
    /// the shell lets it go on.
    pub(super) async fn suspend(&mut self) -> io::Result<()> {
        let mut continued = signal(SignalKind::from_raw(SIGCONT))?;
        leave();
        // Another thread may take it, so this one may go on for a moment.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        continued.recv().await;
        enter()?;
        self.draw_all()
    }

    /// Makes the next frame draw every cell. (`Terminal::clear` would ask the terminal where its
    /// cursor is, and wait for an answer that may not come.)
    pub(super) fn draw_all(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
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

impl Drop for Screen {
    fn drop(&mut self) {
        self.unread.give_back();
        leave();
    }
}
