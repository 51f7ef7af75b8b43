//! `dqhost purge`.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Context;
use clap::Args;
use serde_json::json;

use super::open::Missing;
use super::outcome::how_much;
use super::which::{Place, Progress, WAITING};
use super::{Exit, StoreArgs, Usage, log, number, open, print};
use crate::control::{Filter, Match, is_known};
use crate::message::{MessageId, QueueName, State};
use crate::store::{BATCH_MAX, Cancelled, Page, StoreResult};
use crate::text::{grouped, printable};

/// Messages in flight that are named.
const NAMED_MAX: usize = 10;

#[derive(Debug, Args)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    which: WhichQueue,
    /// Remove dead letters, too
    #[arg(long)]
    dead: bool,
    /// Confirm that so many messages are removed
    ///
    /// If the queue has another number of them, nothing is removed. On a terminal the number is asked
    /// for.
    #[arg(long, value_name = "N", value_parser = number::from::<u64>(0..=u64::MAX))]
    count: Option<u64>,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

/// A queue that has to be named: no variable of the environment chooses what is emptied.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct WhichQueue {
    /// Queue to empty
    #[arg(value_name = "QUEUE")]
    name: Option<QueueName>,
    /// Use this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<QueueName>,
}

/// What was there when the question was asked.
struct Found {
    waiting: Vec<Match>,
    dead: Vec<Match>,
}

impl Found {
    /// By the list that they come from, waiting messages first.
    async fn look(place: Place<'_>, with_dead: bool) -> StoreResult<Self> {
        let all = (&Filter::default(), 0);
        Ok(Self {
            waiting: place.matching(WAITING, all).await?,
            dead: if with_dead {
                place.matching(&[State::Dead], all).await?
            } else {
                Vec::new()
            },
        })
    }

    fn total(&self) -> u64 {
        (self.waiting.len() + self.dead.len()) as u64
    }

    /// `3 pending, 4 ready`
    fn by_state(&self) -> String {
        let count = |state| {
            let is_there = |found: &&Match| found.state == state;
            let all = self.waiting.iter().chain(&self.dead);
            let count = all.filter(is_there).count();
            (count > 0).then(|| format!("{} {}", grouped(count as u64), state.as_str()))
        };
        let states = [State::Pending, State::Ready, State::Retry, State::Dead];
        let parts: Vec<String> = states.into_iter().filter_map(count).collect();
        parts.join(", ")
    }
}

/// What was done.
#[derive(Debug, Default)]
struct Removed {
    cancelled: usize,
    deleted: usize,
    /// Messages that a host has taken since.
    taken: usize,
    /// Messages that were gone by then.
    gone: usize,
}

impl Removed {
    /// What is said when the store fails with the next `asking`.
    fn before(&self, queue: &QueueName, asking: usize) -> String {
        let [cancelled, deleted, next] =
            [self.cancelled, self.deleted, asking].map(|count| grouped(count as u64));
        format!(
            "{cancelled} messages of {queue} were cancelled and {deleted} dead letters deleted before; of \
             the next {next}, some may have been"
        )
    }
}

pub(super) async fn purge(args: PurgeArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let Some(queue) = args.which.name.as_ref().or(args.which.queue.as_ref()) else {
        return Err(Usage("name the queue".to_owned()).into());
    };
    let store = open::store(&args.store, Missing::Refuse).await?;
    let place = Place {
        store: &*store,
        queue,
    };
    if !is_known(&*store, queue).await? {
        tell!("error: there is no queue {queue}, so nothing is removed");
        return Ok(Exit::Failed);
    }
    let found = Found::look(place, args.dead).await?;
    tell_what_stays(place).await?;
    if args.dry_run {
        print_dry(queue, &found, args.json)?;
        return Ok(Exit::Done);
    }
    if !is_confirmed(queue, &found, args.count)? {
        tell!("nothing is removed");
        return Ok(Exit::Failed);
    }
    let removed = remove(place, &found).await?;
    print_removed(queue, &removed, args.json)?;
    Ok(how_much(
        removed.cancelled + removed.deleted,
        found.waiting.len() + found.dead.len(),
    ))
}

/// Names what is in flight, and says what is on its way to another store.
async fn tell_what_stays(place: Place<'_>) -> StoreResult<()> {
    let Place { store, queue } = place;
    let page = Page {
        offset: 0,
        limit: NAMED_MAX,
        payload_max: 0,
    };
    let in_flight = store.list(queue, State::Unack, page).await?;
    let counts = store.counts(queue).await?;
    if !in_flight.is_empty() {
        let ids: Vec<&str> = in_flight.iter().map(|record| record.id.as_str()).collect();
        let total = counts.unack.max(ids.len() as u64);
        let more = if total > ids.len() as u64 {
            ", ..."
        } else {
            ""
        };
        tell!(
            "{} in flight stay: {}{more}",
            grouped(total),
            printable(&ids.join(", "))
        );
    }
    if counts.moving > 0 {
        let moving = grouped(counts.moving);
        tell!("{moving} on their way to or from another store stay");
    }
    Ok(())
}

/// Whether so many are to be removed.
fn is_confirmed(queue: &QueueName, found: &Found, count: Option<u64>) -> anyhow::Result<bool> {
    let total = found.total();
    let there = match total {
        0 => format!("{queue} has no such messages"),
        _ => format!(
            "{queue} has {} such messages ({})",
            grouped(total),
            found.by_state()
        ),
    };
    match count {
        Some(count) if count == total => Ok(true),
        Some(count) => {
            tell!("error: {there}, not {}", grouped(count));
            Ok(false)
        }
        None if total == 0 => Ok(true),
        None if io::stdin().is_terminal() && io::stderr().is_terminal() => {
            let mut err = io::stderr().lock();
            write!(err, "{there}.\nType {total} to remove them for good: ")?;
            err.flush()?;
            let mut line = String::new();
            io::stdin()
                .lock()
                .read_line(&mut line)
                .context("reading the number")?;
            Ok(line.trim() == total.to_string())
        }
        None => Err(Usage(format!(
            "{there}; say --count {total} to remove them for good, or --dry-run to see them"
        ))
        .into()),
    }
}

/// Removes what was found, and nothing that has come since.
async fn remove(place: Place<'_>, found: &Found) -> anyhow::Result<Removed> {
    let Place { store, queue } = place;
    let mut removed = Removed::default();
    let mut progress = Progress::new("removed");
    let total = grouped(found.total());
    for some in found.waiting.chunks(BATCH_MAX) {
        let answers = store.cancel(queue, &ids(some)).await;
        for answer in answers.with_context(|| removed.before(queue, some.len()))? {
            match answer {
                Cancelled::Done | Cancelled::Killed => removed.cancelled += 1,
                Cancelled::InFlight => removed.taken += 1,
                Cancelled::Unknown => removed.gone += 1,
            }
        }
        progress.tell(removed.cancelled, &format!("of {total}"));
    }
    for some in found.dead.chunks(BATCH_MAX) {
        let answers = store.delete_dead(queue, &ids(some)).await;
        for deleted in answers.with_context(|| removed.before(queue, some.len()))? {
            removed.deleted += usize::from(deleted);
            removed.gone += usize::from(!deleted);
        }
        progress.tell(removed.cancelled + removed.deleted, &format!("of {total}"));
    }
    Ok(removed)
}

fn ids(found: &[Match]) -> Vec<MessageId> {
    found.iter().map(|found| found.id.clone()).collect()
}

/// Prints the ids that would be removed, and says how many they are.
fn print_dry(queue: &QueueName, found: &Found, as_json: bool) -> anyhow::Result<()> {
    let all = found.waiting.iter().chain(&found.dead);
    if as_json {
        let ids: Vec<&MessageId> = all.map(|found| &found.id).collect();
        print::json_line(&json!({
            "queue": queue, "dry_run": true, "ids": ids,
            "cancelled": found.waiting.len(), "deleted": found.dead.len(),
        }))?;
    } else {
        let mut out = print::stdout();
        for found in all {
            writeln!(out, "{}", printable(found.id.as_str()))?;
        }
    }
    let (total, by_state) = (grouped(found.total()), found.by_state());
    let by_state = if by_state.is_empty() {
        by_state
    } else {
        format!(" ({by_state})")
    };
    tell!(
        "{total} of {queue}{by_state} would be removed; this is a dry run, and nothing is changed"
    );
    Ok(())
}

fn print_removed(queue: &QueueName, removed: &Removed, as_json: bool) -> io::Result<()> {
    if as_json {
        return print::json_line(&json!({
            "queue": queue,
            "cancelled": removed.cancelled, "deleted": removed.deleted,
            "taken": removed.taken, "gone": removed.gone,
        }));
    }
    let [cancelled, deleted, taken, gone] = [
        removed.cancelled,
        removed.deleted,
        removed.taken,
        removed.gone,
    ]
    .map(|count| grouped(count as u64));
    writeln!(
        print::stdout(),
        "{queue}: {cancelled} cancelled, {deleted} deleted"
    )?;
    if removed.taken + removed.gone > 0 {
        tell!("meanwhile a host has taken {taken}, and {gone} were gone");
    }
    Ok(())
}
