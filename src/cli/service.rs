//! What a service manager such as systemd is told of this process, by the protocol of `sd_notify`: when
//! it serves, loads changed handlers and stops, and that it still makes progress.
//!
//! Nothing here waits for the manager. What it does not read at once is kept and sent later.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::host::{Monitor, Stage};
use crate::message::QueueName;
use crate::store::Store;

/// Messages that are kept while the manager does not read. After that the oldest is dropped.
const UNSENT_MAX: usize = 64;

/// How often what is unsent is tried again.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// The status is told again after so many of those times, if it has changed.
const STATUS_EVERY: u32 = 10;

/// If there was no progress at half of the watchdog's time, it is looked for so many times in each
/// half that follows.
const LOOKS: u32 = 10;

/// The manager that started this process, if one did. A clone tells the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceManager(Option<Arc<Manager>>);

#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    unsent: VecDeque<String>,
    status: String,
    is_stopping: bool,
    has_failed: bool,
}

/// What has to make progress for the watchdog to be told so.
pub(super) enum Progress {
    /// The loop of each queue has asked the store and was answered, if only by an error.
    OfHost(Monitor, watch::Receiver<Stage>),
    /// The threads of the HTTP API have asked the store and were answered.
    OfApi(Handle, Arc<dyn Store>),
}

impl ServiceManager {
    /// The one that the environment names.
    pub(super) fn of_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        match Manager::at(&name) {
            Ok(manager) => Self(Some(Arc::new(manager))),
            Err(error) => {
                tracing::debug!("the service manager is not told of this host: {error}");
                Self(None)
            }
        }
    }

    /// It serves.
    pub(super) fn ready(&self, status: &str) {
        self.say(|state| {
            status.clone_into(&mut state.status);
            Some(format!("READY=1\nSTATUS={status}"))
        });
    }

    /// It begins to load changed handlers.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.say(|state| {
            let status = "loading changed handlers and settings";
            (!state.is_stopping)
                .then(|| format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS={status}"))
        });
    }

    /// It has loaded them, or goes on with the old ones.
    pub(super) fn reloaded(&self) {
        self.say(|state| {
            let status = &state.status;
            (!state.is_stopping).then(|| format!("READY=1\nSTATUS={status}"))
        });
    }

    /// It takes no more messages and ends soon. Only the first time is told.
    pub(super) fn stopping(&self, status: &str) {
        self.say(|state| {
            let is_first = !std::mem::replace(&mut state.is_stopping, true);
            is_first.then(|| format!("STOPPING=1\nSTATUS={status}"))
        });
    }

    fn status(&self, status: String) {
        self.say(|state| {
            let is_new = state.status != status;
            let message = is_new.then(|| format!("STATUS={status}"));
            state.status = status;
            message
        });
    }

    fn say(&self, message: impl FnOnce(&mut State) -> Option<String>) {
        let Some(manager) = &self.0 else {
            return;
        };
        let mut state = manager.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = message(&mut state) {
            state.unsent.push_back(message);
        }
        manager.flush(&mut state);
    }

    /// Tells of the host until the handle is dropped.
    pub(super) fn tell_of_host(
        &self,
        monitor: &Monitor,
        stages: &watch::Receiver<Stage>,
    ) -> Telling {
        if self.0.is_none() {
            return Telling::default();
        }
        self.ready(&status(monitor));
        let progress = Progress::OfHost(monitor.clone(), stages.clone());
        let telling = tell_of(self.clone(), monitor.clone(), stages.clone());
        Telling {
            _watchdog: self.watchdog(progress),
            _status: Some(spawn(telling)),
        }
    }

    /// Tells of the HTTP API until the handle is dropped.
    pub(super) fn tell_of_api(&self, status: &str, progress: Progress) -> Telling {
        if self.0.is_none() {
            return Telling::default();
        }
        self.ready(status);
        let manager = self.clone();
        let flushing = async move {
            loop {
                tokio::time::sleep(FLUSH_EVERY).await;
                manager.say(|_| None);
            }
        };
        Telling {
            _watchdog: self.watchdog(progress),
            _status: Some(spawn(flushing)),
        }
    }

    fn watchdog(&self, progress: Progress) -> Option<AbortOnDropHandle<()>> {
        self.0.as_ref()?;
        let half = watchdog_time(&|name| std::env::var(name).ok())? / 2;
        Some(spawn(feed_watchdog(self.clone(), half, progress)))
    }
}

/// The tasks that tell the manager. They end when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Telling {
    _watchdog: Option<AbortOnDropHandle<()>>,
    _status: Option<AbortOnDropHandle<()>>,
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

impl Manager {
    fn at(name: &OsStr) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            address: address(name)?,
            state: Mutex::default(),
        })
    }

    fn flush(&self, state: &mut State) {
        while let Some(message) = state.unsent.front() {
            let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
            match sent {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    if !std::mem::replace(&mut state.has_failed, true) {
                        tracing::debug!("the service manager cannot be told: {error}");
                    }
                }
            }
            state.unsent.pop_front();
        }
        let over = state.unsent.len().saturating_sub(UNSENT_MAX);
        drop(state.unsent.drain(..over));
    }
}

/// A path, or with @ a name of the abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        #[cfg(target_os = "linux")]
        [b'@', rest @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            SocketAddr::from_abstract_name(rest)
        }
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "NOTIFY_SOCKET names neither a path nor @NAME",
        )),
    }
}

/// How long the manager waits for a sign of life of this process before it ends it.
fn watchdog_time(variable: &dyn Fn(&str) -> Option<String>) -> Option<Duration> {
    let number = |name| variable(name)?.trim().parse::<u64>().ok();
    if variable("WATCHDOG_PID").is_some()
        && number("WATCHDOG_PID") != Some(std::process::id().into())
    {
        return None;
    }
    let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros))
}

/// What a host does, for people.
fn status(monitor: &Monitor) -> String {
    let reports = monitor.queue_reports();
    let (count, name) = (reports.len(), reports.first().map(|report| &report.queue));
    let queues = match name {
        Some(name) if count == 1 => format!("queue {name}"),
        _ => format!("{count} queues"),
    };
    let refused = reports.iter().filter(|one| one.refusal.is_some()).count();
    let refused = match refused {
        0 => String::new(),
        1 => "; the changed handler of 1 queue was refused, see the log".to_owned(),
        more => format!("; the changed handlers of {more} queues were refused, see the log"),
    };
    let done = monitor.summary();
    let failed = done.nacked + done.rejected;
    format!(
        "serving {queues}: {} of {} slots busy, {} acked, {failed} failed{refused}",
        monitor.busy(),
        monitor.slots(),
        done.acked,
    )
}

/// Tells how the host goes and when it stops.
async fn tell_of(manager: ServiceManager, monitor: Monitor, mut stages: watch::Receiver<Stage>) {
    let mut times = 0_u32;
    loop {
        let stopping = stages.wait_for(|stage| *stage >= Stage::Drain);
        let told = tokio::time::timeout(FLUSH_EVERY, stopping).await;
        match told.map(|stage| stage.is_ok()) {
            Ok(true) => break,
            // Nobody is left who could stop it.
            Ok(false) => tokio::time::sleep(FLUSH_EVERY).await,
            Err(_) => {}
        }
        times = times.wrapping_add(1);
        if times.is_multiple_of(STATUS_EVERY) {
            manager.status(status(&monitor));
        } else {
            manager.say(|_| None);
        }
    }
    let limit = monitor.drain();
    manager.stopping(&format!(
        "stopping: {} handlers may finish within {limit:?}",
        monitor.busy()
    ));
    loop {
        tokio::time::sleep(FLUSH_EVERY).await;
        manager.say(|_| None);
    }
}

/// Tells the manager at each half of the watchdog's time that there was progress in it. If there was
/// none, the manager is told nothing until there is some.
async fn feed_watchdog(manager: ServiceManager, half: Duration, progress: Progress) {
    let mut seen = match &progress {
        Progress::OfHost(monitor, _) => monitor.passes(),
        Progress::OfApi(..) => HashMap::new(),
    };
    loop {
        tokio::time::sleep(half).await;
        match &progress {
            Progress::OfHost(monitor, stages) => {
                // A host that stops has time limits of its own.
                while *stages.borrow() == Stage::Run && !has_moved(&monitor.passes(), &seen) {
                    tokio::time::sleep(half / LOOKS).await;
                }
                seen = monitor.passes();
            }
            Progress::OfApi(threads, store) => {
                let store = Arc::clone(store);
                let asked = threads.spawn(async move { store.queues().await.is_ok() });
                let _ = asked.await;
            }
        }
        manager.say(|_| Some("WATCHDOG=1".to_owned()));
    }
}

/// True if every loop has made a pass since then, or has begun.
fn has_moved(now: &HashMap<QueueName, u64>, then: &HashMap<QueueName, u64>) -> bool {
    now.iter()
        .all(|(queue, passes)| then.get(queue) != Some(passes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(folder: &tempfile::TempDir) -> (UnixDatagram, ServiceManager) {
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = Manager::at(path.as_os_str()).unwrap();
        (socket, ServiceManager(Some(Arc::new(manager))))
    }

    fn received(socket: &UnixDatagram) -> Vec<String> {
        let mut all = Vec::new();
        let mut bytes = [0; 4096];
        while let Ok(count) = socket.recv(&mut bytes) {
            all.push(String::from_utf8(bytes[..count].to_vec()).unwrap());
        }
        all
    }

    #[test]
    fn what_the_manager_does_not_read_is_told_later_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, manager) = manager(&folder);
        // More than the socket holds.
        while manager
            .0
            .as_ref()
            .unwrap()
            .state
            .lock()
            .unwrap()
            .unsent
            .is_empty()
        {
            manager.say(|_| Some("WATCHDOG=1".to_owned()));
        }
        manager.reloading();
        manager.reloaded();
        let mut all = received(&socket);
        manager.say(|_| None);
        all.extend(received(&socket));
        let states: Vec<&str> = all
            .iter()
            .map(|one| one.split('\n').next().unwrap())
            .collect();
        assert_eq!(
            states[states.len() - 3..],
            ["WATCHDOG=1", "RELOADING=1", "READY=1"]
        );
    }

    #[test]
    fn nothing_is_kept_without_bounds_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (_socket, manager) = manager(&folder);
        for number in 0..10_000 {
            manager.status(number.to_string());
        }
        let manager = manager.0.unwrap();
        assert_eq!(manager.state.lock().unwrap().unsent.len(), UNSENT_MAX);
        assert_eq!(
            manager.state.lock().unwrap().unsent.back().unwrap(),
            "STATUS=9999"
        );
    }

    #[test]
    fn who_stops_is_not_ready_again_and_says_so_once() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, manager) = manager(&folder);
        manager.stopping("a");
        manager.reloading();
        manager.reloaded();
        manager.stopping("b");
        assert_eq!(received(&socket), ["STOPPING=1\nSTATUS=a"]);
    }

    #[test]
    fn a_manager_that_is_gone_costs_nothing_but_its_messages() {
        let manager = Manager::at(OsStr::new("/nowhere/notify")).unwrap();
        let manager = ServiceManager(Some(Arc::new(manager)));
        manager.ready("a");
        assert!(manager.0.unwrap().state.lock().unwrap().unsent.is_empty());
        for unknown in ["vsock:2:1", "notify", "@"] {
            let is_known = Manager::at(OsStr::new(unknown)).is_ok();
            assert_eq!(
                is_known,
                unknown == "@" && cfg!(target_os = "linux"),
                "{unknown}"
            );
        }
    }

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let time = |usec: &'static str, pid: Option<String>| {
            watchdog_time(&move |name| match name {
                "WATCHDOG_USEC" => Some(usec.to_owned()),
                _ => pid.clone(),
            })
        };
        let ours = std::process::id().to_string();
        assert_eq!(time("2000000", None), Some(Duration::from_secs(2)));
        assert_eq!(time("2000000", Some(ours)), Some(Duration::from_secs(2)));
        for pid in ["1", "x"] {
            assert_eq!(time("2000000", Some(pid.to_owned())), None);
        }
        for none in ["", "0", "-1", "a"] {
            assert_eq!(time(none, None), None, "{none}");
        }
    }

    #[test]
    fn one_loop_that_stands_still_is_no_progress() {
        let passes = |all: &[(&str, u64)]| {
            let all = all.iter();
            all.map(|(queue, passes)| (queue.parse().unwrap(), *passes))
                .collect()
        };
        let before = passes(&[("a", 1), ("b", 1)]);
        assert!(has_moved(&passes(&[("a", 2), ("b", 2)]), &before));
        assert!(!has_moved(&passes(&[("a", 2), ("b", 1)]), &before));
        // One that is served anew counts from the beginning, and another may be served no longer.
        assert!(has_moved(&passes(&[("a", 0), ("c", 1)]), &before));
    }

    #[test]
    fn the_unit_file_has_only_flags_and_variables_that_there_are() {
        let read = |name: &str| {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            std::fs::read_to_string(path).unwrap()
        };
        let (unit, page) = (read("docs/dqhost.service"), read("docs/operations.md"));
        let command = crate::cli::help::command();
        let starts: Vec<&str> = unit
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart="))
            .collect();
        assert_eq!(starts.len(), 1);
        let parsed = command
            .clone()
            .try_get_matches_from(starts[0].split_whitespace());
        parsed.unwrap_or_else(|error| panic!("{error}"));
        let up = command.find_subcommand("up").unwrap();
        let known: Vec<&OsStr> = up.get_arguments().filter_map(clap::Arg::get_env).collect();
        let lines = unit.lines().chain(page.lines());
        let set = lines.filter_map(|line| line.strip_prefix("Environment="));
        let mut found = 0;
        for name in set
            .flat_map(str::split_whitespace)
            .map(|set| set.split('=').next().unwrap())
        {
            let is_known = name.starts_with("XDG_") || known.contains(&OsStr::new(name));
            assert!(is_known, "{name}");
            found += 1;
        }
        assert!(found >= 4, "{found}");
    }
}
