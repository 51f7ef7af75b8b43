//! Parts that tests are made of: a Redis server of one's own, components, the program.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dqhost::host::{HostConfig, SlotCount, Workers};
use dqhost::store::Store;
use dqhost::store::redis::{RedisOptions, RedisStore};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before a test gives up. No test is about speed: this is only so that
/// one that cannot pass ends.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);

/// A Redis server on a Unix socket in a folder of its own; killed on drop.
pub(crate) struct RedisServer {
    child: Child,
    folder: TempDir,
    settings: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With further settings, as on redis-server's command line.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let child = Self::spawn(folder.path(), &settings);
        let server = Self {
            child,
            folder,
            settings,
        };
        server.wait_until_it_answers();
        server
    }

    fn spawn(folder: &Path, settings: &[String]) -> Child {
        Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--unixsocket",
                "redis.sock",
                "--save",
                "",
                "--appendonly",
                "yes",
                // Written before the answer. With everysec a write waits while a busy disk syncs, and kill -9 loses it.
                "--appendfsync",
                "no",
            ])
            .args(settings)
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server must be installed (Debian: apt-get install redis-server)")
    }

    fn wait_until_it_answers(&self) {
        eventually("the Redis server answers", || {
            let mut connection = redis::Client::open(self.url())
                .ok()?
                .get_connection()
                .ok()?;
            match redis::cmd("PING").query::<String>(&mut connection) {
                Ok(_) => Some(()),
                // A server that wants a password is up as well.
                Err(error) => (error.code() == Some("NOAUTH")).then_some(()),
            }
        });
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}/redis.sock", self.folder.path().display())
    }

    pub(crate) fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url())
            .unwrap()
            .get_connection()
            .unwrap()
    }

    /// Runs one command, given in words.
    pub(crate) fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connection()).unwrap()
    }

    /// Kills the server as a crash would, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Starts it again on the same data, with the settings of its start.
    pub(crate) fn restart(&mut self) {
        self.child = Self::spawn(self.folder.path(), &self.settings);
        self.wait_until_it_answers();
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        self.store_with(true).await
    }

    pub(crate) async fn store_with(&self, hash_tag: bool) -> Arc<dyn Store> {
        self.store_named(hash_tag, "dp").await
    }

    pub(crate) async fn store_named(&self, hash_tag: bool, prefix: &str) -> Arc<dyn Store> {
        let options = RedisOptions {
            hash_tag,
            prefix: prefix.parse().unwrap(),
            ..RedisOptions::new(self.url())
        };
        Arc::new(RedisStore::open(&options).await.unwrap())
    }

    /// Every key with its content, as text that can be compared and read.
    pub(crate) fn dump(&self) -> String {
        let mut connection = self.connection();
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        keys.sort();
        let mut text = String::new();
        for key in keys {
            let kind: String = redis::cmd("TYPE").arg(&key).query(&mut connection).unwrap();
            let mut command = match kind.as_str() {
                "string" => redis::cmd("GET"),
                "list" => redis::cmd("LRANGE"),
                "hash" => redis::cmd("HGETALL"),
                "set" => redis::cmd("SMEMBERS"),
                "zset" => redis::cmd("ZRANGE"),
                other => panic!("key {key} is a {other}"),
            };
            command.arg(&key);
            match kind.as_str() {
                "list" => command.arg(0).arg(-1),
                "zset" => command.arg(0).arg(-1).arg("WITHSCORES"),
                _ => &mut command,
            };
            let value: redis::Value = command.query(&mut connection).unwrap();
            let _ = writeln!(text, "{key} = {value:?}");
        }
        text
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again and again until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The folders of all example handlers: those that invite, and of other kinds.
pub(crate) fn guest_folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest-examples");
    let kinds = ["hostile", "bench", "foreign"].map(|kind| root.join(kind));
    let all = [&[root][..], &kinds].concat();
    let entries = all
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let folders = entries.map(|entry| entry.unwrap().path());
    folders
        .filter(|folder| folder.join("Cargo.toml").exists())
        .collect()
}

/// The names of all example handlers, from their folders.
pub(crate) fn guest_names() -> Vec<String> {
    let name = |folder: PathBuf| folder.file_name().unwrap().to_str().unwrap().to_owned();
    let mut names: Vec<String> = guest_folders().into_iter().map(name).collect();
    names.sort();
    names
}

/// The component of one example handler. All of them are built first, so that none is older than
/// its source.
pub(crate) fn guest(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = Path::new(env!("CARGO_BIN_EXE_dqhost"))
            .parent()
            .unwrap()
            .parent()
            .unwrap();
        let output = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--profile",
                "guest",
                "--target",
                "wasm32-wasip2",
            ])
            .args(["--workspace", "--exclude", "dqhost", "--target-dir"])
            .arg(target)
            .current_dir(root)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        target.join("wasm32-wasip2/guest")
    });
    folder.join(format!("{}.wasm", name.replace('-', "_")))
}

/// The program with arguments, on one store (the URL of a server, or the path of a file) or on none,
/// with an environment of its own.
pub(crate) fn dqhost<S: AsRef<std::ffi::OsStr>>(store: Option<&str>, args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dqhost"));
    for (name, _) in std::env::vars() {
        if name.starts_with("DQHOST_") || name == "REDIS_URL" {
            command.env_remove(name);
        }
    }
    // Whatever is kept by default must not be this user's.
    command.env("XDG_DATA_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"));
    match store {
        Some(url) if url.contains("://") => command.env("REDIS_URL", url),
        Some(path) => command.env("DQHOST_DB", path),
        None => &mut command,
    };
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the program to its end. It must exit with this code.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(store: Option<&str>, args: &[S], code: i32) -> Output {
    expect(dqhost(store, args).output().unwrap(), code)
}

/// Checks an exit code.
pub(crate) fn expect(output: Output, code: i32) -> Output {
    assert_eq!(
        output.status.code(),
        Some(code),
        "stdout: {}\nstderr: {}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The counts of one queue, as `dqhost stats --json` prints them.
pub(crate) fn stats(store: &str, queue: &str) -> Value {
    let output = run(Some(store), &["stats", "--json", "--queue", queue], 0);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    value["queues"][0].clone()
}

/// A host in the background whose log is read as it comes; killed on drop.
pub(crate) struct Host {
    child: Child,
    lines: Receiver<Value>,
    seen: Vec<Value>,
}

/// The same command, with SIGHUP as it is by default: tests may run under nohup, which hosts respect.
pub(crate) fn with_hangups(command: &Command) -> Command {
    let mut with = Command::new("env");
    with.arg("--default-signal=HUP").arg(command.get_program());
    with.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => with.env(name, value),
            None => with.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        with.current_dir(folder);
    }
    with
}

impl Host {
    /// Starts a host and waits until it serves.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(store: &str, args: &[S]) -> Self {
        let mut host = Self::start_silently(store, args);
        host.wait_for("serving", |_| true);
        host
    }

    /// Starts a host that may be told to log less than that it serves.
    pub(crate) fn start_silently<S: AsRef<std::ffi::OsStr>>(store: &str, args: &[S]) -> Self {
        Self::start_command(dqhost(Some(store), args))
    }

    /// Starts a host by a command that ends with its arguments.
    pub(crate) fn start_command(mut command: Command) -> Self {
        let mut child = command
            .args(["--log-format", "json"])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { return };
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for a log line with this message of which `which` is true; it may have come before.
    pub(crate) fn wait_for(&mut self, message: &str, which: impl Fn(&Value) -> bool) -> Value {
        self.wait_for_line(message, |line| line["message"] == message && which(line))
    }

    /// Waits for a log line whose message starts so.
    pub(crate) fn wait_for_start(&mut self, start: &str) -> Value {
        self.wait_for_line(start, |line| {
            line["message"]
                .as_str()
                .is_some_and(|message| message.starts_with(start))
        })
    }

    /// Waits for a log line about a queue whose message has this in it.
    pub(crate) fn wait_for_queue(&mut self, part: &str, queue: &str) -> Value {
        self.wait_for_line(part, |line| {
            let message = line["message"].as_str();
            line["queue"] == queue && message.is_some_and(|message| message.contains(part))
        })
    }

    /// Waits for a log line whose message has this in it.
    pub(crate) fn wait_for_line_with(&mut self, part: &str) -> Value {
        self.wait_for_line(part, |line| {
            line["message"]
                .as_str()
                .is_some_and(|message| message.contains(part))
        })
    }

    /// Waits for a line on stderr that is no line of the log and has this in it.
    pub(crate) fn wait_for_text(&mut self, part: &str) -> String {
        let line = self.wait_for_line(part, |line| {
            line.as_str().is_some_and(|line| line.contains(part))
        });
        line.as_str().unwrap_or_default().to_owned()
    }

    /// Waits for a log line with this message; false if the program ends without.
    pub(crate) fn comes_to(&mut self, message: &str) -> bool {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            let is_it = line["message"] == message;
            self.seen.push(line);
            if is_it {
                return true;
            }
        }
        false
    }

    fn wait_for_line(&mut self, what: &str, which: impl Fn(&Value) -> bool) -> Value {
        if let Some(line) = self.seen.iter().find(|line| which(line)) {
            return line.clone();
        }
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line.clone());
            if which(&line) {
                return line;
            }
        }
        panic!("no line {what:?}; there were: {:#?}", self.seen)
    }

    /// Waits until so many log lines have a message that starts so.
    pub(crate) fn wait_for_count(&mut self, start: &str, count: usize) {
        let is_one = |line: &&Value| {
            let message = line["message"].as_str();
            message.is_some_and(|message| message.starts_with(start))
        };
        let mut found = self.seen.iter().filter(is_one).count();
        while found < count {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{found} of {count} lines {start:?}"));
            found += usize::from(is_one(&&line));
            self.seen.push(line);
        }
    }

    /// The latest line that was waited for or came before it, whose message starts so.
    pub(crate) fn latest(&self, start: &str) -> &Value {
        let is_one = |line: &&Value| {
            let message = line["message"].as_str();
            message.is_some_and(|message| message.starts_with(start))
        };
        let mut seen = self.seen.iter().rev();
        seen.find(is_one).unwrap()
    }

    /// True when a line with this message about this id has come by now.
    pub(crate) fn has(&mut self, message: &str, id: &str) -> bool {
        self.seen.extend(self.lines.try_iter());
        let mut seen = self.seen.iter();
        seen.any(|line| line["message"] == message && line["id"] == id)
    }

    /// How many lines with this message have come by now.
    pub(crate) fn count(&mut self, message: &str) -> usize {
        self.seen.extend(self.lines.try_iter());
        with_message(&self.seen, message).len()
    }

    /// Waits until it logs no more.
    pub(crate) fn wait_for_end_of_log(&mut self) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        let _ = self.child.wait();
    }

    /// Waits for the end of the process; returns its status and all it logged.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<Value>) {
        let status = eventually("the host ends", || self.child.try_wait().unwrap());
        let mut lines = std::mem::take(&mut self.seen);
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            lines.push(line);
        }
        (status, lines)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Those of the lines that have this message.
pub(crate) fn with_message<'a>(lines: &'a [Value], message: &str) -> Vec<&'a Value> {
    lines
        .iter()
        .filter(|line| line["message"] == message)
        .collect()
}

/// An HTTP request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

/// Reads one; none when whoever asks went away.
pub(crate) fn read_request(stream: impl Read) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}

/// Feeds a program's stdin and waits for its end.
pub(crate) fn feed(mut command: Command, input: &[u8]) -> Output {
    use std::io::Write;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Apart, since the program may write more than a pipe holds before it has read everything.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    // Both of its outputs are read at once: it may fill either before the other ends.
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// Sends lines that have idempotency keys. On a busy machine a file may be locked, or a server silent, for longer
/// than a send waits. It is repeated then, as a producer would do it.
pub(crate) fn send_patiently(store: &str, queue: &str, lines: &[u8]) -> Output {
    let args = ["send", "--queue", queue, "--ndjson", "-"];
    let send = || feed(dqhost(Some(store), &args), lines);
    let mut output = send();
    for _ in 0..20 {
        if output.status.code() != Some(3) {
            break;
        }
        output = send();
    }
    output
}

/// A host of the library, with all of its work on this runtime.
pub(crate) fn host_config(slots: SlotCount, drain: Duration) -> HostConfig {
    HostConfig {
        host_id: "one".to_owned(),
        slots,
        drain,
        poll: Duration::from_millis(50),
        exit_when_empty: false,
        spans: dqhost::spans::Spans::default(),
    }
}

pub(crate) fn workers() -> Workers {
    let here = tokio::runtime::Handle::current();
    Workers {
        quick: here.clone(),
        patient: here.clone(),
        http: here.clone(),
        settling: here,
    }
}
