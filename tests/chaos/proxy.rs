//! Stands between hosts and Redis and understands enough of the protocol to hurt where it is meant
//! to: between requests, between a request and its answer, and in the middle of either.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The next request does not arrive.
    Request,
    /// The next request arrives in part.
    MidRequest,
    /// The next request is carried out, and its answer does not arrive.
    Reply,
    /// The next request is carried out, and its answer arrives in part.
    MidReply,
}

pub(crate) const CUTS: [Cut; 4] = [Cut::Request, Cut::MidRequest, Cut::Reply, Cut::MidReply];

/// One address that leads to the server, for one client.
pub(crate) struct Door {
    pub(crate) port: u16,
    server: PathBuf,
    begin: Instant,
    armed: Mutex<VecDeque<Cut>>,
    cuts: AtomicUsize,
    on_cut: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Held back for so long, each request.
    delay_us: AtomicU64,
    is_hole: AtomicBool,
    /// Connections of an earlier number pass nothing any more.
    holes: AtomicUsize,
    /// When each connection came, in us.
    arrivals: Mutex<Vec<u64>>,
    /// Called when a script that moves messages is answered without an error, once after each time that it is set.
    on_script: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Door {
    /// An address on this machine that leads to the server behind a Unix socket.
    pub(crate) fn open(server: PathBuf) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            server,
            begin: Instant::now(),
            armed: Mutex::default(),
            cuts: AtomicUsize::new(0),
            on_cut: Mutex::default(),
            delay_us: AtomicU64::new(0),
            is_hole: AtomicBool::new(false),
            holes: AtomicUsize::new(0),
            arrivals: Mutex::default(),
            on_script: Mutex::default(),
        });
        let shared = Arc::clone(&door);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                Connection::start(&shared, client);
            }
        });
        door
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts the connection of the next request, or of the one after the cuts that wait already.
    pub(crate) fn cut(&self, cut: Cut) {
        self.armed.lock().unwrap().push_back(cut);
    }

    fn was_cut(&self) {
        self.cuts.fetch_add(1, SeqCst);
        if let Some(call) = &*self.on_cut.lock().unwrap() {
            call();
        }
    }

    pub(crate) fn when_one_is_cut(&self, call: impl Fn() + Send + 'static) {
        *self.on_cut.lock().unwrap() = Some(Box::new(call));
    }

    /// Connections that were cut so far.
    pub(crate) fn cuts(&self) -> usize {
        self.cuts.load(SeqCst)
    }

    /// What is not cut yet will not be.
    pub(crate) fn disarm(&self) {
        self.armed.lock().unwrap().clear();
    }

    /// Cuts that wait for a request.
    pub(crate) fn waits(&self) -> usize {
        self.armed.lock().unwrap().len()
    }

    pub(crate) fn is_hole(&self) -> bool {
        self.is_hole.load(SeqCst)
    }

    pub(crate) fn delay(&self, by: Duration) {
        let us = u64::try_from(by.as_micros()).unwrap();
        self.delay_us.store(us, SeqCst);
    }

    /// From now on packets vanish, and nobody is told. What was connected before or meanwhile stays
    /// without an answer for ever, as when a firewall has forgotten a connection.
    pub(crate) fn begin_hole(&self) {
        self.is_hole.store(true, SeqCst);
        self.holes.fetch_add(1, SeqCst);
    }

    pub(crate) fn end_hole(&self) {
        if self.is_hole.swap(false, SeqCst) {
            self.holes.fetch_add(1, SeqCst);
        }
    }

    /// When connections came since a time, each as time after it.
    pub(crate) fn arrivals_since(&self, since: Instant) -> Vec<Duration> {
        let from = since.saturating_duration_since(self.begin);
        let all = self.arrivals.lock().unwrap();
        let times = all.iter().map(|us| Duration::from_micros(*us));
        times.filter_map(|at| at.checked_sub(from)).collect()
    }

    pub(crate) fn when_a_script_is_answered(&self, call: impl FnOnce() + Send + 'static) {
        *self.on_script.lock().unwrap() = Some(Box::new(call));
    }
}

/// One connection of a client, with its own to the server.
struct Connection {
    door: Arc<Door>,
    client: TcpStream,
    server: UnixStream,
    /// Holes that there had been when it came.
    holes: usize,
    /// For each request whose answer has not come: how it is to be cut, and whether it is a script.
    expected: Mutex<VecDeque<(Option<Cut>, bool)>>,
}

impl Connection {
    fn start(door: &Arc<Door>, client: TcpStream) {
        let at = u64::try_from(door.begin.elapsed().as_micros()).unwrap();
        let holes = door.holes.load(SeqCst);
        let in_hole = door.is_hole.load(SeqCst);
        if !in_hole {
            door.arrivals.lock().unwrap().push(at);
        }
        // A server that is down refuses, and so does the door.
        let Ok(server) = UnixStream::connect(&door.server) else {
            return;
        };
        let _ = client.set_nodelay(true);
        let connection = Arc::new(Self {
            door: Arc::clone(door),
            client,
            server,
            holes: if in_hole { holes - 1 } else { holes },
            expected: Mutex::default(),
        });
        let back = Arc::clone(&connection);
        std::thread::spawn(move || {
            connection.forward(|c, buffer| (&c.client).read(buffer), Self::request);
            connection.end();
        });
        std::thread::spawn(move || {
            back.forward(|c, buffer| (&c.server).read(buffer), Self::reply);
            back.end();
        });
    }

    fn end(&self) {
        // In a hole nobody hears of an end.
        if !self.is_lost() {
            let _ = self.client.shutdown(Shutdown::Both);
        }
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn is_lost(&self) -> bool {
        self.holes != self.door.holes.load(SeqCst)
    }

    /// Reads frames and hands each on, until one is not taken or the stream ends.
    fn forward(
        self: &Arc<Self>,
        read: impl Fn(&Self, &mut [u8]) -> std::io::Result<usize>,
        take: impl Fn(&Self, &[u8]) -> Option<()>,
    ) {
        let (mut buffer, mut chunk) = (Vec::new(), vec![0; 65_536]);
        while let Ok(got @ 1..) = read(self, &mut chunk) {
            buffer.extend_from_slice(&chunk[..got]);
            let mut from = 0;
            while let Some(length) = frame(&buffer[from..]) {
                if take(self, &buffer[from..from + length]).is_none() {
                    return;
                }
                from += length;
            }
            buffer.drain(..from);
        }
    }

    /// None ends the connection.
    fn request(&self, frame: &[u8]) -> Option<()> {
        let delay = self.door.delay_us.load(SeqCst);
        if delay > 0 {
            std::thread::sleep(Duration::from_micros(delay));
        }
        if self.is_lost() {
            return Some(());
        }
        let cut = self.door.armed.lock().unwrap().pop_front();
        let all = match cut {
            Some(Cut::Request) => 0,
            Some(Cut::MidRequest) => frame.len() / 2,
            _ => frame.len(),
        };
        let is_script = moves_messages(frame);
        // First, since the answer may be faster.
        self.expected.lock().unwrap().push_back((cut, is_script));
        (&self.server).write_all(&frame[..all]).ok()?;
        if all < frame.len() {
            self.door.was_cut();
            return None;
        }
        Some(())
    }

    /// None ends the connection.
    fn reply(&self, frame: &[u8]) -> Option<()> {
        if self.is_lost() {
            return Some(());
        }
        // What comes unasked, on a connection that has subscribed, has no request.
        let (cut, is_script) = self
            .expected
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or_default();
        if matches!(cut, Some(Cut::Reply | Cut::MidReply)) {
            self.door.was_cut();
            let half = if cut == Some(Cut::Reply) {
                0
            } else {
                frame.len() / 2
            };
            let _ = (&self.client).write_all(&frame[..half]);
            return None;
        }
        (&self.client).write_all(frame).ok()?;
        if is_script && !frame.starts_with(b"-") {
            let call = self.door.on_script.lock().unwrap().take();
            if let Some(call) = call {
                call();
            }
        }
        Some(())
    }
}

/// True of a script with as many keys as those have that promote, reserve and settle; not of
/// heartbeats, which say nothing of a host's work.
fn moves_messages(request: &[u8]) -> bool {
    let mut lines = request.split(|byte| *byte == b'\n').skip(2).step_by(2);
    let is_script = lines
        .next()
        .is_some_and(|name| name.starts_with(b"EVALSHA"));
    let keys = lines.nth(1).and_then(|keys| std::str::from_utf8(keys).ok());
    is_script
        && keys
            .and_then(|keys| keys.trim().parse().ok())
            .is_some_and(|keys: u32| keys >= 7)
}

/// The length of the request or reply that the bytes begin with, when it is whole (RESP 2).
fn frame(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || -> Option<i64> {
        let text = std::str::from_utf8(&bytes[1..line - 2]).ok()?;
        text.parse().ok()
    };
    match bytes[0] {
        b'$' => {
            let length = usize::try_from(number()?).map_or(line, |bulk| line + bulk + 2);
            (bytes.len() >= length).then_some(length)
        }
        b'*' => {
            let mut length = line;
            for _ in 0..number()?.max(0) {
                length += frame(&bytes[length..])?;
            }
            Some(length)
        }
        _ => Some(line),
    }
}

#[test]
fn a_script_that_moves_messages_is_told_by_its_keys() {
    let script = |name: &str, keys: &str| {
        let words = [name, "0123", keys, "k"];
        let words = words.map(|word| format!("${}\r\n{word}\r\n", word.len()));
        moves_messages(format!("*4\r\n{}", words.concat()).as_bytes())
    };
    assert!(script("EVALSHA", "7") && script("EVALSHA", "12"));
    assert!(!script("EVALSHA", "2") && !script("SET", "7"));
}

#[test]
fn frames_end_where_the_protocol_says() {
    let whole: [&[u8]; 7] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"$2\r\n\r\n\r\n",
        b"*-1\r\n",
        b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
    ];
    for bytes in whole {
        for end in 0..bytes.len() {
            assert_eq!(frame(&bytes[..end]), None, "{end} of {bytes:?}");
        }
        assert_eq!(frame(bytes), Some(bytes.len()));
        assert_eq!(frame(&[bytes, b"+more"].concat()), Some(bytes.len()));
    }
}
