//! The ceilings of one run: time and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wasmtime::ResourceLimiter;

/// What a handler may take: the file, then each run of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Until a run is stopped, unless it asks for more.
    pub time: Duration,
    /// The most that it is granted when it asks for more; at least `time`.
    pub time_max: Duration,
    /// Linear memory, all of a component's together, in bytes.
    pub memory: usize,
    /// Tables of one component. A component that has more is not loaded.
    pub tables: usize,
    /// Elements of one table. A Rust guest has some hundreds; large language runtimes some tens of
    /// thousands.
    pub table_elements: usize,
    /// Core instances of one component: 2 to 10 are usual. One that has more is not loaded.
    pub instances: usize,
    /// The stack of guest code, bytes.
    pub stack: usize,
    /// Handles to things of the host (streams, timers, requests) that a run may hold at a time. What
    /// the host keeps for a run beside its memory is at most this times `call_bytes`. An asynchronous
    /// component may hold 16 times as many handles of tasks, streams and futures.
    pub resources: usize,
    /// Bytes that a run may hand to the host in one call, its verdict included.
    pub call_bytes: usize,
    /// Bytes that are kept of what a run prints and logs.
    pub log_bytes: usize,
    /// Lines that are kept of it.
    pub log_lines: usize,
    /// Messages that a run may send.
    pub sends: usize,
    /// Bytes of their payloads and headers.
    pub send_bytes: usize,
    /// Bytes that a run may return.
    pub result_bytes: usize,
    /// HTTP requests that a run may make.
    pub http_requests: usize,
    /// Connections of all handlers of a host together, at a time.
    pub http_connections: usize,
    /// Until the connection of a request is there.
    pub http_connect: Duration,
    /// Until its response has been read to the end.
    pub http_total: Duration,
    /// The component file, bytes. The largest of the usual language runtimes is 18 MB.
    pub component_bytes: usize,
    /// Until the component is compiled. The largest take 10 s on two cores.
    pub compile_time: Duration,
    /// Memory of the process that compiles it, bytes: the largest of the usual language runtimes need up
    /// to 450 MiB. Nothing limits it if this process compiles.
    pub compile_memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let time = Duration::from_secs(30);
        Self {
            time,
            time_max: time,
            memory: 64 * MIB,
            tables: 4,
            table_elements: 200_000,
            instances: 40,
            stack: MIB / 2,
            resources: 128,
            call_bytes: MIB / 2,
            log_bytes: 64 * 1024,
            log_lines: 1000,
            sends: 100,
            send_bytes: MIB,
            result_bytes: 64 * 1024,
            http_requests: 100,
            http_connections: 256,
            http_connect: Duration::from_secs(5),
            http_total: Duration::from_secs(30),
            component_bytes: 64 * MIB,
            compile_time: Duration::from_mins(1),
            compile_memory: 480 * MIB,
        }
    }
}

const MIB: usize = 1024 * 1024;

/// Handles of tasks, streams and futures for each handle to a thing of the host. A guest has one or two for
/// each thing that it waits for, and one for each task.
const HANDLES_EACH: usize = 16;

/// What the host keeps for a handle at most: a task has four entries.
const ENTRIES_EACH: usize = 4;

impl Limits {
    /// Handles of any kind that a run of an asynchronous component may hold at a time.
    pub(super) fn handles(&self) -> usize {
        self.resources.saturating_mul(HANDLES_EACH)
    }

    /// What the host may keep for them.
    pub(super) fn entries(&self) -> usize {
        self.handles().saturating_mul(ENTRIES_EACH)
    }
}

/// The moment at which a run is stopped. Shared by what enforces it (the epoch callback, the timer)
/// and what moves it (the guest's `extend`).
#[derive(Debug, Clone)]
pub(super) struct Deadline {
    start: Instant,
    /// Microseconds after `start`. Relaxed order suffices: it is one number, and a late reader
    /// only stops the guest a tick later or grants it again.
    at_us: Arc<AtomicU64>,
    max: Duration,
}

impl Deadline {
    pub(super) fn new(limits: Limits, start: Instant) -> Self {
        Self {
            start,
            at_us: Arc::new(AtomicU64::new(micros(limits.time))),
            max: limits.time_max.max(limits.time),
        }
    }

    pub(super) fn at(&self) -> Instant {
        self.start + Duration::from_micros(self.at_us.load(Ordering::Relaxed))
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.at()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.at().saturating_duration_since(Instant::now())
    }

    /// The limit that applied in the end, counted from the start.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_micros(self.at_us.load(Ordering::Relaxed))
    }

    /// Moves the limit to `wanted` from now, at most to the maximum. Returns what is granted.
    pub(super) fn extend(&self, wanted: Duration) -> Duration {
        let end = self.start.elapsed().saturating_add(wanted).min(self.max);
        self.at_us.store(micros(end), Ordering::Relaxed);
        self.remaining()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Counts what one store holds and refuses what goes over. Refusing traps the guest: a guest that is
/// told that its allocation failed mostly aborts anyway, without a word of why.
#[derive(Debug)]
pub(super) struct Limiter {
    limits: Limits,
    /// Linear memory, bytes.
    pub used: usize,
    /// That of all runs of the handler that are under way.
    used_by_all: Arc<AtomicUsize>,
    /// What was refused.
    pub exceeded: Option<Exceeded>,
}

/// Something of which a guest wanted more than it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exceeded {
    Memory,
    TableElements,
}

/// What a component may have at all is checked when it is loaded; this is for its memories.
pub(super) const MEMORIES_MAX: usize = 2;

impl Limiter {
    pub(super) fn new(limits: Limits, used_by_all: &Arc<AtomicUsize>) -> Self {
        Self {
            limits,
            used: 0,
            used_by_all: Arc::clone(used_by_all),
            exceeded: None,
        }
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        self.used_by_all.fetch_sub(self.used, Ordering::Relaxed);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = self.used.saturating_sub(current).saturating_add(desired);
        if wanted > self.limits.memory {
            self.exceeded = Some(Exceeded::Memory);
            return Err(wasmtime::format_err!("memory limit reached"));
        }
        // Relaxed order: one number, which is only shown and weighed. A memory never shrinks.
        self.used_by_all
            .fetch_add(wanted.saturating_sub(self.used), Ordering::Relaxed);
        self.used = self.used.max(wanted);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > self.limits.table_elements {
            self.exceeded = Some(Exceeded::TableElements);
            return Err(wasmtime::format_err!("table limit reached"));
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.limits.instances
    }

    fn tables(&self) -> usize {
        self.limits.tables
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_moves_its_limit_no_further_than_the_maximum() {
        let limits = Limits {
            time: Duration::from_secs(10),
            time_max: Duration::from_mins(1),
            ..Limits::default()
        };
        let deadline = Deadline::new(limits, Instant::now());
        assert!(deadline.extend(Duration::from_secs(30)) > Duration::from_secs(29));
        assert!(deadline.extend(Duration::MAX) <= Duration::from_mins(1));
        assert_eq!(deadline.limit(), Duration::from_mins(1));
        deadline.extend(Duration::ZERO);
        assert!(deadline.is_over());
    }

    #[test]
    fn memory_is_counted_over_all_memories_of_a_store() {
        let used_by_all = Arc::new(AtomicUsize::new(7));
        let limits = Limits {
            memory: 100,
            ..Limits::default()
        };
        let mut ceiling = Limiter::new(limits, &used_by_all);
        assert!(ceiling.memory_growing(0, 60, None).unwrap());
        assert!(ceiling.memory_growing(0, 30, None).unwrap());
        assert!(ceiling.memory_growing(30, 41, None).is_err());
        assert_eq!(ceiling.exceeded, Some(Exceeded::Memory));
        assert_eq!(ceiling.used, 90);
        assert_eq!(used_by_all.load(Ordering::Relaxed), 97);
        drop(ceiling);
        assert_eq!(used_by_all.load(Ordering::Relaxed), 7);
    }
}
