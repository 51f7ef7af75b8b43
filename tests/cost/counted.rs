//! How work is counted.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::RedisServer;

/// What some work cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Costs {
    trips: u64,
    sent: u64,
    in_scripts: u64,
    allocations: u64,
}

impl From<[u64; 4]> for Costs {
    fn from([trips, sent, in_scripts, allocations]: [u64; 4]) -> Self {
        Self {
            trips,
            sent,
            in_scripts,
            allocations,
        }
    }
}

impl Costs {
    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.trips, self.sent, self.in_scripts, self.allocations]
    }

    pub(crate) fn of_process(allocations: u64) -> Self {
        Self {
            allocations,
            ..Self::default()
        }
    }

    /// The least of each.
    pub(crate) fn least(self, other: Self) -> Self {
        let (one, other) = (self.numbers(), other.numbers());
        Self::from(std::array::from_fn(|at| one[at].min(other[at])))
    }
}

/// A Redis server that is reached through a proxy which counts round trips: how often something is
/// asked after something was answered. Pipelined commands are one round trip.
pub(crate) struct CountedRedis {
    server: RedisServer,
    folder: tempfile::TempDir,
    trips: Arc<AtomicU64>,
}

/// Commands that programs send; all others are run by scripts.
const SENT: [&str; 5] = ["evalsha", "mget", "sadd", "persist", "script|load"];

impl CountedRedis {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start();
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("proxy.sock")).unwrap();
        let (trips, path) = (Arc::<AtomicU64>::default(), server.url());
        let path = PathBuf::from(path.strip_prefix("unix://").unwrap());
        let counter = Arc::clone(&trips);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                pass_on(
                    client.unwrap(),
                    UnixStream::connect(&path).unwrap(),
                    &counter,
                );
            }
        });
        Self {
            server,
            folder,
            trips,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}/proxy.sock", self.folder.path().display())
    }

    pub(crate) fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Begins to count.
    pub(crate) fn reset(&self) {
        self.server.command::<()>(&["CONFIG", "RESETSTAT"]);
        self.trips.store(0, Ordering::SeqCst);
    }

    /// What came since, but for the allocations.
    pub(crate) fn costs(&self) -> Costs {
        let trips = self.trips.load(Ordering::SeqCst);
        let info: String = self.server.command(&["INFO", "commandstats"]);
        let (mut sent, mut in_scripts) = (0, 0);
        for line in info.lines() {
            let Some(line) = line.strip_prefix("cmdstat_") else {
                continue;
            };
            let (name, rest) = line.split_once(":calls=").unwrap();
            let calls: u64 = rest.split(',').next().unwrap().parse().unwrap();
            if SENT.contains(&name) {
                sent += calls;
            } else if !["config|resetstat", "info"].contains(&name) {
                in_scripts += calls;
            }
        }
        Costs::from([trips, sent, in_scripts, 0])
    }
}

fn pass_on(client: UnixStream, server: UnixStream, trips: &Arc<AtomicU64>) {
    // True when the client has nothing to wait for.
    let answered = Arc::new(AtomicBool::new(true));
    let (from_client, to_client) = (client.try_clone().unwrap(), client);
    let (from_server, to_server) = (server.try_clone().unwrap(), server);
    let (trips, asks) = (Arc::clone(trips), Arc::clone(&answered));
    std::thread::spawn(move || {
        copy(from_client, &to_server, || {
            if asks.swap(false, Ordering::SeqCst) {
                trips.fetch_add(1, Ordering::SeqCst);
            }
        });
    });
    std::thread::spawn(move || {
        copy(from_server, &to_client, || {
            answered.store(true, Ordering::SeqCst);
        });
    });
}

fn copy(mut from: UnixStream, mut to: &UnixStream, passes: impl Fn()) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        passes();
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
