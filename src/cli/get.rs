//! `dqhost get`.

use clap::Args;

use super::open::Missing;
use super::which::{LISTED, Place};
use super::{Exit, QueueArg, StoreArgs, log, open, print};
use crate::control::{how_ended, result_of};
use crate::format;
use crate::message::{MessageId, Record};
use crate::store::Ended;
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

/// What a queue knows of an id.
enum Found {
    Message(Record),
    Ended(Ended, Option<Vec<u8>>),
}

pub(super) async fn get(args: GetArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let place = Place {
        store: &*store,
        queue: &args.queue.queue,
    };
    match find(place, &args.id).await? {
        Some(Found::Message(record)) if args.json => {
            print::json_line(&format::json::record(&record))?;
        }
        Some(Found::Message(record)) => print::record(&record)?,
        Some(Found::Ended(ended, result)) if args.json => {
            print::json_line(&format::json::ended(&ended, result.as_deref()))?;
        }
        Some(Found::Ended(ended, result)) => {
            let now_ms = store.overview(place.queue).await?.now_ms;
            print::ended(&ended, result.as_deref(), now_ms)?;
        }
        None => {
            tell!(
                "error: queue {} has no message {}: it was acked, cancelled or deleted, or never \
                 sent there",
                place.queue,
                printable(&args.id)
            );
            return Ok(Exit::Failed);
        }
    }
    Ok(Exit::Done)
}

/// The message, or how it ended. What is there comes before what has ended.
async fn find(place: Place<'_>, id: &str) -> anyhow::Result<Option<Found>> {
    let Place { store, queue } = place;
    let id = MessageId::from(id);
    if let Some(record) = store.get(queue, &id).await? {
        return Ok(Some(Found::Message(record)));
    }
    if let Some(whole) = place.begins_with(&id, LISTED).await?
        && let Some(record) = store.get(queue, &whole).await?
    {
        return Ok(Some(Found::Message(record)));
    }
    let whole = place.ended_begins_with(&id).await?;
    let Some(ended) = how_ended(store, queue, whole.as_ref().unwrap_or(&id)).await? else {
        return Ok(None);
    };
    let result = result_of(store, queue, &ended).await?;
    Ok(Some(Found::Ended(ended, result)))
}
