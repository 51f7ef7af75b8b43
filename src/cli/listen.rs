//! The HTTP API as the command line sets it up: beside a host, or alone.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context;
use clap::Args;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::passed_sockets::PassedSockets;
use super::service::Progress;
use super::watched::Kept;
use super::{StoreArgs, Usage, number, open};
use crate::files;
use crate::http_api::{
    Certificate, FILE_MAX, HostView, HttpApi, ListenAddr, Listener, OpenSocket, Tokens, WebhookKeys,
};
use crate::message::PAYLOAD_MAX_DEFAULT;
use crate::spans::Spans;
use crate::store::Store;
use crate::store::address::Endpoints;

/// Threads of the HTTP API.
const THREADS: usize = 2;

/// Bytes of a file with certificates or a key.
const PEM_MAX: u64 = 1024 * 1024;

/// Where the HTTP API listens, and to whom.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP API")]
pub(super) struct ListenArgs {
    /// Serve the HTTP API at this address
    ///
    /// Use IP:PORT, localhost:PORT or unix:PATH. `dqhost serve` uses 127.0.0.1:7420 if you omit it.
    /// Other machines can connect only if you give --tokens. systemd is the socket that a service
    /// manager passes, and systemd:NAME the one of this name.
    #[arg(long, value_name = "ADDR", env = "DQHOST_LISTEN")]
    pub listen: Option<ListenAt>,
    /// Let in only the tokens of this file
    ///
    /// `dqhost token new` makes a token and its line for the file. The file is read again when it
    /// changes.
    #[arg(long, value_name = "FILE", env = "DQHOST_TOKENS")]
    pub tokens: Option<PathBuf>,
    /// Take messages that senders of this file have signed
    ///
    /// They need no token. As Standard Webhooks has it, at /queues/QUEUE/webhooks. A line of the file is NAME
    /// QUEUE[,QUEUE] whsec_SECRET. The file is read again when it changes.
    #[arg(long, value_name = "FILE", env = "DQHOST_WEBHOOKS")]
    pub webhooks: Option<PathBuf>,
    /// Speak TLS with the certificate of this file, in PEM
    ///
    /// The certificates that lead to its issuer follow it. The file is read again when it changes.
    #[arg(long, value_name = "FILE", env = "DQHOST_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", env = "DQHOST_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Refuse a payload of more bytes over HTTP
    #[arg(long, value_name = "BYTES", default_value_t = PAYLOAD_MAX_DEFAULT,
        env = "DQHOST_MAX_PAYLOAD", value_parser = number::from::<usize>(0..=1 << 30))]
    pub max_payload: usize,
}

/// What `--listen` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListenAt {
    Address(ListenAddr),
    /// A socket that the service manager passes: the only one, or the one of this name.
    Passed(Option<String>),
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "systemd" => Ok(Self::Passed(None)),
            Some(("systemd", "")) => {
                Err("the name of the socket is missing: use systemd or systemd:NAME".to_owned())
            }
            Some(("systemd", name)) => Ok(Self::Passed(Some(name.to_owned()))),
            _ => match text.parse() {
                Ok(address) => Ok(Self::Address(address)),
                Err(error) => Err(format!("{error}, or systemd")),
            },
        }
    }
}

/// Where the HTTP API will listen, and to whom.
pub(super) struct Listen {
    args: ListenArgs,
    place: Place,
}

enum Place {
    Address(ListenAddr),
    Socket(OpenSocket),
}

impl Place {
    fn address(&self) -> &ListenAddr {
        match self {
            Self::Address(address) => address,
            Self::Socket(socket) => socket.address(),
        }
    }

    fn listen(self) -> io::Result<Listener> {
        match self {
            Self::Address(address) => Listener::bind(&address),
            Self::Socket(socket) => Listener::on(socket),
        }
    }
}

impl ListenArgs {
    /// Where `--listen` says, if it is given. Refuses what does nothing without it.
    pub(super) fn if_given(&self, sockets: PassedSockets) -> Result<Option<Listen>, Usage> {
        self.check_pairs()?;
        let alone = |flag| Usage(format!("{flag} is for --listen: give it as well"));
        match &self.listen {
            Some(at) => self.at(at, sockets).map(Some),
            None if self.tokens.is_some() => Err(alone("--tokens")),
            None if self.webhooks.is_some() => Err(alone("--webhooks")),
            None if self.tls_cert.is_some() => Err(alone("--tls-cert")),
            None => sockets.refuse().map(|()| None),
        }
    }

    /// Listens there. Refuses what would let other machines in without a token.
    pub(super) fn at(&self, at: &ListenAt, sockets: PassedSockets) -> Result<Listen, Usage> {
        self.check_pairs()?;
        let place = match at {
            ListenAt::Address(address) => {
                sockets.refuse()?;
                Place::Address(address.clone())
            }
            ListenAt::Passed(name) => Place::Socket(sockets.take(name.as_deref())?),
        };
        let args = self.clone();
        match place.address() {
            address if !address.is_local() && self.tokens.is_none() => Err(Usage(format!(
                "other machines can connect to {address}: give --tokens FILE, or listen on \
                 127.0.0.1:PORT or unix:PATH"
            ))),
            ListenAddr::Unix(_) if self.tls_cert.is_some() => Err(Usage(
                "a Unix socket has no TLS: leave --tls-cert and --tls-key out".to_owned(),
            )),
            _ => Ok(Listen { args, place }),
        }
    }

    fn check_pairs(&self) -> Result<(), Usage> {
        if self.tls_cert.is_some() == self.tls_key.is_some() {
            return Ok(());
        }
        Err(Usage(
            "TLS needs a certificate and its key: give both --tls-cert and --tls-key".to_owned(),
        ))
    }
}

/// The HTTP API at work, on threads of its own.
pub(super) struct Listening {
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
    address: ListenAddr,
    /// The same with its scheme, for operators.
    url: String,
    /// None until it is opened.
    store: Option<Arc<dyn Store>>,
}

/// Listens; the store is opened on the threads of the API.
pub(super) async fn start(
    Listen { args, place }: Listen,
    store: impl Future<Output = anyhow::Result<Arc<dyn Store>>> + Send + 'static,
    host: Option<HostView>,
    spans: Spans,
) -> anyhow::Result<Listening> {
    let tokens = args.tokens.map(tokens).transpose()?;
    let webhook_keys = args.webhooks.map(webhook_keys).transpose()?;
    let certificate = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(certificate(cert, key)?),
        _ => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("http api")
        .enable_all()
        .build()
        .context("no threads for the HTTP API")?;
    let (stop, stopped) = watch::channel(false);
    let mut listening = Listening {
        served: runtime.spawn(std::future::ready(())),
        runtime: Some(runtime),
        stop,
        address: place.address().clone(),
        url: String::new(),
        store: None,
    };
    let Some(runtime) = &listening.runtime else {
        return Ok(listening);
    };
    let store = runtime.spawn(store).await.context("the HTTP API")??;
    let listener = {
        let _threads = runtime.enter();
        let address = place.address().clone();
        place
            .listen()
            .map_err(|error| Usage(format!("cannot listen on {address}: {error}")))?
    };
    listening.url = match listener.address() {
        ListenAddr::Tcp(at) if certificate.is_some() => format!("https://{at}"),
        address => address.to_string(),
    };
    tracing::info!(
        address = listening.url,
        store = store.describe(),
        "listening"
    );
    listening.address = listener.address().clone();
    listening.store = Some(Arc::clone(&store));
    if certificate.is_none() && !listening.address.is_local() {
        tracing::warn!(
            "tokens and messages cross the network in the clear: give --tls-cert and --tls-key, or put a \
             proxy with TLS in front"
        );
    }
    let tokens = tokens.map(|file| keep(runtime, file));
    let webhook_keys = webhook_keys.map(|file| keep(runtime, file));
    let certificate = certificate.map(|file| keep(runtime, file));
    let api = HttpApi {
        store,
        tokens,
        webhook_keys,
        certificate,
        max_payload: args.max_payload,
        host,
        spans,
    };
    listening.served = runtime.spawn(api.serve(listener, stopped));
    Ok(listening)
}

/// What the files say, kept up to date on the threads of the API.
fn keep<T: Send + Sync + 'static>(runtime: &Runtime, file: Kept<T>) -> Arc<RwLock<Arc<T>>> {
    let value = Arc::clone(&file.value);
    runtime.spawn(file.keep());
    value
}

impl Listening {
    /// Where it listens, with the port that the system chose.
    pub(super) fn address(&self) -> &ListenAddr {
        &self.address
    }

    /// The same as a URL: `https://` with a certificate.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// What shows that its threads and its store work.
    pub(super) fn progress(&self) -> Option<Progress> {
        let threads = self.runtime.as_ref()?.handle().clone();
        Some(Progress::OfApi(threads, self.store.clone()?))
    }

    /// Accepts no more requests, and lets those finish that have begun.
    pub(super) async fn end(mut self) {
        self.stop.send_replace(true);
        let _ = (&mut self.served).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The tokens of a file. To begin with, none is a mistake; later all may be taken back.
fn tokens(path: PathBuf) -> Result<Kept<Tokens>, Usage> {
    let kept = Kept::open("the tokens", vec![path], FILE_MAX, |files| {
        Tokens::parse(&text_of(files)?)
    })?;
    let tokens = kept.value.read().unwrap_or_else(PoisonError::into_inner);
    if tokens.is_empty() {
        let words = "the tokens cannot be used: there is none: dqhost token new makes one";
        return Err(Usage(words.to_owned()));
    }
    drop(tokens);
    Ok(kept)
}

/// The secrets of senders, of a file.
fn webhook_keys(path: PathBuf) -> Result<Kept<WebhookKeys>, Usage> {
    files::warn_if_public("the keys of webhooks", &path);
    Kept::open("the keys of webhooks", vec![path], FILE_MAX, |files| {
        WebhookKeys::parse(&text_of(files)?)
    })
}

fn text_of(files: &[Vec<u8>]) -> Result<String, String> {
    String::from_utf8(files.concat()).map_err(|_| "it is not text".to_owned())
}

/// The certificate and the key of two files.
fn certificate(certificate: &Path, key: &Path) -> Result<Kept<Certificate>, Usage> {
    files::warn_if_public("the key of the certificate", key);
    let paths = vec![certificate.to_owned(), key.to_owned()];
    Kept::open(
        "the certificate and its key",
        paths,
        PEM_MAX,
        |files| match files {
            [certificate, key] => Certificate::from_pem(certificate, key),
            _ => Err("two files are needed".to_owned()),
        },
    )
}

/// The HTTP API, if it is asked for, with a store of its own. Handlers do not reach it.
pub(super) async fn beside(
    listen: Option<Listen>,
    of_store: &StoreArgs,
    store: &Arc<dyn Store>,
    (host, spans): (HostView, &Spans),
    endpoints: &Endpoints,
) -> anyhow::Result<Option<Listening>> {
    let Some(listen) = listen else {
        return Ok(None);
    };
    let (of_host, of_store) = (Arc::clone(store), of_store.clone());
    let store = async move { open::beside(&of_store, of_host).await };
    let listening = start(listen, store, Some(host), spans.clone()).await?;
    if let ListenAddr::Tcp(at) = listening.address() {
        // What a handler may not do to the store, it may not do through the API.
        endpoints.add("127.0.0.1", at.port());
        endpoints.add(&at.ip().to_string(), at.port());
    }
    Ok(Some(listening))
}
