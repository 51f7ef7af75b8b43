//! `dqhost stats`, `get`, `list` and `cancel`.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::fail_if::Condition;
use super::open::Missing;
use super::queues::QueuesArgs;
use super::{Exit, QueueArg, StoreArgs, log, number, open, print, time};
use crate::format;
use crate::message::{MessageId, QueueName, State};
use crate::store::{
    Cancelled, Counts, HOST_SILENCE, Overview, Page, SeenHost, Store, StoreError, StoreResult,
};
use crate::text::{grouped, printable};

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    queues: QueuesArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Fail if a queue meets one of these: dead>0,lag>60s
    ///
    /// Compare pending, ready, unack, retry, dead, moving, hosts or lag with a number by >, >=, <, <= or
    /// =. lag is how long the next ready message has waited. The exit code is 1 then.
    #[arg(long, value_name = "CONDITIONS", value_delimiter = ',')]
    fail_if: Vec<Condition>,
    /// Print again every so often [default: 2s]
    ///
    /// It ends at the first reading that --fail-if fails, or with Ctrl-C.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true,
        default_missing_value = "2s", value_parser = time::some_duration)]
    watch: Option<Duration>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn stats(args: StatsArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    loop {
        let exit = stats_once(&args, &*store).await?;
        match args.watch {
            Some(every) if exit == Exit::Done => tokio::time::sleep(every).await,
            _ => return Ok(exit),
        }
    }
}

/// Says which conditions are met; true if any is.
fn tell_met(conditions: &[Condition], rows: &[(QueueName, Overview, Vec<SeenHost>)]) -> bool {
    let mut is_any = false;
    for (queue, overview, hosts) in rows {
        for condition in conditions {
            if let Some(found) = condition.met(overview, hosts.len()) {
                is_any = true;
                tell!("queue {queue}: {found} ({condition})");
            }
        }
    }
    is_any
}

async fn stats_once(args: &StatsArgs, store: &dyn Store) -> anyhow::Result<Exit> {
    let chosen = args.queues.choose(store).await?;
    let queues = chosen.queues;
    if let Some(note) = chosen.note
        && (queues.is_empty() || !chosen.complete)
    {
        tell!("{note}");
    }
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for queue in queues {
        match row_of(store, &queue).await {
            Ok((overview, hosts)) => rows.push((queue, overview, hosts)),
            // One that is broken hides no other.
            Err(error @ StoreError::Refused { .. }) => refused.push((queue, error)),
            Err(error) => return Err(error.into()),
        }
    }
    if args.json {
        let mut queues: Vec<_> = rows
            .iter()
            .map(|(queue, overview, hosts)| format::json::stats(queue, overview, hosts))
            .collect();
        let errors = refused.iter();
        queues.extend(
            errors.map(|(queue, error)| json!({"queue": queue, "error": error.to_string()})),
        );
        print::json_line(&json!({"store": store.describe(), "queues": queues}))?;
    } else {
        let flags = printable(&open::flags(&args.store)).into_owned();
        print_stats(&store.describe(), &flags, &rows)?;
    }
    for (queue, overview, _) in &rows {
        // One that was used under these names is no doubt the one that is meant.
        if overview.counts == Counts::default()
            && let Some(hint) = open::naming_hint(store, queue).await
        {
            tell!("queue {queue}: {hint}");
        }
    }
    for (queue, error) in &refused {
        let error = error.to_string();
        tell!("error: queue {queue} is not shown: {}", printable(&error));
    }
    if tell_met(&args.fail_if, &rows) {
        return Ok(Exit::Failed);
    }
    Ok(how_much(rows.len(), rows.len() + refused.len()))
}

async fn row_of(store: &dyn Store, queue: &QueueName) -> StoreResult<(Overview, Vec<SeenHost>)> {
    let overview = store.overview(queue).await?;
    Ok((overview, store.hosts(queue, HOST_SILENCE).await?))
}

/// A line for each queue: its counts and its hosts.
/// `flags` name the store again, in the commands that are advised.
fn print_stats(
    store: &str,
    flags: &str,
    rows: &[(QueueName, Overview, Vec<SeenHost>)],
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "store {}", printable(store))?;
    writeln!(
        out,
        "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} | {:>10} {:>10} {:>10} {:>8} | {:>5}",
        "QUEUE",
        "PENDING",
        "READY",
        "UNACK",
        "RETRY",
        "DEAD",
        "SENT",
        "ACKED",
        "NACKED",
        "DIED",
        "HOSTS",
    )?;
    for (queue, overview, hosts) in rows {
        let (c, t) = (overview.counts, overview.counts.totals);
        writeln!(
            out,
            "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} | {:>10} {:>10} {:>10} {:>8} | {:>5}",
            queue.as_str(),
            c.pending,
            c.ready,
            c.unack,
            c.retry,
            c.dead,
            t.sent,
            t.acked,
            t.nacked,
            t.dead,
            hosts.len(),
        )?;
    }
    for (queue, overview, _) in rows {
        let c = overview.counts;
        if overview.paused {
            writeln!(
                out,
                "{queue} is paused: `dqhost resume --queue {queue}{flags}` resumes it"
            )?;
        }
        if overview.limited > 0 {
            let limited = grouped(overview.limited);
            writeln!(
                out,
                "{queue}: a limit holds back {limited} messages that are due"
            )?;
        }
        if c.moving == 0 {
            continue;
        }
        writeln!(
            out,
            "{queue}: {} messages are on their way to or from another store; if no `dqhost move` \
             runs, run it again to end it",
            c.moving
        )?;
    }
    Ok(())
}

#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// Id of the message
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
    let Some(record) = store.get(queue, &MessageId::from(args.id.as_str())).await? else {
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

/// The states that have a list.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ListState {
    Pending,
    Ready,
    Unack,
    Retry,
    Dead,
}

impl From<ListState> for State {
    fn from(state: ListState) -> Self {
        match state {
            ListState::Pending => Self::Pending,
            ListState::Ready => Self::Ready,
            ListState::Unack => Self::Unack,
            ListState::Retry => Self::Retry,
            ListState::Dead => Self::Dead,
        }
    }
}

/// Which part of a list, and how it is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct PageArgs {
    /// List so many messages at most; 0 lists all
    #[arg(long, value_name = "N", default_value_t = 50,
        value_parser = number::from::<usize>(0..=u64::MAX))]
    limit: usize,
    /// Pass over so many messages first
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = number::from::<usize>(0..=u64::MAX))]
    offset: usize,
    /// Print a JSON object for each message
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// State to list
    state: ListState,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn list(args: ListArgs) -> anyhow::Result<Exit> {
    show_page(&args.store, &args.queue.queue, args.state.into(), args.page).await
}

/// Prints a part of one state's messages, in steps of what a store gives at once.
pub(super) async fn show_page(
    store: &StoreArgs,
    queue: &QueueName,
    state: State,
    args: PageArgs,
) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(store, Missing::Refuse).await?;
    let payload_max = if args.json {
        usize::MAX >> 1
    } else {
        print::PAYLOAD_IN_LIST + 1
    };
    let wanted = if args.limit == 0 {
        usize::MAX
    } else {
        args.limit
    };
    let end = args.offset.saturating_add(wanted);
    let mut offset = args.offset;
    while offset < end {
        let limit = (end - offset).min(100);
        let records = store
            .list(
                queue,
                state,
                Page {
                    offset,
                    limit,
                    payload_max,
                },
            )
            .await?;
        for record in &records {
            if args.json {
                print::json_line(&format::json::record(record))?;
            } else {
                print::record_line(record)?;
            }
        }
        offset += records.len();
        if records.len() < limit {
            return Ok(Exit::Done);
        }
    }
    let total = store.counts(queue).await?.of(state);
    if total > offset as u64 {
        let (shown, total) = (grouped((offset - args.offset) as u64), grouped(total));
        // The terminal may have gone.
        let _ = writeln!(
            io::stderr(),
            "{shown} of {total} shown; --limit 0 or --offset {offset} shows more"
        );
    }
    Ok(Exit::Done)
}

/// Messages that are named.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// Ids of the messages
    #[arg(required = true)]
    ids: Vec<String>,
}

impl Named {
    pub(super) fn ids(&self) -> Vec<MessageId> {
        self.ids.iter().map(|id| id.as_str().into()).collect()
    }
}

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn cancel(args: CancelArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let ids = args.named.ids();
    let answers = store.cancel(&args.queue.queue, &ids).await?;
    let mut done = 0;
    for (id, answer) in ids.iter().zip(answers) {
        let id = printable(id.as_str());
        match answer {
            Cancelled::Done => {
                done += 1;
                writeln!(io::stdout().lock(), "{id}")?;
            }
            Cancelled::InFlight => tell!("{id} is not cancelled: a host is handling it"),
            Cancelled::Unknown => {
                tell!("{id} is not cancelled: it does not wait in this queue");
            }
        }
    }
    Ok(how_much(done, ids.len()))
}

/// The exit code for so many done of so many asked.
pub(super) fn how_much(done: usize, asked: usize) -> Exit {
    match done {
        _ if done == asked => Exit::Done,
        0 => Exit::Failed,
        _ => Exit::Partly,
    }
}
