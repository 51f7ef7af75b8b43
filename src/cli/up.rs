//! `dqhost up`: puts a store, a runtime and a host together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::join_all;
use tokio::sync::watch;

use super::config::{Config, TableArgs};
use super::handlers::{Loader, Plan};
use super::host_args::{DeliveryArgs, UpArgs};
use super::reload::{Reload, Reloader};
use super::service::ServiceManager;
use super::signals::{self, OnSignal};
use super::{DEFAULT_QUEUE, Exit, Usage, hardening, listen, log, open, sandbox, screen};
use crate::control::LogRing;
use crate::host::{Host, HostConfig, QueueSettings, Served, Stage, Summary, Workers};
use crate::http_api::HostView;
use crate::message::QueueName;
use crate::runtime::{Limits, Permissions};
use crate::store::address::Endpoints;
use crate::store::{Retention, Store};

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

/// What holds for each queue that is served.
fn plans(args: &UpArgs, config: &Config, never: &Endpoints) -> anyhow::Result<Vec<Plan>> {
    let mut names = config.queue_names(args);
    if names.is_empty() {
        names.push(
            DEFAULT_QUEUE
                .parse()
                .map_err(|error| Usage(format!("{error}")))?,
        );
    }
    let (mut plans, is_one): (Vec<Plan>, _) = (Vec::new(), names.len() == 1);
    for queue in names {
        if plans.iter().any(|plan| plan.queue == queue) {
            return Err(Usage(format!("queue {queue} is given twice")).into());
        }
        let (of_queue, table) = config.of_queue(&queue)?;
        let spec = args.queue.iter().find(|spec| spec.name == queue);
        let own = spec.and_then(|spec| spec.handler.clone());
        let file = own.or(of_queue.handler).ok_or_else(|| {
            Usage(format!(
                "queue {queue} has no handler: give --handler FILE, or --queue {queue}=FILE, or set it \
                 in dqhost.toml"
            ))
        })?;
        let permissions = of_queue
            .sandbox
            .permissions(never.clone(), of_queue.delivery.retries);
        plans.push(Plan {
            file,
            permissions: permissions.map_err(|error| in_queue(&queue, is_one, error))?,
            settings: QueueSettings {
                schedules: config.schedules_of(&queue, of_queue.delivery.retries),
                ..settings(&of_queue.delivery, &table)
                    .map_err(|error| in_queue(&queue, is_one, error))?
            },
            sandbox: of_queue.sandbox,
            queue,
        });
    }
    Ok(plans)
}

/// Says which of several queues has a mistake.
fn in_queue(queue: &QueueName, is_one: bool, Usage(reason): Usage) -> Usage {
    if is_one {
        Usage(reason)
    } else {
        Usage(format!("queue {queue}: {reason}"))
    }
}

fn settings(delivery: &DeliveryArgs, table: &TableArgs) -> Result<QueueSettings, Usage> {
    Ok(QueueSettings {
        lease: delivery.lease,
        backoff: delivery.backoff.backoff()?,
        give_up_after: delivery.backoff.give_up_after,
        retries_default: delivery.retries,
        retention: Retention {
            age: delivery.dead_max_age,
            number: delivery.dead_max,
        },
        slots: table.slots,
        weight: table.weight,
        limits: delivery.limits.limits()?,
        schedules: Vec::new(),
    })
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

/// The log, and what of it a dashboard shows if there is one.
fn start_log(args: &UpArgs) -> anyhow::Result<(Option<Arc<LogRing>>, log::Log)> {
    if args.no_tui || !screen::has_terminal() {
        return Ok((None, log::of_host(&args.log)?));
    }
    let (logs, log) = screen::start_log(&args.log)?;
    Ok((Some(logs), log))
}

pub(super) async fn up(args: UpArgs, config: &Config) -> anyhow::Result<Exit> {
    if args.screen.is_snapshot() {
        log::to_stderr("warn", false)?;
        let store = open::host_store(&args.store, Endpoints::default()).await?;
        return screen::snapshot(&args.screen, store, config.queue_names(&args)).await;
    }
    args.listen.check()?;
    let reopen = signals::reopen()?;
    let (logs, log) = start_log(&args)?;
    if let Some(file) = config.file_name() {
        tracing::info!(file, "settings are read from a file");
    }
    let endpoints = open::endpoints(&args.store)?;
    let plans = plans(&args, config, &endpoints)?;
    let runtime = sandbox::runtime(args.slots, limits(&args, &plans), Permissions::default())?;
    hardening::hide_memory();
    let loader = Arc::new(Loader { plans, runtime });
    let served = loader.load_all(args.strict)?;
    let store = open::host_store(&args.store, endpoints.clone()).await?;
    check_sends(&*store, &loader.plans)?;
    let threads = Threads::start()?;
    let workers = threads.workers().context("no threads for the handlers")?;
    let names = |served: &Served| (served.queue.clone(), served.handler.digest().to_owned());
    let serving: Vec<_> = served.iter().map(names).collect();
    warn_of_naming(&*store, &served).await;
    let queues: Vec<QueueName> = served.iter().map(|served| served.queue.clone()).collect();
    let not_served = loader.plans.iter().map(|plan| plan.queue.clone());
    let not_served = not_served.filter(|name| !queues.contains(name)).collect();
    let host = Host::new(Arc::clone(&store), served, host_config(&args), workers);
    let (manager, monitor) = (ServiceManager::of_environment(), host.monitor());
    let reloader = Reloader {
        loader: Arc::clone(&loader),
        handlers: host.handlers(),
        manager: manager.clone(),
    };
    let reload = Some(Reload::start(reloader, args.watch)?);
    let (stage, stages) = watch::channel(Stage::Run);
    let view = HostView {
        monitor: monitor.clone(),
        stage: stages.clone(),
        not_served,
    };
    let listening = listen::beside(&args.listen, &args.store, &store, view, &endpoints).await?;
    let on_signal = OnSignal {
        reopen,
        reload,
        log: log.reopen(),
        manager: manager.clone(),
    };
    signals::listen(stage.clone(), on_signal)?;
    let telling = manager.tell_of_host(&monitor, &stages);
    // Not before: who reads it may send a signal.
    for (queue, handler) in serving {
        let (slots, host) = (args.slots, monitor.host_id());
        tracing::info!(%queue, handler, store = store.describe(), slots, host, "serving");
    }
    let summary = match logs {
        None => host.run(stages).await,
        Some(logs) => {
            screen::with_host(&args.screen, host, (stage, stages), (store, queues), logs).await?
        }
    };
    manager.stopping("stopping");
    if let Some(listening) = listening {
        listening.end().await;
    }
    log_end(&summary);
    // Its clock interrupts handlers as long as any may run.
    drop((loader, telling, log));
    Ok(Exit::Done)
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

fn host_config(args: &UpArgs) -> HostConfig {
    HostConfig {
        host_id: uuid::Uuid::new_v4().to_string(),
        slots: args.slots,
        drain: args.drain,
        poll: Duration::from_secs(1),
        exit_when_empty: args.exit_when_empty,
    }
}

/// The limits of the engine: those of the host, with room for each queue's.
fn limits(args: &UpArgs, plans: &[Plan]) -> Limits {
    plans
        .iter()
        .map(|plan| plan.sandbox.limits())
        .fold(args.sandbox.limits(), |host, of_queue| Limits {
            memory: host.memory.max(of_queue.memory),
            table_elements: host.table_elements.max(of_queue.table_elements),
            ..host
        })
}

/// What a handler sends has to be accepted in one step with its ack.
fn check_sends(store: &dyn Store, plans: &[Plan]) -> Result<(), Usage> {
    for plan in plans {
        let (queue, to) = (&plan.queue, &plan.permissions.sends);
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
