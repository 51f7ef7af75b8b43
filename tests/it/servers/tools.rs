//! Servers on TCP, and what is asked of them.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tempfile::TempDir;

use crate::support::eventually;

/// A port that nothing listens on, with the one 10,000 above it, which a node of a cluster takes too.
/// Each only once, so that no two tests start a server on one.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    eventually("two ports are free", || {
        // Others begin elsewhere.
        let number = NEXT.fetch_add(1, SeqCst).wrapping_add(std::process::id());
        let port = 20_000 + u16::try_from(number % 12_000).unwrap();
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (free(port) && free(port + 10_000)).then_some(port)
    })
}

/// A Redis server (or a sentinel) on a port of 127.0.0.1 and in a folder of its own; killed on drop.
pub(super) struct Server {
    child: Child,
    _folder: TempDir,
    pub port: u16,
}

impl Server {
    /// With settings as on redis-server's command line.
    pub(super) fn start(settings: &[&str]) -> Self {
        let port = free_port();
        let settings: Vec<String> = settings.iter().map(|&word| word.to_owned()).collect();
        let arguments = [vec!["--port".to_owned(), port.to_string()], settings];
        Self::start_at(port, &arguments.concat())
    }

    /// A sentinel, with lines of its configuration.
    pub(super) fn start_sentinel(lines: &[String]) -> Self {
        let port = free_port();
        let folder = TempDir::new().unwrap();
        let text = format!("port {port}\n{}\n", lines.join("\n"));
        std::fs::write(folder.path().join("sentinel.conf"), text).unwrap();
        let arguments = ["sentinel.conf", "--sentinel"].map(str::to_owned);
        Self::start_in(folder, port, &arguments)
    }

    /// With these arguments, of which some make it listen on this port.
    pub(super) fn start_at(port: u16, arguments: &[String]) -> Self {
        Self::start_in(TempDir::new().unwrap(), port, arguments)
    }

    fn start_in(folder: TempDir, port: u16, arguments: &[String]) -> Self {
        let child = spawn(folder.path(), arguments);
        let server = Self {
            child,
            _folder: folder,
            port,
        };
        server.wait_until_it_listens();
        server
    }

    fn wait_until_it_listens(&self) {
        eventually("the server listens", || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()
        });
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs one command, given in words; none while it cannot be reached, or when it answers with an
    /// error.
    pub(super) fn try_command<T: redis::FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let client = redis::Client::open(self.url()).unwrap();
        let limit = std::time::Duration::from_secs(2);
        let mut connection = client.get_connection_with_timeout(limit).ok()?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut connection).ok()
    }

    /// The same of a server that is there.
    pub(super) fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = eventually("the server answers", || {
            let client = redis::Client::open(self.url()).unwrap();
            client.get_connection().ok()
        });
        let mut command = redis::cmd(words[0]);
        let answer = command.arg(&words[1..]).query(&mut connection);
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Kills it as a crash would, and waits for its end.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(arguments)
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed (Debian: apt-get install redis-server)")
}
