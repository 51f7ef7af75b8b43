//! `dqhost pause`, `resume` and `reschedule`.

use std::io::{self, Write};

use clap::Args;

use super::open::Missing;
use super::read::{Named, how_much};
use super::send::Timing;
use super::time::rfc3339;
use super::{Exit, QueueArg, StoreArgs, log, open};
use crate::store::Rescheduled;
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

/// Gives messages of a queue to no host, or again.
pub(super) async fn pause(args: PauseArgs, paused: bool) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let missing = if paused {
        Missing::Make
    } else {
        Missing::Refuse
    };
    let store = open::store(&args.store, missing).await?;
    let queue = &args.queue.queue;
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
            Rescheduled::InHand => eprintln!("{id} is not rescheduled: a host is handling it"),
            Rescheduled::Unknown => {
                eprintln!("{id} is not rescheduled: it does not wait in this queue");
            }
        }
    }
    Ok(how_much(done, ids.len()))
}
