//! `dqhost pause`, `resume` and `reschedule`.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use serde_json::json;

use super::open::Missing;
use super::outcome::{ChangeArgs, Not, Outcomes, Verb, not_waiting};
use super::send::Timing;
use super::time::rfc3339;
use super::which::{Place, WAITING, WhichWaiting};
use super::{Exit, QueueArg, StoreArgs, log, open, print};
use crate::control::{is_known, not_there};
use crate::message::{Due, MessageId, QueueName};
use crate::store::{BATCH_MAX, Rescheduled};

#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    queue: QueueArg,
    /// Make the queue if it is not there
    #[arg(long)]
    create: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    queue: QueueArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn pause(args: PauseArgs) -> anyhow::Result<Exit> {
    let queue = &args.queue.queue;
    if !set_paused(&args.store, queue, true, args.create).await? {
        return Ok(Exit::Failed);
    }
    print_paused(queue, true, args.json)
}

pub(super) async fn resume(args: ResumeArgs) -> anyhow::Result<Exit> {
    let queue = &args.queue.queue;
    if !set_paused(&args.store, queue, false, false).await? {
        return Ok(Exit::Failed);
    }
    print_paused(queue, false, args.json)
}

/// Gives messages of a queue to no host, or again. False if there is no such queue.
async fn set_paused(
    store: &StoreArgs,
    queue: &QueueName,
    paused: bool,
    create: bool,
) -> anyhow::Result<bool> {
    log::to_stderr("warn", false)?;
    let missing = if create {
        Missing::Make
    } else {
        Missing::Refuse
    };
    let store = open::store(store, missing).await?;
    if !create && !is_known(&*store, queue).await? {
        tell!("error: {}", not_there(queue, paused));
        return Ok(false);
    }
    store.set_paused(queue, paused).await?;
    Ok(true)
}

fn print_paused(queue: &QueueName, paused: bool, as_json: bool) -> anyhow::Result<Exit> {
    if as_json {
        print::json_line(&json!({"queue": queue, "paused": paused}))?;
    } else {
        let how = if paused { "is paused" } else { "goes on" };
        writeln!(print::stdout(), "{queue} {how}")?;
    }
    Ok(Exit::Done)
}

#[derive(Debug, Args)]
pub(super) struct RescheduleArgs {
    #[command(flatten)]
    which: WhichWaiting,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn reschedule(args: RescheduleArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let place = Place {
        store: &*store,
        queue,
    };
    let mut outcomes = Outcomes::new(Verb::RESCHEDULE, queue, args.change);
    let (meant, due) = (args.which.meant(), args.timing.due());
    if args.change.dry_run {
        let due_ms = match due {
            Due::At(at_ms) => at_ms,
            Due::In(delay) => {
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                store.overview(queue).await?.now_ms.saturating_add(delay_ms)
            }
        };
        for (id, found) in place.found(meant, WAITING).await? {
            match not_waiting(found.as_ref()) {
                None => rescheduled(&mut outcomes, &id, due_ms)?,
                Some(why) => outcomes.not(&id, why)?,
            }
        }
        return Ok(outcomes.exit());
    }
    let ids = place.ids(meant, WAITING).await?;
    for some in ids.chunks(BATCH_MAX) {
        let answers = store.reschedule(queue, some, due).await;
        let answers = answers.with_context(|| outcomes.before(some.len()))?;
        for (id, answer) in some.iter().zip(answers) {
            match answer {
                Rescheduled::At(due_ms) => rescheduled(&mut outcomes, id, due_ms)?,
                Rescheduled::InFlight => outcomes.not(id, Not::InFlight)?,
                Rescheduled::Unknown => outcomes.not(id, Not::Found)?,
            }
        }
    }
    Ok(outcomes.exit())
}

fn rescheduled(outcomes: &mut Outcomes<'_>, id: &MessageId, due_ms: u64) -> io::Result<()> {
    let due = rfc3339(due_ms);
    let fields = json!({"due_at_ms": due_ms, "due_at": due});
    outcomes.done(id, &format!("  {due}"), fields)
}
