//! Where the messages of a trial are, and what can go wrong there.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dqhost::store::Store;
use dqhost::store::redis::{RedisOptions, RedisStore};
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::history::Process;
use crate::hosts::End;
use crate::proxy::Door;
use crate::support::{self, PATIENCE, RedisServer, eventually};

pub(crate) enum Place {
    /// Each host has a door of its own, and the producers have the last.
    Redis {
        server: Mutex<RedisServer>,
        doors: Vec<Arc<Door>>,
    },
    File {
        path: PathBuf,
        lock: Mutex<Option<Connection>>,
        _folder: TempDir,
    },
}

impl Place {
    pub(crate) fn redis(hosts: usize) -> Self {
        // What is acknowledged has to be in the file when the process is killed; with `everysec` Redis
        // may hold it back for two seconds while the disk is busy.
        let server = RedisServer::start_with(&["--appendfsync", "always"]);
        let socket = PathBuf::from(server.url().trim_start_matches("unix://"));
        let doors = (0..=hosts).map(|_| Door::open(socket.clone())).collect();
        Self::Redis {
            server: Mutex::new(server),
            doors,
        }
    }

    pub(crate) fn file() -> Self {
        let folder = TempDir::new().unwrap();
        Self::File {
            path: folder.path().join("dqhost.db"),
            lock: Mutex::default(),
            _folder: folder,
        }
    }

    /// How people name it, past all doors.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Redis { server, .. } => server.lock().unwrap().url(),
            Self::File { path, .. } => path.to_str().unwrap().to_owned(),
        }
    }

    /// The command of a host that works here.
    pub(crate) fn command(&self, by: Process, args: &[String]) -> Command {
        let name = match self {
            Self::Redis { doors, .. } => doors[by.host].url(),
            Self::File { .. } => self.name(),
        };
        support::dqhost(Some(&name), args)
    }

    /// For producers, and for who looks on: the second is spared what happens to connections.
    pub(crate) async fn stores(&self) -> [Arc<dyn Store>; 2] {
        match self {
            Self::Redis { doors, .. } => [
                redis(doors[doors.len() - 1].url()).await,
                redis(self.name()).await,
            ],
            Self::File { path, .. } => {
                let open = SqliteStore::open(&SqliteOptions::file(path)).await;
                let store: Arc<dyn Store> = Arc::new(open.unwrap());
                [Arc::clone(&store), store]
            }
        }
    }

    pub(crate) fn door(&self, number: usize) -> Option<&Arc<Door>> {
        match self {
            Self::Redis { doors, .. } => doors.get(number),
            Self::File { .. } => None,
        }
    }

    pub(crate) fn doors(&self) -> &[Arc<Door>] {
        match self {
            Self::Redis { doors, .. } => doors,
            Self::File { .. } => &[],
        }
    }

    /// Kills the server, and starts it again on its data after a time.
    pub(crate) fn kill_server(&self, away: Duration) {
        if let Self::Redis { server, .. } = self {
            let mut server = server.lock().unwrap();
            server.kill();
            std::thread::sleep(away);
            server.restart();
        }
    }

    /// Runs a command on the server; none when it refuses.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let Self::Redis { server, .. } = self else {
            return None;
        };
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut server.lock().unwrap().connection()).ok()
    }

    /// Writes to the file as another program may, and does not come to an end, or does.
    pub(crate) fn lock(&self, locks: bool) {
        if let Self::File { path, lock, .. } = self {
            let mut lock = lock.lock().unwrap();
            *lock = None;
            if locks {
                let connection = Connection::open(path).unwrap();
                // A host that is frozen may have it, until it is thawed.
                connection.busy_timeout(Duration::from_millis(500)).unwrap();
                if connection.execute_batch("BEGIN IMMEDIATE").is_ok() {
                    *lock = Some(connection);
                }
            }
        }
    }

    /// Leaves no process behind, whatever happens.
    pub(crate) fn end_with_this(self: &Arc<Self>) -> End<impl FnMut() + use<>> {
        let place = Arc::clone(self);
        End::new(move || place.close())
    }

    fn close(&self) {
        self.lock(false);
        if let Self::Redis { server, .. } = self {
            // Also when whoever had it has panicked.
            let server = server
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            server.signal(rustix::process::Signal::KILL);
        }
    }

    /// Ends whatever is wrong with it.
    pub(crate) fn heal(&self) {
        self.lock(false);
        for door in self.doors() {
            door.delay(Duration::ZERO);
            door.end_hole();
        }
        for words in [
            &["CONFIG", "SET", "maxmemory", "0"][..],
            &["REPLICAOF", "NO", "ONE"],
        ] {
            let _: Option<String> = self.ask(words);
        }
    }

    /// The file as SQLite sees it.
    pub(crate) fn is_whole(&self) -> bool {
        let Self::File { path, .. } = self else {
            return true;
        };
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        let answer: String = connection
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        answer == "ok"
    }
}

async fn redis(url: String) -> Arc<dyn Store> {
    let options = RedisOptions::new(url);
    Arc::new(RedisStore::open(&options).await.unwrap())
}

/// Waits until every connection that was to be cut has been; those of producers are not cut any more.
pub(crate) fn wait_for_cuts(place: &Place) {
    let Some((producers, hosts)) = place.doors().split_last() else {
        return;
    };
    producers.disarm();
    eventually("all cuts are made", || {
        hosts.iter().all(|door| door.waits() == 0).then_some(())
    });
}
