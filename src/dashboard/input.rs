//! What the terminal tells: keys and pasted text, read by a thread of its own.
//!
//! The library that reads and understands them (crossterm 0.29, its issue 793) asks a terminal that is
//! gone again and again. So it is asked only when there is something to read, and not for long. It may have
//! read several keys at once and keeps those that were not asked for.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::sync::mpsc;

/// How long the library may look for more of what has begun to come. It ends by then, also at the end
/// of a terminal.
const REST_WITHIN: Duration = Duration::from_millis(1);

/// How often it is asked once more, and when. It says that there is nothing also when its time is over
/// before it has looked, as on a busy machine. The keys that it keeps would wait for the next one then.
const ASKED_AGAIN: u32 = 20;
const ASK_AGAIN_AFTER: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

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
                let terminal = rustix::stdio::stdin();
                if let Err(error) = read(&Terminal, (&terminal, &dropped), &sender) {
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

/// What understands the bytes of a terminal.
trait Understands {
    /// False if there was no event in this time, or no time to look for one.
    fn has_event(&self, within: Duration) -> io::Result<bool>;

    /// The next event.
    fn event(&self) -> io::Result<Event>;
}

/// The library, for the terminal of this process.
struct Terminal;

impl Understands for Terminal {
    fn has_event(&self, within: Duration) -> io::Result<bool> {
        event::poll(within)
    }

    fn event(&self) -> io::Result<Event> {
        event::read()
    }
}

/// Reads until the other end of `dropped` is, or the terminal is gone.
fn read(
    library: &impl Understands,
    (terminal, dropped): (&impl AsFd, &UnixStream),
    events: &mpsc::UnboundedSender<io::Result<Event>>,
) -> io::Result<()> {
    let mut asks: u32 = 0;
    loop {
        let mut waits = [
            PollFd::new(terminal, PollFlags::IN),
            PollFd::new(dropped, PollFlags::IN),
        ];
        let limit = (asks > 0).then_some(&ASK_AGAIN_AFTER);
        match poll(&mut waits, limit) {
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
        asks = asks.saturating_sub(1);
        while library.has_event(REST_WITHIN)? {
            asks = ASKED_AGAIN;
            if events.send(library.event()).is_err() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::io::{Read, Write};

    use super::*;

    /// It reads all bytes at once, each of which is a key, and finds no time to look before the second one.
    struct Hurried {
        terminal: UnixStream,
        kept: RefCell<VecDeque<u8>>,
        asked: RefCell<u32>,
    }

    impl Understands for Hurried {
        fn has_event(&self, _: Duration) -> io::Result<bool> {
            let mut asked = self.asked.borrow_mut();
            *asked += 1;
            if (2..5).contains(&*asked) {
                return Ok(false);
            }
            let mut kept = self.kept.borrow_mut();
            let mut bytes = [0; 10];
            match (&self.terminal).read(&mut bytes) {
                Ok(count) => kept.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            Ok(!kept.is_empty())
        }

        fn event(&self) -> io::Result<Event> {
            let byte = self.kept.borrow_mut().pop_front();
            Ok(Event::Paste(char::from(byte.unwrap()).to_string()))
        }
    }

    #[tokio::test]
    async fn keys_that_came_together_come_without_another_one() {
        let (mut keys, terminal) = UnixStream::pair().unwrap();
        let (until_dropped, dropped) = UnixStream::pair().unwrap();
        let (sender, mut events) = mpsc::unbounded_channel();
        let reader = std::thread::spawn(move || {
            let library = Hurried {
                terminal: terminal.try_clone().unwrap(),
                kept: RefCell::default(),
                asked: RefCell::default(),
            };
            library.terminal.set_nonblocking(true).unwrap();
            read(&library, (&terminal, &dropped), &sender)
        });
        keys.write_all(b"abc").unwrap();
        for key in ["a", "b", "c"] {
            let event = tokio::time::timeout(Duration::from_secs(30), events.recv());
            let event = event.await.expect("it waits for another key");
            assert_eq!(event.unwrap().unwrap(), Event::Paste(key.to_owned()));
        }
        drop(until_dropped);
        reader.join().unwrap().unwrap();
    }
}
