//! What happened in a trial, event by event: what the checker reads, and all that is needed to see
//! afterwards how a violation came about. One JSON object a line.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// One process of a host: hosts are numbered from 0, and so are the lives of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Process {
    pub host: usize,
    pub life: usize,
}

/// What a handler was told to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Ack,
    Nack,
    Reject,
}

/// What a host says that the store has made of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    Acked,
    Dead,
    ToBeRetried,
    Refused,
}

/// What limits are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Per {
    Queue,
    Key,
}

/// The limits of the queue, over all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub per: Per,
    /// Deliveries a second.
    pub rate: u64,
    pub burst: u64,
    /// Messages in flight.
    pub running: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub(crate) enum What {
    /// A producer begins to send: from here on the message may be there.
    Sending {
        id: String,
        digest: String,
        /// Its due time at the earliest, unix ms by this machine's clock, which is the store's too.
        due_ms: u64,
        retries: u32,
    },
    /// The message that is being sent has expired already: no handler may begin it.
    Expiring { id: String },
    /// A schedule has a tick at this time, for which hosts send this message.
    Tick {
        id: String,
        digest: String,
        at_ms: u64,
    },
    /// The limits that hold from the beginning on.
    Limits { limits: Limits },
    /// Keys take turns from the beginning on, over so many slots of all hosts.
    Turns { slots: usize },
    /// The message that is being sent is of this key.
    Keyed { id: String, key: usize },
    /// The store has accepted the message.
    Accepted { id: String, due_ms: u64 },
    /// A handler began to run: the witness has its request.
    Run {
        run: u64,
        id: String,
        attempt: u32,
        by: Process,
        digest: String,
    },
    /// The message is about to tear down the process that handles it.
    TornDown { id: String },
    /// The handler was given its answer.
    Answered { run: u64, verdict: Verdict },
    /// The handler went away before it was given an answer.
    Gone { run: u64 },
    /// A host has logged that it asked for this delivery at that unix time, so its lease cannot have begun
    /// before.
    Reserved {
        by: Process,
        id: String,
        attempt: u32,
        asked_at_ms: u64,
    },
    /// A host has logged what came of a result.
    Settled {
        by: Process,
        id: String,
        attempt: u32,
        outcome: Outcome,
    },
    /// A process of a host was started.
    Started { by: Process },
    /// It was asked to stop: what it has in flight may come again as the same attempt.
    Stopping { by: Process },
    /// It was killed, or has ended after it was asked to.
    Ended { by: Process },
    /// It has ended by itself, which none should, or panicked.
    Died { by: Process, status: String },
    /// It was stopped in the middle of whatever it was doing, and goes on at the second of the two.
    Frozen { by: Process },
    /// See `Frozen`.
    Thawed { by: Process },
    /// A thread of it could run, and got no processor for so long until now or a little before.
    Starved { by: Process, for_us: u64 },
    /// The payload of a message is about to be deleted behind the host's back.
    Removed { id: String },
    /// Something else was done to the store or to the connections.
    Fault { name: String },
    /// A connection of this host was cut.
    Cut { host: usize },
    /// The store cannot be reached: by this host, or by none.
    Away { host: Option<usize> },
    /// The store can be reached again, and these processes are there to do so.
    Back { processes: Vec<Process> },
    /// The store has answered a script of this process, for the first time since `Back`.
    Works { by: Process },
    /// Nothing is sent any more, and the last fault is over.
    Quiet,
    /// The store says that nothing waits and nothing is in flight.
    Drained,
    /// A dead letter, with its number of failed attempts and the class of the last.
    Dead {
        id: String,
        attempts: u32,
        class: String,
    },
    /// A message that is neither gone nor dead in the end.
    Left { id: String, state: String },
    /// What the store has counted.
    Totals { sent: u64, acked: u64, dead: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Since the trial began.
    pub us: u64,
    /// Unix time.
    pub wall_ms: u64,
    #[serde(flatten)]
    pub what: What,
}

/// Takes events from all threads of a trial.
pub(crate) struct History {
    path: PathBuf,
    begin: Instant,
    file: Mutex<BufWriter<File>>,
}

impl History {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            begin: Instant::now(),
            file: Mutex::new(BufWriter::new(File::create(path).unwrap())),
        }
    }

    pub(crate) fn note(&self, what: What) {
        let mut file = self.file.lock().unwrap();
        // Within the lock, so that events are in the order of their times.
        let event = Event {
            us: u64::try_from(self.begin.elapsed().as_micros()).unwrap(),
            wall_ms: now_ms(),
            what,
        };
        serde_json::to_writer(&mut *file, &event).unwrap();
        file.write_all(b"\n").unwrap();
    }

    /// All of it, read back from the file.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.file.lock().unwrap().flush().unwrap();
        let lines = BufReader::new(File::open(&self.path).unwrap()).lines();
        lines
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect()
    }
}

/// The clock that the store has, too: this machine's.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}
