//! What a guest finds on the other side of its imports: WASI with nothing in it, and its delivery.

use std::time::Duration;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use super::guest_log::GuestLog;
use super::limits::{Ceiling, Deadline};

wasmtime::component::bindgen!({
    path: "wit",
    world: "consumer",
    imports: { default: trappable },
    exports: { default: async },
});

/// Resources (streams, pollables) that a guest may hold at a time.
const RESOURCES_MAX: usize = 1000;

/// Random bytes that a guest may ask for in one call.
const RANDOM_BYTES_MAX: u64 = 1024 * 1024;

/// What belongs to one run.
pub(super) struct State {
    pub log: GuestLog,
    pub ceiling: Ceiling,
    pub deadline: Deadline,
    /// Made when the guest first calls WASI: many never do.
    wasi: Option<WasiCtx>,
    table: ResourceTable,
}

impl State {
    pub(super) fn new(log: GuestLog, ceiling: Ceiling, deadline: Deadline) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        Self {
            log,
            ceiling,
            deadline,
            wasi: None,
            table,
        }
    }
}

/// No files, no network, no environment, no arguments, an empty stdin.
fn empty_wasi(log: &GuestLog) -> WasiCtx {
    WasiCtxBuilder::new()
        .stdout(log.clone())
        .stderr(log.clone())
        .max_random_size(RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let log = &self.log;
        WasiCtxView {
            ctx: self.wasi.get_or_insert_with(|| empty_wasi(log)),
            table: &mut self.table,
        }
    }
}

impl dqhost::queue::types::Host for State {}

impl dqhost::queue::delivery::Host for State {
    fn remaining_ms(&mut self) -> wasmtime::Result<u64> {
        Ok(millis(self.deadline.remaining()))
    }

    fn extend(&mut self, ms: u64) -> wasmtime::Result<u64> {
        Ok(millis(self.deadline.extend(Duration::from_millis(ms))))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
