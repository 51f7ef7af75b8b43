//! What the dashboard and the rest say to each other: a [`Snapshot`] one way, a [`Command`] the
//! other, a [`Notice`] back. The dashboard knows nothing else of stores and hosts.
//!
//! [`controller`] is the other side of this boundary.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

pub use self::controller::pace;
pub use self::dead_try::{
    Answer, Letters, LoadHandler, LoadedHandler, TRIED_MAX, Trial, TrialEnd, TrialRequest,
    TriedLetter, call_of,
};
pub use self::ended::{
    ended_ago, ended_candidates, ended_events, ended_failure, ended_matches, ended_text,
    ended_took, how_ended, result_of,
};
pub use self::filter::{Filter, FilterError};
pub use self::groups::{Group, Trend};
pub use self::history::{EndedLine, HISTORY_MAX, HandlerHistory, History};
pub use self::known::{is_known, not_there};
pub use self::logs::{LogLevel, LogLine, LogRing};
pub use self::prefix::{
    CANDIDATES_MAX, Candidates, PREFIX_LOOKED_AT_MAX, candidates, prefix_of_id,
};
pub use self::query::{Query, QueryResult, Searched};
pub use self::reason::{group_of, reason_of};
pub use self::redrive_to::{RedriveCap, redrive_to};
pub use self::scan::dead_ids;
pub use self::walk::{Match, WHOLE_PAYLOAD, Walk, matching};
pub use crate::host::{InFlightDelivery, Quantiles, QueueReport, SlotsReason, Stage, Summary};
use crate::message::{Due, MessageId, NewMessage, QueueName};
pub use crate::store::{
    Counts, DUE_SPANS_MAX, DueAhead, DueSpan, End, Ended, FailedAt, FailedSample, HostInfo,
    Overview, SeenHost, Totals,
};

pub mod controller;
mod dead_try;
mod ended;
mod filter;
mod groups;
mod history;
mod known;
mod logs;
mod prefix;
mod query;
mod reason;
mod redrive_to;
mod scan;
mod walk;

/// Messages that a search looks at before it shows what it has found and goes on.
pub const SEARCHED_MAX: usize = 5000;

/// Bytes of a payload that a list carries for each message, which is also how far a filter reads.
pub const LISTED_PAYLOAD_MAX: usize = 2048;

/// How long what was done can be taken back.
pub const UNDO_TIME: Duration = Duration::from_secs(12);

/// Messages that can be taken back at most.
pub const UNDO_MAX: usize = 20;

/// Messages in flight that a snapshot carries at most.
pub const IN_FLIGHT_MAX: usize = 500;

/// How often the store is read.
pub const READ_EVERY: Duration = Duration::from_secs(1);

/// How things stand. The local parts are of this moment, the store's parts of `read_at`.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The store in use, without secrets.
    pub store: String,
    /// When the store was last read; none before the first time.
    pub read_at: Option<Instant>,
    /// Why the last try to read it failed, if it did.
    pub outage: Option<String>,
    /// The queues, in their order on the screen.
    pub queues: Vec<QueueView>,
    /// The host in this process, if there is one.
    pub host: Option<OwnHost>,
    /// What that host has in flight, longest first.
    pub in_flight: Vec<InFlightDelivery>,
    /// What [`Command::Query`] asked for.
    pub result: QueryResult,
    /// A long task that is under way, or has just ended.
    pub task: Option<TaskView>,
    /// The latest trial of a handler.
    pub trial: Option<Arc<Trial>>,
    /// The number of the latest trial that was not begun, and why.
    pub refused_trial: Option<(u64, Arc<str>)>,
}

impl Snapshot {
    /// Before anything is known.
    #[must_use]
    pub fn empty(store: String) -> Self {
        Self {
            store,
            read_at: None,
            outage: None,
            queues: Vec::new(),
            host: None,
            in_flight: Vec::new(),
            result: QueryResult::Nothing,
            task: None,
            trial: None,
            refused_trial: None,
        }
    }

    /// The store's clock now, as far as it is known: unix milliseconds.
    #[must_use]
    pub fn now_ms(&self, now: Instant) -> u64 {
        let read_ms = self.queues.iter().map(|queue| queue.overview.now_ms).max();
        let since = self
            .read_at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let since = u64::try_from(since.as_millis()).unwrap_or(0);
        read_ms.unwrap_or(0).saturating_add(since)
    }
}

/// One queue.
#[derive(Debug, Clone)]
pub struct QueueView {
    /// Its name.
    pub name: QueueName,
    /// When it was read: with many queues not each is read each time.
    pub read_at: Instant,
    /// As the store tells it.
    pub overview: Overview,
    /// The hosts that serve it, this one included.
    pub hosts: Vec<SeenHost>,
    /// What the host in this process knows of it, if it serves it.
    pub report: Option<QueueReport>,
}

/// The host in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnHost {
    /// Its label.
    pub id: String,
    /// Handlers that it can run at a time.
    pub slots: usize,
    /// Handlers that run.
    pub busy: usize,
    /// What it was told to do.
    pub stage: Stage,
    /// When it stops handlers that have not finished, once it was told to stop.
    pub drained_by: Option<Instant>,
    /// What it did so far.
    pub summary: Summary,
}

/// What is done to many dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bulk {
    /// Put each back as a new message.
    Redrive {
        /// The retries of the new messages; none for those that they had.
        retries: Option<u32>,
        /// Messages a second at most.
        rate: Option<u32>,
        /// Which are refused because of how often they were redriven.
        cap: RedriveCap,
    },
    /// Remove each for good.
    Delete,
}

impl Bulk {
    /// Put each back with the retries that it had, as fast as it goes.
    pub const REDRIVE: Self = Self::Redrive {
        retries: None,
        rate: None,
        cap: RedriveCap::OfQueue,
    };
}

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Show this until told otherwise.
    Query(Query),
    /// Accept a message.
    Send(QueueName, Box<NewMessage>),
    /// Give messages of this queue to no host, or again.
    Pause {
        /// The queue.
        queue: QueueName,
        /// False to go on.
        paused: bool,
        /// Make the queue if it is not there; otherwise that is refused.
        create: bool,
    },
    /// Take back messages that wait.
    Cancel(QueueName, Vec<MessageId>),
    /// Cancel messages that wait or are in flight, and stop their handlers.
    Kill(QueueName, Vec<MessageId>),
    /// Give messages that wait another time.
    Reschedule(QueueName, Vec<MessageId>, Due),
    /// Do this to these dead letters.
    Bulk(QueueName, Vec<MessageId>, Bulk),
    /// Find the dead letters that match, and ask with their number whether to do this to them: what
    /// is done after a yes is done to those, whatever dies meanwhile.
    Choose(QueueName, Filter, Bulk),
    /// Send a dead letter again with another payload, and keep it.
    RedriveEdited {
        /// The queue.
        queue: QueueName,
        /// The dead letter.
        id: MessageId,
        /// What the new message carries.
        payload: Vec<u8>,
        /// The retries of the new message; none for those that the dead letter had.
        retries: Option<u32>,
    },
    /// Ask what the handler in this file would answer for dead letters, and change nothing.
    Try(TrialRequest),
    /// Stop the handler of a message in flight; the attempt counts as failed.
    StopHandler(QueueName, MessageId),
    /// Take back what was done last, for as long as that can be.
    Undo,
    /// End the long task.
    StopTask,
    /// Stop the host, or stop it at once.
    StopHost(Stage),
}

impl Command {
    /// How many messages are gone for good after it.
    #[must_use]
    pub fn destroyed(&self) -> usize {
        match self {
            Self::Cancel(_, ids) | Self::Kill(_, ids) | Self::Bulk(_, ids, Bulk::Delete) => {
                ids.len()
            }
            _ => 0,
        }
    }

    /// True for what changes no message and no queue: to look, to try, and to leave.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(
            self,
            Self::Query(_) | Self::Try(..) | Self::StopTask | Self::StopHost(_)
        )
    }
}

/// A line of the prompt, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Do this.
    Do(Command),
    /// Ask what the handler in this file would answer for these dead letters.
    Try(QueueName, Letters, PathBuf),
    /// Show this message.
    Open(MessageId),
    /// Show what matches only.
    Filter(Filter),
    /// Show this queue.
    Queue(QueueName),
    /// Show the keys.
    Help,
    /// Leave.
    Quit,
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// In words.
    pub text: String,
    /// True when it was not, or not wholly, done.
    pub failed: bool,
    /// The message that came of it.
    pub made: Option<(QueueName, MessageId)>,
    /// The words are a question; this is to be done after a yes.
    pub then: Option<Command>,
    /// True when [`Command::Undo`] takes it back, for [`UNDO_TIME`].
    pub can_undo: bool,
}

/// A task that takes more than a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskView {
    /// What it does: `redriving`, `deleting`, `trying`.
    pub what: &'static str,
    /// Messages that are done.
    pub done: u64,
    /// Messages that could not be.
    pub failed: u64,
    /// All of them; none while they are counted.
    pub total: Option<u64>,
}

/// The dashboard's ends of the boundary.
pub struct Channels {
    /// How things stand.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// What is asked for.
    pub commands: mpsc::UnboundedSender<Command>,
    /// What became of it.
    pub notices: mpsc::UnboundedReceiver<Notice>,
    /// The log.
    pub logs: Arc<LogRing>,
}
