//! Runs a payload in a sandbox: one engine a process or two, one prepared component a handler, a fresh
//! store and instance a message.
//!
//! Guest code is interrupted by epochs: a ticker advances a counter that compiled code looks at,
//! and at each tick the run yields or, at its deadline, ends. A guest that waits in a host call is
//! not running code, so a timer ends it by dropping its future. Dropping the future of
//! [`Handler::run`] stops a guest either way, at the latest one tick later.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use self::cache::Cache;
use self::compile::{Compiled, Order, Refusal};
use self::entry::Entry;
use self::http::HttpClient;
use self::imports::SharedContext;
use self::machine::Machine;
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
mod engine;
mod entry;
mod exchange;
mod guest_log;
mod http;
mod imports;
mod last_words;
mod limits;
mod machine;
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
pub use compile::{Order as CompileOrder, compile_as_child};
pub use engine::{Effort, EngineKind};
pub use entry::Kind;
pub use guest_log::{Level, LogLine, Source, text_of};
pub(crate) use http::QueueShares;
pub use limits::Limits;
pub use permissions::{HttpRule, HttpRuleError, Permissions};
pub use run::{Handler, Report};
pub use run_lines::{RUN_LINES_MAX, RunLines};

/// Cached for the first engine in the place of code, for a component that needs the second.
const NOT_HERE: &[u8] = b"async";

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
    /// It may be one, and is not wanted.
    #[error("{path} is refused: {reason}")]
    Refused {
        /// As given.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The sandbox itself could not be set up.
    #[error("the sandbox cannot be set up: {0}")]
    Engine(String),
}

/// The engines, shared by all handlers of a process.
pub struct Runtime {
    /// For most components.
    machine: Machine,
    /// For those that need it; made with the first of them.
    machine_for_async: OnceLock<Machine>,
    making: Mutex<()>,
    /// All components run in the second engine.
    is_always_async: bool,
    slots: usize,
    /// Runs of the second engine may be fewer, if the system maps no more stacks.
    may_have_fewer: bool,
    /// Compiles in child processes, if there is one.
    program: Option<OsString>,
    effort: Effort,
    cache: Option<PathBuf>,
    common: Arc<SharedContext>,
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
        let permissions = Arc::new(permissions);
        Ok(Self {
            machine: Machine::new(EngineKind::Sync, slots, &limits)?,
            machine_for_async: OnceLock::new(),
            making: Mutex::default(),
            is_always_async: false,
            slots,
            may_have_fewer: false,
            cache: cache.map(Path::to_owned),
            program: None,
            effort: Effort::Full,
            common: Arc::new(SharedContext {
                limits,
                web: Arc::new(HttpClient::new(Arc::clone(&permissions), limits, slots)),
                secrets: Arc::new(secrets::Secrets::new(&permissions.secrets)),
                permissions,
                memory: Arc::default(),
            }),
        })
    }

    /// An engine for up to `most` runs at a time, or for fewer if the system has no room for so many. It has
    /// room for `least`, or there is an error.
    pub fn with_room(
        (least, most): (usize, usize),
        limits: Limits,
        permissions: &Permissions,
        cache: Option<&Path>,
    ) -> Result<Self, HandlerError> {
        let mut slots = most.max(least);
        loop {
            match Self::new(slots, limits, permissions.clone(), cache) {
                Ok(runtime) => {
                    return Ok(Self {
                        may_have_fewer: true,
                        ..runtime
                    });
                }
                Err(error) if slots <= least => return Err(error),
                Err(_) => slots = (slots / 2).max(least),
            }
        }
    }

    /// The most runs at a time. Of handlers for WASI 0.3 there may be fewer: [`Handler::places`].
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Runs all components in the engine for asynchronous ones, so that tests of the others are tests of it.
    #[doc(hidden)]
    #[must_use]
    pub fn always_async(self) -> Self {
        Self {
            is_always_async: true,
            ..self
        }
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

    /// Makes child processes compile quickly or in full. What was compiled in full before is used in both cases.
    #[must_use]
    pub fn with_effort(self, effort: Effort) -> Self {
        Self { effort, ..self }
    }

    /// Reads a component file.
    pub fn read(&self, path: &Path) -> Result<ComponentFile, HandlerError> {
        let name = printable(&path.display().to_string()).into_owned();
        let unreadable = |reason: String| HandlerError::Unreadable {
            path: name.clone(),
            reason,
        };
        let max = u64::try_from(self.component_max()).unwrap_or(u64::MAX);
        let bytes = files::read_named(path, max).map_err(|e| unreadable(e.to_string()))?;
        self.file(name, bytes)
    }

    /// Takes the bytes of a component file under this name, which is fit for a terminal.
    pub fn file(&self, name: String, bytes: Vec<u8>) -> Result<ComponentFile, HandlerError> {
        let max = self.component_max();
        if bytes.len() > max {
            return Err(HandlerError::Unreadable {
                path: name,
                reason: format!("it has more than {max} bytes (--limit component-bytes)"),
            });
        }
        Ok(ComponentFile {
            digest: hex(&Sha256::digest(&bytes)).into(),
            name,
            bytes: bytes.into(),
        })
    }

    /// The most bytes that a component file may have.
    #[must_use]
    pub fn component_max(&self) -> usize {
        self.common.limits.component_bytes
    }

    /// Compiles a component, or takes it from the cache, and prepares it for instantiation. Blocks as
    /// long as that takes.
    pub fn load(&self, file: &ComponentFile) -> Result<Handler, HandlerError> {
        let (machine, _, entry) = self
            .component(file)
            .map_err(|refusal| file.invalid(refusal.reason))?;
        Ok(Handler {
            entry: Arc::new(entry),
            engine: machine.compiler.engine.clone(),
            clock: machine.clock.clone(),
            common: Arc::clone(&self.common),
            digest: Arc::clone(&file.digest),
            places: machine.slots,
        })
    }

    /// What a component file is and wants, and whether it can run. Blocks like [`load`](Self::load).
    #[must_use]
    pub fn inspect(&self, file: &ComponentFile) -> Inspection {
        let (names, engine, problem) = match self.component(file) {
            Ok((Machine { compiler, .. }, component, _)) => (
                check::names(&compiler.engine, &component),
                Some(compiler.kind),
                None,
            ),
            Err(refusal) => (
                refusal.names,
                refusal.engine,
                Some(file.invalid(refusal.reason)),
            ),
        };
        check::inspect(names, engine, file, problem)
    }

    /// The engine of this kind.
    fn machine(&self, kind: EngineKind) -> Result<&Machine, Refusal> {
        match kind {
            EngineKind::Sync => Ok(&self.machine),
            EngineKind::Async => {
                let _one_at_a_time = self.making.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(machine) = self.machine_for_async.get() {
                    return Ok(machine);
                }
                // What fails for lack of memory may succeed later, so only success is kept.
                let limits = &self.common.limits;
                let made = if self.may_have_fewer {
                    Machine::later_with_room(kind, self.slots, limits)
                } else {
                    Machine::later(kind, self.slots, limits)
                };
                let made = made.map_err(|error| Refusal::from(error.to_string()))?;
                Ok(self.machine_for_async.get_or_init(|| made))
            }
        }
    }

    fn component(&self, file: &ComponentFile) -> Result<(&Machine, Component, Entry), Refusal> {
        check::kind(&file.bytes)?;
        let kind = self.is_always_async.then_some(EngineKind::Async);
        if let Some(accepted) = self.cached(kind, file) {
            return Ok(accepted);
        }
        let Compiled { kind, code } = if let Some(program) = &self.program {
            let effort = self.effort;
            child::compile(program, &self.common.limits, Order { kind, effort }, file)?
        } else {
            let kind = kind.unwrap_or_else(|| EngineKind::of(&file.bytes));
            let code = compile::in_thread(&self.machine(kind)?.compiler, file)?;
            Compiled { kind, code }
        };
        let machine = self.machine(kind)?;
        let (component, entry) = machine.compiler.accept(&code)?;
        if let Some(folder) = &self.cache {
            let key = key(self.effort, file);
            Cache::new(folder, &machine.compiler.engine).put(&key, &code);
            if kind == EngineKind::Async && !self.is_always_async {
                Cache::new(folder, &self.machine.compiler.engine).put(&key, NOT_HERE);
            }
        }
        Ok((machine, component, entry))
    }

    /// The component as it was compiled before, for this engine or the one that it needs. If in doubt in full.
    fn cached(
        &self,
        kind: Option<EngineKind>,
        file: &ComponentFile,
    ) -> Option<(&Machine, Component, Entry)> {
        let full = self.cached_as(kind, &key(Effort::Full, file));
        full.or_else(|| match self.effort {
            Effort::Full => None,
            Effort::Quick => self.cached_as(kind, &key(Effort::Quick, file)),
        })
    }

    fn cached_as(
        &self,
        kind: Option<EngineKind>,
        key: &str,
    ) -> Option<(&Machine, Component, Entry)> {
        let folder = self.cache.as_ref()?;
        let code_for = |machine: &Machine| Cache::new(folder, &machine.compiler.engine).get(key);
        let mut machine = match kind {
            Some(kind) => self.machine(kind).ok()?,
            None => &self.machine,
        };
        let mut code = code_for(machine)?;
        if code == NOT_HERE {
            machine = self.machine(EngineKind::Async).ok()?;
            code = code_for(machine)?;
        }
        let (component, entry) = machine.compiler.accept(&code).ok()?;
        Some((machine, component, entry))
    }
}

/// What compiled code is cached by.
fn key(effort: Effort, file: &ComponentFile) -> String {
    match effort {
        Effort::Full => file.digest.to_string(),
        Effort::Quick => format!("quick {}", file.digest),
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

    /// What is in it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its length in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_engine_is_made_when_a_component_needs_it() {
        let runtime = Runtime::new(1, Limits::default(), Permissions::default(), None).unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        let refuse = |text: &str| {
            let path = folder.path().join("component");
            std::fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
            runtime.inspect(&runtime.read(&path).unwrap())
        };
        let found = refuse("(component)");
        assert_eq!(found.engine, Some(EngineKind::Sync));
        assert!(runtime.machine_for_async.get().is_none());
        let found = refuse("(component (type (func async)))");
        assert_eq!(found.engine, Some(EngineKind::Async));
        assert!(runtime.machine_for_async.get().is_some());
    }
}
