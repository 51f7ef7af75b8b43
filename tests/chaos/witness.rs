//! What handlers ask: it notes that one has begun, holds the answer back for as long as the run is to
//! take, and says how the run is to end. While a handler lives its connection is open; when it is
//! stopped, or its host is killed, the connection is closed, and that is noted as well: at the latest
//! when another run begins, however busy the machine is.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use sha2::{Digest, Sha256};

use crate::history::{History, Process, Verdict, What};
use crate::support::read_request;

/// What a run is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub lasts: Duration,
    pub verdict: Verdict,
    /// The handler's process is to end at once, as if the message had torn it down.
    pub kills: bool,
}

/// Decides about the run of a message by its id and the number of the attempt.
pub(crate) type Orders = Box<dyn Fn(&str, u32) -> Order + Send + Sync>;

/// Ends a process, and returns when it has ended.
pub(crate) type Kill = Box<dyn Fn(Process) + Send + Sync>;

pub(crate) struct Witness {
    pub(crate) port: u16,
}

struct Controller {
    history: Arc<History>,
    orders: Orders,
    kill: Kill,
    open: Mutex<Open>,
}

/// The runs of which the end is not noted yet.
#[derive(Default)]
struct Open {
    /// So many have begun.
    begun: u64,
    runs: Vec<OpenRun>,
}

struct OpenRun {
    run: u64,
    stream: Arc<TcpStream>,
}

impl Witness {
    pub(crate) fn start(history: Arc<History>, orders: Orders, kill: Kill) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let controller = Arc::new(Controller {
            history,
            orders,
            kill,
            open: Mutex::default(),
        });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let controller = Arc::clone(&controller);
                std::thread::spawn(move || controller.serve(&Arc::new(stream)));
            }
        });
        Self { port }
    }

    /// Where a process is to ask, in the form that the handler takes.
    pub(crate) fn url(&self, by: Process) -> String {
        format!("http://127.0.0.1:{}/{}/{}", self.port, by.host, by.life)
    }
}

impl Controller {
    fn serve(&self, stream: &Arc<TcpStream>) {
        let Some((by, id, attempt, body)) = asked(stream) else {
            // A host that was killed while it asked.
            return;
        };
        let begun = self.begins(stream, |run| What::Run {
            run,
            id: id.clone(),
            attempt,
            by,
            digest: digest(&body),
        });
        let Some(run) = begun else { return };
        let order = (self.orders)(&id, attempt);
        if order.kills {
            self.history.note(What::TornDown { id: id.clone() });
            (self.kill)(by);
        }
        if is_gone_within(stream, order.lasts) {
            self.ends(run, What::Gone { run });
            return;
        }
        let verdict = order.verdict;
        // Before it is told, so that nothing that follows from it is noted earlier.
        if !self.ends(run, What::Answered { run, verdict }) {
            return;
        }
        let status = match verdict {
            Verdict::Ack => "200 ack",
            Verdict::Nack => "500 nack",
            Verdict::Reject => "400 reject",
        };
        let mut stream: &TcpStream = stream;
        let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap()
    }

    /// Notes that a run begins, after the end of those that are gone, and returns its number; none if it is
    /// gone itself, and others may have come before it.
    fn begins(&self, stream: &Arc<TcpStream>, what: impl FnOnce(u64) -> What) -> Option<u64> {
        let mut open = self.open();
        if has_hung_up(stream) {
            return None;
        }
        let gone = |other: &mut OpenRun| has_hung_up(&other.stream);
        for OpenRun { run, .. } in open.runs.extract_if(.., gone) {
            self.history.note(What::Gone { run });
        }
        let run = open.begun;
        open.begun += 1;
        open.runs.push(OpenRun {
            run,
            stream: Arc::clone(stream),
        });
        self.history.note(what(run));
        Some(run)
    }

    /// Notes the end of a run; false when it was noted before.
    fn ends(&self, run: u64, what: What) -> bool {
        let mut open = self.open();
        let Some(index) = open.runs.iter().position(|one| one.run == run) else {
            return false;
        };
        open.runs.swap_remove(index);
        self.history.note(what);
        true
    }
}

/// Asks the system, which knows of a close as soon as it has happened.
fn has_hung_up(stream: &TcpStream) -> bool {
    match recv(stream, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, read)) => read == 0,
        Err(error) => error != rustix::io::Errno::WOULDBLOCK,
    }
}

pub(crate) fn digest(payload: &[u8]) -> String {
    let digest = Sha256::digest(payload);
    let start = digest
        .iter()
        .take(8)
        .fold(0, |start, byte| start << 8 | u64::from(*byte));
    format!("{start:016x}")
}

/// True when the other side hangs up within that time.
fn is_gone_within(mut stream: &TcpStream, time: Duration) -> bool {
    // No time would be for ever.
    let time = time.max(Duration::from_micros(1));
    stream.set_read_timeout(Some(time)).unwrap();
    match stream.read_exact(&mut [0]) {
        Ok(()) => true,
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        ),
    }
}

/// Which process asks, the message's id, the number of the attempt, and the payload.
fn asked(stream: &TcpStream) -> Option<(Process, String, u32, Vec<u8>)> {
    let mut request = read_request(stream)?;
    let mut path = request.path.trim_matches('/').split('/');
    let by = Process {
        host: path.next()?.parse().ok()?,
        life: path.next()?.parse().ok()?,
    };
    let attempt = request.headers.get("x-attempt")?.parse().ok()?;
    Some((
        by,
        request.headers.remove("idempotency-key")?,
        attempt,
        request.body,
    ))
}
