//! One run of a handler, and how it ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wasmtime::component::ResourceTableError;
use wasmtime::{Engine, PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};

use super::call::Call;
use super::entry::{Answer, Entry};
use super::guest_log::{LogLine, text_of};
use super::http::QueueShares;
use super::imports::{SharedContext, State};
use super::last_words::last_words;
use super::limits::{Deadline, Exceeded, Limits};
use super::outbox::Outbox;
use super::permissions::Permissions;
use super::run_lines::RunLines;
use super::secrets::Secrets;
use super::ticker::Clock;
use super::trace::Trace;
use crate::message::Outgoing;
use crate::verdict::Outcome;

/// Bytes of a guest's reason that are kept.
const REASON_MAX: usize = 1024;

/// Exit codes of programs, from sysexits.h: the failure may pass, or the message is wrong.
const EX_TEMPFAIL: i32 = 75;
const EX_DATAERR: i32 = 65;

/// What came of one run: the runtime makes it, and the host and `dqhost run` read it.
#[derive(Debug, Clone)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, with making the sandbox.
    pub duration: Duration,
    /// What the guest printed and logged and what the host has to say of it, cut at the limits.
    pub log: Vec<LogLine>,
    /// The most linear memory that it had, bytes.
    pub memory: usize,
    /// What it sent; empty unless it acked.
    pub outbox: Vec<Outgoing>,
    /// What it returned beside its verdict; none unless it acked.
    pub result: Option<Vec<u8>>,
    /// Calls that were refused.
    pub refused: usize,
    /// The lines of the host's log that it causes.
    pub lines: RunLines,
}

impl Report {
    /// Of a run that no guest had a part in, or of one that was stopped.
    #[must_use]
    pub fn without_guest(outcome: Outcome, duration: Duration) -> Self {
        Self {
            outcome,
            duration,
            log: Vec::new(),
            memory: 0,
            outbox: Vec::new(),
            result: None,
            refused: 0,
            lines: RunLines::default(),
        }
    }

    /// The log as one text.
    #[must_use]
    pub fn log_text(&self) -> String {
        text_of(&self.log)
    }
}

/// A component that is ready to run.
pub struct Handler {
    pub(super) entry: Arc<Entry>,
    pub(super) engine: Engine,
    pub(super) clock: Clock,
    pub(super) common: Arc<SharedContext>,
    pub(super) digest: Arc<str>,
    pub(super) places: usize,
}

impl Handler {
    /// The SHA-256 of the component file that was loaded, hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The most runs at a time of all handlers that share its engine. One more ends as
    /// [`Outcome::HostBusy`].
    #[must_use]
    pub fn places(&self) -> usize {
        self.places
    }

    /// Linear memory that its runs have now, bytes.
    #[must_use]
    pub fn memory_in_use(&self) -> usize {
        self.common.memory.load(Ordering::Relaxed)
    }

    /// The same component with limits and permissions of its own.
    ///
    /// Of the limits, `tables`, `instances`, `stack`, `http_connections` and those of loading stay those of
    /// the runtime. `memory` and `table_elements` are at most those of the runtime.
    #[must_use]
    pub fn with(&self, limits: Limits, permissions: Permissions) -> Self {
        let of_host = self.common.limits;
        let limits = Limits {
            memory: limits.memory.min(of_host.memory),
            table_elements: limits.table_elements.min(of_host.table_elements),
            tables: of_host.tables,
            instances: of_host.instances,
            stack: of_host.stack,
            http_connections: of_host.http_connections,
            ..limits
        };
        let permissions = Arc::new(permissions);
        Self {
            entry: Arc::clone(&self.entry),
            engine: self.engine.clone(),
            clock: self.clock.clone(),
            digest: Arc::clone(&self.digest),
            places: self.places,
            common: Arc::new(SharedContext {
                limits,
                web: Arc::new(self.common.web.with(Arc::clone(&permissions), limits)),
                secrets: Arc::new(Secrets::new(&permissions.secrets)),
                permissions,
                memory: Arc::default(),
            }),
        }
    }

    /// Tells that it handles messages of this queue, and on which threads HTTP connections are driven.
    /// Runs of other queues leave a share of the connections and name look-ups free for it, as long as what
    /// is returned is there.
    pub(crate) fn serves(&self, queue: &str, http: &tokio::runtime::Handle) -> QueueShares {
        self.common.web.serves(queue, http)
    }

    /// Runs the handler once, in an instance of its own. Dropping the future stops the guest.
    pub async fn run(&self, call: Call) -> Report {
        let lines = RunLines::new(&call.queue, &call.id, call.attempt, &self.common.secrets);
        // Boxed, since each future around it would move it once more.
        let work = Box::pin(self.work(call, lines.clone()));
        lines.cover(work).await
    }

    async fn work(&self, call: Call, lines: RunLines) -> Report {
        let started = Instant::now();
        let _ticking = self.clock.go();
        let deadline = Deadline::new(self.common.limits, started);
        let outbox = Outbox::new(lines.clone(), Trace::of(&call.headers));
        let mut store = self.store(deadline.clone(), outbox);
        let result = {
            let mut work = std::pin::pin!(self.entry.call(&mut store, call));
            loop {
                match tokio::time::timeout_at(deadline.at().into(), &mut work).await {
                    Ok(result) => break Some(result),
                    Err(_) if deadline.is_over() => break None,
                    // The guest has moved its limit meanwhile.
                    Err(_) => {}
                }
            }
        };
        let state = store.into_data();
        let log = state.log.lines();
        let outcome = match result {
            Some(Ok(answer)) => self.verdict(answer, &log),
            None => Outcome::TimedOut {
                limit: deadline.limit(),
            },
            Some(Err(error)) => self.failure(&error, &state, &log),
        };
        let outcome = match state.shortage() {
            Some(what) if outcome != Outcome::Acked => Outcome::HostBusy { what },
            _ => outcome,
        };
        let (outbox, result) = match outcome {
            Outcome::Acked => (state.outbox.into_taken(), state.result),
            _ => (Vec::new(), None),
        };
        Report {
            outcome,
            duration: started.elapsed(),
            log,
            memory: state.ceiling.used,
            outbox,
            result,
            refused: state.log.refused(),
            lines,
        }
    }

    /// A store within the limits.
    fn store(&self, deadline: Deadline, outbox: Outbox) -> Store<State> {
        let state = State::new(&self.common, deadline.clone(), outbox);
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.ceiling);
        store.set_hostcall_fuel(self.common.limits.call_bytes);
        if let Some(table) = store.concurrent_resource_table() {
            table.set_max_capacity(self.common.limits.entries());
            store.set_max_component_handles(self.common.limits.handles());
        }
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            if deadline.is_over() {
                Err(wasmtime::format_err!("time limit reached"))
            } else {
                Ok(UpdateDeadline::Yield(1))
            }
        });
        store
    }

    /// An answer is what the entry makes of what the guest returned; it is read here alone.
    fn verdict(&self, answer: Answer, log: &[LogLine]) -> Outcome {
        let said = || self.reason(&last_words(log).unwrap_or_default());
        match answer {
            Answer::Ack | Answer::Exit(0) => Outcome::Acked,
            Answer::Nack { delay, reason } => Outcome::Nacked {
                delay,
                reason: self.reason(&reason),
            },
            Answer::Reject { reason } => Outcome::Rejected {
                reason: self.reason(&reason),
            },
            Answer::Exit(EX_TEMPFAIL) => Outcome::Nacked {
                delay: None,
                reason: said(),
            },
            Answer::Exit(EX_DATAERR) => Outcome::Rejected { reason: said() },
            Answer::Exit(_) => Outcome::Exited {
                ok: false,
                last_words: said(),
            },
        }
    }

    /// A text of the guest as it is kept.
    fn reason(&self, text: &str) -> String {
        self.common.secrets.hide_and_cut(text, REASON_MAX)
    }

    /// How a run ended that brought an error instead of a verdict.
    fn failure(&self, error: &wasmtime::Error, state: &State, log: &[LogLine]) -> Outcome {
        let limits = &self.common.limits;
        let over = |what: String| Outcome::OverLimit { what };
        match state.ceiling.exceeded {
            Some(Exceeded::Memory) => {
                return Outcome::OutOfMemory {
                    limit: limits.memory,
                };
            }
            Some(Exceeded::TableElements) => {
                let max = limits.table_elements;
                return over(format!(
                    "{max} elements of a table (--limit table-elements)"
                ));
            }
            None => {}
        }
        if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
            return Outcome::HostBusy {
                what: "place in the sandbox",
            };
        }
        if state.deadline.is_over() {
            return Outcome::TimedOut {
                limit: state.deadline.limit(),
            };
        }
        if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
            return Outcome::Exited {
                ok: exit.0 == 0,
                last_words: self.reason(&last_words(log).unwrap_or_default()),
            };
        }
        let cause = match error.downcast_ref::<Trap>() {
            Some(Trap::StackOverflow) => {
                return Outcome::OutOfStack {
                    limit: limits.stack,
                };
            }
            Some(trap) => trap.to_string(),
            None => error.root_cause().to_string(),
        };
        if matches!(
            error.downcast_ref::<ResourceTableError>(),
            Some(ResourceTableError::Full)
        ) {
            return over(format!(
                "{} handles held (--limit resources)",
                limits.resources
            ));
        }
        if cause.contains("store handle limit exceeded") {
            return over(format!(
                "{} handles of tasks, streams and futures held (--limit resources={})",
                limits.handles(),
                limits.resources
            ));
        }
        // These two have no type of their own.
        if cause.contains("fuel allocated for hostcalls") || cause.starts_with("requested len") {
            let max = limits.call_bytes;
            return over(format!("{max} bytes in one call (--limit call-bytes)"));
        }
        Outcome::Trapped {
            reason: self.reason(&with_last_words(&cause, log)),
        }
    }
}

/// What a guest printed says more than the trap: for a panic it is the message.
fn with_last_words(cause: &str, log: &[LogLine]) -> String {
    match last_words(log) {
        Some(last) => format!("{cause}; it printed: {last}"),
        None => cause.to_owned(),
    }
}
