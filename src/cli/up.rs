//! `dqhost up`: puts a store, a runtime and a host together.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use futures_util::future::join_all;
use tokio::sync::watch;

use super::sandbox::SandboxArgs;
use super::screen::{self, ScreenArgs};
use super::{
    DEFAULT_QUEUE, Exit, StoreArgs, Usage, handlers, hardening, log, number, open, signals, time,
};
use crate::host::{Host, HostConfig, Served, Stage, Workers};
use crate::message::{NewMessage, QueueName, RETRIES_MAX};
use crate::store::address::Endpoints;
use crate::store::{Retention, Store};
use crate::verdict::Backoff;

/// More slots than this are refused: each reserves address space for its memory.
const SLOTS_MAX: u64 = 4096;

/// After this many task polls a worker thread looks at its timers. The default of 61 would make
/// timers wait for 61 ticks when every slot computes.
const WORKER_EVENT_INTERVAL: u32 = 8;

/// New handlers come from other threads, and a worker takes one of those and one of its own in turn.
/// By default it would first let its busy guests run for 61 ticks; with 1 it would never go on with
/// them while new ones come.
const WORKER_GLOBAL_QUEUE_INTERVAL: u32 = 2;

/// How much the threads of long handlers give way: at this a quick one has ten times their share when
/// both want the same core, and they have all of it when none does. On Linux it is for one thread.
#[cfg(target_os = "linux")]
const PATIENT_NICE: i32 = 10;

#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Handle messages with this WebAssembly component
    ///
    /// It exports dqhost:queue/handler.
    #[arg(long, value_name = "FILE", env = "DQHOST_HANDLER")]
    handler: Option<PathBuf>,
    /// Serve this queue; may be repeated [default: default]
    ///
    /// With =FILE the queue has a handler of its own instead of --handler.
    #[arg(
        long,
        short,
        value_name = "NAME[=FILE]",
        env = "DQHOST_QUEUE",
        value_delimiter = ','
    )]
    queue: Vec<QueueSpec>,
    /// Run so many handlers at a time, over all queues
    #[arg(long, value_name = "N", default_value = "16", env = "DQHOST_SLOTS",
        value_parser = number::from::<usize>(1..=SLOTS_MAX))]
    slots: usize,
    /// Own a message so long before other hosts may take it
    ///
    /// A lease is renewed while its handler runs. If a host crashes, its messages are delivered again
    /// so much later.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = time::lease,
        env = "DQHOST_LEASE")]
    lease: Duration,
    /// Let handlers finish for so long when the host stops
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = time::duration,
        env = "DQHOST_DRAIN")]
    drain: Duration,
    /// Retry so often if the producer recorded no number
    #[arg(long, value_name = "N", default_value_t = NewMessage::RETRIES_DEFAULT,
        env = "DQHOST_RETRIES",
        value_parser = number::from::<u32>(0..=RETRIES_MAX.into()))]
    retries: u32,
    /// Wait so long after a first failed attempt
    ///
    /// The delay doubles after each further failure. A handler may name another delay.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = time::duration,
        env = "DQHOST_BACKOFF")]
    backoff: Duration,
    /// Wait at most so long after a failed attempt
    ///
    /// This also limits the delay that a handler names.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = time::duration,
        env = "DQHOST_BACKOFF_MAX")]
    backoff_max: Duration,
    /// Keep dead letters for so long
    ///
    /// If no host of the queue sets this, dead letters are kept until they are deleted.
    #[arg(long, value_name = "DURATION", value_parser = time::duration,
        env = "DQHOST_DEAD_MAX_AGE")]
    dead_max_age: Option<Duration>,
    /// Keep the latest so many dead letters of each queue
    ///
    /// If no host of the queue sets this, all are kept.
    #[arg(long, value_name = "N", env = "DQHOST_DEAD_MAX",
        value_parser = number::from::<u32>(0..=u32::MAX.into()))]
    dead_max: Option<u32>,
    /// Stop when no message waits and none is in flight
    #[arg(long)]
    exit_when_empty: bool,
    /// Refuse to start if the handler of any queue cannot be loaded
    #[arg(long, env = "DQHOST_STRICT", value_parser = clap::builder::BoolishValueParser::new())]
    strict: bool,
    /// Log from this level on: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "DQHOST_LOG")]
    log: String,
    /// Log as text or as JSON
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "DQHOST_LOG_FORMAT"
    )]
    log_format: LogFormat,
    /// Print log lines instead of opening the dashboard
    ///
    /// Without a terminal this is the default.
    #[arg(long, env = "DQHOST_NO_TUI", value_parser = clap::builder::BoolishValueParser::new())]
    no_tui: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    screen: ScreenArgs,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// `NAME` or `NAME=FILE`.
#[derive(Debug, Clone)]
struct QueueSpec {
    name: QueueName,
    handler: Option<PathBuf>,
}

impl FromStr for QueueSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, handler) = match text.split_once('=') {
            Some((_, "")) => return Err("the handler's file is missing after =".to_owned()),
            Some((name, file)) => (name, Some(PathBuf::from(file))),
            None => (text, None),
        };
        Ok(Self {
            name: name.parse().map_err(|error| format!("{error}"))?,
            handler,
        })
    }
}

/// Which queue is served by which file, checked.
fn queue_files(args: &UpArgs) -> Result<Vec<(QueueName, PathBuf)>, Usage> {
    let default = DEFAULT_QUEUE
        .parse()
        .map_err(|error| Usage(format!("{error}")))?;
    let specs = match args.queue.as_slice() {
        [] => vec![QueueSpec {
            name: default,
            handler: None,
        }],
        specs => specs.to_vec(),
    };
    let mut files: Vec<(QueueName, PathBuf)> = Vec::new();
    for QueueSpec { name, handler } in specs {
        if files.iter().any(|(other, _)| *other == name) {
            return Err(Usage(format!("queue {name} is given twice")));
        }
        let file = handler.or_else(|| args.handler.clone()).ok_or_else(|| {
            Usage(format!(
                "queue {name} has no handler: give --handler FILE, or --queue {name}=FILE"
            ))
        })?;
        files.push((name, file));
    }
    Ok(files)
}

/// Worker threads of their own for handlers; let go on drop without waiting for them.
struct Threads {
    quick: Option<tokio::runtime::Runtime>,
    patient: Option<tokio::runtime::Runtime>,
    http: Option<tokio::runtime::Runtime>,
    settling: Option<tokio::runtime::Runtime>,
}

impl Threads {
    fn start() -> anyhow::Result<Self> {
        let threads = |name: &str| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder
                .thread_name(name)
                .event_interval(WORKER_EVENT_INTERVAL)
                .global_queue_interval(WORKER_GLOBAL_QUEUE_INTERVAL)
                .enable_all();
            builder
        };
        let no_threads = "no threads for the handlers";
        let quick = threads("handler").build().context(no_threads)?;
        let patient = threads("long handler")
            .on_thread_start(be_patient)
            .build()
            .context(no_threads)?;
        let http = threads("http").build().context(no_threads)?;
        let mut settling = threads("results");
        let settling = settling
            .worker_threads(1)
            .build()
            .context("no thread for the results")?;
        Ok(Self {
            quick: Some(quick),
            patient: Some(patient),
            http: Some(http),
            settling: Some(settling),
        })
    }

    fn workers(&self) -> Option<Workers> {
        Some(Workers {
            quick: self.quick.as_ref()?.handle().clone(),
            patient: self.patient.as_ref()?.handle().clone(),
            http: self.http.as_ref()?.handle().clone(),
            settling: self.settling.as_ref()?.handle().clone(),
        })
    }
}

/// Lowers the priority of this thread. Where the system cannot, such runs are as quick as others.
fn be_patient() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, PATIENT_NICE) {
        tracing::debug!("long handlers have the priority of all others: {error}");
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let handlers = [self.quick.take(), self.patient.take()];
        let runtimes = handlers
            .into_iter()
            .chain([self.http.take(), self.settling.take()]);
        for runtime in runtimes.flatten() {
            runtime.shutdown_background();
        }
    }
}

pub(super) async fn up(args: UpArgs) -> anyhow::Result<Exit> {
    if args.screen.is_snapshot() {
        log::to_stderr("warn", false)?;
        let queues = args.queue.iter().map(|spec| spec.name.clone()).collect();
        let store = open::host_store(&args.store, Endpoints::default()).await?;
        return screen::snapshot(&args.screen, store, queues).await;
    }
    // What is wrong from the start is told on the terminal as it is.
    let files = queue_files(&args)?;
    let json = args.log_format == LogFormat::Json;
    let (logs, log) = if args.no_tui || !screen::has_terminal() {
        (None, log::of_host(&args.log, json)?)
    } else {
        let (logs, log) = screen::start_log(&args.log, json)?;
        (Some(logs), log)
    };
    let endpoints = open::endpoints(&args.store)?;
    let permissions = args.sandbox.permissions(endpoints.clone(), args.retries)?;
    let runtime = args.sandbox.runtime(args.slots, permissions)?;
    hardening::hide_memory();
    let is_strict = args.strict || args.sandbox.has_digests();
    let served = handlers::load(&args.sandbox, &runtime, files, is_strict)?;
    let store = open::host_store(&args.store, endpoints).await?;
    check_sends(&*store, &served, args.sandbox.allow_send())?;
    let threads = Threads::start()?;
    let workers = threads.workers().context("no threads for the handlers")?;
    let config = config(&args);
    for Served { queue, handler } in &served {
        tracing::info!(%queue, handler = handler.digest(), store = store.describe(),
            slots = config.slots, host = config.host_id, "serving");
    }
    warn_of_naming(&*store, &served).await;
    let queues = served.iter().map(|served| served.queue.clone()).collect();
    let host = Host::new(Arc::clone(&store), served, config, workers);
    let (stage, stages) = watch::channel(Stage::Run);
    signals::stop_by(stage.clone())?;
    let summary = match logs {
        None => host.run(stages).await,
        Some(logs) => {
            screen::with_host(&args.screen, host, (stage, stages), (store, queues), logs).await?
        }
    };
    tracing::info!(
        acked = summary.acked,
        nacked = summary.nacked,
        rejected = summary.rejected,
        released = summary.released,
        stale = summary.stale,
        lost = summary.lost,
        refused = summary.refused,
        "stopped"
    );
    drop(log);
    Ok(Exit::Done)
}

fn config(args: &UpArgs) -> HostConfig {
    HostConfig {
        host_id: uuid::Uuid::new_v4().to_string(),
        slots: args.slots,
        lease: args.lease,
        drain: args.drain,
        poll: Duration::from_secs(1),
        backoff: Backoff {
            base: args.backoff,
            max: args.backoff_max,
        },
        retries_default: args.retries,
        retention: Retention {
            age: args.dead_max_age,
            number: args.dead_max,
        },
        exit_when_empty: args.exit_when_empty,
    }
}

/// What a handler sends has to be accepted in one step with its ack.
fn check_sends(store: &dyn Store, served: &[Served], to: &[QueueName]) -> Result<(), Usage> {
    for Served { queue, .. } in served {
        if let Some(other) = to.iter().find(|to| !store.can_send_along(queue, to)) {
            return Err(Usage(format!(
                "handlers of queue {queue} cannot send to queue {other}: in Redis Cluster another \
                 queue is in another slot, and what a handler sends has to be accepted in one step \
                 with its ack; allow --allow-send {queue} alone, or use one Redis server"
            )));
        }
    }
    Ok(())
}

/// For all queues at once, since each takes several round trips.
async fn warn_of_naming(store: &dyn Store, served: &[Served]) {
    let hints = served.iter().map(|Served { queue, .. }| async move {
        if let Some(hint) = open::naming_hint(store, queue).await {
            tracing::warn!(%queue, "{hint}");
        }
    });
    join_all(hints).await;
}
