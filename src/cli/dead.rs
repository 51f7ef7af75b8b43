//! `dqhost dead`.

use std::io::{self, Write};

use clap::{Args, Subcommand};

use super::open::Missing;
use super::read::{PageArgs, how_much, show_page};
use super::{Exit, QueueArg, StoreArgs, Usage, log, open};
use crate::message::{MessageId, QueueName, RETRIES_MAX, State};
use crate::store::{BATCH_MAX, Page, Redriven, Store};
use crate::text::printable;

#[derive(Debug, Subcommand)]
pub(super) enum DeadCommand {
    /// List dead letters, latest first
    List(ListArgs),
    /// Put dead letters back into their queue, as new messages that are due at once
    Redrive(RedriveArgs),
    /// Remove dead letters for good
    Delete(DeleteArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// Which dead letters.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The dead letters
    ids: Vec<String>,
    /// All dead letters of the queue
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(super) struct RedriveArgs {
    #[command(flatten)]
    which: Which,
    /// The retries of the new messages; without it each has the budget that it had
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(..=i64::from(RETRIES_MAX)))]
    retries: Option<u32>,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    which: Which,
    /// Really delete with --all
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn dead(command: DeadCommand) -> anyhow::Result<Exit> {
    match command {
        DeadCommand::List(args) => {
            show_page(&args.store, &args.queue.queue, State::Dead, args.page).await
        }
        DeadCommand::Redrive(args) => redrive(args).await,
        DeadCommand::Delete(args) => delete(args).await,
    }
}

/// The ids that are meant; with `--all` those that are dead now.
async fn chosen(
    which: &Which,
    store: &dyn Store,
    queue: &QueueName,
) -> anyhow::Result<Vec<MessageId>> {
    if !which.all {
        return Ok(which.ids.iter().map(|id| id.as_str().into()).collect());
    }
    let mut ids = Vec::new();
    loop {
        let page = Page {
            offset: ids.len(),
            limit: BATCH_MAX,
            payload_max: 0,
        };
        let records = store.list(queue, State::Dead, page).await?;
        let last = records.len() < BATCH_MAX;
        ids.extend(records.into_iter().map(|record| record.id));
        if last {
            return Ok(ids);
        }
    }
}

async fn redrive(args: RedriveArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let ids = chosen(&args.which, &*store, queue).await?;
    let mut done = 0;
    for (id, answer) in ids
        .iter()
        .zip(store.redrive(queue, &ids, args.retries).await?)
    {
        let id = printable(id.as_str());
        match answer {
            Redriven::As(new) => {
                done += 1;
                writeln!(io::stdout().lock(), "{id} -> {new}")?;
            }
            Redriven::Unknown => eprintln!("{id} is not redriven: it is no dead letter of {queue}"),
            Redriven::PayloadMissing => {
                eprintln!("{id} is not redriven: its payload is missing from the store");
            }
        }
    }
    Ok(how_much(done, ids.len()))
}

async fn delete(args: DeleteArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let ids = chosen(&args.which, &*store, queue).await?;
    if args.which.all && !args.yes {
        return Err(Usage(format!(
            "{} dead letters of {queue} would be deleted for good; say --yes to do it",
            ids.len()
        ))
        .into());
    }
    let mut done = 0;
    for (id, deleted) in ids.iter().zip(store.delete_dead(queue, &ids).await?) {
        let id = printable(id.as_str());
        if deleted {
            done += 1;
            writeln!(io::stdout().lock(), "{id}")?;
        } else {
            eprintln!("{id} is not deleted: it is no dead letter of {queue}");
        }
    }
    Ok(how_much(done, ids.len()))
}
