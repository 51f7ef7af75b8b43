//! Runs a payload in a sandbox: one engine a process, one prepared component a handler, a fresh
//! store and instance a message.
//!
//! Guest code is interrupted by epochs: a ticker advances a counter that compiled code looks at,
//! and at each tick the run yields or, at its deadline, ends. A guest that waits in a host call is
//! not running code, so a timer ends it by dropping its future. Dropping the future of
//! [`Handler::run`] stops a guest either way, at the latest one tick later.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::PoolingAllocationConfig;
use wasmtime::component::Component;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy};

use self::cache::Cache;
use self::compile::{Compiler, Refusal};
use self::entry::Entry;
use self::http::HttpClient;
use self::imports::SharedContext;
use crate::files;
use crate::text::{hex, printable};

mod bindings;
mod bulk;
mod cache;
mod call;
mod check;
mod child;
mod compile;
mod connections;
mod entry;
mod exchange;
mod guest_log;
mod http;
mod imports;
mod limits;
mod outbox;
mod permissions;
mod process;
mod run;
mod run_lines;
mod secrets;
mod shares;
mod ticker;
mod timed;
mod trace;

pub use call::Call;
pub use check::{Import, Inspection, Need};
pub use child::{CHILD_COMMAND, CHILD_ENVIRONMENT, threads as compile_threads};
pub use compile::compile_as_child;
pub use entry::Kind;
pub use guest_log::{Level, LogLine, Source, text_of};
pub use limits::Limits;
use limits::MEMORIES_MAX;
pub use permissions::{HttpRule, HttpRuleError, Permissions};
pub use run::{Handler, Report};
pub use run_lines::{RUN_LINES_MAX, RunLines};
use ticker::Ticker;

/// Native stack beside that of guest code, for the host's own calls.
const NATIVE_STACK: usize = 3 * 512 * 1024;

/// Why a file cannot be a handler.
#[derive(Debug, Clone, thiserror::Error)]
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
    compiler: Arc<Compiler>,
    /// Compiles in child processes, if there is one.
    program: Option<OsString>,
    cache: Option<Cache>,
    common: Arc<SharedContext>,
    /// Ends with the runtime.
    _ticker: Ticker,
}

impl Runtime {
    /// An engine for up to `slots` runs at a time, each within `limits` and with these permissions;
    /// [`Handler::with`] gives others to one handler.
    /// `cache` is a folder of ours alone for compiled code: whoever can write there can run code in
    /// this process.
    pub fn new(
        slots: usize,
        limits: Limits,
        permissions: Permissions,
        cache: Option<&Path>,
    ) -> Result<Self, HandlerError> {
        let compiler = Compiler::new(slots, &limits)?;
        let ticker = Ticker::start(&compiler.engine)
            .map_err(|error| HandlerError::Engine(format!("no thread for its clock: {error}")))?;
        let permissions = Arc::new(permissions);
        let clock = ticker
            .clock()
            .ok_or_else(|| HandlerError::Engine("its clock has ended".to_owned()))?;
        Ok(Self {
            cache: cache.map(|folder| Cache::new(folder, &compiler.engine)),
            compiler: Arc::new(compiler),
            program: None,
            common: Arc::new(SharedContext {
                limits,
                web: Arc::new(HttpClient::new(Arc::clone(&permissions), limits, slots)),
                secrets: Arc::new(secrets::Secrets::new(&permissions.secrets)),
                permissions,
                clock,
            }),
            _ticker: ticker,
        })
    }

    /// Compiles in child processes from now on. Without it, components are compiled in this process,
    /// where nothing limits the memory that takes.
    ///
    /// `program` is the `dqhost` program of this version. What it answers is run in this process.
    #[must_use]
    pub fn compile_with(self, program: impl Into<OsString>) -> Self {
        Self {
            program: Some(program.into()),
            ..self
        }
    }

    /// Reads a component file.
    pub fn read(&self, path: &Path) -> Result<ComponentFile, HandlerError> {
        let name = printable(&path.display().to_string()).into_owned();
        let unreadable = |reason: String| HandlerError::Unreadable {
            path: name.clone(),
            reason,
        };
        let max = self.common.limits.component_bytes;
        let bytes = files::read_named(path, u64::try_from(max).unwrap_or(u64::MAX))
            .map_err(|e| unreadable(e.to_string()))?;
        if bytes.len() > max {
            return Err(unreadable(format!(
                "it has more than {max} bytes (--limit component-bytes)"
            )));
        }
        Ok(ComponentFile {
            digest: hex(&Sha256::digest(&bytes)).into(),
            name,
            bytes: bytes.into(),
        })
    }

    /// Compiles a component, or takes it from the cache, and prepares it for instantiation. Blocks as
    /// long as that takes.
    pub fn load(&self, file: &ComponentFile) -> Result<Handler, HandlerError> {
        let (_, entry) = self
            .component(file)
            .map_err(|refusal| file.invalid(refusal.reason))?;
        Ok(Handler {
            entry: Arc::new(entry),
            engine: self.compiler.engine.clone(),
            common: Arc::clone(&self.common),
            digest: Arc::clone(&file.digest),
        })
    }

    /// What a component file is and wants, and whether it can run. Blocks like [`load`](Self::load).
    #[must_use]
    pub fn inspect(&self, file: &ComponentFile) -> Inspection {
        let (names, problem) = match self.component(file) {
            Ok((component, _)) => (check::names(&self.compiler.engine, &component), None),
            Err(refusal) => (refusal.names, Some(file.invalid(refusal.reason))),
        };
        check::inspect(names, file, problem)
    }

    fn component(&self, file: &ComponentFile) -> Result<(Component, Entry), Refusal> {
        check::kind(&file.bytes)?;
        let cached = self
            .cache
            .as_ref()
            .and_then(|cache| cache.get(&file.digest));
        if let Some(code) = cached
            && let Ok(accepted) = self.compiler.accept(&code)
        {
            return Ok(accepted);
        }
        let code = match &self.program {
            Some(program) => child::compile(program, &self.common.limits, file)?,
            None => compile::in_thread(&self.compiler, file)?,
        };
        let accepted = self.compiler.accept(&code)?;
        if let Some(cache) = &self.cache {
            cache.put(&file.digest, &code);
        }
        Ok(accepted)
    }
}

/// A component file that was read.
pub struct ComponentFile {
    /// As given, fit for a terminal.
    pub name: String,
    /// The SHA-256 of its bytes, hexadecimal.
    pub digest: Arc<str>,
    bytes: Arc<[u8]>,
}

impl ComponentFile {
    fn invalid(&self, reason: String) -> HandlerError {
        HandlerError::Invalid {
            path: self.name.clone(),
            reason: check::too_many(&reason).unwrap_or(reason),
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn config(limits: &Limits, pool: PoolingAllocationConfig) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(limits.stack)
        .async_stack_size(limits.stack.saturating_add(NATIVE_STACK))
        .wasm_backtrace_max_frames(None);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Why there is no pool, which reserves address space for each slot, and what to do.
fn no_pool(slots: usize, error: &wasmtime::Error) -> HandlerError {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let limited = limit.map_or_else(String::new, |bytes| {
        format!(
            "; this process may have {} MiB (`ulimit -v`)",
            bytes / 1024 / 1024
        )
    });
    HandlerError::Engine(format!(
        "no address space for the limits of {slots} handlers at a time{limited}. Each takes about 8 GiB \
         of addresses, not of memory. Remove the limit with `ulimit -v unlimited`, and limit memory \
         by a cgroup instead, or run fewer with --slots ({error:#})"
    ))
}

/// A pool with room for `slots` components of the usual kinds. Pages that a message touched are
/// found by `PAGEMAP_SCAN` where the kernel has it, which is what makes reuse cheap.
fn pool(slots: usize, limits: Limits) -> PoolingAllocationConfig {
    let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
    let n = number(slots).saturating_add(1);
    let (instances, tables) = (number(limits.instances), number(limits.tables));
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(n)
        .total_core_instances(n.saturating_mul(instances))
        .total_memories(n.saturating_mul(number(MEMORIES_MAX)))
        .total_tables(n.saturating_mul(tables))
        .total_stacks(n)
        // A component that wants more is refused when it is loaded, instead of taking what others
        // need.
        .max_core_instances_per_component(instances)
        .max_memories_per_component(number(MEMORIES_MAX))
        .max_tables_per_component(tables)
        // One module may have all of them.
        .max_memories_per_module(number(MEMORIES_MAX))
        .max_tables_per_module(tables)
        .table_elements(limits.table_elements)
        .max_memory_size(limits.memory)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .max_unused_warm_slots(n)
        .pagemap_scan(Enabled::Auto);
    pool
}
