//! `dqhost dead`.

use std::io;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::dead_try::{MaxRedrives, TryArgs, dead_try};
use super::list::show_page;
use super::open::Missing;
use super::outcome::{ChangeArgs, Not, Outcomes, Verb, not_dead};
use super::page::PageArgs;
use super::which::{Meant, Place, WhichDead};
use super::{Exit, QueueArg, StoreArgs, Usage, log, number, open, payload};
use crate::control::{RedriveCap, is_known, pace, redrive_to};
use crate::message::{MessageId, PAYLOAD_MAX_DEFAULT, QueueName, RETRIES_MAX, State};
use crate::store::{BATCH_MAX, Redrive, Redriven};

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
    #[arg(long, value_name = "PAYLOAD", conflicts_with_all = ["all", "filter", "rate"])]
    pub payload: Option<String>,
    /// Leave dead letters that were redriven N times
    ///
    /// A message is counted under whatever ids it is sent again; `dqhost get` shows the count. The default is
    /// the `max-redrives` of the queue in dqhost.toml.
    #[arg(long, value_name = "N", env = "DQHOST_MAX_REDRIVES", hide_short_help = true,
        value_parser = number::from::<u32>(0..=u32::MAX.into()))]
    pub max_redrives: Option<u32>,
    /// Redrive also those that were redriven too often
    #[arg(long, hide_short_help = true)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub(super) struct RedriveArgs {
    #[command(flatten)]
    which: WhichDead,
    #[command(flatten)]
    how: How,
    /// Send to this queue instead
    ///
    /// The new messages begin a history of their own. The totals count them as sent there and as deleted
    /// here.
    #[arg(long, value_name = "QUEUE", conflicts_with = "payload")]
    to: Option<QueueName>,
    /// Make the queue of --to if it is not there
    #[arg(long, requires = "to")]
    create: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    which: WhichDead,
    /// Confirm the deletion with --all or --match
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

impl How {
    /// Which dead letters are refused because of how often they were redriven.
    pub(super) fn cap(&self) -> RedriveCap {
        match (self.force, self.max_redrives) {
            (true, _) => RedriveCap::None,
            (false, Some(max)) => RedriveCap::At(max),
            (false, None) => RedriveCap::OfQueue,
        }
    }
}

pub(super) async fn dead(command: DeadCommand, max_of: MaxRedrives<'_>) -> anyhow::Result<Exit> {
    match command {
        DeadCommand::List(args) => {
            show_page(&args.store, &args.queue.queue, State::Dead, args.page).await
        }
        DeadCommand::Try(args) => dead_try(args, max_of).await,
        DeadCommand::Redrive(args) => redrive(args, max_of).await,
        DeadCommand::Delete(args) => delete(args).await,
    }
}

async fn redrive(args: RedriveArgs, max_of: MaxRedrives<'_>) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let place = Place {
        store: &*store,
        queue,
    };
    let mut outcomes = Outcomes::new(Verb::REDRIVE, queue, args.change);
    let meant = args.which.meant();
    if let Some(payload) = &args.how.payload {
        let bytes = edited(&meant, payload).await?;
        if args.change.dry_run {
            redrive_dry(place, meant, None, &mut outcomes).await?;
        } else {
            let retries = args.how.retries;
            for id in place.ids(meant, &[State::Dead]).await? {
                let answer = store.redrive_edited(queue, &id, &bytes, retries).await?;
                redriven(&mut outcomes, &id, answer)?;
            }
        }
        return Ok(outcomes.exit());
    }
    if let Some(to) = &args.to {
        check_target(place, to, args.create).await?;
    }
    let how = Redrive {
        retries: args.how.retries,
        max_redrives: args.how.cap().max_redrives(|| max_of(queue)),
    };
    if args.change.dry_run {
        redrive_dry(place, meant, Some(how), &mut outcomes).await?;
        return Ok(outcomes.exit());
    }
    let ids = place.ids(meant, &[State::Dead]).await?;
    let (step, pause) = pace(args.how.rate);
    for (at, ids) in ids.chunks(step).enumerate() {
        if at > 0 {
            tokio::time::sleep(pause).await;
        }
        let answers = match &args.to {
            Some(to) => redrive_to(&*store, (queue, to), ids, how).await,
            None => store.redrive(queue, ids, how).await,
        };
        let answers = answers.with_context(|| outcomes.before(ids.len()))?;
        for (id, answer) in ids.iter().zip(answers) {
            redriven(&mut outcomes, id, answer)?;
        }
    }
    Ok(outcomes.exit())
}

/// Refuses another queue that is none, or that nobody uses: its name may be misspelt.
async fn check_target(place: Place<'_>, to: &QueueName, create: bool) -> anyhow::Result<()> {
    if to == place.queue {
        return Err(Usage(format!(
            "--to {to} is the queue of the dead letters: leave it out to send them there again"
        ))
        .into());
    }
    if !create && !is_known(place.store, to).await? {
        return Err(Usage(format!("there is no queue {to}: --create makes it")).into());
    }
    Ok(())
}

/// The other payload of the one dead letter that is meant.
async fn edited(meant: &Meant, payload: &str) -> anyhow::Result<Vec<u8>> {
    if !matches!(meant, Meant::Named(ids) if ids.len() == 1) {
        return Err(Usage("--payload is for one dead letter: name one".to_owned()).into());
    }
    let bytes = payload::read(payload, PAYLOAD_MAX_DEFAULT).await?;
    payload::check(&bytes, &Vec::new(), PAYLOAD_MAX_DEFAULT).map_err(Usage)?;
    Ok(bytes)
}

/// Says which would be put back: with their own payloads, or with another without `how`.
async fn redrive_dry(
    place: Place<'_>,
    meant: Meant,
    how: Option<Redrive>,
    outcomes: &mut Outcomes<'_>,
) -> anyhow::Result<()> {
    for (id, found) in place.found(meant, &[State::Dead]).await? {
        let is_missing = found.as_ref().is_some_and(|found| found.is_missing);
        let redrives = found.as_ref().map_or(0, |found| found.redrives);
        match not_dead(found.as_ref()) {
            Some(why) => outcomes.not(&id, why)?,
            None if is_missing && how.is_some() => outcomes.not(&id, Not::PayloadMissing)?,
            None if how.is_some_and(|how| how.refuses(redrives)) => {
                outcomes.not(&id, Not::RedrivenTooOften(redrives))?;
            }
            None => outcomes.done(&id, "", Value::Null)?,
        }
    }
    Ok(())
}

/// Says what became of one.
fn redriven(outcomes: &mut Outcomes<'_>, id: &MessageId, answer: Redriven) -> io::Result<()> {
    match answer {
        Redriven::As(new) => outcomes.done(id, &format!(" -> {new}"), json!({"new_id": new})),
        Redriven::Unknown => outcomes.not(id, Not::Found),
        Redriven::PayloadMissing => outcomes.not(id, Not::PayloadMissing),
        Redriven::TooOften(redrives) => outcomes.not(id, Not::RedrivenTooOften(redrives)),
    }
}

async fn delete(args: DeleteArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let place = Place {
        store: &*store,
        queue,
    };
    let mut outcomes = Outcomes::new(Verb::DELETE, queue, args.change);
    let meant = args.which.meant();
    if args.change.dry_run {
        for (id, found) in place.found(meant, &[State::Dead]).await? {
            match not_dead(found.as_ref()) {
                None => outcomes.done(&id, "", Value::Null)?,
                Some(why) => outcomes.not(&id, why)?,
            }
        }
        return Ok(outcomes.exit());
    }
    let is_sure = args.yes || matches!(meant, Meant::Named(_));
    let ids = place.ids(meant, &[State::Dead]).await?;
    if !is_sure {
        return Err(Usage(format!(
            "{} of {queue} would be deleted for good; say --yes to do it, or --dry-run to see them",
            Verb::DELETE.several(ids.len())
        ))
        .into());
    }
    for some in ids.chunks(BATCH_MAX) {
        let answers = store.delete_dead(queue, some).await;
        let answers = answers.with_context(|| outcomes.before(some.len()))?;
        for (id, deleted) in some.iter().zip(answers) {
            if deleted {
                outcomes.done(id, "", Value::Null)?;
            } else {
                outcomes.not(id, Not::Found)?;
            }
        }
    }
    Ok(outcomes.exit())
}
