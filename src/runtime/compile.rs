//! From the bytes of a component to compiled code that fits the interface.
//!
//! A hostile component makes the compiler take any amount of memory, and nothing stops a thread that
//! compiles. So the program compiles in a child process (`child`), which is limited by the system. What
//! this process then does with the compiled code, the child has done before it within its limits.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, OutOfMemory};

use super::check::Names;
use super::engine::{
    Effort, EngineKind, check_mappings, config, no_pool, set_effort, uncounted_stacks,
};
use super::entry::Entry;
use super::imports::State;
use super::{ComponentFile, HandlerError, Limits, bulk, check, imports};

/// A compilation that takes longer is told of.
const SLOW_COMPILATION: Duration = Duration::from_secs(1);

/// A component with nothing in it.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

/// The last byte of a child's answer: whether a [`Refusal`] in JSON is before it or compiled code, and for
/// which engine.
pub(super) const REFUSED: u8 = 0;
pub(super) const ACCEPTED: u8 = 1;
pub(super) const ACCEPTED_FOR_ASYNC: u8 = 2;

/// Compiled code, and the engine that it is for.
pub(super) struct Compiled {
    pub kind: EngineKind,
    pub code: Vec<u8>,
}

/// Why a component cannot be a handler.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub reason: String,
    /// What it exports and imports, if that is known.
    pub names: Names,
    /// The engine that refused it, if one has.
    pub engine: Option<EngineKind>,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self {
            reason,
            names: Names::default(),
            engine: None,
        }
    }
}

pub(super) fn over_time(limits: &Limits) -> String {
    let limit = limits.compile_time;
    format!("it is not compiled within {limit:?} (--limit compile-time)")
}

pub(super) fn over_memory(limits: &Limits) -> String {
    let mib = limits.compile_memory.div_ceil(1 << 20);
    format!(
        "compiling it takes more than {mib}MiB of memory; if you trust the file, allow more with \
         `--limit compile-memory={}MiB`",
        mib.saturating_mul(2)
    )
}

/// Compiles components and links them to what handlers are given.
pub(super) struct Compiler {
    pub kind: EngineKind,
    pub engine: Engine,
    linker: Linker<State>,
    limits: Limits,
}

impl Compiler {
    /// For up to `slots` runs at a time.
    pub(super) fn new(
        kind: EngineKind,
        slots: usize,
        limits: &Limits,
        effort: Effort,
    ) -> Result<Self, HandlerError> {
        let fail = |error: wasmtime::Error| HandlerError::Engine(format!("{error:#}"));
        check_mappings(kind, slots, limits)?;
        // Without the pool some limits would not hold: those on tables, instances and their sizes.
        let mut config = config(kind, slots, limits);
        set_effort(&mut config, effort);
        let engine = Engine::new(&config).map_err(|error| no_pool(slots, &error))?;
        let mut linker = Linker::new(&engine);
        imports::link(kind, &mut linker).map_err(fail)?;
        Ok(Self {
            kind,
            engine,
            linker,
            limits: *limits,
        })
    }

    /// Compiled code that [`accept`](Self::accept) takes.
    pub(super) fn compile(&self, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        if self.kind == EngineKind::Async
            && let Some(reason) = uncounted_stacks(bytes)
        {
            return Err(Refusal {
                engine: Some(self.kind),
                ..reason.to_owned().into()
            });
        }
        let code = bulk::compile(bytes, |bytes| self.engine.precompile_component(bytes));
        let code = code.map_err(|error| self.refusal(&error))?;
        self.accept(&code)?;
        Ok(code)
    }

    fn refusal(&self, error: &wasmtime::Error) -> Refusal {
        let reason = if is_lack_of_memory(error) {
            over_memory(&self.limits)
        } else {
            format!("it does not compile: {error:#}")
        };
        Refusal {
            engine: Some(self.kind),
            ..reason.into()
        }
    }

    /// What compiled code of ours is ready to be instantiated as, if it fits the interface.
    pub(super) fn accept(&self, code: &[u8]) -> Result<(Component, Entry), Refusal> {
        #[expect(
            unsafe_code,
            reason = "only our own compiler made this code: it came from this process, through a \
                      private pipe, or from a file that no other user can write"
        )]
        let component = unsafe { Component::deserialize(&self.engine, code) }
            .map_err(|error| self.refusal(&error))?;
        let linked = check::types(&self.engine, &component).and_then(|kind| {
            self.linker
                .instantiate_pre(&component)
                .and_then(|pre| Entry::new(kind, pre))
                .map_err(|error| format!("it does not fit the interface: {error:#}"))
        });
        match linked {
            Ok(entry) => Ok((component, entry)),
            Err(reason) => Err(Refusal {
                reason,
                names: check::names(&self.engine, &component),
                engine: Some(self.kind),
            }),
        }
    }
}

fn is_lack_of_memory(error: &wasmtime::Error) -> bool {
    error.is::<OutOfMemory>()
        || error.chain().any(|cause| {
            let errno = cause.downcast_ref::<Errno>().copied();
            errno.or_else(|| Errno::from_io_error(cause.downcast_ref::<io::Error>()?))
                == Some(Errno::NOMEM)
        })
}

/// Compiles in a thread of this process: it cannot be stopped, only left behind.
pub(super) fn in_thread(
    compiler: &Arc<Compiler>,
    file: &ComponentFile,
) -> Result<Vec<u8>, Refusal> {
    let limits = compiler.limits;
    let (compiler, bytes) = (Arc::clone(compiler), Arc::clone(&file.bytes));
    let (sender, receiver) = sync_channel(1);
    std::thread::Builder::new()
        .name("compile".to_owned())
        .spawn(move || {
            // Nobody listens any more when it came too late.
            let _ = sender.send(compiler.compile(&bytes));
        })
        .map_err(|error| format!("no thread to compile it: {error}"))?;
    match wait(&receiver, limits.compile_time, file) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(over_time(&limits).into()),
        Err(RecvTimeoutError::Disconnected) => {
            Err("a bug in the compiler: it panicked".to_owned().into())
        }
    }
}

/// Waits for a compilation, and tells of one that takes long.
pub(super) fn wait<T>(
    result: &Receiver<T>,
    limit: Duration,
    file: &ComponentFile,
) -> Result<T, RecvTimeoutError> {
    let quick = result.recv_timeout(SLOW_COMPILATION.min(limit));
    if limit <= SLOW_COMPILATION || !matches!(quick, Err(RecvTimeoutError::Timeout)) {
        return quick;
    }
    tracing::warn!(
        "compiling {}, which takes a while the first time",
        file.name
    );
    result.recv_timeout(limit.saturating_sub(SLOW_COMPILATION))
}

/// How a child process is to compile.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Order {
    /// The engine, if it is not the component's choice.
    pub(super) kind: Option<EngineKind>,
    pub(super) effort: Effort,
}

/// What a child process does: reads a component, and writes compiled code or why there is none.
///
/// # Errors
///
/// Those of reading and writing. What is wrong with the component is part of what is written.
pub fn compile_as_child(
    limits: &Limits,
    Order { kind, effort }: Order,
    mut input: impl Read,
    mut output: impl Write,
) -> io::Result<()> {
    let new = |kind| Compiler::new(kind, 0, limits, effort).map_err(io::Error::other);
    let mut compiler = new(EngineKind::Sync)?;
    // Its threads start while there is memory for them.
    let _ = compiler.engine.precompile_component(EMPTY);
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let kind = kind.unwrap_or_else(|| EngineKind::of(&bytes));
    if kind != compiler.kind {
        compiler = new(kind)?;
    }
    match compiler.compile(&bytes) {
        Ok(code) => {
            output.write_all(&code)?;
            output.write_all(&[match kind {
                EngineKind::Sync => ACCEPTED,
                EngineKind::Async => ACCEPTED_FOR_ASYNC,
            }])?;
        }
        Err(refusal) => {
            serde_json::to_writer(&mut output, &refusal)?;
            output.write_all(&[REFUSED])?;
        }
    }
    output.flush()
}
