//! The HTTP API as clients see it: the real program, asked over real sockets.

mod access;
mod clients;
mod hostile;
mod metrics;
mod openapi;
mod send;
mod steer;
mod stop;
mod tls;
mod traces;
mod webhooks;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Host, PATIENCE, RedisServer, dqhost};

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// Reads one to the end of its body.
    pub(crate) fn read(stream: &mut impl Read) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut chunk = [0; 8192];
        loop {
            if let Some(answer) = Self::parse(&bytes) {
                return Some(answer);
            }
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            }
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        (body.len() >= length).then(|| Self {
            status,
            body: body[..length].to_owned(),
            head,
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The id that it tells.
    pub(crate) fn id(&self) -> String {
        self.json()["id"].as_str().unwrap().to_owned()
    }

    /// It is a problem document with this status, and its words have this in them.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, says: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(
            self.head.contains("content-type: application/problem+json"),
            "{self:?}"
        );
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(
            problem["title"]
                .as_str()
                .is_some_and(|title| !title.is_empty())
        );
        assert!(self.body.contains(says), "{says}: {self:?}");
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// A request as it goes over the wire.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: localhost\r\n";
    }
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if !body.is_empty() {
        let _ = write!(head, "content-length: {}\r\n", body.len());
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// The program with its HTTP API at some port.
pub(crate) struct Api {
    pub host: Host,
    pub at: String,
}

impl Api {
    /// `dqhost serve`.
    pub(crate) fn serve(store: &str, more: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0"], more].concat();
        Self::of(Host::start_command(dqhost(Some(store), &args)))
    }

    /// A host with the API beside it.
    pub(crate) fn beside(store: &str, args: &[&str]) -> Self {
        let args = [args, &["--listen", "127.0.0.1:0"]].concat();
        Self::of(Host::start(store, &args))
    }

    pub(crate) fn of(mut host: Host) -> Self {
        let line = host.wait_for("listening", |_| true);
        let at = line["address"].as_str().unwrap();
        let at = at.strip_prefix("http://").unwrap().to_owned();
        Self { host, at }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut stream = self.connect();
        stream
            .write_all(&request(method, path, headers, body))
            .unwrap();
        Answer::read(&mut stream).unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.ask("POST", path, headers, body.as_bytes())
    }

    /// The same with a body in JSON.
    pub(crate) fn post_json(&self, path: &str, body: &str) -> Answer {
        self.post(path, &[("content-type", "application/json")], body)
    }
}

/// Does the same with a store of each kind.
pub(crate) fn with_each_store(check: impl Fn(&str)) {
    let server = RedisServer::start();
    check(&server.url());
    let folder = TempDir::new().unwrap();
    check(&folder.path().join("dqhost.db").display().to_string());
}
