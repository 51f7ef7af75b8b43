//! `dqhost events`.

use std::sync::Arc;

use clap::Args;

use super::open::Missing;
use super::{Exit, StoreArgs, Usage, log, open, print};
use crate::control::ended_events;
use crate::format;
use crate::message::QueueName;
use crate::store::Store;

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Queues [default: all that there are when it begins]
    #[arg(value_name = "QUEUE")]
    queues: Vec<QueueName>,
    /// Print what happens from now on, until stopped
    ///
    /// Without it the latest messages that have ended are printed, as far as that is kept.
    #[arg(long, short)]
    follow: bool,
    /// Print what hosts of a delayqueue report, too
    ///
    /// It has the source delayqueue, and numbers instead of ids. A host with --report-events reports as
    /// well, so that what it does is there twice.
    #[arg(long, requires = "follow")]
    delayqueue: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn events(args: EventsArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let mut queues = args.queues;
    if queues.is_empty() {
        queues = store.queues().await?;
    }
    if queues.is_empty() {
        return Err(Usage(
            "the store has no queues yet: name the one that is to be used".to_owned(),
        )
        .into());
    }
    if args.follow {
        follow(store, queues, args.delayqueue).await
    } else {
        past(&*store, &queues).await
    }
}

async fn past(store: &dyn Store, queues: &[QueueName]) -> anyhow::Result<Exit> {
    let mut all = Vec::new();
    for queue in queues {
        all.extend(ended_events(store, queue).await?);
    }
    all.sort_by_key(|heard| heard.event.at_ms);
    for heard in &all {
        print::json_line(&format::json::event(heard))?;
    }
    Ok(Exit::Done)
}

async fn follow(
    store: Arc<dyn Store>,
    queues: Vec<QueueName>,
    delayqueue: bool,
) -> anyhow::Result<Exit> {
    let mut events = store.listen(queues, delayqueue);
    while let Some(heard) = events.next().await {
        print::json_line(&format::json::event(&heard?))?;
    }
    Ok(Exit::Done)
}
