//! `dqhost up`: puts a store, a runtime and a host together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use tokio::sync::watch;

use super::config::Config;
use super::handlers::{Loader, Plan};
use super::host_args::{AUTO_SLOTS, UpArgs};
use super::number::{AUTO, NumberOrAuto};
use super::passed_sockets::PassedSockets;
use super::plans::{check_sends, limits, plans};
use super::reload::{Reload, Reloader};
use super::running::Running;
use super::service::ServiceManager;
use super::signals::{self, OnSignal};
use super::{Exit, Usage, hardening, listen, log, open, sandbox, screen, traces};
use crate::control::LogRing;
use crate::dashboard::Settings;
use crate::host::{Host, HostConfig, Monitor, Served, SlotCount, Stage, Summary, Workers};
use crate::http_api::HostView;
use crate::message::QueueName;
use crate::runtime::Permissions;
use crate::store::Store;
use crate::store::address::Endpoints;

/// After this many task polls a worker thread looks at its timers. The default of 61 would make
/// timers wait for 61 ticks when every slot computes.
const WORKER_EVENT_INTERVAL: u32 = 8;

/// New handlers come from other threads, and a worker takes one of those and one of its own in turn.
/// By default it would first let its busy guests run for 61 ticks; with 1 it would never go on with
/// them while new ones come.
const WORKER_GLOBAL_QUEUE_INTERVAL: u32 = 2;

/// How much the threads of long handlers give way. At this a quick one has ten times their share when both
/// want the same core, and they have all of it when none does. On Linux it is for one thread.
#[cfg(target_os = "linux")]
const PATIENT_NICE: i32 = 10;

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

/// The log, and what of it a dashboard shows if there is one.
fn start_log(args: &UpArgs) -> anyhow::Result<(Option<Arc<LogRing>>, log::Log)> {
    if args.no_tui || !screen::has_terminal() {
        return Ok((None, log::of_host(&args.log)?));
    }
    let (logs, log) = screen::start_log(&args.log)?;
    Ok((Some(logs), log))
}

/// What is there before a host serves.
struct Loaded {
    slots: SlotCount,
    loader: Arc<Loader>,
    plans: Vec<Plan>,
    served: Vec<Served>,
}

/// Loads the handlers.
fn load(args: &UpArgs, config: &Config, endpoints: &Endpoints) -> anyhow::Result<Loaded> {
    let plans = plans(args, config, endpoints)?;
    let limits = limits(args, &plans);
    let room = match args.slots {
        NumberOrAuto::Number(slots) => (slots, slots),
        NumberOrAuto::Auto => AUTO_SLOTS,
    };
    let runtime = sandbox::runtime_with_room(room, limits, Permissions::default())?;
    let slots = args.slot_count(runtime.slots())?;
    hardening::hide_memory();
    let loader = Arc::new(Loader::new(runtime, limits, &plans, &args.sandbox));
    let served = loader.load_all(&plans, args.strict)?;
    Ok(Loaded {
        slots,
        loader,
        plans,
        served,
    })
}

/// The queues whose handlers could not be loaded.
fn left_out(plans: &[Plan], served: &[Served]) -> Vec<QueueName> {
    let is_left_out = |queue: &&QueueName| served.iter().all(|served| served.queue != **queue);
    let queues = plans.iter().map(|plan| &plan.queue);
    queues.filter(is_left_out).cloned().collect()
}

/// The store of the host, with which its handlers can do what they may.
async fn open_store(
    args: &UpArgs,
    plans: &[Plan],
    endpoints: &Endpoints,
) -> anyhow::Result<Arc<dyn Store>> {
    let store = open::host_store(&args.store, endpoints.clone()).await?;
    open::report_events(args.report_events, &args.store, &store)?;
    check_sends(&*store, plans)?;
    Ok(store)
}

async fn snapshot(args: &UpArgs, config: &Config) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::host_store(&args.store, Endpoints::default()).await?;
    screen::snapshot(
        (&args.screen, config.look(&[])),
        store,
        config.queue_names(args),
    )
    .await
}

pub(super) async fn up(
    args: UpArgs,
    config: &Config,
    sockets: PassedSockets,
) -> anyhow::Result<Exit> {
    if args.screen.is_snapshot() {
        return snapshot(&args, config).await;
    }
    let listen = args.listen.if_given(sockets)?;
    let mut config_of_host = host_config(&args)?;
    let spans = config_of_host.spans.clone();
    let reopen = signals::reopen()?;
    let (logs, log) = start_log(&args)?;
    if let Some(file) = config.file_name() {
        tracing::info!(file, "settings are read from a file");
    }
    let endpoints = open::endpoints(&args.store)?;
    let Loaded {
        slots,
        loader,
        plans,
        served,
    } = load(&args, config, &endpoints)?;
    let store = open_store(&args, &plans, &endpoints).await?;
    let threads = Threads::start()?;
    let workers = threads.workers().context("no threads for the handlers")?;
    let serving = names(&served);
    warn_of_naming(&*store, &served).await;
    let (not_served, are_not_served) = watch::channel(left_out(&plans, &served));
    config_of_host.slots = slots;
    let host = Host::new(Arc::clone(&store), served, config_of_host, workers);
    let (manager, monitor) = (ServiceManager::of_environment(), host.monitor());
    let reloader = Reloader {
        loader: Arc::clone(&loader),
        plans,
        config: config.into(),
        endpoints: endpoints.clone(),
        store: Arc::clone(&store),
        changer: host.changer(),
        not_served,
        manager: manager.clone(),
    };
    let reload = Some(Reload::start(reloader, args.watch)?);
    let (stage, stages) = watch::channel(Stage::Run);
    let view = HostView {
        monitor: monitor.clone(),
        stage: stages.clone(),
        not_served: are_not_served,
    };
    let listening = listen::beside(listen, &args.store, &store, (view, &spans), &endpoints).await?;
    let on_signal = OnSignal {
        reopen,
        reload,
        log: log.reopen(),
        manager: manager.clone(),
    };
    signals::listen(stage.clone(), on_signal)?;
    let running = Running::tell(&store.describe());
    let telling = manager.tell_of_host(&monitor, &stages);
    // Not before: who reads it may send a signal.
    log_serving(&serving, &store.describe(), slots, &monitor);
    let (parts, look) = ((store, Arc::clone(&loader)), look(&args, config));
    let summary = match logs {
        None => host.run(stages).await,
        Some(logs) => screen::with_host(look, host, (stage, stages), parts, logs).await?,
    };
    manager.stopping("stopping");
    if let Some(listening) = listening {
        listening.end().await;
    }
    traces::close(spans).await;
    log_end(&summary);
    // Its clock interrupts handlers as long as any may run.
    drop((loader, running, telling, log));
    Ok(Exit::Done)
}

/// The queues with the digests of their handlers.
fn names(served: &[Served]) -> Vec<(QueueName, String)> {
    let name = |one: &Served| (one.queue.clone(), one.handler.digest().to_owned());
    served.iter().map(name).collect()
}

fn log_serving(serving: &[(QueueName, String)], store: &str, slots: SlotCount, monitor: &Monitor) {
    let host = monitor.host_id();
    for (queue, handler) in serving {
        match slots {
            SlotCount::Fixed(slots) => {
                tracing::info!(%queue, handler, store, slots, host, "serving");
            }
            SlotCount::Auto { .. } => {
                tracing::info!(%queue, handler, store, slots = AUTO, host, "serving");
            }
        }
    }
}

/// How its dashboard is set up.
fn look(args: &UpArgs, config: &Config) -> Settings {
    args.screen.settings(config.look(&config.queue_names(args)))
}

fn log_end(summary: &Summary) {
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
}

fn host_config(args: &UpArgs) -> Result<HostConfig, Usage> {
    let host_id = uuid::Uuid::new_v4().to_string();
    Ok(HostConfig {
        spans: args.traces.spans(&host_id)?,
        host_id,
        // Until it is known what the sandbox has room for.
        slots: args.slot_count(AUTO_SLOTS.1)?,
        drain: args.drain,
        poll: Duration::from_secs(1),
        exit_when_empty: args.exit_when_empty,
    })
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
