//! What all hosts of a trial read and what changes while they work: their settings, which may have a schedule, and
//! their handler.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use dqhost::message::QueueName;
use dqhost::schedule::{Missed, Overlap, Schedule, Timing};
use jiff::Timestamp;
use tempfile::TempDir;

use crate::history::{History, What, now_ms};
use crate::plan::Shape;
use crate::support::guest;
use crate::witness::digest;

/// Trials end long before: so much later.
const TICKS_AFTER: Duration = Duration::from_mins(5);

/// The payload of a tick.
const TICK: &str = "tick";

/// Settings of which the checker needs to know the schedule alone.
pub(crate) struct Settings {
    folder: TempDir,
    /// The settings of the schedule, if there is one.
    schedule: String,
    changes: AtomicU64,
    swaps: AtomicU64,
}

impl Settings {
    pub(crate) fn new(ticks: &Ticks) -> Self {
        let settings = Self {
            folder: TempDir::new().unwrap(),
            schedule: ticks.settings(),
            changes: AtomicU64::new(0),
            swaps: AtomicU64::new(0),
        };
        settings.change();
        settings.swap();
        settings
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("dqhost.toml")
    }

    pub(crate) fn handler(&self) -> PathBuf {
        self.folder.path().join("handler.wasm")
    }

    /// Puts another content in place in one step.
    fn set(&self, path: &Path, content: &[u8]) {
        let new = self.folder.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Changes how the queue is served.
    pub(crate) fn change(&self) {
        let weight = self.changes.fetch_add(1, SeqCst) % 100 + 1;
        let text = format!("[queue.chaos]\nweight = {weight}\n{}", self.schedule);
        self.set(&self.path(), text.as_bytes());
    }

    /// Puts another build of the handler in place of the first one, and the next time the first again: each is
    /// compiled once for all trials.
    pub(crate) fn swap(&self) {
        let mut component = fs::read(guest("webhook")).unwrap();
        if self.swaps.fetch_add(1, SeqCst) % 2 == 1 {
            // A custom section: its number, its length, the length of its name, its name.
            component.extend([0, 5, 4]);
            component.extend(b"swap");
        }
        self.set(&self.handler(), &component);
    }
}

/// The ticks of a schedule from the beginning of a trial to long after its end.
#[derive(Default)]
pub(crate) struct Ticks {
    every: Option<Duration>,
    since_ms: u64,
    /// By the ids of their messages.
    at_ms: HashMap<String, u64>,
    /// The latest that has run.
    latest_ms: AtomicU64,
}

impl Ticks {
    pub(crate) fn new(shape: &Shape, queue: &QueueName) -> Self {
        let Some(every) = shape.ticks_every else {
            return Self::default();
        };
        let since_ms = now_ms();
        let schedule = Schedule {
            name: "often".to_owned(),
            timing: Timing::Every(every),
            missed: Missed::Skip,
            catch_up: Duration::ZERO,
            since: None,
            overlap: Overlap::Run,
            payload: TICK.to_owned(),
            headers: Vec::new(),
            retries: 0,
        };
        let time = |ms: u64| Timestamp::from_millisecond(ms.try_into().unwrap()).unwrap();
        let until = time(since_ms) + shape.lasts + TICKS_AFTER;
        let first = schedule.next(time(since_ms));
        let ticks = std::iter::successors(first, |tick| schedule.next(*tick));
        let known = |tick: Timestamp| {
            let id = schedule.message(queue, tick).id.to_string();
            (id, tick.as_millisecond().try_into().unwrap())
        };
        Self {
            every: Some(every),
            since_ms: since_ms + 1,
            at_ms: ticks.take_while(|tick| *tick < until).map(known).collect(),
            latest_ms: AtomicU64::new(0),
        }
    }

    /// The schedule as the settings have it.
    fn settings(&self) -> String {
        let mut text = String::new();
        if let Some(every) = self.every {
            let since = Timestamp::from_millisecond(self.since_ms.try_into().unwrap()).unwrap();
            write!(
                text,
                "[[queue.chaos.schedule]]\nname = \"often\"\nevery = \"{}ms\"\nmissed = \"all\"\nmissed-max = 1000\n\
                 since = \"{since}\"\npayload = \"{TICK}\"\nretries = 1000\n",
                every.as_millis()
            )
            .unwrap();
        }
        text
    }

    pub(crate) fn note(&self, history: &History) {
        for (id, at_ms) in &self.at_ms {
            history.note(What::Tick {
                id: id.clone(),
                digest: digest(TICK.as_bytes()),
                at_ms: *at_ms,
            });
        }
    }

    /// Whether a message that runs is that of a tick.
    pub(crate) fn runs(&self, id: &str) -> bool {
        let Some(at_ms) = self.at_ms.get(id) else {
            return false;
        };
        self.latest_ms.fetch_max(*at_ms, SeqCst);
        true
    }

    /// True if all ticks until then have been sent: the host that sends one has sent those before.
    pub(crate) fn are_sent_until(&self, ms: u64) -> bool {
        self.at_ms.is_empty() || self.latest_ms.load(SeqCst) > ms
    }
}
