//! `dqhost list`, and the same for dead letters.

use std::io::{self, Write};

use clap::{Args, ValueEnum};

use super::open::Missing;
use super::page::{Output, PageArgs};
use super::table::Table;
use super::which::{Place, Progress};
use super::{Exit, QueueArg, StoreArgs, list_ended, log, open, print};
use crate::control::{Filter, Walk};
use crate::format;
use crate::message::{QueueName, Record, State};
use crate::store::{Page, StoreResult};
use crate::text::grouped;

/// The states that have a list.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ListState {
    Pending,
    Ready,
    Unack,
    Retry,
    Dead,
    Ended,
}

impl ListState {
    /// None for what is in no state any more.
    fn state(self) -> Option<State> {
        Some(match self {
            Self::Pending => State::Pending,
            Self::Ready => State::Ready,
            Self::Unack => State::Unack,
            Self::Retry => State::Retry,
            Self::Dead => State::Dead,
            Self::Ended => return None,
        })
    }
}

/// What prints messages.
enum Printer {
    Wide(Table),
    Lines,
    Json,
}

impl Printer {
    /// It prints a state's messages of a queue.
    async fn new(args: &PageArgs, place: Place<'_>, state: State) -> StoreResult<Self> {
        Ok(match args.output() {
            Output::Wide => {
                let now_ms = place.store.overview(place.queue).await?.now_ms;
                Self::Wide(Table::new(state, now_ms))
            }
            Output::Lines => Self::Lines,
            Output::Json => Self::Json,
        })
    }

    fn print(&mut self, records: &[&Record]) -> io::Result<()> {
        match self {
            Self::Wide(table) => table.print(records),
            Self::Lines => records
                .iter()
                .try_for_each(|record| print::record_line(record)),
            Self::Json => records
                .iter()
                .try_for_each(|record| print::json_line(&format::json::record(record))),
        }
    }

    /// A table without rows would leave an operator in doubt.
    fn end(&self, queue: &QueueName, state: State) {
        if let Self::Wide(table) = self
            && table.is_empty()
        {
            tell!("{queue} has no such messages in {}", state.as_str());
        }
    }
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
    let queue = &args.queue.queue;
    match args.state.state() {
        Some(state) => show_page(&args.store, queue, state, args.page).await,
        None => list_ended::show(&args.store, queue, &args.page).await,
    }
}

/// Prints a part of one state's messages.
pub(super) async fn show_page(
    store: &StoreArgs,
    queue: &QueueName,
    state: State,
    args: PageArgs,
) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(store, Missing::Refuse).await?;
    let place = Place {
        store: &*store,
        queue,
    };
    let mut printer = Printer::new(&args, place, state).await?;
    match &args.filter {
        Some(filter) => show_matching(place, (state, filter), &args, &mut printer).await?,
        None => show_all(place, state, &args, &mut printer).await?,
    }
    printer.end(queue, state);
    Ok(Exit::Done)
}

/// In steps of what a store gives at once.
async fn show_all(
    place: Place<'_>,
    state: State,
    args: &PageArgs,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let Place { store, queue } = place;
    let end = args.offset.saturating_add(args.wanted());
    let (mut offset, mut behind) = (args.offset, None);
    while offset < end {
        let page = Page {
            offset: behind.map_or(offset, |_| 0),
            limit: (end - offset).min(100),
            payload_max: args.payload_max(),
        };
        let listed = store.list_behind(queue, state, (behind, page));
        let (records, its_end) = listed.await?;
        behind = its_end.or(behind);
        printer.print(&records.iter().collect::<Vec<_>>())?;
        offset += records.len();
        if records.len() < page.limit {
            return Ok(());
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
    Ok(())
}

/// Those that match, as far as the list has to be looked through for so many.
async fn show_matching(
    place: Place<'_>,
    (state, filter): (State, &Filter),
    args: &PageArgs,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let Place { store, queue } = place;
    let mut walk = Walk::begin(store, queue, state, (filter, args.payload_max())).await?;
    let mut progress = Progress::new("looked at");
    let (mut to_pass, mut wanted) = (args.offset, args.wanted());
    while !walk.is_over() {
        let records = walk.next(store, queue).await?;
        let mut found: Vec<&Record> = records
            .iter()
            .filter(|record| filter.matches(record))
            .collect();
        let passed = to_pass.min(found.len());
        found.drain(..passed);
        to_pass -= passed;
        let is_enough = found.len() >= wanted;
        let is_more = !walk.is_over() || found.len() > wanted;
        found.truncate(wanted);
        wanted -= found.len();
        progress.clear();
        printer.print(&found)?;
        let shown = args.wanted() - wanted;
        if is_enough {
            if is_more {
                tell_more(&walk, args.offset, shown);
            }
            break;
        }
        let matching = grouped((args.offset - to_pass + shown) as u64);
        progress.tell(walk.looked_at(), &format!("{matching} match"));
    }
    Ok(())
}

/// Says that a search has ended with a full page.
fn tell_more(walk: &Walk, offset: usize, shown: usize) {
    let (looked_at, total) = (grouped(walk.looked_at() as u64), grouped(walk.total()));
    let next = offset.saturating_add(shown);
    tell!(
        "{} shown, after {looked_at} of {total} messages; --limit 0 or --offset {next} shows more",
        grouped(shown as u64)
    );
}
