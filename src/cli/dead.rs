//! `dqhost dead`.

use std::io::{self, Write};

use clap::{Args, Subcommand};

use super::dead_ids::{Which, chosen};
use super::dead_try::{TryArgs, dead_try};
use super::open::Missing;
use super::read::{PageArgs, how_much, show_page};
use super::{Exit, QueueArg, StoreArgs, Usage, log, number, open, payload};
use crate::control::pace;
use crate::message::{MessageId, PAYLOAD_MAX_DEFAULT, QueueName, RETRIES_MAX, State};
use crate::store::{Redriven, Store};
use crate::text::printable;

#[derive(Debug, Subcommand)]
pub(super) enum DeadCommand {
    /// List dead letters, latest first
    List(ListArgs),
    /// Run dead letters through another handler; they stay as they are
    Try(TryArgs),
    /// Send dead letters again, as new messages due at once
    Redrive(RedriveArgs),
    /// Delete dead letters for good
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

/// How dead letters are put back.
#[derive(Debug, Args)]
pub(super) struct How {
    /// Retry the new messages so often [default: as before]
    #[arg(long, value_name = "N",
        value_parser = number::from::<u32>(0..=RETRIES_MAX.into()))]
    pub retries: Option<u32>,
    /// Send at most so many a second
    #[arg(long, value_name = "N", value_parser = number::from::<u32>(1..=u32::MAX.into()))]
    pub rate: Option<u32>,
    /// Send one dead letter with another payload, and keep it
    ///
    /// Give text, @FILE for the bytes of a file, or - for stdin.
    #[arg(long, value_name = "PAYLOAD", conflicts_with_all = ["all", "rate"])]
    pub payload: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RedriveArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    which: Which,
    /// Confirm the deletion with --all
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
        DeadCommand::Try(args) => dead_try(args).await,
        DeadCommand::Redrive(args) => redrive(args).await,
        DeadCommand::Delete(args) => delete(args).await,
    }
}

async fn redrive(args: RedriveArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let ids = chosen(&args.which, &*store, queue).await?;
    let mut done = 0;
    if let Some(payload) = &args.how.payload {
        return redrive_edited(&*store, queue, &ids, payload, args.how.retries).await;
    }
    let (step, pause) = pace(args.how.rate);
    for (at, ids) in ids.chunks(step).enumerate() {
        if at > 0 {
            tokio::time::sleep(pause).await;
        }
        let answers = store.redrive(queue, ids, args.how.retries).await?;
        done += tell_redriven(queue, ids.iter().zip(answers))?;
    }
    Ok(how_much(done, ids.len()))
}

/// One dead letter again, with another payload.
async fn redrive_edited(
    store: &dyn Store,
    queue: &QueueName,
    ids: &[MessageId],
    payload: &str,
    retries: Option<u32>,
) -> anyhow::Result<Exit> {
    let [id] = ids else {
        return Err(Usage("--payload is for one dead letter: name one".to_owned()).into());
    };
    let bytes = payload::read(payload, PAYLOAD_MAX_DEFAULT).await?;
    payload::check(&bytes, &Vec::new(), PAYLOAD_MAX_DEFAULT).map_err(Usage)?;
    let answer = store.redrive_edited(queue, id, &bytes, retries).await?;
    Ok(how_much(tell_redriven(queue, [(id, answer)])?, 1))
}

/// Says what became of each; returns how many were put back.
fn tell_redriven<'a>(
    queue: &QueueName,
    answers: impl IntoIterator<Item = (&'a MessageId, Redriven)>,
) -> anyhow::Result<usize> {
    let mut done = 0;
    for (id, answer) in answers {
        let id = printable(id.as_str());
        match answer {
            Redriven::As(new) => {
                done += 1;
                writeln!(io::stdout().lock(), "{id} -> {new}")?;
            }
            Redriven::Unknown => tell!("{id} is not redriven: it is no dead letter of {queue}"),
            Redriven::PayloadMissing => {
                tell!("{id} is not redriven: its payload is missing from the store");
            }
        }
    }
    Ok(done)
}

async fn delete(args: DeleteArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let ids = chosen(&args.which, &*store, queue).await?;
    if args.which.ids().is_none() && !args.yes {
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
            tell!("{id} is not deleted: it is no dead letter of {queue}");
        }
    }
    Ok(how_much(done, ids.len()))
}
