//! The stores that are measured: each measurement has a new one of its own.

use std::collections::HashMap;
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use dqhost::store::Store;
use dqhost::store::address::{self, StoreAddress, StoreSettings};
use dqhost::store::sqlite::Durability;
use tempfile::TempDir;

use crate::Common;
use crate::support::{Host, RedisServer};

/// A store, and how much it survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// A server that keeps nothing on disk.
    Redis,
    /// With an append-only file that is flushed once a second.
    RedisAof,
    /// With an append-only file that is flushed before each answer.
    RedisAlways,
    /// A file, flushed before each answer.
    File,
    /// A file that survives the process, not the machine.
    FileNormal,
}

impl StoreKind {
    pub(crate) fn is_redis(self) -> bool {
        !matches!(self, Self::File | Self::FileNormal)
    }

    fn durability(self) -> (Durability, &'static str) {
        match self {
            Self::FileNormal => (Durability::Normal, "normal"),
            _ => (Durability::Full, "full"),
        }
    }
}

impl fmt::Display for StoreKind {
    /// As `--store` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// A store of one's own.
pub(crate) struct Place {
    pub(crate) kind: StoreKind,
    address: String,
    /// Of a Redis store.
    server: Option<RedisServer>,
    /// Of a file, which goes with it.
    _folder: Option<TempDir>,
}

impl Place {
    pub(crate) fn start(kind: StoreKind, common: &Common) -> Self {
        let appends: &[&str] = match kind {
            StoreKind::Redis => &["--appendonly", "no"],
            StoreKind::RedisAof => &["--appendfsync", "everysec"],
            StoreKind::RedisAlways => &["--appendfsync", "always"],
            StoreKind::File | StoreKind::FileNormal => return Self::file(kind),
        };
        let port = free_port().to_string();
        let server = RedisServer::start_with(&[appends, &["--port", &port]].concat());
        let address = if common.is_unix() {
            server.url()
        } else {
            format!("redis://127.0.0.1:{port}")
        };
        Self {
            kind,
            address,
            server: Some(server),
            _folder: None,
        }
    }

    fn file(kind: StoreKind) -> Self {
        let folder = TempDir::new().unwrap();
        let db = folder.path().join("dqhost.db");
        Self {
            kind,
            address: db.to_str().unwrap().to_owned(),
            server: None,
            _folder: Some(folder),
        }
    }

    /// As the command line takes it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn server(&self) -> Option<&RedisServer> {
        self.server.as_ref()
    }

    /// How long some PINGs take, each after a rest, as the plainest client sends them; none for a file.
    pub(crate) fn pings(&self, count: usize, rest: Duration) -> Option<Vec<Duration>> {
        self.server()?;
        let client = redis::Client::open(self.address()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut ping = || {
            std::thread::sleep(rest);
            let start = Instant::now();
            redis::cmd("PING").exec(&mut connection).unwrap();
            start.elapsed()
        };
        Some((0..count).map(|_| ping()).collect())
    }

    /// What its server says of itself, if there is one.
    pub(crate) fn gauge(&self) -> Option<Gauge> {
        let connection = self.server()?.connection();
        Some(Gauge { connection })
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        let address: StoreAddress = self.address.parse().unwrap();
        let settings = StoreSettings {
            durability: self.kind.durability().0,
            ..StoreSettings::default()
        };
        address::open(&address, settings).await.unwrap()
    }

    /// What a host needs to use the store as [`Place::store`] does.
    pub(crate) fn host_args(&self) -> [&'static str; 2] {
        ["--durability", self.kind.durability().1]
    }

    /// A host that serves, with this example handler.
    pub(crate) fn host(&self, handler: &str) -> Host {
        let handler = crate::support::guest(handler);
        let head = ["--handler", handler.to_str().unwrap()];
        Host::start(self.address(), &[head, self.host_args()].concat())
    }
}

/// Nobody listens on it now, and nobody else asks for it so soon.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// What a Redis server says of itself, on a connection that is there before anything is counted.
pub(crate) struct Gauge {
    connection: redis::Connection,
}

impl Gauge {
    fn info(&mut self, section: &str) -> String {
        let mut command = redis::cmd("INFO");
        command.arg(section).query(&mut self.connection).unwrap()
    }

    /// One number of one section.
    pub(crate) fn number(&mut self, section: &str, name: &str) -> f64 {
        let info = self.info(section);
        let value = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap().trim().parse().unwrap()
    }

    /// The processor time that it has used, in microseconds: what /proc says in ticks of 10 ms.
    pub(crate) fn processor_us(&mut self) -> f64 {
        let info = self.info("cpu");
        let seconds = |name: &str| -> f64 {
            let value = info
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap().trim().parse().unwrap()
        };
        (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6
    }

    /// Counts commands from here.
    pub(crate) fn reset(&mut self) {
        let mut command = redis::cmd("CONFIG");
        let () = command
            .arg("RESETSTAT")
            .query(&mut self.connection)
            .unwrap();
    }

    pub(crate) fn commands(&mut self) -> Commands {
        let info = self.info("commandstats");
        let parse = |line: &str| {
            let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let field = |name: &str| -> Option<f64> {
                let mut fields = fields.split(',');
                let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))?;
                value.trim().parse().ok()
            };
            Some((name.to_owned(), (field("calls")?, field("usec")?)))
        };
        Commands(info.lines().filter_map(parse).collect())
    }
}

/// How often each command ran, and for how long, in scripts and outside.
pub(crate) struct Commands(HashMap<String, (f64, f64)>);

impl Commands {
    fn sum(&self, names: &[&str], of: fn(&(f64, f64)) -> f64) -> f64 {
        names
            .iter()
            .filter_map(|name| self.0.get(*name))
            .map(of)
            .sum()
    }

    pub(crate) fn calls(&self, names: &[&str]) -> f64 {
        self.sum(names, |(calls, _)| *calls)
    }

    pub(crate) fn micros(&self, names: &[&str]) -> f64 {
        self.sum(names, |(_, micros)| *micros)
    }
}
