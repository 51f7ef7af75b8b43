//! `dqhost dead try`: what another handler would answer for dead letters, which stay as they are.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::open::{self, Missing};
use super::outcome::how_much;
use super::run::calls;
use super::sandbox::SandboxArgs;
use super::which::{Place, WhichDead};
use super::{Exit, QueueArg, StoreArgs, log, print, source};
use crate::control::call_of;
use crate::message::{MessageId, QueueName, State};
use crate::runtime::{Handler, Report};
use crate::store::address::Endpoints;
use crate::store::{Redrive, Redriven, Store};
use crate::text::printable;
use crate::verdict::Outcome;

/// How often a message of a queue may be redriven, as its settings say.
pub(super) type MaxRedrives<'a> = &'a (dyn Fn(&QueueName) -> Option<u32> + Sync);

#[derive(Debug, Args)]
pub(super) struct TryArgs {
    #[command(flatten)]
    which: WhichDead,
    /// Handler: a WebAssembly component
    ///
    /// Each dead letter runs as it was delivered last. The handler may do only what the flags allow, and
    /// what it sends is dropped.
    #[arg(long, value_name = "FILE", value_parser = source::parser(), env = "DQHOST_HANDLER")]
    handler: PathBuf,
    /// Redrive each dead letter that the handler acks
    #[arg(long)]
    redrive: bool,
    /// Print JSON, a line for each dead letter
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// What became of one dead letter.
struct Tried {
    id: MessageId,
    /// Why there was nothing to run, or what the handler answered.
    report: Result<Report, String>,
    /// What it was redriven as, or why it was not.
    redriven: Option<Result<MessageId, &'static str>>,
}

impl Tried {
    fn is_acked(&self) -> bool {
        let report = self.report.as_ref();
        report.is_ok_and(|report| report.outcome == Outcome::Acked)
    }
}

pub(super) async fn dead_try(args: TryArgs, max_of: MaxRedrives<'_>) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    // The handler reaches the store no more than it would in a host.
    let endpoints = Endpoints::default();
    let store = open::store_noting(&args.store, Missing::Refuse, &endpoints).await?;
    let permissions = args
        .sandbox
        .permissions(endpoints, calls::RETRIES_DEFAULT)?;
    let runtime = args.sandbox.runtime(1, permissions)?;
    let handler = runtime.load(&args.sandbox.read(&runtime, &args.handler)?)?;
    let queue = &args.queue.queue;
    let place = Place {
        store: &*store,
        queue,
    };
    let how = Redrive {
        retries: None,
        max_redrives: max_of(queue),
    };
    let ids = place.ids(args.which.meant(), &[State::Dead]).await?;
    let (mut acked, all) = (0, ids.len());
    for id in ids {
        let mut tried = run(&*store, queue, id, &handler).await?;
        if tried.is_acked() {
            acked += 1;
            if args.redrive {
                tried.redriven = Some(redrive(&*store, queue, &tried.id, how).await?);
            }
        }
        if args.json {
            print_json(&tried)?;
        } else {
            print_text(&tried)?;
        }
    }
    if !args.json {
        writeln!(print::stdout(), "{acked} of {all} acked")?;
    }
    Ok(how_much(acked, all))
}

async fn run(
    store: &dyn Store,
    queue: &QueueName,
    id: MessageId,
    handler: &Handler,
) -> anyhow::Result<Tried> {
    let report = match store.get(queue, &id).await? {
        None => Err(format!("it is no dead letter of {queue}")),
        Some(record) => match call_of(queue, record) {
            Ok(call) => Ok(handler.run(call).await),
            Err(reason) => Err(reason),
        },
    };
    Ok(Tried {
        id,
        report,
        redriven: None,
    })
}

async fn redrive(
    store: &dyn Store,
    queue: &QueueName,
    id: &MessageId,
    how: Redrive,
) -> anyhow::Result<Result<MessageId, &'static str>> {
    let mut answers = store.redrive(queue, std::slice::from_ref(id), how).await?;
    Ok(match answers.pop() {
        Some(Redriven::As(new)) => Ok(new),
        Some(Redriven::PayloadMissing) => Err("its payload is missing from the store"),
        Some(Redriven::TooOften(_)) => Err("it was redriven as often as its queue allows"),
        Some(Redriven::Unknown) | None => Err("it is no dead letter any more"),
    })
}

fn print_text(tried: &Tried) -> io::Result<()> {
    let mut out = print::stdout();
    write!(out, "{} ", printable(tried.id.as_str()))?;
    match &tried.report {
        Err(reason) => write!(out, "not run: {}", printable(reason))?,
        Ok(report) => {
            write!(out, "{}", report.outcome.class())?;
            let reason = report.outcome.reason();
            if !reason.is_empty() {
                write!(out, ": {}", printable(&reason))?;
            }
        }
    }
    match &tried.redriven {
        None => writeln!(out),
        Some(Ok(new)) => writeln!(out, " -> {new}"),
        Some(Err(reason)) => writeln!(out, ", not redriven: {reason}"),
    }
}

fn print_json(tried: &Tried) -> io::Result<()> {
    let report = tried.report.as_ref();
    let redriven = tried.redriven.as_ref();
    print::json_line(&json!({
        "id": tried.id,
        "verdict": report.ok().map(|report| report.outcome.class()),
        "reason": report.map_or_else(Clone::clone, |report| report.outcome.reason()),
        "duration_ms": report.ok().map(|report| report.duration.as_secs_f64() * 1000.0),
        "redriven_as": redriven.and_then(|redriven| redriven.as_ref().ok()),
        "not_redriven": redriven.and_then(|redriven| redriven.as_ref().err()),
    }))
}
