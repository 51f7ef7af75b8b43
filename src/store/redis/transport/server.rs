//! How a server is reached: its address, what TLS needs, and the password. What is in files is read for
//! each new connection, so that a certificate or a password that is replaced is taken up by itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redis::{
    Client as RedisClient, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult, TlsCertificates,
};

use self::sentinel::Sentinels;
use crate::files;
use crate::store::address::Endpoints;
use crate::store::{StoreError, StoreResult};

mod sentinel;

/// The most bytes of a file with a password.
const PASSWORD_MAX: u64 = 4096;

/// The most bytes of a file with certificates or a key: bundles of all public roots have 250 KB.
const PEM_MAX: u64 = 1024 * 1024;

/// What a certificate in a PEM file starts with.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// What a server wants before it answers, beside what is in its URL.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// PEM file of the CAs to trust, instead of the public ones.
    pub ca: Option<PathBuf>,
    /// PEM file of the client's certificate, with its chain. Together with `key`.
    pub cert: Option<PathBuf>,
    /// PEM file of the key of `cert`.
    pub key: Option<PathBuf>,
    /// A file with the password and nothing else, but for a line end.
    pub password_file: Option<PathBuf>,
    /// Where the addresses that are connected to are noted.
    pub endpoints: Endpoints,
}

/// A host and a port.
pub(crate) type Node = (String, u16);

/// A place to connect to; none is the one in the URL.
pub(crate) type NodeAddr = Option<Node>;

/// One server or a cluster, however many connections there are to it.
pub(crate) struct Server {
    /// From the URL.
    info: ConnectionInfo,
    /// Those that know its address, if it is not in the URL.
    sentinels: Option<Sentinels>,
    access: Access,
    /// How operators and errors name it; without secrets.
    pub name: Arc<str>,
}

/// What can be told from a URL alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UrlFacts {
    /// Hosts and ports that it names; none for a socket of this machine.
    pub endpoints: Vec<(String, u16)>,
    /// A password is in it.
    pub has_password: bool,
    /// What is said goes through TLS.
    pub has_tls: bool,
}

/// What the URL of a server tells; nothing when it is not understood.
#[must_use]
pub fn facts(url: &str) -> UrlFacts {
    let Ok((info, sentinels)) = parse(url) else {
        return UrlFacts::default();
    };
    let has_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    let endpoints = match (sentinels, info.addr()) {
        (Some(sentinels), _) => sentinels.nodes().to_vec(),
        (None, ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) => {
            vec![(host.clone(), *port)]
        }
        (None, _) => Vec::new(),
    };
    UrlFacts {
        endpoints,
        has_password: info.redis_settings().password().is_some(),
        has_tls,
    }
}

/// The parts of a URL, or what is wrong with it; never the URL itself.
fn parse(url: &str) -> Result<(ConnectionInfo, Option<Sentinels>), String> {
    for scheme in ["redis", "rediss"] {
        let rest = url.strip_prefix(scheme);
        if let Some(rest) = rest.and_then(|rest| rest.strip_prefix("+sentinel://")) {
            let (info, sentinels) = sentinel::parse(scheme, rest).map_err(|what| {
                format!("{what}; give {scheme}+sentinel://HOST:PORT,HOST:PORT/MASTER/DB")
            })?;
            return Ok((info, Some(sentinels)));
        }
    }
    let info = url.into_connection_info().map_err(|error| {
        let what = error.detail().unwrap_or("it is not understood");
        format!("{what}; give redis://HOST:PORT/DB")
    })?;
    Ok((info, None))
}

/// A mistake of the operator's, in a form that [`super::faults::store_error`] shows as it is.
pub(crate) fn mistake(what: String) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "cannot be used", what))
}

async fn read(path: &Path, what: &str, max: u64) -> RedisResult<Vec<u8>> {
    let fail = |reason: String| mistake(format!("{what} {}: {reason}", path.display()));
    let named = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || files::read_named(&named, max));
    let read = reading.await.map_err(|error| fail(error.to_string()))?;
    let bytes = read.map_err(|error| fail(error.to_string()))?;
    if bytes.len() as u64 > max {
        return Err(fail(format!("it has more than {max} bytes")));
    }
    Ok(bytes)
}

async fn read_certificates(path: &Path, what: &str) -> RedisResult<Vec<u8>> {
    let pem = read(path, what, PEM_MAX).await?;
    if !pem.windows(BEGIN.len()).any(|part| part == BEGIN) {
        let what = format!("{what} {}: no certificate is in it", path.display());
        return Err(mistake(what));
    }
    Ok(pem)
}

/// What is in the file, without the line end that editors put there.
async fn password(path: &Path) -> RedisResult<String> {
    let what = "the password file";
    let fail = |reason: &str| mistake(format!("{what} {}: {reason}", path.display()));
    let text = String::from_utf8(read(path, what, PASSWORD_MAX).await?)
        .map_err(|_| fail("it is not text"))?;
    files::warn_if_public("the password file", path);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(fail("it is empty"));
    }
    Ok(text.to_owned())
}

impl Server {
    pub(crate) fn new(url: &str, access: Access) -> StoreResult<Self> {
        let (info, sentinels) = parse(url).map_err(|reason| StoreError::Unusable {
            store: "the Redis URL".to_owned(),
            reason,
        })?;
        let name = match (&sentinels, info.addr()) {
            (Some(sentinels), ConnectionAddr::TcpTls { .. }) => {
                format!("rediss+sentinel://{}", sentinels.name())
            }
            (Some(sentinels), _) => format!("redis+sentinel://{}", sentinels.name()),
            (None, ConnectionAddr::Tcp(host, port)) => format!("redis://{host}:{port}"),
            (None, ConnectionAddr::TcpTls { host, port, .. }) => format!("rediss://{host}:{port}"),
            (None, ConnectionAddr::Unix(path)) => format!("unix://{}", path.display()),
            (None, _) => "redis".to_owned(),
        };
        let name = match info.redis_settings().db() {
            0 => name,
            db => format!("{name}/{db}"),
        };
        Ok(Self {
            info,
            sentinels,
            access,
            name: name.into(),
        })
    }

    /// What makes one connection, to a node of a cluster or to whatever the URL leads to now, with what
    /// the files hold now.
    pub(crate) async fn client(&self, node: Option<&Node>) -> RedisResult<RedisClient> {
        let addr = match (node, &self.sentinels) {
            (Some(node), _) => self.addr(node),
            (None, Some(sentinels)) => self.addr(&sentinels.master(self).await?),
            (None, None) => self.info.addr().clone(),
        };
        let mut settings = self.info.redis_settings().clone();
        if let Some(path) = &self.access.password_file {
            settings = settings.set_password(password(path).await?);
        }
        self.client_at(addr, settings).await
    }

    /// What makes a connection to a sentinel. It has no password of its own.
    pub(crate) async fn sentinel(&self, node: &Node) -> RedisResult<RedisClient> {
        self.client_at(self.addr(node), RedisConnectionInfo::default())
            .await
    }

    /// Keeps handlers away from an address.
    pub(crate) fn note(&self, (host, port): &Node) {
        self.access.endpoints.add(host, *port);
    }

    /// An address that is reached like the one in the URL.
    fn addr(&self, (host, port): &Node) -> ConnectionAddr {
        let (host, port) = (host.clone(), *port);
        match self.info.addr() {
            ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        }
    }

    async fn client_at(
        &self,
        addr: ConnectionAddr,
        settings: RedisConnectionInfo,
    ) -> RedisResult<RedisClient> {
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } = &addr {
            self.note(&(host.clone(), *port));
        }
        let has_tls = matches!(addr, ConnectionAddr::TcpTls { .. });
        let info = self
            .info
            .clone()
            .set_addr(addr)
            .set_redis_settings(settings);
        if has_tls {
            RedisClient::build_with_tls(info, self.certificates().await?)
                .map_err(|error| mistake(format!("the files for TLS: {error}")))
        } else {
            RedisClient::open(info)
        }
    }

    async fn certificates(&self) -> RedisResult<TlsCertificates> {
        let Access { ca, cert, key, .. } = &self.access;
        let root_cert = match ca {
            Some(path) => Some(read_certificates(path, "the file of --redis-ca").await?),
            None => None,
        };
        let client_tls = match (cert, key) {
            (Some(cert), Some(key)) => {
                files::warn_if_public("the key of --redis-key", key);
                Some(ClientTlsConfig {
                    client_cert: read_certificates(cert, "the file of --redis-cert").await?,
                    client_key: read(key, "the file of --redis-key", PEM_MAX).await?,
                })
            }
            (None, None) => None,
            _ => {
                let what = "a client certificate and its key are given together";
                return Err(mistake(what.to_owned()));
            }
        };
        Ok(TlsCertificates {
            client_tls,
            root_cert,
        })
    }
}
