//! What a guest finds on the other side of its imports: WASI with nothing in it but what is
//! allowed, its delivery, its outbox, its log.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use wasmtime::component::{HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::sockets::network::{self, ErrorCode, IpAddressFamily};
use wasmtime_wasi::p2::bindings::sockets::{tcp_create_socket, udp_create_socket};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{SocketError, SocketResult, TcpSocket, UdpSocket};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::bindings::dqhost;
use super::bindings::dqhost::queue::outbox::{NewMessage, SendError};
use super::bindings::dqhost::queue::result::SetError;
use super::bindings::wasi;
use super::bindings::wasi::logging::logging::Level as WitLevel;
use super::bindings::{Consumer, SpinRedis, Wasmcloud, fermyon, wasmcloud};
use super::engine::EngineKind;
use super::guest_log::{GuestLog, Level, Source};
use super::http::{FIELDS_MAX, HttpClient, Requests};
use super::limits::{Deadline, Limiter, Limits};
use super::outbox::Outbox;
use super::permissions::Permissions;
use super::process::Process;
use super::secrets::Secrets;

mod of_async;
mod records;
mod requests;

/// What all runs of a handler have in common.
pub(super) struct SharedContext {
    pub limits: Limits,
    pub permissions: Arc<Permissions>,
    pub secrets: Arc<Secrets>,
    pub web: Arc<HttpClient>,
    /// Linear memory of all runs that are under way, bytes.
    pub memory: Arc<AtomicUsize>,
}

/// What belongs to one run.
pub(super) struct State {
    common: Arc<SharedContext>,
    pub log: GuestLog,
    pub ceiling: Limiter,
    pub deadline: Deadline,
    pub outbox: Outbox,
    /// What the guest returns beside its verdict.
    pub result: Option<Vec<u8>>,
    /// Made when the guest first calls WASI: many never do.
    wasi: Option<WasiCtx>,
    /// What a program starts with, until then.
    pub process: Option<Process>,
    /// Likewise.
    http: Option<(WasiHttpCtx, Requests)>,
    table: ResourceTable,
}

impl State {
    pub(super) fn new(common: &Arc<SharedContext>, deadline: Deadline, outbox: Outbox) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(common.limits.resources);
        Self {
            log: GuestLog::new(&common.limits, &common.secrets),
            ceiling: Limiter::new(common.limits, &common.memory),
            deadline,
            outbox,
            result: None,
            wasi: None,
            process: None,
            http: None,
            table,
            common: Arc::clone(common),
        }
    }

    /// What the host had too few of for this run.
    pub(super) fn shortage(&self) -> Option<&'static str> {
        let (_, requests) = self.http.as_ref()?;
        requests.shortage()
    }
}

/// Gives guests all that a host has; what is not allowed is refused when it is called.
pub(super) fn link(kind: EngineKind, linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    Consumer::add_to_linker::<_, HasSelf<_>>(linker, |state| state)?;
    Wasmcloud::add_to_linker::<_, HasSelf<_>>(linker, |state: &mut State| state)?;
    SpinRedis::add_to_linker::<_, HasSelf<_>>(linker, |state: &mut State| state)?;
    // Sockets are refused where they are made, so that each try is counted and none takes a file
    // descriptor.
    linker.allow_shadowing(true);
    tcp_create_socket::add_to_linker::<_, HasSelf<_>>(linker, |state: &mut State| state)?;
    udp_create_socket::add_to_linker::<_, HasSelf<_>>(linker, |state: &mut State| state)?;
    requests::bound(linker)?;
    linker.allow_shadowing(false);
    match kind {
        EngineKind::Sync => Ok(()),
        EngineKind::Async => of_async::link(linker),
    }
}

/// No files, no network, no arguments; what a program starts with, or an empty stdin.
fn wasi(log: &GuestLog, common: &SharedContext, process: Option<Process>) -> WasiCtx {
    let random_max = u64::try_from(common.limits.call_bytes).unwrap_or(u64::MAX);
    let Process { stdin, mut env } = process.unwrap_or_default();
    let ours = [&common.permissions.env, &common.permissions.secrets];
    let is_ours = |name: &String| ours.iter().any(|list| list.iter().any(|(n, _)| n == name));
    // What a message brings takes the place of nothing that the host gives.
    env.retain(|(name, _)| !is_ours(name));
    WasiCtxBuilder::new()
        .stdin(MemoryInputPipe::new(stdin))
        .envs(&env)
        .stdout(log.stream(Source::Stdout))
        .stderr(log.stream(Source::Stderr))
        .envs(&common.permissions.env)
        .envs(&common.permissions.secrets)
        .max_random_size(random_max)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .build()
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let (log, common, process) = (&self.log, &self.common, &mut self.process);
        WasiCtxView {
            ctx: self
                .wasi
                .get_or_insert_with(|| wasi(log, common, process.take())),
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let (log, common, outbox) = (&self.log, &self.common, &self.outbox);
        let (ctx, hooks) = self.http.get_or_insert_with(|| {
            let requests = Requests::new(Arc::clone(&common.web), log.clone(), outbox);
            let mut ctx = WasiHttpCtx::new();
            ctx.set_field_size_limit(FIELDS_MAX);
            (ctx, requests)
        });
        WasiHttpCtxView {
            ctx,
            hooks,
            table: &mut self.table,
        }
    }
}

/// What the two interfaces below stand on.
impl network::Host for State {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn network_error_code(
        &mut self,
        _error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(None)
    }
}

impl network::HostNetwork for State {
    fn drop(&mut self, network: Resource<network::Network>) -> wasmtime::Result<()> {
        self.table.delete(network)?;
        Ok(())
    }
}

impl tcp_create_socket::Host for State {
    fn create_tcp_socket(&mut self, _family: IpAddressFamily) -> SocketResult<Resource<TcpSocket>> {
        self.log.refuse("refused: a TCP socket");
        Err(ErrorCode::AccessDenied.into())
    }
}

impl udp_create_socket::Host for State {
    async fn create_udp_socket(
        &mut self,
        _family: IpAddressFamily,
    ) -> SocketResult<Resource<UdpSocket>> {
        self.log.refuse("refused: a UDP socket");
        Err(ErrorCode::AccessDenied.into())
    }
}

impl dqhost::queue::types::Host for State {}
impl wasmcloud::messaging::types::Host for State {}
impl fermyon::spin::redis_types::Host for State {}

impl dqhost::queue::delivery::Host for State {
    fn remaining_ms(&mut self) -> wasmtime::Result<u64> {
        Ok(millis(self.deadline.remaining()))
    }

    fn extend(&mut self, ms: u64) -> wasmtime::Result<u64> {
        Ok(millis(self.deadline.extend(Duration::from_millis(ms))))
    }
}

impl dqhost::queue::outbox::Host for State {
    fn send(&mut self, msg: NewMessage) -> wasmtime::Result<Result<String, SendError>> {
        let SharedContext {
            limits,
            permissions,
            ..
        } = &*self.common;
        Ok(self.outbox.take(msg, limits, permissions, &self.log))
    }
}

impl dqhost::queue::result::Host for State {
    fn set(&mut self, bytes: Vec<u8>) -> wasmtime::Result<Result<(), SetError>> {
        let max = self.common.limits.result_bytes;
        if bytes.len() > max {
            let over = format!("refused: a result of more than {max} bytes (--limit result-bytes)");
            self.log.refuse(&over);
            return Ok(Err(SetError::TooLarge(max as u64)));
        }
        self.result = Some(bytes);
        Ok(Ok(()))
    }
}

impl wasi::logging::logging::Host for State {
    fn log(&mut self, level: WitLevel, context: String, message: String) -> wasmtime::Result<()> {
        let level = match level {
            WitLevel::Trace => Level::Trace,
            WitLevel::Debug => Level::Debug,
            WitLevel::Info => Level::Info,
            WitLevel::Warn => Level::Warn,
            WitLevel::Error => Level::Error,
            WitLevel::Critical => Level::Critical,
        };
        self.log.log(level, &context, &message);
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
