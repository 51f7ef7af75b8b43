//! The hosts of a trial: real processes, whose logs go into the history, and who sees to it that they
//! run. A host that cannot reach its store when it starts ends with code 3 and is started again, as a
//! service manager does it; one that has served and ends by itself has broken a promise.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::history::{History, Outcome, Process, What};
use crate::plan::Shape;
use crate::support::{eventually, with_hangups};
use crate::terminal::Terminal;

/// What all hosts of a trial have in common.
pub(crate) struct Crew {
    history: Arc<History>,
    command: Make,
    /// So many of the hosts have a dashboard, those of the lowest numbers.
    terminals: usize,
    hosts: Vec<Mutex<Option<Running>>>,
    /// The threads that read logs.
    readers: Mutex<Vec<JoinHandle<()>>>,
    is_over: AtomicBool,
}

/// The exit code of a host that could not open its store.
const UNREACHABLE: i32 = 3;

/// A host that is told to stop has to within this: it waits for handlers for a second, and some times for
/// a store that may be away.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// The pause before it is started again.
const RESTART_AFTER: Duration = Duration::from_millis(100);

struct Running {
    child: Child,
    by: Process,
    /// None for one that writes its log to stderr.
    terminal: Option<Terminal>,
    is_frozen: bool,
    has_served: Arc<AtomicBool>,
}

/// The command of one process.
pub(crate) type Make = Box<dyn Fn(Process) -> Command + Send + Sync>;

impl Crew {
    pub(crate) fn new(history: Arc<History>, shape: &Shape, command: Make) -> Self {
        Self {
            history,
            command,
            terminals: shape.terminals,
            hosts: (0..shape.hosts).map(|_| Mutex::default()).collect(),
            readers: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    pub(crate) fn start_all(self: &Arc<Self>) {
        for host in 0..self.len() {
            self.start(Process { host, life: 0 });
        }
    }

    /// Returns when all serve: what is planned is to happen to hosts at work, however long a busy machine
    /// takes to start them.
    pub(crate) fn wait_until_all_serve(&self) {
        for host in &self.hosts {
            eventually("the host serves", || {
                let host = host.lock().unwrap();
                let has_served = host.as_ref()?.has_served.load(SeqCst);
                has_served.then_some(())
            });
        }
    }

    fn start(self: &Arc<Self>, by: Process) {
        self.history.note(What::Started { by });
        let mut command = (self.command)(by);
        let mut terminal = None;
        if by.host < self.terminals {
            let (around, inside) = Terminal::around(&command);
            (terminal, command) = (Some(around), inside);
        } else {
            command = with_hangups(&command);
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        // Else it is the last that has the terminal open.
        drop(command);
        let stderr = child.stderr.take().unwrap();
        let log: Box<dyn Read + Send> = match &terminal {
            Some(terminal) => Box::new(terminal.log(stderr)),
            None => Box::new(stderr),
        };
        let has_served = Arc::<AtomicBool>::default();
        let (crew, serves) = (Arc::clone(self), Arc::clone(&has_served));
        // Before anyone reads its log: who reads of its end looks for it here.
        *self.hosts[by.host].lock().unwrap() = Some(Running {
            child,
            by,
            terminal,
            is_frozen: false,
            has_served,
        });
        let reader = std::thread::spawn(move || {
            read_log(log, by, &crew.history, &serves);
            if !serves.load(SeqCst) {
                crew.start_again(by);
            }
        });
        self.readers.lock().unwrap().push(reader);
    }

    /// Starts the next life of one that has never served, if it ended because it could not.
    fn start_again(self: &Arc<Self>, by: Process) {
        {
            let mut host = self.hosts[by.host].lock().unwrap();
            let Some(running) = host.as_mut().filter(|running| running.by == by) else {
                return;
            };
            // The log has ended, so the process is about to.
            if running.child.wait().unwrap().code() != Some(UNREACHABLE) {
                return;
            }
            *host = None;
            self.history.note(What::Ended { by });
        }
        std::thread::sleep(RESTART_AFTER);
        if !self.is_over.load(SeqCst) {
            self.start(Process {
                life: by.life + 1,
                ..by
            });
        }
    }

    /// Kills a host and starts its next life.
    pub(crate) fn kill(self: &Arc<Self>, host: usize) {
        self.end(host, false);
    }

    /// Asks a host to stop, waits until it has, and starts its next life.
    pub(crate) fn stop(self: &Arc<Self>, host: usize) {
        self.end(host, true);
    }

    /// The terminal of a host goes away. Waits until the host has stopped, and starts its next life.
    pub(crate) fn hang_up(self: &Arc<Self>, host: usize) {
        if let Some(running) = &*self.hosts[host].lock().unwrap()
            && let Some(terminal) = &running.terminal
        {
            terminal.leave();
        }
        self.end(host, true);
    }

    /// Nobody reads the terminal of a host, until somebody does.
    pub(crate) fn stall(&self, host: usize, stalls: bool) {
        if let Some(running) = &*self.hosts[host].lock().unwrap()
            && let Some(terminal) = &running.terminal
        {
            terminal.stall(stalls);
        }
    }

    /// Tells a host to read its settings again.
    pub(crate) fn reload(&self, host: usize) {
        if let Some(running) = &*self.hosts[host].lock().unwrap()
            && running.has_served.load(SeqCst)
        {
            running.signal(Signal::HUP);
        }
    }

    fn end(self: &Arc<Self>, host: usize, politely: bool) {
        let Some(mut running) = self.hosts[host].lock().unwrap().take() else {
            return;
        };
        let by = running.by;
        if politely {
            self.history.note(What::Stopping { by });
            self.wait_for_the_end_of(&mut running);
        } else {
            self.finish(&mut running);
        }
        self.history.note(What::Ended { by });
        self.start(Process {
            life: by.life + 1,
            ..by
        });
    }

    fn wait_for_the_end_of(&self, running: &mut Running) {
        running.thaw(&self.history);
        running.signal(Signal::TERM);
        let limit = Instant::now() + STOP_LIMIT;
        while running.child.try_wait().unwrap().is_none() {
            if Instant::now() > limit {
                self.history.note(What::Died {
                    by: running.by,
                    status: format!("it did not stop within {STOP_LIMIT:?}"),
                });
                let _ = running.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn finish(&self, running: &mut Running) {
        running.note_its_death(&self.history);
        let _ = running.child.kill();
        let _ = running.child.wait();
    }

    /// Kills this process, if it is still the host's, and starts the next.
    pub(crate) fn kill_process(self: &Arc<Self>, by: Process) {
        let is_current = |running: &Option<Running>| running.as_ref().is_some_and(|r| r.by == by);
        if is_current(&self.hosts[by.host].lock().unwrap()) {
            self.kill(by.host);
        }
    }

    pub(crate) fn freeze(&self, host: usize) {
        if let Some(running) = &mut *self.hosts[host].lock().unwrap() {
            running.is_frozen = true;
            self.history.note(What::Frozen { by: running.by });
            running.signal(Signal::STOP);
        }
    }

    pub(crate) fn thaw(&self, host: usize) {
        if let Some(running) = &mut *self.hosts[host].lock().unwrap() {
            running.thaw(&self.history);
        }
    }

    /// Which processes there are, by the numbers that the system gives them.
    pub(crate) fn processes(&self) -> Vec<(Process, u32)> {
        let hosts = self.hosts.iter().filter_map(|host| {
            let host = host.lock().unwrap();
            host.as_ref().map(|r| (r.by, r.child.id()))
        });
        hosts.collect()
    }

    /// The processes that can work.
    pub(crate) fn awake(&self) -> Vec<Process> {
        let hosts = self.hosts.iter().filter_map(|host| {
            let host = host.lock().unwrap();
            host.as_ref().filter(|r| !r.is_frozen).map(|r| r.by)
        });
        hosts.collect()
    }

    /// Stops all hosts for good; when it returns all that they logged is in the history.
    pub(crate) fn stop_all(&self) {
        self.is_over.store(true, SeqCst);
        let running: Vec<Running> = self
            .hosts
            .iter()
            .filter_map(|host| host.lock().unwrap().take())
            .collect();
        for mut running in running {
            let by = running.by;
            self.history.note(What::Stopping { by });
            running.note_its_death(&self.history);
            self.wait_for_the_end_of(&mut running);
            self.history.note(What::Ended { by });
        }
        let readers = std::mem::take(&mut *self.readers.lock().unwrap());
        for reader in readers {
            reader.join().unwrap();
        }
    }
}

/// Ends processes when it is dropped: threads that wait hold on to their owners.
pub(crate) struct End<F: FnMut()>(F);

impl<F: FnMut()> End<F> {
    pub(crate) fn new(end: F) -> Self {
        Self(end)
    }
}

impl<F: FnMut()> Drop for End<F> {
    fn drop(&mut self) {
        self.0();
    }
}

impl Crew {
    /// Leaves no process behind, whatever happens.
    pub(crate) fn end_with_this(self: &Arc<Self>) -> End<impl FnMut() + use<>> {
        let crew = Arc::clone(self);
        End::new(move || crew.kill_all())
    }

    fn kill_all(&self) {
        self.is_over.store(true, SeqCst);
        for host in &self.hosts {
            if let Ok(mut host) = host.lock()
                && let Some(mut running) = host.take()
            {
                let _ = running.child.kill();
                let _ = running.child.wait();
            }
        }
    }
}

impl Running {
    /// If it has ended by itself, and not since it could not open its store.
    fn note_its_death(&mut self, history: &History) {
        if let Some(status) = self.child.try_wait().unwrap()
            && (self.has_served.load(SeqCst) || status.code() != Some(UNREACHABLE))
        {
            history.note(What::Died {
                by: self.by,
                status: status.to_string(),
            });
        }
    }

    fn signal(&self, signal: Signal) {
        // One that has ended by itself is told of when it is waited for.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn thaw(&mut self, history: &History) {
        if std::mem::take(&mut self.is_frozen) {
            self.signal(Signal::CONT);
            history.note(What::Thawed { by: self.by });
        }
    }
}

/// Notes what a host says of its deliveries and results, and when it serves.
fn read_log(log: impl Read, by: Process, history: &History, has_served: &AtomicBool) {
    for line in BufReader::new(log).lines() {
        let Ok(line) = line else { return };
        let Ok(line) = serde_json::from_str::<Value>(&line) else {
            // The last line of one that was killed, or a panic.
            if line.contains("panicked") {
                history.note(What::Died { by, status: line });
            }
            continue;
        };
        let message = line["message"].as_str().unwrap_or_default();
        if message == "serving" {
            has_served.store(true, SeqCst);
        }
        let id = || line["id"].as_str().unwrap_or_default().to_owned();
        let attempt = || u32::try_from(line["attempt"].as_u64().unwrap_or(0)).unwrap();
        let outcome = match message {
            "reserved" => {
                history.note(What::Reserved {
                    by,
                    id: id(),
                    attempt: attempt(),
                    asked_at_ms: line["asked_at_ms"].as_u64().unwrap(),
                });
                continue;
            }
            "acked" => Outcome::Acked,
            "dead" => Outcome::Dead,
            "to be retried" => Outcome::ToBeRetried,
            _ if message.starts_with("refused: its lease had expired") => Outcome::Refused,
            _ => continue,
        };
        history.note(What::Settled {
            by,
            id: id(),
            attempt: attempt(),
            outcome,
        });
    }
}
