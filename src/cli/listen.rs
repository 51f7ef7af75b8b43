//! The HTTP API as the command line sets it up: beside a host, or alone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::Args;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{StoreArgs, Usage, number, open};
use crate::files;
use crate::http_api::{FILE_MAX, HostView, HttpApi, ListenAddr, Listener, SharedTokens, Tokens};
use crate::message::PAYLOAD_MAX_DEFAULT;
use crate::store::Store;
use crate::store::address::Endpoints;
use crate::text::printable;

/// Threads of the HTTP API.
const THREADS: usize = 2;

/// How often it is looked whether the file of tokens has changed.
const TOKENS_EVERY: Duration = Duration::from_secs(1);

/// Where the HTTP API listens, and to whom.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP API")]
pub(super) struct ListenArgs {
    /// Serve the HTTP API at this address
    ///
    /// Use IP:PORT, localhost:PORT or unix:PATH. `dqhost serve` uses 127.0.0.1:7420 if you omit it.
    /// Other machines can connect only if you give --tokens.
    #[arg(long, value_name = "ADDR", env = "DQHOST_LISTEN")]
    pub listen: Option<ListenAddr>,
    /// Let in only the tokens of this file
    ///
    /// `dqhost token new` makes a token and its line for the file. The file is read again when it
    /// changes.
    #[arg(long, value_name = "FILE", env = "DQHOST_TOKENS")]
    pub tokens: Option<PathBuf>,
    /// Refuse a payload of more bytes over HTTP
    #[arg(long, value_name = "BYTES", default_value_t = PAYLOAD_MAX_DEFAULT,
        env = "DQHOST_MAX_PAYLOAD", value_parser = number::from::<usize>(0..=1 << 30))]
    pub max_payload: usize,
}

impl ListenArgs {
    /// Refuses what would let other machines in without a token, and what does nothing without an
    /// address.
    pub(super) fn check(&self) -> Result<(), Usage> {
        match (&self.listen, &self.tokens) {
            (Some(address), None) if !address.is_local() => Err(Usage(format!(
                "other machines can connect to {address}: give --tokens FILE, or listen on \
                 127.0.0.1:PORT or unix:PATH"
            ))),
            (None, Some(_)) => Err(Usage(
                "--tokens is for --listen: give it as well".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

/// The HTTP API at work, on threads of its own.
pub(super) struct Listening {
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    served: JoinHandle<()>,
    address: ListenAddr,
}

/// Listens at an address; the store is opened on the threads of the API.
pub(super) async fn start(
    args: &ListenArgs,
    address: &ListenAddr,
    store: impl Future<Output = anyhow::Result<Arc<dyn Store>>> + Send + 'static,
    host: Option<HostView>,
) -> anyhow::Result<Listening> {
    let tokens = args.tokens.clone().map(TokenFile::open).transpose()?;
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
        address: address.clone(),
    };
    let Some(runtime) = &listening.runtime else {
        return Ok(listening);
    };
    let store = runtime.spawn(store).await.context("the HTTP API")??;
    let listener = {
        let _threads = runtime.enter();
        Listener::bind(address)
            .map_err(|error| Usage(format!("cannot listen on {address}: {error}")))?
    };
    tracing::info!(address = %listener.address(), store = store.describe(), "listening");
    listening.address = listener.address().clone();
    let known = tokens.as_ref().map(|file| Arc::clone(&file.tokens));
    if let Some(file) = tokens {
        runtime.spawn(file.keep());
    }
    let api = HttpApi {
        store,
        tokens: known,
        max_payload: args.max_payload,
        host,
    };
    listening.served = runtime.spawn(api.serve(listener, stopped));
    Ok(listening)
}

impl Listening {
    /// Where it listens, with the port that the system chose.
    pub(super) fn address(&self) -> &ListenAddr {
        &self.address
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

/// The file of tokens, and what it said last.
struct TokenFile {
    path: PathBuf,
    tokens: SharedTokens,
    read: Option<Stamp>,
}

/// What changes when a file does.
type Stamp = (SystemTime, u64);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn read(path: &Path) -> Result<Tokens, String> {
    let bytes = files::read_named(path, FILE_MAX).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(format!("it has more than {FILE_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    Tokens::parse(&text)
}

impl TokenFile {
    fn open(path: PathBuf) -> Result<Self, Usage> {
        let shown = path.display().to_string();
        let read_at = stamp(&path);
        let tokens = read(&path).map_err(|error| {
            Usage(format!(
                "the tokens in {} cannot be used: {error}",
                printable(&shown)
            ))
        })?;
        Ok(Self {
            path,
            tokens: Arc::new(RwLock::new(Arc::new(tokens))),
            read: read_at,
        })
    }

    /// Reads the file again when it has changed. One that is wrong changes nothing, and is told of.
    async fn keep(self) {
        let Self {
            path,
            tokens,
            mut read,
        } = self;
        loop {
            tokio::time::sleep(TOKENS_EVERY).await;
            let (path, known) = (path.clone(), read);
            // A disk may hang.
            let looked = tokio::task::spawn_blocking(move || again(&path, known)).await;
            let Ok(Some((stamp, found))) = looked else {
                continue;
            };
            read = stamp;
            match found {
                Ok(found) => {
                    *tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
                    tracing::info!("the tokens were read again");
                }
                Err(error) => tracing::error!("the tokens stay as they were: {error}"),
            }
        }
    }
}

/// What a file says that is not as it was.
fn again(path: &Path, known: Option<Stamp>) -> Option<(Option<Stamp>, Result<Tokens, String>)> {
    let now = stamp(path);
    (now != known).then(|| (now, read(path)))
}

/// The HTTP API, if it is asked for, with a store of its own. Handlers do not reach it.
pub(super) async fn beside(
    args: &ListenArgs,
    of_store: &StoreArgs,
    store: &Arc<dyn Store>,
    host: HostView,
    endpoints: &Endpoints,
) -> anyhow::Result<Option<Listening>> {
    let Some(address) = &args.listen else {
        return Ok(None);
    };
    let (of_host, of_store) = (Arc::clone(store), of_store.clone());
    let store = async move { open::beside(&of_store, of_host).await };
    let listening = start(args, address, store, Some(host)).await?;
    if let ListenAddr::Tcp(at) = listening.address() {
        // What a handler may not do to the store, it may not do through the API.
        endpoints.add("127.0.0.1", at.port());
        endpoints.add(&at.ip().to_string(), at.port());
    }
    Ok(Some(listening))
}
