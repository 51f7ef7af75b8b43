//! An HTTP server that does what the path says, and remembers who came.

use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::support::{Request, eventually, read_request};

#[derive(Default)]
struct Seen {
    connections: usize,
    requests: Vec<Request>,
    /// Connections that get no answer, by message id and attempt.
    held: HashMap<(String, u32), TcpStream>,
    /// Connections that get no answer, whoever asks.
    kept: Vec<TcpStream>,
    /// Messages whose later attempt came while an earlier one still had its connection.
    overlaps: Vec<String>,
}

/// Listens on the loopback addresses of both kinds, on one port.
pub(super) struct Web {
    pub port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl Web {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Seen>>::default();
        let six: SocketAddr = format!("[::1]:{port}").parse().unwrap();
        // Not every machine has IPv6.
        for listener in [Ok(listener), TcpListener::bind(six)].into_iter().flatten() {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    seen.lock().unwrap().connections += 1;
                    let seen = Arc::clone(&seen);
                    std::thread::spawn(move || serve(stream, &seen));
                }
            });
        }
        Self { port, seen }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().requests.clone()
    }

    /// How many requests wait for an answer that does not come.
    pub(super) fn held(&self) -> usize {
        self.seen.lock().unwrap().held.len()
    }

    /// How many connections are open that get no answer.
    pub(super) fn kept(&self) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.kept.iter().filter(|kept| is_open(kept)).count()
    }

    /// Hangs up on whoever waits for an answer.
    pub(super) fn hang_up(&self) {
        self.seen.lock().unwrap().held.clear();
    }

    pub(super) fn overlaps(&self) -> Vec<String> {
        self.seen.lock().unwrap().overlaps.clone()
    }

    /// Waits until whoever waits for an answer has hung up.
    pub(super) fn wait_until_hung_up(&self) {
        eventually("the connection is closed", || {
            let seen = self.seen.lock().unwrap();
            seen.held.values().all(|held| !is_open(held)).then_some(())
        });
    }
}

/// Asks the system, which knows of a close as soon as it has happened.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.peek(&mut [0]) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

const INFORMATIONAL: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n";

fn serve(mut stream: TcpStream, seen: &Mutex<Seen>) {
    let Some(request) = read_request(stream.try_clone().unwrap()) else {
        return;
    };
    let path = request
        .path
        .split('?')
        .next()
        .unwrap_or_default()
        .to_owned();
    let id = request
        .headers
        .get("idempotency-key")
        .cloned()
        .unwrap_or_default();
    let attempt: u32 = request
        .headers
        .get("x-attempt")
        .map_or(0, |n| n.parse().unwrap());
    seen.lock().unwrap().requests.push(request);
    let answer = |status: &str, more: &str, body: &str| {
        format!(
            "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n{more}\r\n{body}",
            body.len()
        )
    };
    let text = match path.as_str() {
        "/429" => answer("429", "retry-after: 7\r\n", "slow down"),
        "/302" => answer("302", "location: http://127.0.0.1:1/\r\n", ""),
        "/hang" => {
            seen.lock().unwrap().held.insert((id, attempt), stream);
            return;
        }
        "/keep" => return seen.lock().unwrap().kept.push(stream),
        // Informational responses without end, or as many as may come before the response.
        "/103" => {
            while stream.write_all(INFORMATIONAL).is_ok() {}
            return;
        }
        "/103-and-200" => {
            let _ = stream.write_all(&INFORMATIONAL.repeat(5));
            answer("200", "", "")
        }
        // The head of a response whose body does not come.
        "/head" => {
            let _ = stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 1\r\n\r\n");
            seen.lock().unwrap().held.insert((id, attempt), stream);
            return;
        }
        // The first attempt gets no answer, the next ones do, and are compared with it.
        "/hang-once" => {
            let mut seen = seen.lock().unwrap();
            if attempt == 1 {
                seen.held.insert((id, attempt), stream);
                return;
            }
            if seen.held.get(&(id.clone(), 1)).is_some_and(is_open) {
                seen.overlaps.push(id);
            }
            drop(seen);
            answer("200", "", "")
        }
        "/drip" => {
            let _ = stream.write_all(b"HTTP/1.1 200 x\r\n\r\n");
            while stream.write_all(b".").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            return;
        }
        "/long" => answer("200", "", &"x".repeat(1 << 20)),
        "/nonsense" => "nonsense\r\n\r\n".to_owned(),
        path => answer(path.trim_start_matches('/'), "", "the body"),
    };
    let _ = stream.write_all(text.as_bytes());
}
