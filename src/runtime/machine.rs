//! An engine with what belongs to it: the compiler for it, and its clock.

use std::sync::Arc;

use super::compile::Compiler;
use super::engine::{self, Effort, EngineKind};
use super::ticker::{Clock, Ticker};
use super::{HandlerError, Limits};

/// Slots for which there has to be room.
const SLOTS_LEAST: usize = 16;

/// An engine with what belongs to it.
pub(super) struct Machine {
    pub compiler: Arc<Compiler>,
    pub clock: Clock,
    /// Runs at a time.
    pub slots: usize,
    /// Ends with the machine.
    _ticker: Ticker,
}

impl Machine {
    pub(super) fn new(
        kind: EngineKind,
        slots: usize,
        limits: &Limits,
    ) -> Result<Self, HandlerError> {
        let compiler = Compiler::new(kind, slots, limits, Effort::Full)?;
        Self::with(compiler, slots)
    }

    /// The same in a process that may have hidden its memory. An engine opens `/proc/self/pagemap` when it is
    /// made, so for that moment the memory is not hidden.
    pub(super) fn later(
        kind: EngineKind,
        slots: usize,
        limits: &Limits,
    ) -> Result<Self, HandlerError> {
        let compiler = without_hiding(|| Compiler::new(kind, slots, limits, Effort::Full))?;
        Self::with(compiler, slots)
    }

    /// The same, with fewer slots if there is no room for so many: the first engine may have taken most of the
    /// address space.
    pub(super) fn later_with_room(
        kind: EngineKind,
        most: usize,
        limits: &Limits,
    ) -> Result<Self, HandlerError> {
        let mut slots = engine::slots_that_fit(most, limits);
        loop {
            match Self::later(kind, slots, limits) {
                Err(_) if slots > SLOTS_LEAST => slots = (slots / 2).max(SLOTS_LEAST),
                made => return made,
            }
        }
    }

    fn with(compiler: Compiler, slots: usize) -> Result<Self, HandlerError> {
        let ticker = Ticker::start(&compiler.engine)
            .map_err(|error| HandlerError::Engine(format!("no thread for its clock: {error}")))?;
        let clock = ticker
            .clock()
            .ok_or_else(|| HandlerError::Engine("its clock has ended".to_owned()))?;
        Ok(Self {
            compiler: Arc::new(compiler),
            clock,
            slots,
            _ticker: ticker,
        })
    }
}

#[cfg(target_os = "linux")]
fn without_hiding<T>(make: impl FnOnce() -> T) -> T {
    use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
    let is_hidden = matches!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    if is_hidden {
        let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    }
    let result = make();
    if is_hidden {
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
    result
}

#[cfg(not(target_os = "linux"))]
fn without_hiding<T>(make: impl FnOnce() -> T) -> T {
    make()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_fill_the_host_without_a_limit_is_not_compiled() {
        let machine = Machine::new(EngineKind::Async, 1, &Limits::default()).unwrap();
        for (text, says) in [
            ("(canon subtask.cancel async)", "more async builtins"),
            ("(canon thread.index)", "threading"),
        ] {
            let component = wat::parse_str(format!("(component (core func {text}))")).unwrap();
            let error = machine.compiler.compile(&component).err().unwrap();
            assert!(error.reason.contains(says), "{}", error.reason);
        }
    }
}
