//! Ticks while clocks are set forward and back by hours, by libfaketime, and hosts are killed and frozen: each
//! is sent once.
//!
//! The hosts of a file share its clock, and so it is set for all of them. That of Redis stays right, and those of its
//! hosts go wrong.

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dqhost::schedule::{Missed, Overlap, Schedule, Timing};
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{TICKS, now, number};
use crate::support::{RedisServer, dqhost, eventually, guest, run, stats};

/// By how many seconds the clocks are wrong, one after the other. They come back to times at which they were.
const WRONG_BY: [i64; 6] = [0, 7200, 0, -10_800, 7200, 0];

/// How often a host is frozen and another killed at each of these times.
const ROUNDS: usize = 2;

const EVERY: Duration = Duration::from_millis(250);

/// How far back a host looks. Far more than the time between two looks on a busy machine.
const CATCH_UP: Duration = Duration::from_mins(2);

/// A clock that is set while processes look at it.
struct Clock {
    library: PathBuf,
    file: PathBuf,
    wrong_by: SignedDuration,
}

impl Clock {
    fn new(folder: &Path) -> Self {
        let mut clock = Self {
            library: library(),
            file: folder.join("clock"),
            wrong_by: SignedDuration::ZERO,
        };
        clock.set(0);
        clock
    }

    fn set(&mut self, wrong_by: i64) {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{wrong_by:+06}\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
        self.wrong_by = SignedDuration::from_secs(wrong_by);
    }

    fn now(&self) -> Timestamp {
        now() + self.wrong_by
    }

    /// The same command, which looks at this clock. How long something takes, it sees by the right one.
    fn shown_to(&self, mut command: Command) -> Command {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command
    }
}

/// The library of the Debian package. The one beside it, for programs of several threads, allocates memory while
/// it holds a lock that the allocator's look at the clock needs, and stands still.
fn library() -> PathBuf {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let nested = |folder: &PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let all = folders
        .iter()
        .flat_map(|folder| iter::once(folder.clone()).chain(nested(folder)));
    let mut files = all.map(|folder| folder.join("faketime/libfaketime.so.1"));
    files
        .find(|file| file.exists())
        .expect("libfaketime must be installed (Debian: apt-get install libfaketime)")
}

/// Hosts that look at a clock.
struct Hosts {
    command: Box<dyn Fn(&Clock) -> Command>,
    children: Vec<Child>,
}

impl Hosts {
    fn start(clock: &Clock, number: usize, config: &Path, args: &[&str]) -> Self {
        let config = config.display().to_string();
        let head = ["up", "--no-tui", "--log", "warn", "--config", &config];
        let args = [&head[..], args].concat();
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        let command = Box::new(move |clock: &Clock| {
            let mut command = clock.shown_to(dqhost(None, &args));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        });
        let children = (0..number).map(|_| command(clock).spawn().unwrap());
        Self {
            children: children.collect(),
            command,
        }
    }

    fn signal(&self, index: usize, signal: Signal) {
        // One that has ended by itself is started again when it is killed.
        let _ = kill_process(Pid::from_child(&self.children[index]), signal);
    }

    /// Kills one, and starts another in its place.
    fn replace(&mut self, index: usize, clock: &Clock) {
        kill(&mut self.children[index]);
        self.children[index] = (self.command)(clock).spawn().unwrap();
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.children.iter_mut().for_each(kill);
    }
}

/// Kills a process, and removes what libfaketime keeps for one that ends by itself.
fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
    for name in ["faketime_shm_", "sem.faketime_sem_"] {
        let _ = fs::remove_file(format!("/dev/shm/{name}{}", child.id()));
    }
}

/// The schedule as the test knows it: the ids of messages follow from it.
fn schedule() -> Schedule {
    Schedule {
        name: "often".to_owned(),
        timing: Timing::Every(EVERY),
        missed: Missed::All(1000),
        catch_up: CATCH_UP,
        since: None,
        overlap: Overlap::Run,
        payload: String::new(),
        headers: Vec::new(),
        retries: 1000,
    }
}

/// The ids of the ticks from one time to another.
fn ids(from: Timestamp, to: Timestamp) -> Vec<String> {
    let (schedule, queue) = (schedule(), "q".parse().unwrap());
    let ticks = iter::successors(schedule.next(from), |tick| schedule.next(*tick));
    let ticks = ticks.take_while(|tick| *tick <= to);
    ticks
        .map(|tick| schedule.message(&queue, tick).id.to_string())
        .collect()
}

/// A store with three hosts.
struct Stage<'s> {
    store: &'s str,
    /// The ids that the store knows as sent, also of what was handled.
    sent: &'s dyn Fn() -> BTreeSet<String>,
    clock: Clock,
    folder: TempDir,
}

impl<'s> Stage<'s> {
    fn new(store: &'s str, sent: &'s dyn Fn() -> BTreeSet<String>) -> Self {
        let folder = TempDir::new().unwrap();
        Self {
            store,
            sent,
            clock: Clock::new(folder.path()),
            folder,
        }
    }

    fn config(&self, name: &str, schedule: &str) -> PathBuf {
        let of_store = if self.store.contains("://") {
            "redis"
        } else {
            "db"
        };
        let text = format!(
            "{of_store} = {:?}\nlease = \"1s\"\nslots = 4\nhandler = \"{}\"\n\n[queue.q]\n{schedule}",
            self.store,
            guest("noop").display()
        );
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn is_any_sent(&self, from: Timestamp) -> bool {
        let due = ids(from, self.clock.now());
        !due.is_empty() && {
            let sent = (self.sent)();
            due.iter().any(|id| sent.contains(id))
        }
    }

    /// Returns when hosts have sent a tick after this moment, and so all that they have looked at before.
    fn wait_for_a_tick(&self) -> Timestamp {
        let from = self.clock.now();
        eventually("a tick is sent", || self.is_any_sent(from).then_some(()));
        from
    }

    /// Sets the clock while a host is frozen, and freezes and kills others while it is wrong. Returns the time
    /// of which all ticks were sent.
    fn visit(&mut self, hosts: &mut Hosts, wrong_by: i64) -> (Timestamp, Timestamp) {
        let mut from = None;
        for round in 0..ROUNDS {
            let (frozen, killed) = (round % 3, (round + 1) % 3);
            hosts.signal(frozen, Signal::STOP);
            if round == 0 {
                self.clock.set(wrong_by);
            }
            let begin = self.clock.now();
            from.get_or_insert(begin);
            // One that is frozen may have the lock of the file, for which the others wait then.
            for _ in 0..30 {
                if self.is_any_sent(begin) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            hosts.signal(frozen, Signal::CONT);
            self.wait_for_a_tick();
            hosts.replace(killed, &self.clock);
            self.wait_for_a_tick();
        }
        (from.unwrap(), self.wait_for_a_tick())
    }

    /// Waits until all but so many that are not due yet are handled. Returns what the store has counted.
    fn finish(&mut self, ahead: u64) -> Value {
        // Later than any lease, also of those written when the clock was ahead.
        self.clock.set(4 * 3600);
        let config = self.config("without.toml", "");
        let args = ["--queue", "q"];
        let _last = Hosts::start(&self.clock, 1, &config, &args);
        eventually("all is handled", || {
            let stats = stats(self.store, "q");
            let is_over = ["ready", "retry", "unack"]
                .iter()
                .all(|state| number(&stats[state]) == 0);
            (is_over && number(&stats["pending"]) == ahead).then_some(stats)
        })
    }

    /// How many ticks were sent that are not due by the clock of the store.
    fn ahead(&self) -> u64 {
        if !self.store.contains("://") {
            return 0;
        }
        let sent = (self.sent)();
        let hour = SignedDuration::from_hours(1);
        let ahead = ids(now() + hour, now() + hour * 3);
        ahead.iter().filter(|id| sent.contains(*id)).count() as u64
    }
}

/// Each tick that came while hosts worked is sent once, and handled once if it is due.
fn each_tick_is_sent_once(store: &str, sent: &dyn Fn() -> BTreeSet<String>) {
    let mut stage = Stage::new(store, sent);
    let schedule = format!(
        "[[queue.q.schedule]]\nname = \"often\"\nevery = \"{}ms\"\nmissed = \"all\"\nmissed-max = 1000\n\
         catch-up = \"{}s\"\nsince = \"{}\"\nretries = 1000\n",
        EVERY.as_millis(),
        CATCH_UP.as_secs(),
        now() - SignedDuration::from_hours(24)
    );
    let config = stage.config("clocks.toml", &schedule);
    // A file that is asked for its state has to be there.
    run(Some(store), &["send", "x", "-q", "other"], 0);
    let mut hosts = Hosts::start(&stage.clock, 3, &config, &[]);
    stage.wait_for_a_tick();
    let visits: Vec<_> = WRONG_BY
        .into_iter()
        .map(|wrong_by| stage.visit(&mut hosts, wrong_by))
        .collect();
    drop(hosts);
    let ahead = stage.ahead();
    let stats = stage.finish(ahead);
    let ids_sent = sent();
    assert!(ids_sent.len() as u64 >= TICKS, "{}", ids_sent.len());
    for (from, to) in visits {
        let lost: Vec<String> = ids(from, to)
            .into_iter()
            .filter(|id| !ids_sent.contains(id))
            .collect();
        assert!(lost.is_empty(), "{lost:?} from {from} to {to}");
    }
    let totals = &stats["totals"];
    assert_eq!(number(&totals["sent"]), ids_sent.len() as u64, "{stats}");
    assert_eq!(
        number(&totals["acked"]) + ahead,
        number(&totals["sent"]),
        "{stats}"
    );
    assert_eq!(number(&stats["dead"]), 0, "{stats}");
}

#[test]
fn a_clock_that_is_set_forward_and_back_sends_each_tick_once_to_a_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("jobs.db");
    let sent = || -> BTreeSet<String> {
        let file = rusqlite::Connection::open(&path).unwrap();
        file.busy_timeout(crate::support::PATIENCE).unwrap();
        let mut known = file
            .prepare("SELECT id FROM dedup JOIN queues USING (queue) WHERE name = 'q'")
            .unwrap();
        let ids = known.query_map([], |row| row.get(0)).unwrap();
        ids.map(Result::unwrap).collect()
    };
    each_tick_is_sent_once(path.to_str().unwrap(), &sent);
}

#[test]
fn clocks_of_hosts_that_are_set_forward_and_back_send_each_tick_once_to_redis() {
    let server = RedisServer::start();
    let sent = || -> BTreeSet<String> { server.command(&["ZRANGE", "{dp:q}:dedup", "0", "-1"]) };
    each_tick_is_sent_once(&server.url(), &sent);
}
