//! The program in a pseudo-terminal.

use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{PATIENCE, eventually};

/// What the program wrote: the screen that came of it, and every byte.
struct Written {
    bytes: Vec<u8>,
    /// How many of them are on the screen: of a frame all or none.
    shown: usize,
    screen: vt100::Parser,
    moments: Vec<(Instant, Moment)>,
}

/// What a recording of a terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// So many bytes were on the screen.
    Shown(usize),
    /// It had so many columns and rows from then on.
    Resized(u16, u16),
    /// Something was done that a viewer needs time for.
    Step,
}

/// What a terminal showed and when, also after the program has ended.
pub(crate) struct Recording(Arc<Mutex<Written>>);

impl Recording {
    /// Every byte that was written, and each moment.
    pub(crate) fn all(&self) -> (Vec<u8>, Vec<(Instant, Moment)>) {
        let written = self.0.lock().unwrap();
        (written.bytes.clone(), written.moments.clone())
    }
}

/// Between these two is a frame.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

/// Where bytes stand for the last time.
fn last(bytes: &[u8], of: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(of.len());
    windows.rposition(|window| window == of)
}

impl Written {
    fn new(columns: u16, rows: u16) -> Self {
        Self {
            bytes: Vec::new(),
            shown: 0,
            screen: vt100::Parser::new(nonzero(rows), nonzero(columns), 0),
            moments: Vec::new(),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let new = &self.bytes[self.shown..];
        let whole = match (last(new, BEGIN), last(new, END)) {
            (Some(begin), end) if end.is_none_or(|end| end < begin) => begin,
            _ => new.len(),
        };
        self.screen.process(&new[..whole]);
        self.shown += whole;
        self.note(Moment::Shown(self.shown));
    }

    fn note(&mut self, moment: Moment) {
        self.moments.push((Instant::now(), moment));
    }
}

/// What whoever sits at the terminal does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    Reads,
    /// As a stalled SSH line does: what is written stays where it is.
    Stalls,
    Leaves,
}

/// A program in a terminal of its own; killed on drop.
pub(crate) struct Tty {
    /// None once the terminal has hung up.
    master: Option<Box<dyn MasterPty + Send>>,
    keys: Option<Box<dyn Write + Send>>,
    watcher: Arc<(Mutex<Watcher>, Condvar)>,
    child: Box<dyn Child + Send + Sync>,
    written: Arc<Mutex<Written>>,
    reader: Option<JoinHandle<()>>,
    /// The terminal's settings before the program began.
    settings: String,
    /// Where logs and typed lines are kept.
    pub state: TempDir,
}

impl Tty {
    /// Starts the program on this store, on a screen of so many columns and rows.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(
        store: &str,
        args: &[S],
        size: (u16, u16),
    ) -> Self {
        Self::start_with(store, args, size, &[])
    }

    pub(crate) fn start_with<S: AsRef<std::ffi::OsStr>>(
        store: &str,
        args: &[S],
        size: (u16, u16),
        env: &[(&str, &str)],
    ) -> Self {
        Self::start_program(
            env!("CARGO_BIN_EXE_dqhost"),
            args,
            size,
            &[env, &[where_is(store)]].concat(),
        )
    }

    /// Starts another program.
    pub(crate) fn start_program<S: AsRef<std::ffi::OsStr>>(
        program: &str,
        args: &[S],
        (columns, rows): (u16, u16),
        env: &[(&str, &str)],
    ) -> Self {
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let state = TempDir::new().unwrap();
        let mut command = CommandBuilder::new(program);
        command.args(args);
        for (name, _) in std::env::vars() {
            if name.starts_with("DQHOST_") || name == "REDIS_URL" || name == "NO_COLOR" {
                command.env_remove(name);
            }
        }
        command.env("TERM", "xterm-256color");
        command.env("XDG_STATE_HOME", state.path());
        command.env("XDG_DATA_HOME", env!("CARGO_TARGET_TMPDIR"));
        for (name, value) in env {
            command.env(name, value);
        }
        let settings = format!("{:?}", pair.master.get_termios());
        let child = pair.slave.spawn_command(command).unwrap();
        let written = Arc::new(Mutex::new(Written::new(columns, rows)));
        let mut output = pair.master.try_clone_reader().unwrap();
        let shared = Arc::clone(&written);
        let watcher = Arc::new((Mutex::new(Watcher::Reads), Condvar::new()));
        let seen = Arc::clone(&watcher);
        // It ends when nobody has the terminal open any more.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while may_read(&seen)
                && let Ok(count @ 1..) = output.read(&mut buffer)
            {
                shared.lock().unwrap().add(&buffer[..count]);
            }
        });
        let keys = pair.master.take_writer().unwrap();
        Self {
            master: Some(pair.master),
            keys: Some(keys),
            watcher,
            child,
            written,
            reader: Some(reader),
            settings,
            state,
        }
    }

    /// Presses keys, given as the bytes that a terminal sends.
    pub(crate) fn keys(&mut self, keys: &str) {
        let to = self.keys.as_mut().unwrap();
        to.write_all(keys.as_bytes()).unwrap();
        to.flush().unwrap();
    }

    /// Waits until all is read. A process that another test starts just when the terminal is made inherits
    /// it, since the library closes it for others only after that: this waits for it too, and not for ever.
    fn wait_for_reader(&mut self) {
        let reader = self.reader.take().unwrap();
        eventually("nobody has the terminal open", || {
            reader.is_finished().then_some(())
        });
        reader.join().unwrap();
    }

    fn watcher(&self, what: Watcher) {
        let (watcher, changed) = &*self.watcher;
        *watcher.lock().unwrap() = what;
        changed.notify_all();
    }

    /// Reads nothing more of what the program writes.
    pub(crate) fn stall(&self) {
        self.watcher(Watcher::Stalls);
    }

    /// Goes on reading.
    pub(crate) fn read_on(&self) {
        self.watcher(Watcher::Reads);
    }

    /// Closes the terminal, as the end of an SSH line or of tmux does. `write` makes the program write
    /// something: whoever reads it notices then.
    pub(crate) fn hang_up(&mut self, write: impl FnOnce()) {
        self.watcher(Watcher::Leaves);
        write();
        self.wait_for_reader();
        drop((self.keys.take(), self.master.take()));
    }

    /// Waits for the end of the program, whatever becomes of the terminal; returns its code.
    pub(crate) fn code(&mut self) -> u32 {
        eventually("the program ends", || self.child.try_wait().unwrap()).exit_code()
    }

    /// Asks the screen.
    pub(crate) fn on_screen<T>(&self, ask: impl FnOnce(&vt100::Screen) -> T) -> T {
        ask(self.written.lock().unwrap().screen.screen())
    }

    pub(crate) fn text(&self) -> String {
        self.on_screen(vt100::Screen::contents)
    }

    /// Every byte that was written so far.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.written.lock().unwrap().bytes.clone()
    }

    /// What it shows from its start to its end.
    pub(crate) fn recording(&self) -> Recording {
        Recording(Arc::clone(&self.written))
    }

    /// Notes for a recording that something was done.
    pub(crate) fn note_step(&self) {
        self.written.lock().unwrap().note(Moment::Step);
    }

    /// Waits until the screen says so.
    pub(crate) fn wait_until(&mut self, what: &str, says: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if says(&text) {
                return text;
            }
            let ended = self.child.try_wait().unwrap();
            // What it wrote last is read after its end.
            let is_read = self.reader.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(
                Instant::now() < end && !(ended.is_some() && is_read && self.text() == text),
                "it never came to this: {what}; ended: {ended:?}; there is:\n{text}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the screen shows this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// Answers the question on the screen. One that has come by itself takes no answer at first, and
    /// says so: then the key is pressed once more after that time.
    pub(crate) fn answer(&mut self, key: &str) {
        const TOO_EARLY: &str = "answer it now";
        self.keys(key);
        let is_seen = |text: &str| !text.contains("sure?") || text.contains(TOO_EARLY);
        let screen = self.wait_until("the key is seen", is_seen);
        if screen.contains("sure?") {
            std::thread::sleep(Duration::from_millis(600));
            self.keys(key);
            self.wait_until("the question is answered", |text| !text.contains("sure?"));
        }
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        let mut written = self.written.lock().unwrap();
        written
            .screen
            .screen_mut()
            .set_size(nonzero(rows), nonzero(columns));
        written.note(Moment::Resized(columns, rows));
        drop(written);
        self.master.as_ref().unwrap().resize(size).unwrap();
    }

    /// Says that the terminal is that large, which nobody here can draw.
    pub(crate) fn pretend(&self, columns: u16, rows: u16) {
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        self.master.as_ref().unwrap().resize(size).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.process_id().unwrap()).unwrap();
        Pid::from_raw(pid).unwrap()
    }

    /// True when the terminal is as it was before the program began.
    pub(crate) fn is_restored(&self) -> bool {
        let as_before = self.on_screen(|screen| {
            let has_mouse = screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None;
            let is_taken = screen.alternate_screen() || screen.bracketed_paste();
            !is_taken && !has_mouse && !screen.hide_cursor()
        });
        let master = self.master.as_ref().unwrap();
        as_before && format!("{:?}", master.get_termios()) == self.settings
    }

    /// Waits for the end of the program; it must end with this code and leave the terminal as it
    /// was. Returns what is left on the screen.
    pub(crate) fn end(mut self, code: u32) -> String {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < end,
                "it never ended; there is:\n{}",
                self.text()
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        self.wait_for_reader();
        let text = self.text();
        assert_eq!(status.exit_code(), code, "{text}");
        let last = self.bytes();
        let last = String::from_utf8_lossy(&last[last.len().saturating_sub(200)..]).into_owned();
        assert!(
            self.is_restored(),
            "the terminal is not as it was: {last:?}\n{text}"
        );
        text
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns when the next bytes may be read; false when no more are wanted.
fn may_read((watcher, changed): &(Mutex<Watcher>, Condvar)) -> bool {
    let stalls = |watcher: &mut Watcher| *watcher == Watcher::Stalls;
    let watcher = changed.wait_while(watcher.lock().unwrap(), stalls).unwrap();
    *watcher != Watcher::Leaves
}

fn nonzero(number: u16) -> std::num::NonZeroU16 {
    number.try_into().unwrap()
}

/// How the program is told of a store.
fn where_is(store: &str) -> (&str, &str) {
    let name = if store.contains("://") {
        "REDIS_URL"
    } else {
        "DQHOST_DB"
    };
    (name, store)
}
