//! `dqhost pause`, `resume` and `reschedule`.

use std::io::{self, Write};

use clap::Args;

use super::open::Missing;
use super::read::{Named, how_much};
use super::send::Timing;
use super::time::rfc3339;
use super::{Exit, QueueArg, StoreArgs, log, open};
use crate::control::{is_known, not_there};
use crate::message::QueueName;
use crate::store::Rescheduled;
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    queue: QueueArg,
    /// Make the queue if it is not there
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn pause(args: PauseArgs) -> anyhow::Result<Exit> {
    set_paused(&args.store, &args.queue.queue, true, args.create).await
}

pub(super) async fn resume(args: ResumeArgs) -> anyhow::Result<Exit> {
    set_paused(&args.store, &args.queue.queue, false, false).await
}

/// Gives messages of a queue to no host, or again.
async fn set_paused(
    store: &StoreArgs,
    queue: &QueueName,
    paused: bool,
    create: bool,
) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let missing = if create {
        Missing::Make
    } else {
        Missing::Refuse
    };
    let store = open::store(store, missing).await?;
    if !create && !is_known(&*store, queue).await? {
        tell!("error: {}", not_there(queue, paused));
        return Ok(Exit::Failed);
    }
    store.set_paused(queue, paused).await?;
    let how = if paused { "is paused" } else { "goes on" };
    writeln!(io::stdout().lock(), "{queue} {how}")?;
    Ok(Exit::Done)
}

#[derive(Debug, Args)]
pub(super) struct RescheduleArgs {
    #[command(flatten)]
    what: Moved,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

/// Which messages, and to when; now if nothing is said.
#[derive(Debug, Args)]
pub(super) struct Moved {
    #[command(flatten)]
    pub named: Named,
    #[command(flatten)]
    pub timing: Timing,
}

pub(super) async fn reschedule(args: RescheduleArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let ids = args.what.named.ids();
    let due = args.what.timing.due();
    let answers = store.reschedule(&args.queue.queue, &ids, due).await?;
    let mut done = 0;
    for (id, answer) in ids.iter().zip(answers) {
        let id = printable(id.as_str());
        match answer {
            Rescheduled::At(due_ms) => {
                done += 1;
                writeln!(io::stdout().lock(), "{id}  {}", rfc3339(due_ms))?;
            }
            Rescheduled::InFlight => tell!("{id} is not rescheduled: a host is handling it"),
            Rescheduled::Unknown => {
                tell!("{id} is not rescheduled: it does not wait in this queue");
            }
        }
    }
    Ok(how_much(done, ids.len()))
}
