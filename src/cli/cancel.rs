//! `dqhost cancel`.

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::open::Missing;
use super::outcome::{ChangeArgs, Not, Outcomes, Verb, not_alive, not_waiting};
use super::which::{Meant, Place, WAITING, WAITING_OR_IN_FLIGHT, WhichWaiting};
use super::{Exit, QueueArg, StoreArgs, Usage, log, open};
use crate::store::{BATCH_MAX, Cancelled};

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    which: WhichWaiting,
    /// Cancel messages in flight, too
    ///
    /// The hosts stop their handlers, and nothing that these messages return counts. What a handler has done
    /// so far stays done.
    #[arg(long)]
    kill: bool,
    /// Confirm the cancellation with --match
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn cancel(args: CancelArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue.queue;
    let place = Place {
        store: &*store,
        queue,
    };
    let (verb, states) = if args.kill {
        (Verb::KILL, WAITING_OR_IN_FLIGHT)
    } else {
        (Verb::CANCEL, WAITING)
    };
    let mut outcomes = Outcomes::new(verb, queue, args.change);
    let meant = args.which.meant();
    if args.change.dry_run {
        let why_not = if args.kill { not_alive } else { not_waiting };
        for (id, found) in place.found(meant, states).await? {
            match why_not(found.as_ref()) {
                None => outcomes.done(&id, "", Value::Null)?,
                Some(why) => outcomes.not(&id, why)?,
            }
        }
        return Ok(outcomes.exit());
    }
    let is_sure = args.yes || matches!(meant, Meant::Named(_));
    let ids = place.ids(meant, states).await?;
    if !is_sure && !ids.is_empty() {
        return Err(Usage(format!(
            "{} of {queue} would be cancelled for good; say --yes to do it, or --dry-run to see them",
            verb.several(ids.len())
        ))
        .into());
    }
    for some in ids.chunks(BATCH_MAX) {
        let answers = if args.kill {
            store.kill(queue, some).await
        } else {
            store.cancel(queue, some).await
        };
        let answers = answers.with_context(|| outcomes.before(some.len()))?;
        for (id, answer) in some.iter().zip(answers) {
            match answer {
                Cancelled::Done => outcomes.done(id, "", Value::Null)?,
                Cancelled::Killed => {
                    let fields = json!({"was_in_flight": true});
                    outcomes.done(id, "  its handler is stopped", fields)?;
                }
                Cancelled::InFlight => outcomes.not(id, Not::InFlight)?,
                Cancelled::Unknown => outcomes.not(id, Not::Found)?,
            }
        }
    }
    Ok(outcomes.exit())
}
