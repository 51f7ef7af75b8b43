//! `dqhost get`.

use clap::Args;

use super::open::Missing;
use super::which::{LISTED, Place};
use super::{Exit, QueueArg, StoreArgs, log, open, print};
use crate::format;
use crate::message::MessageId;
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// Id of the message, or its beginning
    id: String,
    #[command(flatten)]
    queue: QueueArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn get(args: GetArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let id = MessageId::from(args.id.as_str());
    let mut record = store.get(queue, &id).await?;
    if record.is_none() {
        let place = Place {
            store: &*store,
            queue,
        };
        if let Some(id) = place.begins_with(&id, LISTED).await? {
            record = store.get(queue, &id).await?;
        }
    }
    let Some(record) = record else {
        tell!(
            "error: queue {queue} has no message {}: it was acked, cancelled or deleted, or never \
             sent there",
            printable(&args.id)
        );
        return Ok(Exit::Failed);
    };
    if args.json {
        print::json_line(&format::json::record(&record))?;
    } else {
        print::record(&record)?;
    }
    Ok(Exit::Done)
}
