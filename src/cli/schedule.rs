//! `dqhost schedule`: when the schedules of `dqhost.toml` tick, and a message of one of them at once.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::config::{Config, ConfigArg};
use super::open::{self, Missing};
use super::{Exit, QueueArg, StoreArgs, Usage, log, print};
use crate::message::{NewMessage, QueueName};
use crate::schedule::{Schedule, Timing};
use crate::text::{human_duration, printable};

/// Ticks that are shown of each schedule.
const SHOWN: usize = 5;

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    /// List the schedules of dqhost.toml with their next times
    List(ListArgs),
    /// Send the message of a schedule now, beside its ticks
    Run(Box<RunArgs>),
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Name of the schedule
    name: String,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Show this queue only; may be repeated
    #[arg(long, short, value_name = "NAME")]
    queue: Vec<QueueName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) async fn run(command: ScheduleCommand, config: &Config) -> anyhow::Result<Exit> {
    match command {
        ScheduleCommand::List(args) => list(&args, config),
        ScheduleCommand::Run(args) => send(*args, config).await,
    }
}

async fn send(args: RunArgs, config: &Config) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let queue = &args.queue.queue;
    let schedules = config.schedules_of(queue, NewMessage::RETRIES_DEFAULT);
    let Some(schedule) = schedules.iter().find(|schedule| schedule.name == args.name) else {
        let names: Vec<&str> = schedules.iter().map(|known| known.name.as_str()).collect();
        let known = if names.is_empty() {
            "dqhost.toml has none for it".to_owned()
        } else {
            format!("it has {}", names.join(", "))
        };
        let name = printable(&args.name);
        return Err(Usage(format!("queue {queue} has no schedule {name}: {known}")).into());
    };
    let store = open::store(&args.store, Missing::Make).await?;
    let message = schedule.message_now(Timestamp::now());
    store.send(queue, std::slice::from_ref(&message)).await?;
    writeln!(io::stdout().lock(), "{}", message.id)?;
    Ok(Exit::Done)
}

fn list(args: &ListArgs, config: &Config) -> anyhow::Result<Exit> {
    let now = Timestamp::now();
    for queue in config.tables() {
        if !args.queue.is_empty() && !args.queue.contains(&queue) {
            continue;
        }
        for schedule in config.schedules_of(&queue, NewMessage::RETRIES_DEFAULT) {
            let first = schedule.next(now);
            let ticks = std::iter::successors(first, |tick| schedule.next(*tick));
            let ticks: Vec<Timestamp> = ticks.take(SHOWN).collect();
            if args.json {
                let ticks: Vec<String> = ticks.iter().map(ToString::to_string).collect();
                print::json_line(&json!({
                    "queue": queue, "schedule": schedule.name, "when": schedule.describe(),
                    "next": ticks,
                }))?;
            } else {
                print_text(&queue, &schedule, &ticks, now)?;
            }
        }
    }
    Ok(Exit::Done)
}

fn print_text(
    queue: &QueueName,
    schedule: &Schedule,
    ticks: &[Timestamp],
    now: Timestamp,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let when = schedule.describe();
    writeln!(out, "{queue} {}: {}", schedule.name, printable(&when))?;
    let zone = match &schedule.timing {
        Timing::Cron(_, zone) => zone.clone(),
        Timing::Every(_) => TimeZone::UTC,
    };
    for tick in ticks {
        let left = Duration::try_from(tick.duration_since(now)).unwrap_or_default();
        let at = tick
            .to_zoned(zone.clone())
            .strftime("%a %Y-%m-%d %H:%M:%S %:z");
        writeln!(out, "  {at}  in {}", human_duration(left))?;
    }
    Ok(())
}
