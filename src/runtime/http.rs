//! The HTTP requests of handlers: to the places that are allowed, at addresses that are checked
//! when they are dialled, within limits. A connection a request; redirects are the guest's own to
//! follow.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::BodyExt;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use super::connections::{Connections, Register};
use super::guest_log::GuestLog;
use super::limits::Limits;
use super::permissions::{Permissions, Scheme, Target, is_this_machine, stands_for};
use super::run_lines::of_this_run;
use super::timed::Timed;

/// Bytes of a request's body that are on their way at a time.
const BODY_CHUNK: usize = 4 * 1024;

/// Bytes of a method that are shown.
const METHOD_SHOWN: usize = 20;

/// Bytes that a request's or a response's headers may take, roughly.
pub(super) const FIELDS_MAX: usize = 32 * 1024;

/// Bytes that are read ahead of a response.
const READ_AHEAD: usize = 64 * 1024;

/// Names that are looked up at a time: a look-up cannot be stopped, only left behind.
const LOOKUPS_MAX: usize = 32;

/// Why an address is refused.
const THE_STORE: &str = "the store's own address";
const NOT_PUBLIC: &str =
    "not public, or this machine's own; --allow-http has to name the address or its network";

/// A future on its way to wasmtime.
type Boxed<T> = Box<dyn Future<Output = T> + Send>;

/// What a request becomes: the response, and what drives the rest of its connection.
type Exchange = (http::Response<WasiBody>, Boxed<Result<(), Error>>);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What all handlers of a host have in common.
pub(super) struct HttpClient {
    permissions: Arc<Permissions>,
    limits: Limits,
    connections: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    /// Made when the first request needs it.
    tls: OnceLock<TlsConnector>,
}

/// The requests of one run.
pub(super) struct Requests {
    web: Arc<HttpClient>,
    log: GuestLog,
    made: usize,
    connections: Connections,
}

impl Requests {
    pub(super) fn new(web: Arc<HttpClient>, log: GuestLog) -> Self {
        Self {
            web,
            log,
            made: 0,
            connections: Connections::default(),
        }
    }
}

impl WasiHttpHooks for Requests {
    /// A request that is never made keeps as much as its body's stream takes: two of these.
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Boxed<Result<(), Error>>,
    ) -> Boxed<Result<Exchange, Error>> {
        self.made += 1;
        let (web, log, number) = (Arc::clone(&self.web), self.log.clone(), self.made);
        let register = self.connections.register();
        Box::new(of_this_run(async move {
            let max = web.limits.http_requests;
            if number > max {
                log.refuse(&format!(
                    "refused: more than {max} HTTP requests (--limit http-requests)"
                ));
                return Err(Error::ConnectionLimitReached);
            }
            let options = options.unwrap_or_default();
            web.send(request, options, &register, &log).await
        }))
    }
}

impl HttpClient {
    pub(super) fn new(permissions: Arc<Permissions>, limits: Limits) -> Self {
        Self {
            permissions,
            limits,
            connections: Arc::new(Semaphore::new(limits.http_connections)),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            tls: OnceLock::new(),
        }
    }

    async fn send(
        &self,
        mut request: http::Request<WasiBody>,
        options: RequestOptions,
        register: &Register,
        log: &GuestLog,
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
        let connect = within(Some(
            options
                .connect_timeout
                .unwrap_or(self.limits.http_connect)
                .min(self.limits.http_connect),
        ));
        let connected = timeout_at(connect, async {
            let place = Arc::clone(&self.connections).acquire_owned().await;
            let place = place.map_err(|_| Error::ConnectionLimitReached)?;
            Ok::<_, Error>((place, self.connect(&target, register, log).await?))
        });
        let (place, stream) = connected.await.map_err(|_| Error::ConnectionTimeout)??;
        // What is sent names the path alone; the host is in its header.
        *request.uri_mut() = request
            .uri()
            .path_and_query()
            .map_or(Ok(http::Uri::from_static("/")), |path| {
                http::Uri::builder().path_and_query(path.clone()).build()
            })
            .map_err(|_| Error::HttpRequestUriInvalid)?;
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(READ_AHEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        // Ends when it is dropped, at the latest with the guest, and when its time is over: a body that
        // the guest does not read keeps no connection.
        let connection = wasmtime_wasi::runtime::spawn(of_this_run(async move {
            let _place = place;
            timeout_at(end, connection).await
        }));
        let response = timeout_at(
            within(options.first_byte_timeout),
            sender.send_request(request),
        )
        .await
        .map_err(|_| Error::ConnectionReadTimeout)?
        // Its connection may have ended with its time, a moment before.
        .map_err(|error| {
            if Instant::now() < end {
                broken(&error)
            } else {
                Error::ConnectionReadTimeout
            }
        })?;
        let between = options.between_bytes_timeout;
        let response = response.map(|body| Timed::new(body, between, end).boxed_unsync());
        let rest = async move {
            // The body has told what went wrong.
            let _ = connection.await;
            Ok(())
        };
        Ok((response, Box::new(rest)))
    }

    /// A connection to one of the addresses of the target that may be reached.
    async fn connect(
        &self,
        target: &Target,
        register: &Register,
        log: &GuestLog,
    ) -> Result<Box<dyn Stream>, Error> {
        let found = self.addresses(&target.host, target.port).await?;
        let never = self.never(target.port).await?;
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
        match target.scheme {
            Scheme::Http => Ok(Box::new(stream)),
            Scheme::Https => {
                let name = ServerName::try_from(target.host.clone())
                    .map_err(|_| Error::HttpRequestUriInvalid)?;
                let stream = self.tls().connect(name, stream).await;
                Ok(Box::new(stream.map_err(|error| not_trusted(&error))?))
            }
        }
    }

    /// What a name resolves to.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let not_found = || Error::DnsError {
            rcode: None,
            info_code: None,
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let turn = Arc::clone(&self.lookups).acquire_owned().await;
        let (turn, host) = (turn.map_err(|_| not_found())?, host.to_owned());
        let lookup = tokio::task::spawn_blocking(move || {
            // Kept until the system has answered, whoever still waits for that.
            let _turn = turn;
            (host.as_str(), port)
                .to_socket_addrs()
                .map(Iterator::collect)
        });
        let found = lookup.await.map_err(|_| not_found())?;
        found.map_err(|_| not_found())
    }

    /// The store's addresses, as far as its port is the one that is wanted. While they cannot be
    /// told, nothing at that port can be reached.
    async fn never(&self, port: u16) -> Result<StoreAddresses, Error> {
        let mut all = Vec::new();
        for host in self.permissions.never.at_port(port) {
            let found = self.addresses(&host, port).await?;
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

    /// Trusts what this machine trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` included), or the roots
    /// of Mozilla when it has none.
    fn tls(&self) -> &TlsConnector {
        self.tls.get_or_init(|| {
            let mut roots = rustls::RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("the provider is one of rustls and has its default versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
            TlsConnector::from(Arc::new(config))
        })
    }
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

pub(super) fn broken(error: &hyper::Error) -> Error {
    if error.is_parse() {
        Error::HttpProtocolError
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else {
        Error::ConnectionTerminated
    }
}
