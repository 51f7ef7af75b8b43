//! A terminal of a host, and whoever sits at it: reads, stalls as a broken SSH line does, or leaves.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

const READS: u8 = 0;
const STALLS: u8 = 1;
const LEAVES: u8 = 2;

/// How long a thread looks away.
const NAP: Duration = Duration::from_millis(5);

/// So large that what a terminal keeps unread is a few frames.
const SIZE: Winsize = Winsize {
    ws_row: 80,
    ws_col: 250,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

pub(crate) struct Terminal {
    watcher: Arc<AtomicU8>,
    /// Where the program keeps its log.
    state: TempDir,
}

impl Terminal {
    /// Puts a program into a terminal of its own, with its log in a file there. Its stderr stays apart.
    pub(crate) fn around(command: &Command) -> (Self, Command) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, SIZE).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .unwrap();
        let state = TempDir::new().unwrap();
        // It makes the terminal the program's own, so that its end is told by SIGHUP.
        let mut inside = Command::new("setsid");
        inside.arg("--ctty").arg(command.get_program());
        inside.args(command.get_args().filter(|arg| *arg != "--no-tui"));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
            .env("TERM", "xterm-256color")
            .env("XDG_STATE_HOME", state.path())
            .stdin(slave.try_clone().unwrap())
            .stdout(slave)
            .stderr(Stdio::piped());
        let watcher = Arc::<AtomicU8>::default();
        let seen = Arc::clone(&watcher);
        std::thread::spawn(move || sit_at(&master, &seen));
        (Self { watcher, state }, inside)
    }

    /// The log as it grows, until the program ends, which its stderr tells.
    pub(crate) fn log(&self, mut stderr: ChildStderr) -> Tail {
        let has_ended = Arc::<AtomicBool>::default();
        let tells = Arc::clone(&has_ended);
        std::thread::spawn(move || {
            let _ = stderr.read_to_end(&mut Vec::new());
            tells.store(true, SeqCst);
        });
        Tail {
            path: self.state.path().join("dqhost/dqhost.log"),
            file: None,
            has_ended,
        }
    }

    pub(crate) fn stall(&self, stalls: bool) {
        let how = if stalls { STALLS } else { READS };
        self.watcher.store(how, SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.watcher.store(LEAVES, SeqCst);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Reads until it leaves or the program ends; then the terminal hangs up. It looks at the log, of
/// which each line changes the whole screen.
fn sit_at(master: &OwnedFd, watcher: &AtomicU8) {
    let nap = Timespec::try_from(NAP).unwrap();
    let mut buffer = [0; 16_384];
    let mut has_read = false;
    loop {
        match watcher.load(SeqCst) {
            LEAVES => return,
            STALLS => {
                // Asks for every cell to be drawn again: with a few frames the terminal is full.
                let _ = rustix::io::write(master, b"\x0c");
                std::thread::sleep(NAP * 10);
                continue;
            }
            _ => {}
        }
        let mut wait = [PollFd::new(master, PollFlags::IN)];
        if poll(&mut wait, Some(&nap)).is_err() || wait[0].revents().is_empty() {
            continue;
        }
        if !matches!(rustix::io::read(master, &mut buffer), Ok(1..)) {
            return;
        }
        if !std::mem::replace(&mut has_read, true) {
            let _ = rustix::io::write(master, b"5");
        }
    }
}

/// A file as it grows.
pub(crate) struct Tail {
    path: PathBuf,
    file: Option<File>,
    has_ended: Arc<AtomicBool>,
}

impl Read for Tail {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let has_ended = self.has_ended.load(SeqCst);
            if self.file.is_none() {
                self.file = File::open(&self.path).ok();
            }
            let count = match &mut self.file {
                Some(file) => file.read(buffer)?,
                None => 0,
            };
            if count > 0 || has_ended {
                return Ok(count);
            }
            std::thread::sleep(NAP);
        }
    }
}
