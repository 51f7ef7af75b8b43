//! `dqhost run`: messages through a handler, of which nothing is kept.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use self::repeated::Repeated;
use super::sandbox::SandboxArgs;
use super::send::header;
use super::{DEFAULT_QUEUE, Exit, StoreArgs, log, number, print, source};
use crate::message::QueueName;
use crate::runtime::{Call, Effort, Handler};
use crate::store::address::Endpoints;
use crate::text;
use crate::verdict::Outcome;

pub(super) mod calls;
mod repeated;
mod report;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Handler: a WebAssembly component
    #[arg(value_parser = source::parser())]
    file: PathBuf,
    /// Payload: text, @FILE for the bytes of a file, - for stdin
    #[arg(
        long,
        value_name = "PAYLOAD",
        default_value = "",
        allow_hyphen_values = true
    )]
    payload: String,
    /// Run every message of this file, or of stdin (-)
    ///
    /// A line is a message, as `send --ndjson` takes it. Times and keys in it have no meaning here.
    /// If a line is wrong, nothing runs.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "id"])]
    messages: Option<String>,
    /// Run the dead letter with this id; it stays as it is
    ///
    /// It has the payload, the headers and the attempt that it became a dead letter with.
    #[arg(long, value_name = "ID",
        conflicts_with_all = ["payload", "messages", "headers", "id"])]
    dead: Option<String>,
    /// Run each message N times, and print a table
    ///
    /// It has the verdicts, the time of a run (p50, p99 and the longest) and the most memory.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = number::from::<u64>(1..=u64::MAX))]
    repeat: u64,
    /// Add a header for the handler; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Number this delivery [default: 1, or a dead letter's last]
    #[arg(long, value_name = "N", value_parser = number::from::<u32>(1..=u32::MAX.into()))]
    attempt: Option<u32>,
    /// Number the last delivery that the message may have
    ///
    /// By default 4, or as the line of --messages or the dead letter says.
    #[arg(long, value_name = "N", value_parser = number::from::<u32>(0..=u32::MAX.into()))]
    attempts: Option<u32>,
    /// Give the message this id [default: a new one]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Name the queue that it comes through
    #[arg(long, short, value_name = "NAME", default_value = DEFAULT_QUEUE, env = "DQHOST_QUEUE")]
    queue: QueueName,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: RunArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    // The handler reaches the store no more than it would in a host.
    let endpoints = Endpoints::default();
    let calls = calls::of(&args, &endpoints).await?;
    let permissions = args
        .sandbox
        .permissions(endpoints, calls::RETRIES_DEFAULT)?;
    // Who repeats it measures it.
    let effort = if args.repeat > 1 {
        Effort::Full
    } else {
        Effort::Quick
    };
    let runtime = args.sandbox.runtime(1, permissions)?.with_effort(effort);
    let handler = runtime.load(&args.sandbox.read(&runtime, &args.file)?)?;
    if args.repeat > 1 {
        return repeat(&handler, &calls, args.repeat, args.json).await;
    }
    let is_list = args.messages.is_some();
    let mut exit = Exit::Done;
    for (number, call) in (1..).zip(calls) {
        let shown = text::payload(&call.payload, print::PAYLOAD_IN_LIST);
        let report = handler.run(call).await;
        if args.json {
            let mut value = report::as_json(&report);
            if is_list {
                value["message"] = number.into();
            }
            print::json_line(&value)?;
        } else {
            if is_list {
                heading(number, &shown)?;
            }
            report::print_text(&report)?;
        }
        exit = worse(exit, exit_of(&report.outcome));
    }
    Ok(exit)
}

/// The line above the report of one message of several.
fn heading(number: u64, payload: &str) -> io::Result<()> {
    let gap = if number > 1 { "\n" } else { "" };
    writeln!(print::stdout(), "{gap}message   {number}: {payload}")
}

pub(super) fn exit_of(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Acked => Exit::Done,
        Outcome::Rejected { .. } => Exit::Rejected,
        _ => Exit::Failed,
    }
}

/// The exit of two runs: a failure counts more than a rejection.
pub(super) fn worse(one: Exit, other: Exit) -> Exit {
    match (one, other) {
        (Exit::Done, exit) | (exit, Exit::Done) => exit,
        (Exit::Rejected, Exit::Rejected) => Exit::Rejected,
        _ => Exit::Failed,
    }
}

async fn repeat(handler: &Handler, calls: &[Call], times: u64, json: bool) -> anyhow::Result<Exit> {
    let mut repeated = Repeated::new(calls.len())?;
    let mut exit = Exit::Done;
    for _ in 0..times {
        for (at, call) in calls.iter().enumerate() {
            let report = handler.run(call.clone()).await;
            exit = worse(exit, exit_of(&report.outcome));
            repeated.add(at, &report);
        }
    }
    if json {
        repeated.print_json()?;
    } else {
        repeated.print_table()?;
    }
    Ok(exit)
}
