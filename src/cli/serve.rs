//! `dqhost serve`: the HTTP API without a host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use tokio::sync::watch;

use super::listen::{self, ListenArgs, ListenAt};
use super::open::Missing;
use super::passed_sockets::PassedSockets;
use super::service::ServiceManager;
use super::signals::{self, OnSignal};
use super::traces::{self, TraceArgs};
use super::{Exit, StoreArgs, hardening, log, open};
use crate::host::Stage;
use crate::http_api::ListenAddr;

/// Where it listens unless told otherwise.
const PORT: u16 = 7420;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// Report events to the monitors of a delayqueue
    ///
    /// They are published in Redis in its format, whether a monitor is there or not.
    #[arg(long, env = "DQHOST_REPORT_EVENTS", value_parser = clap::builder::BoolishValueParser::new())]
    report_events: bool,
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    log: log::LogArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn serve(args: ServeArgs, sockets: PassedSockets) -> anyhow::Result<Exit> {
    let reopen = signals::reopen()?;
    let log = log::of_host(&args.log)?;
    hardening::hide_memory();
    let default = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
    let default = ListenAt::Address(ListenAddr::Tcp(default));
    let at = args.listen.listen.as_ref().unwrap_or(&default);
    let listen = args.listen.at(at, sockets)?;
    let (stage, mut stages) = watch::channel(Stage::Run);
    let manager = ServiceManager::of_environment();
    let on_signal = OnSignal {
        reopen,
        reload: None,
        log: log.reopen(),
        manager: manager.clone(),
    };
    signals::listen(stage, on_signal)?;
    let spans = args.traces.spans(&uuid::Uuid::new_v4().to_string())?;
    let store = args.store;
    let report_events = args.report_events;
    let store = async move {
        let opened = open::store(&store, Missing::Make).await?;
        open::report_events(report_events, &store, &opened)?;
        Ok(opened)
    };
    let listening = listen::start(listen, store, None, spans.clone()).await?;
    let status = format!("serving the HTTP API at {}", listening.url());
    let progress = listening.progress();
    let telling = progress.map(|progress| manager.tell_of_api(&status, progress));
    let _ = stages.wait_for(|stage| *stage >= Stage::Drain).await;
    manager.stopping("stopping: requests may finish");
    tokio::select! {
        () = listening.end() => {}
        _ = stages.wait_for(|stage| *stage == Stage::Now) => {}
    }
    traces::close(spans).await;
    tracing::info!("stopped");
    drop((telling, log));
    Ok(Exit::Done)
}
