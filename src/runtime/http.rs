//! The HTTP requests of handlers: to the places that are allowed, at addresses that are checked when they are
//! dialled, within limits. A connection a request; redirects are the guest's own to follow.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::connections::{Connections, Cut, Register};
use super::exchange::{Boxed, Connected, Exchange, Stream, Times, exchange};
use super::guest_log::GuestLog;
use super::limits::Limits;
use super::outbox::Outbox;
use super::permissions::{Permissions, Scheme, Target, is_this_machine, stands_for};
use super::run_lines::of_this_run;
use super::shares::{Held, KnownQueue, RunShare, Shares};
use super::trace::Trace;
use crate::tls_roots::tls;

/// Bytes of a request's body that are on their way at a time.
const BODY_CHUNK: usize = 4 * 1024;

/// Bytes of a method that are shown.
const METHOD_SHOWN: usize = 20;

/// Bytes that a request's or a response's headers may take, roughly.
pub(super) const FIELDS_MAX: usize = 32 * 1024;

/// Names that are looked up at a time: a look-up cannot be stopped, only left behind.
const LOOKUPS_MAX: usize = 32;

/// Why an address is refused.
const THE_STORE: &str = "the store's own address";
const NOT_PUBLIC: &str =
    "not public, or this machine's own; --allow-http has to name the address or its network";

/// How handlers with the same permissions and limits make requests.
pub(super) struct HttpClient {
    permissions: Arc<Permissions>,
    limits: Limits,
    connections: Arc<Shares>,
    lookups: Arc<Shares>,
    /// Where connections are driven; where the run is, if nobody has said so.
    threads: OnceLock<tokio::runtime::Handle>,
    /// Made when the first request needs it.
    tls: Arc<OnceLock<TlsConnector>>,
}

/// The requests of one run.
pub(super) struct Requests {
    web: Arc<HttpClient>,
    log: GuestLog,
    made: usize,
    connections: Connections,
    shares: RunShares,
    trace: Trace,
}

/// What others leave for the runs of a queue, as long as this is there.
#[derive(Debug)]
pub(crate) struct QueueShares {
    _connections: KnownQueue,
    _lookups: KnownQueue,
}

/// What the run has of the host's connections and name look-ups.
#[derive(Clone)]
struct RunShares {
    connections: Arc<RunShare>,
    lookups: Arc<RunShare>,
}

impl Requests {
    /// Of a run that has this outbox.
    pub(super) fn new(web: Arc<HttpClient>, log: GuestLog, outbox: &Outbox) -> Self {
        let queue = outbox.queue();
        let shares = RunShares {
            connections: web.connections.run_of(queue),
            lookups: web.lookups.run_of(queue),
        };
        Self {
            web,
            log,
            made: 0,
            connections: Connections::default(),
            shares,
            trace: outbox.trace().clone(),
        }
    }

    /// What the host had too few of for this run.
    pub(super) fn shortage(&self) -> Option<&'static str> {
        if self.shares.connections.was_short() {
            Some("HTTP connection")
        } else if self.shares.lookups.was_short() {
            Some("name look-up")
        } else {
            None
        }
    }
}

impl WasiHttpHooks for Requests {
    /// A request that is never made keeps as much as its body's stream takes: two of these.
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }
    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }

    fn send_request(
        &mut self,
        mut request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Boxed<Result<(), Error>>,
    ) -> Boxed<Result<Exchange, Error>> {
        self.made += 1;
        self.trace.enter_request(request.headers_mut());
        let (web, log, number) = (Arc::clone(&self.web), self.log.clone(), self.made);
        let register = self.connections.register();
        let shares = self.shares.clone();
        Box::new(of_this_run(async move {
            let max = web.limits.http_requests;
            if number > max {
                log.refuse(&format!(
                    "refused: more than {max} HTTP requests (--limit http-requests)"
                ));
                return Err(Error::ConnectionLimitReached);
            }
            let options = options.unwrap_or_default();
            let threads = web.threads.get().cloned();
            let sent = async move { web.send(request, options, shares, (register, log)).await };
            let Some(threads) = threads else {
                return sent.await;
            };
            let sent = AbortOnDropHandle::new(threads.spawn(of_this_run(sent))).await;
            sent.map_err(|error| Error::InternalError(Some(error.to_string())))?
        }))
    }
}

impl HttpClient {
    /// For up to `runs` runs at a time.
    pub(super) fn new(permissions: Arc<Permissions>, limits: Limits, runs: usize) -> Self {
        Self {
            permissions,
            limits,
            connections: Shares::new(limits.http_connections, runs),
            lookups: Shares::new(LOOKUPS_MAX, runs),
            threads: OnceLock::new(),
            tls: Arc::default(),
        }
    }

    /// For a handler with permissions and limits of its own, which shares connections and name look-ups.
    pub(super) fn with(&self, permissions: Arc<Permissions>, limits: Limits) -> Self {
        Self {
            permissions,
            limits,
            connections: Arc::clone(&self.connections),
            lookups: Arc::clone(&self.lookups),
            threads: self.threads.clone(),
            tls: Arc::clone(&self.tls),
        }
    }

    /// Makes a queue known, so that others leave a share for its runs before its first one, and says
    /// where connections are driven.
    pub(super) fn serves(&self, queue: &str, threads: &tokio::runtime::Handle) -> QueueShares {
        self.threads.get_or_init(|| threads.clone());
        QueueShares {
            _connections: self.connections.add_queue(queue),
            _lookups: self.lookups.add_queue(queue),
        }
    }

    async fn send(
        &self,
        request: http::Request<WasiBody>,
        options: RequestOptions,
        shares: RunShares,
        (register, log): (Register, GuestLog),
    ) -> Result<Exchange, Error> {
        let end = Instant::now() + self.limits.http_total;
        let within = |limit: Option<Duration>| {
            let limit = limit.unwrap_or(self.limits.http_total);
            Instant::now().checked_add(limit).unwrap_or(end).min(end)
        };
        let target = target_of(request.uri()).ok_or(Error::HttpRequestUriInvalid)?;
        if !self.permissions.allows(&target) {
            log.refuse(&format!(
                "refused: {} {target} is not allowed (--allow-http)",
                log.shown(request.method().as_str(), METHOD_SHOWN)
            ));
            return Err(Error::HttpRequestDenied);
        }
        let connect = self.limits.http_connect;
        let connect = Some(options.connect_timeout.unwrap_or(connect).min(connect));
        // Each wait for a share has the time of a connection for itself: what other handlers hold is
        // not the fault of the server.
        let timed_out = |_| Error::ConnectionTimeout;
        let share = timeout_at(within(connect), shares.connections.take());
        let share = share.await.map_err(timed_out)?;
        let turn = if self.looks_up(&target) {
            let turn = timeout_at(within(connect), shares.lookups.take());
            Some(Arc::new(turn.await.map_err(timed_out)?))
        } else {
            None
        };
        let stream = timeout_at(
            within(connect),
            self.connect(&target, turn, &register, &log),
        );
        let (stream, cut) = stream.await.map_err(timed_out)??;
        let times = Times {
            first_byte: within(options.first_byte_timeout),
            between_bytes: options.between_bytes_timeout,
            end,
        };
        let connected = Connected { stream, cut, share };
        exchange(connected, request, times).await
    }

    /// True if names have to be looked up before this target can be dialled.
    fn looks_up(&self, target: &Target) -> bool {
        let mut hosts = self.permissions.never.at_port(target.port);
        hosts.push(target.host.clone());
        hosts.iter().any(|host| host.parse::<IpAddr>().is_err())
    }

    /// A connection to one of the addresses of the target that may be reached.
    async fn connect(
        &self,
        target: &Target,
        turn: Option<Arc<Held>>,
        register: &Register,
        log: &GuestLog,
    ) -> Result<(Box<dyn Stream>, Cut), Error> {
        let found = addresses(&target.host, target.port, turn.clone()).await?;
        let never = self.never(target.port, turn).await?;
        let refusal = |address: IpAddr| self.refusal(target, address, &never);
        let allowed = found.iter().filter(|one| refusal(one.ip()).is_none());
        let allowed: Vec<SocketAddr> = allowed.copied().collect();
        let refused = |address: IpAddr, why: &str| {
            log.refuse(&format!("refused: {target} is {address}: {why}"));
            Error::DestinationIpProhibited
        };
        if allowed.is_empty() {
            let address = found.first().ok_or(Error::DestinationNotFound)?.ip();
            return Err(refused(address, refusal(address).unwrap_or(NOT_PUBLIC)));
        }
        // Tries one after another.
        let stream = TcpStream::connect(allowed.as_slice())
            .await
            .map_err(|error| not_connected(&error))?;
        // Routes may lead to this machine in ways that addresses do not tell.
        if let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr())
            && local.ip() == peer.ip()
        {
            let is_named = |one: &SocketAddr| self.permissions.names_address(target, one.ip());
            if never.is_here {
                return Err(refused(peer.ip(), THE_STORE));
            }
            if !is_named(&peer) && !allowed.iter().any(is_named) {
                return Err(refused(peer.ip(), NOT_PUBLIC));
            }
        }
        let _ = stream.set_nodelay(true);
        let stream = register.add(stream).ok_or(Error::ConnectionTerminated)?;
        let cut = stream.cut();
        match target.scheme {
            Scheme::Http => Ok((Box::new(stream), cut)),
            Scheme::Https => {
                let name = ServerName::try_from(target.host.clone())
                    .map_err(|_| Error::HttpRequestUriInvalid)?;
                let stream = self.tls().connect(name, stream).await;
                let stream = stream.map_err(|error| not_trusted(&error))?;
                Ok((Box::new(stream), cut))
            }
        }
    }

    /// The store's addresses, as far as its port is the one that is wanted. While they cannot be
    /// told, nothing at that port can be reached.
    async fn never(&self, port: u16, turn: Option<Arc<Held>>) -> Result<StoreAddresses, Error> {
        let mut all = Vec::new();
        for host in self.permissions.never.at_port(port) {
            let found = addresses(&host, port, turn.clone()).await?;
            all.extend(found.iter().map(|address| stands_for(address.ip())));
        }
        Ok(StoreAddresses {
            is_here: all.iter().any(|address| is_this_machine(*address)),
            all,
        })
    }

    /// Why this address is not connected to, if it is not.
    fn refusal(
        &self,
        target: &Target,
        address: IpAddr,
        never: &StoreAddresses,
    ) -> Option<&'static str> {
        if never.contain(address) {
            Some(THE_STORE)
        } else if self.permissions.allows_address(target, address) {
            None
        } else {
            Some(NOT_PUBLIC)
        }
    }

    fn tls(&self) -> &TlsConnector {
        self.tls.get_or_init(|| TlsConnector::from(tls()))
    }
}

/// What a name resolves to. The turn is kept until the system has answered, whoever still waits for
/// that: a look-up cannot be stopped.
async fn addresses(
    host: &str,
    port: u16,
    turn: Option<Arc<Held>>,
) -> Result<Vec<SocketAddr>, Error> {
    let not_found = || Error::DnsError {
        rcode: None,
        info_code: None,
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    let lookup = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        (host.as_str(), port)
            .to_socket_addrs()
            .map(Iterator::collect)
    });
    let found = lookup.await.map_err(|_| not_found())?;
    found.map_err(|_| not_found())
}

/// Where the store is, at one port.
struct StoreAddresses {
    all: Vec<IpAddr>,
    /// It is on this machine, so each address of this machine may lead to it.
    is_here: bool,
}

impl StoreAddresses {
    fn contain(&self, address: IpAddr) -> bool {
        self.all.contains(&stands_for(address)) || self.is_here && is_this_machine(address)
    }
}

fn target_of(uri: &http::Uri) -> Option<Target> {
    let scheme = match uri.scheme_str()? {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    // Who is named before an @ is not the host.
    let authority = uri.authority().filter(|a| !a.as_str().contains('@'))?;
    Some(Target::of(scheme, authority.host(), authority.port_u16()))
}

fn not_connected(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Error::DestinationIpUnroutable
        }
        _ => Error::DestinationUnavailable,
    }
}

fn not_trusted(error: &io::Error) -> Error {
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => Error::TlsCertificateError,
        Some(_) => Error::TlsProtocolError,
        None => Error::ConnectionTerminated,
    }
}
