//! `dqhost export`: messages of a queue, one JSON object a line.

use clap::{Args, ValueEnum};

use super::open::Missing;
use super::{Exit, StoreArgs, log, open, print};
use crate::control::{WHOLE_PAYLOAD, is_known};
use crate::format;
use crate::message::{QueueName, State};
use crate::store::{Page, Store};
use crate::text::grouped;

/// Messages that are read at once.
const STEP: usize = 100;

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// Queue to export
    #[arg(value_name = "QUEUE")]
    queue: QueueName,
    /// Export messages in this state; may be repeated
    ///
    /// By default all but those in flight, which would run twice.
    #[arg(long, value_name = "STATE")]
    state: Vec<ExportedState>,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportedState {
    Pending,
    Ready,
    Unack,
    Retry,
    /// Becomes a dead letter when a host sees it
    Garbage,
    Dead,
}

impl ExportedState {
    /// In the order in which a message goes through them: what moves on meanwhile is not missed.
    const DEFAULT: [Self; 5] = [
        Self::Pending,
        Self::Ready,
        Self::Retry,
        Self::Garbage,
        Self::Dead,
    ];

    fn state(self) -> State {
        match self {
            Self::Pending => State::Pending,
            Self::Ready => State::Ready,
            Self::Unack => State::Unack,
            Self::Retry => State::Retry,
            Self::Garbage => State::Garbage,
            Self::Dead => State::Dead,
        }
    }
}

pub(super) async fn export(args: ExportArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queue = &args.queue;
    if !is_known(&*store, queue).await? {
        tell!("error: there is no queue {queue}, so nothing is exported");
        return Ok(Exit::Failed);
    }
    let states = if args.state.is_empty() {
        &ExportedState::DEFAULT[..]
    } else {
        &args.state
    };
    let mut exported = 0;
    for state in states {
        exported += print_all(&*store, queue, state.state()).await?;
    }
    let in_flight = store.counts(queue).await?.unack;
    if in_flight > 0 && !states.contains(&ExportedState::Unack) {
        let in_flight = grouped(in_flight);
        tell!("{in_flight} in flight are not exported; --state unack exports them");
    }
    tell!("{} of {queue} exported", grouped(exported));
    Ok(Exit::Done)
}

async fn print_all(store: &dyn Store, queue: &QueueName, state: State) -> anyhow::Result<u64> {
    let (mut printed, mut behind) = (0, None);
    loop {
        let page = Page {
            offset: behind.map_or(printed, |_| 0),
            limit: STEP,
            payload_max: WHOLE_PAYLOAD,
        };
        let (records, its_end) = store.list_behind(queue, state, (behind, page)).await?;
        behind = its_end.or(behind);
        for record in &records {
            print::json_line(&format::json::record(record))?;
        }
        printed += records.len();
        if records.len() < page.limit {
            return Ok(printed as u64);
        }
    }
}
