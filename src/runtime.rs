//! Runs a payload in a sandbox: one engine a process, one prepared component a handler, a fresh
//! store and instance a message.
//!
//! Guest code is interrupted by epochs: a ticker advances a counter that compiled code looks at,
//! and at each tick the run yields or, at its deadline, ends. A guest that waits in a host call is
//! not running code, so a timer ends it by dropping its future. Dropping the future of
//! [`Handler::run`] stops a guest either way, at the latest one tick later.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use wasmtime::component::{Component, Linker};
use wasmtime::{Cache, CacheConfig, Config, Enabled, Engine, InstanceAllocationStrategy};
use wasmtime::{PoolingAllocationConfig, Store, Trap, UpdateDeadline};

use self::guest_log::GuestLog;
use self::imports::dqhost::queue::types as wit;
use self::imports::{Consumer, ConsumerPre, State};
use self::limits::{Ceiling, Deadline};
use crate::message::Headers;
use crate::text::{cut, hex, printable};
use crate::verdict::Outcome;

mod check;
mod guest_log;
mod imports;
mod limits;
mod ticker;

pub use limits::Limits;
use ticker::Ticker;

/// The export that makes a component a handler, up to its patch version: those of one minor
/// version fit each other.
const HANDLER_EXPORT: &str = "dqhost:queue/handler@0.1.";

/// The largest component file that is loaded, in bytes: the largest of the usual language runtimes
/// is 18 MB.
pub const COMPONENT_MAX: u64 = 64 * 1024 * 1024;

/// Bytes that a guest may hand to the host in one call, its verdict included.
const HOSTCALL_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a guest's reason that are kept.
const REASON_MAX: usize = 1024;

/// The stack of guest code, and the native stack that must hold it.
const WASM_STACK: usize = 512 * 1024;
const NATIVE_STACK: usize = 2 * 1024 * 1024;

/// Why a file cannot be a handler.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The file could not be read.
    #[error("cannot read the handler {path}: {reason}")]
    Unreadable {
        /// As given.
        path: String,
        /// The system's words.
        reason: String,
    },
    /// It was read, and is not a handler.
    #[error("{path} is not a handler: {reason}")]
    Invalid {
        /// As given.
        path: String,
        /// What was found, what is needed, and what to do.
        reason: String,
    },
    /// The sandbox itself could not be set up.
    #[error("the sandbox cannot be set up: {0}")]
    Engine(String),
}

/// The engine, shared by all handlers of a process.
pub struct Runtime {
    engine: Engine,
    linker: Linker<State>,
    limits: Limits,
    /// Ends with the runtime.
    _ticker: Ticker,
}

impl Runtime {
    /// An engine for up to `slots` runs at a time, each within `limits`. `cache` is a folder of
    /// ours alone for compiled code: whoever can write there can run code in this process.
    pub fn new(slots: usize, limits: Limits, cache: Option<&Path>) -> Result<Self, HandlerError> {
        let fail = |error: wasmtime::Error| HandlerError::Engine(format!("{error:#}"));
        let pooled = config(cache, Some(pool(slots, limits))).map_err(fail)?;
        let engine = match Engine::new(&pooled) {
            Ok(engine) => engine,
            // The pool reserves address space for every slot, which a ulimit may not allow.
            Err(error) => {
                tracing::warn!(
                    "no room for a pool of instances, so each is allocated when \
                                needed, which is slower: {error:#}"
                );
                Engine::new(&config(cache, None).map_err(fail)?).map_err(fail)?
            }
        };
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(fail)?;
        Consumer::add_to_linker::<_, wasmtime::component::HasSelf<_>>(&mut linker, |state| state)
            .map_err(fail)?;
        let ticker = Ticker::start(&engine)
            .map_err(|error| HandlerError::Engine(format!("no thread for its clock: {error}")))?;
        Ok(Self {
            engine,
            linker,
            limits,
            _ticker: ticker,
        })
    }

    /// Loads a component file and prepares it for instantiation.
    pub fn load(&self, path: &Path) -> Result<Handler, HandlerError> {
        let name = printable(&path.display().to_string()).into_owned();
        let unreadable = |reason: String| HandlerError::Unreadable {
            path: name.clone(),
            reason,
        };
        let size = std::fs::metadata(path)
            .map_err(|e| unreadable(e.to_string()))?
            .len();
        if size > COMPONENT_MAX {
            return Err(unreadable(format!(
                "{size} bytes are over the limit of {COMPONENT_MAX}"
            )));
        }
        let bytes = std::fs::read(path).map_err(|e| unreadable(e.to_string()))?;
        let invalid = |reason| HandlerError::Invalid {
            path: name.clone(),
            reason,
        };
        check::kind(&bytes).map_err(invalid)?;
        let component = Component::new(&self.engine, &bytes)
            .map_err(|error| invalid(format!("it does not compile: {error:#}")))?;
        check::types(&self.engine, &component).map_err(invalid)?;
        let pre = self
            .linker
            .instantiate_pre(&component)
            .and_then(ConsumerPre::new)
            .map_err(|error| invalid(format!("it does not fit the interface: {error:#}")))?;
        Ok(Handler {
            pre,
            engine: self.engine.clone(),
            limits: self.limits,
            digest: hex(&Sha256::digest(&bytes)).into(),
        })
    }
}

fn config(cache: Option<&Path>, pool: Option<PoolingAllocationConfig>) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(NATIVE_STACK)
        .wasm_backtrace_max_frames(None);
    if let Some(pool) = pool {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    if let Some(folder) = cache {
        let mut settings = CacheConfig::new();
        settings.with_directory(folder);
        config.cache(Some(Cache::new(settings)?));
    }
    Ok(config)
}

/// A pool with room for `slots` components of the usual kinds. Pages that a message touched are
/// found by `PAGEMAP_SCAN` where the kernel has it, which is what makes reuse cheap.
fn pool(slots: usize, limits: Limits) -> PoolingAllocationConfig {
    let n = u32::try_from(slots).unwrap_or(u32::MAX).saturating_add(1);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(n)
        .total_core_instances(n.saturating_mul(40))
        .total_memories(n.saturating_mul(2))
        .total_tables(n.saturating_mul(4))
        .total_stacks(n)
        // A component that wants more is refused when it is loaded, instead of taking what others
        // need.
        .max_core_instances_per_component(40)
        .max_memories_per_component(2)
        .max_tables_per_component(4)
        .table_elements(limits::TABLE_ELEMENTS_MAX)
        .max_memory_size(limits.memory)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .max_unused_warm_slots(n)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// What a handler is told of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The message's id.
    pub id: String,
    /// The queue that it came through.
    pub queue: String,
    /// As sent.
    pub payload: Vec<u8>,
    /// As sent.
    pub headers: Headers,
    /// 1 on the first delivery.
    pub attempt: u32,
    /// The number of the last attempt.
    pub attempts_max: u32,
    /// Unix milliseconds, when known.
    pub sent_at_ms: Option<u64>,
    /// Unix milliseconds, when it waited for a time.
    pub due_at_ms: Option<u64>,
}

/// What came of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, with making the sandbox.
    pub duration: Duration,
    /// What the guest printed, both streams, cut at 64 KiB.
    pub log: String,
    /// The most linear memory that it had, bytes.
    pub memory: usize,
}

/// A component that is ready to run.
pub struct Handler {
    pre: ConsumerPre<State>,
    engine: Engine,
    limits: Limits,
    digest: Arc<str>,
}

impl Handler {
    /// The SHA-256 of the component file that was loaded, hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Runs the handler once, in an instance of its own. Dropping the future stops the guest.
    pub async fn run(&self, call: Call) -> Report {
        let started = Instant::now();
        let log = GuestLog::default();
        let deadline = Deadline::new(self.limits);
        let mut store = Store::new(
            &self.engine,
            State::new(
                log.clone(),
                Ceiling::new(self.limits.memory),
                deadline.clone(),
            ),
        );
        store.limiter(|state| &mut state.ceiling);
        store.set_hostcall_fuel(HOSTCALL_BYTES_MAX);
        store.set_epoch_deadline(1);
        let end = deadline.clone();
        store.epoch_deadline_callback(move |_| {
            if end.is_over() {
                Err(wasmtime::format_err!("time limit reached"))
            } else {
                Ok(UpdateDeadline::Yield(1))
            }
        });
        let result = {
            let mut work = std::pin::pin!(async {
                let handler = self.pre.instantiate_async(&mut store).await?;
                handler
                    .dqhost_queue_handler()
                    .call_handle(&mut store, &message(call))
                    .await
            });
            loop {
                match tokio::time::timeout_at(deadline.at().into(), &mut work).await {
                    Ok(result) => break Some(result),
                    Err(_) if deadline.is_over() => break None,
                    // The guest has moved its limit meanwhile.
                    Err(_) => {}
                }
            }
        };
        let text = log.text();
        let outcome = match result {
            Some(Ok(verdict)) => outcome_of(verdict),
            None => Outcome::TimedOut {
                limit: deadline.limit(),
            },
            Some(Err(_)) if store.data().ceiling.exceeded => Outcome::OutOfMemory {
                limit: self.limits.memory,
            },
            Some(Err(_)) if deadline.is_over() => Outcome::TimedOut {
                limit: deadline.limit(),
            },
            Some(Err(error)) => failure(&error, &text),
        };
        Report {
            outcome,
            duration: started.elapsed(),
            log: text,
            memory: store.data().ceiling.used,
        }
    }
}

fn message(call: Call) -> wit::Message {
    wit::Message {
        id: call.id,
        queue: call.queue,
        payload: call.payload,
        headers: call.headers,
        attempt: call.attempt,
        max_attempts: call.attempts_max,
        sent_at_ms: call.sent_at_ms,
        due_at_ms: call.due_at_ms,
    }
}

fn outcome_of(verdict: wit::Verdict) -> Outcome {
    let short = |reason: String| cut(&reason, REASON_MAX).into_owned();
    match verdict {
        wit::Verdict::Ack => Outcome::Acked,
        wit::Verdict::Nack(nack) => Outcome::Nacked {
            delay: nack.delay_ms.map(Duration::from_millis),
            reason: short(nack.reason.unwrap_or_default()),
        },
        wit::Verdict::Reject(reason) => Outcome::Rejected {
            reason: short(reason),
        },
    }
}

/// An error from inside the guest. Its last printed line says more than the trap: for a panic it is
/// the message.
fn failure(error: &wasmtime::Error, log: &str) -> Outcome {
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return Outcome::Exited { ok: exit.0 == 0 };
    }
    let cause = match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string(),
        None => error.root_cause().to_string(),
    };
    let reason = match log.lines().rev().find(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("note:")
    }) {
        Some(last) => format!("{cause}; the last line printed: {}", last.trim()),
        None => cause,
    };
    Outcome::Trapped {
        reason: cut(&reason, REASON_MAX).into_owned(),
    }
}
