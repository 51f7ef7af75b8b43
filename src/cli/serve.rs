//! `dqhost serve`: the HTTP API without a host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use tokio::sync::watch;

use super::listen::{self, ListenArgs};
use super::open::Missing;
use super::{Exit, StoreArgs, hardening, log, open, signals};
use crate::host::Stage;
use crate::http_api::ListenAddr;

/// Where it listens unless told otherwise.
const PORT: u16 = 7420;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    log: log::LogArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn serve(args: ServeArgs) -> anyhow::Result<Exit> {
    let log = log::of_host(&args.log.log, args.log.is_json())?;
    hardening::hide_memory();
    let default = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
    let mut listen = args.listen;
    let address = listen
        .listen
        .get_or_insert(ListenAddr::Tcp(default))
        .clone();
    listen.check()?;
    let (stage, mut stages) = watch::channel(Stage::Run);
    signals::listen(stage, None)?;
    let store = args.store;
    let store = async move { open::store(&store, Missing::Make).await };
    let listening = listen::start(&listen, &address, store, None).await?;
    let _ = stages.wait_for(|stage| *stage >= Stage::Drain).await;
    tokio::select! {
        () = listening.end() => {}
        _ = stages.wait_for(|stage| *stage == Stage::Now) => {}
    }
    tracing::info!("stopped");
    drop(log);
    Ok(Exit::Done)
}
