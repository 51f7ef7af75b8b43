//! What the terminal tells: keys and pasted text, read by a thread of its own.
//!
//! The library that reads and understands them (crossterm 0.29, its issue 793) asks a terminal that is
//! gone again and again. So it is asked only when there is something to read, and not for long.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

/// How long the library may look for more of what has begun to come. It ends by then, also at the end
/// of a terminal.
const REST_WITHIN: Duration = Duration::from_millis(1);

/// The terminal's input. Dropping it ends its thread.
pub(super) struct Input {
    events: mpsc::UnboundedReceiver<io::Result<Event>>,
    _until_dropped: UnixStream,
}

impl Input {
    pub(super) fn open() -> io::Result<Self> {
        let (until_dropped, dropped) = UnixStream::pair()?;
        let (sender, events) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || {
                if let Err(error) = read(&dropped, &sender) {
                    let _ = sender.send(Err(error));
                }
            })?;
        Ok(Self {
            events,
            _until_dropped: until_dropped,
        })
    }

    /// The next event. The error that ends the input is that of a terminal that is gone.
    pub(super) async fn next(&mut self) -> io::Result<Event> {
        self.events.recv().await.unwrap_or_else(|| Err(gone()))
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone")
}

/// Reads until the other end of `dropped` is, or the terminal is gone.
fn read(dropped: &UnixStream, events: &mpsc::UnboundedSender<io::Result<Event>>) -> io::Result<()> {
    let terminal = rustix::stdio::stdin();
    loop {
        let mut waits = [
            PollFd::new(&terminal, PollFlags::IN),
            PollFd::new(dropped, PollFlags::IN),
        ];
        match poll(&mut waits, None) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        let [terminal, dropped] = waits.map(|wait| wait.revents());
        if !dropped.is_empty() {
            return Ok(());
        }
        if terminal.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(gone());
        }
        while event::poll(REST_WITHIN)? {
            if events.send(event::read()).is_err() {
                return Ok(());
            }
        }
    }
}
