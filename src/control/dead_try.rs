//! What another handler would answer for dead letters, which stay as they are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Filter;
use crate::message::{MessageId, QueueName, Record, State};
use crate::runtime::{Call, ComponentFile, Handler, HandlerError, Report, Runtime};
use crate::verdict::Outcome;

/// Dead letters that one trial of the dashboard runs at most.
pub const TRIED_MAX: usize = 1000;

/// Bytes of what a handler printed that a trial keeps for each dead letter.
pub(super) const LOG_MAX: usize = 2048;

/// Which dead letters are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Letters {
    /// These.
    Named(Vec<MessageId>),
    /// Those that match when the trial begins.
    Matching(Filter),
}

/// A trial that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialRequest {
    /// What tells it from others. It is that of the [`Trial`] that comes of it.
    pub number: u64,
    /// The queue of the dead letters.
    pub queue: QueueName,
    /// Which of them.
    pub letters: Letters,
    /// The handler.
    pub file: PathBuf,
}

/// A trial of a handler, as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// That of its request.
    pub number: u64,
    /// Which dead letters were asked for.
    pub letters: Letters,
    /// The queue of the dead letters.
    pub queue: QueueName,
    /// The handler's file as it was given, fit for a terminal.
    pub file: String,
    /// The SHA-256 of the file, once it is loaded.
    pub digest: Option<String>,
    /// Dead letters that are meant, once they are counted. Of more than [`TRIED_MAX`] the first are tried.
    pub meant: Option<usize>,
    /// Those that were tried so far.
    pub tried: Vec<TriedLetter>,
    /// How it ended; none while it is under way.
    pub end: Option<TrialEnd>,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialEnd {
    /// All were tried.
    Done,
    /// An operator stopped it.
    Stopped,
    /// It could not go on, and why.
    Failed(String),
}

/// A dead letter that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct TriedLetter {
    /// The dead letter.
    pub id: MessageId,
    /// As it is in the store, with the beginning of its payload.
    pub record: Option<Arc<Record>>,
    /// What the handler answered.
    pub answer: Answer,
    /// What it printed.
    pub log: String,
}

/// What a handler answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// `ack`.
    Acked,
    /// Anything else: the class, and the reason.
    Failed(&'static str, String),
    /// There was nothing to run, and why.
    NotRun(String),
}

impl Answer {
    /// One word.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Failed(class, _) => class,
            Self::NotRun(_) => "not run",
        }
    }

    /// Why it did not ack; empty when the class says it all.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Acked => "",
            Self::Failed(_, reason) | Self::NotRun(reason) => reason,
        }
    }
}

impl From<&Outcome> for Answer {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Acked => Self::Acked,
            other => Self::Failed(other.class(), other.reason()),
        }
    }
}

impl Trial {
    /// A trial that has just begun.
    pub(super) fn new(request: &TrialRequest, file: String) -> Self {
        Self {
            number: request.number,
            letters: request.letters.clone(),
            queue: request.queue.clone(),
            file,
            digest: None,
            meant: None,
            tried: Vec::new(),
            end: None,
        }
    }

    /// Those that the handler acks.
    #[must_use]
    pub fn acked(&self) -> Vec<MessageId> {
        let acked = self.tried.iter().filter(|one| one.answer == Answer::Acked);
        acked.map(|one| one.id.clone()).collect()
    }

    /// How many the handler acks, and how many it does not by class.
    #[must_use]
    pub fn by_class(&self) -> (usize, Vec<(&'static str, usize)>) {
        let (mut acked, mut others) = (0, Vec::<(&'static str, usize)>::new());
        for one in &self.tried {
            let class = one.answer.class();
            if one.answer == Answer::Acked {
                acked += 1;
            } else if let Some((_, count)) = others.iter_mut().find(|(known, _)| *known == class) {
                *count += 1;
            } else {
                others.push((class, 1));
            }
        }
        others.sort_by_key(|(class, count)| (std::cmp::Reverse(*count), *class));
        (acked, others)
    }
}

/// A dead letter as it was delivered last, or why there is nothing to run.
pub fn call_of(queue: &QueueName, record: Record) -> Result<Call, String> {
    let id = record.id;
    if record.state != State::Dead {
        let state = record.state.as_str();
        return Err(format!("message {id} is {state}, not a dead letter"));
    }
    let Some(payload) = record.payload else {
        return Err(format!(
            "the payload of {id} is missing from the store, so there is nothing to run"
        ));
    };
    let attempt = record.attempts.max(1);
    Ok(Call {
        sent_at_ms: id.sent_at_ms(),
        id: id.to_string(),
        queue: queue.to_string(),
        payload,
        headers: record.headers,
        attempt,
        attempts_max: attempt.saturating_add(record.retries_left),
        due_at_ms: None,
    })
}

/// What loads a handler to try it. Its effects are off: it reaches nothing, and what it sends is dropped.
pub trait LoadHandler: Send + Sync {
    /// Loads the handler for messages of a queue. Blocks.
    fn load(&self, file: &Path, queue: &QueueName) -> Result<LoadedHandler, HandlerError>;
}

/// A handler in an engine of its own, so that no host's runs wait for it.
pub struct LoadedHandler {
    handler: Handler,
    /// It interrupts the handler, so it is there as long as that.
    _engine: Runtime,
}

impl LoadedHandler {
    /// Compiles and checks a file. Blocks.
    pub fn load(engine: Runtime, file: &ComponentFile) -> Result<Self, HandlerError> {
        let handler = engine.load(file)?;
        Ok(Self {
            handler,
            _engine: engine,
        })
    }

    pub(super) fn digest(&self) -> &str {
        self.handler.digest()
    }

    /// Runs it once. What it sends goes no further than the report.
    pub(super) async fn run(&self, call: Call) -> Report {
        self.handler.run(call).await
    }
}
