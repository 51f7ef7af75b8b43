//! `dqhost schedule`: when the schedules of `dqhost.toml` tick, a message of one of them at once, and pauses.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::config::Config;
use super::open::{self, Missing};
use super::{Exit, QueueArg, StoreArgs, Usage, log, print};
use crate::format::time::rfc3339;
use crate::message::{NewMessage, QueueName};
use crate::schedule::{Overlap, Schedule, Timing};
use crate::store::address::StoreAddress;
use crate::store::{ScheduleState, Store};
use crate::text::{grouped, human_duration, printable};

/// Ticks that are shown of each schedule.
const SHOWN: usize = 5;

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleCommand {
    /// List the schedules of dqhost.toml with their next times
    ///
    /// If the store is there, it also says which are paused, and how many ticks were skipped.
    List(Box<ListArgs>),
    /// Send the message of a schedule now, beside its ticks
    Run(Box<RunArgs>),
    /// Send nothing of a schedule on any host until `resume`
    ///
    /// The store keeps it. The ticks of the pause are missed ticks: `missed` says what becomes of them.
    Pause(Box<PauseArgs>),
    /// Send the ticks of a schedule again
    Resume(Box<PauseArgs>),
}

#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    /// Name of the schedule
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
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
    store: StoreArgs,
}

pub(super) async fn run(command: ScheduleCommand, config: &Config) -> anyhow::Result<Exit> {
    match command {
        ScheduleCommand::List(args) => list(&args, config).await,
        ScheduleCommand::Run(args) => send(*args, config).await,
        ScheduleCommand::Pause(args) => set_paused(&args, config, true).await,
        ScheduleCommand::Resume(args) => set_paused(&args, config, false).await,
    }
}

/// The schedule of this name in the settings.
fn named(config: &Config, queue: &QueueName, name: &str) -> Result<Schedule, Usage> {
    let schedules = config.schedules_of(queue, NewMessage::RETRIES_DEFAULT);
    let names: Vec<String> = schedules.iter().map(|known| known.name.clone()).collect();
    let found = schedules.into_iter().find(|schedule| schedule.name == name);
    found.ok_or_else(|| {
        let known = match (names.as_slice(), config.file_name()) {
            ([], None) => config.no_schedules(),
            ([], Some(file)) => format!("{file} has none for it"),
            (names, _) => format!("it has {}", names.join(", ")),
        };
        let name = printable(name);
        Usage(format!("queue {queue} has no schedule {name}: {known}"))
    })
}

async fn set_paused(args: &PauseArgs, config: &Config, paused: bool) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let queue = &args.queue.queue;
    let name = named(config, queue, &args.name)?.name;
    let store = open::store(&args.store, Missing::Make).await?;
    store.set_schedule_paused(queue, &name, paused).await?;
    if args.json {
        print::json_line(&json!({"queue": queue, "schedule": name, "paused": paused}))?;
    } else {
        let how = if paused { "is paused" } else { "goes on" };
        writeln!(print::stdout(), "{queue} {name} {how}")?;
    }
    Ok(Exit::Done)
}

async fn send(args: RunArgs, config: &Config) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let queue = &args.queue.queue;
    let schedule = named(config, queue, &args.name)?;
    let store = open::store(&args.store, Missing::Make).await?;
    let message = schedule.message_now(Timestamp::now());
    store.send(queue, std::slice::from_ref(&message)).await?;
    writeln!(print::stdout(), "{}", message.id)
        .with_context(|| format!("message {} was sent, so do not send it again", message.id))?;
    Ok(Exit::Done)
}

async fn list(args: &ListArgs, config: &Config) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let now = Timestamp::now();
    let mut states = States::new(&args.store);
    let has_none = |queue| config.schedules_of(queue, 0).is_empty();
    if config.tables().iter().all(has_none) {
        tell!("{}", printable(&config.no_schedules()));
    }
    for queue in config.tables() {
        if !args.queue.is_empty() && !args.queue.contains(&queue) {
            continue;
        }
        let schedules = config.schedules_of(&queue, NewMessage::RETRIES_DEFAULT);
        let mut known = if schedules.is_empty() {
            Vec::new()
        } else {
            states.of(&queue).await
        };
        for schedule in schedules {
            let at = known.iter().position(|state| state.name == schedule.name);
            let state = at.map(|at| known.swap_remove(at)).unwrap_or_default();
            let first = schedule.next(now);
            let ticks = std::iter::successors(first, |tick| schedule.next(*tick));
            let ticks: Vec<Timestamp> = ticks.take(SHOWN).collect();
            if args.json {
                let ticks: Vec<String> = ticks.iter().map(ToString::to_string).collect();
                print::json_line(&json!({
                    "queue": queue, "schedule": schedule.name, "when": schedule.describe(),
                    "next": ticks, "paused": state.paused_since_ms.is_some(),
                    "paused_since_ms": state.paused_since_ms, "skipped": state.skipped,
                    "overlap": if schedule.overlap == Overlap::Skip { "skip" } else { "run" },
                }))?;
            } else {
                print_text((&queue, &schedule, &state), &ticks, now)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// What the store keeps of schedules. It is opened with the first question, and a list of times is one
/// without it, too.
struct States<'a> {
    args: &'a StoreArgs,
    is_opened: bool,
    store: Option<Arc<dyn Store>>,
}

impl<'a> States<'a> {
    fn new(args: &'a StoreArgs) -> Self {
        Self {
            args,
            is_opened: false,
            store: None,
        }
    }

    async fn of(&mut self, queue: &QueueName) -> Vec<ScheduleState> {
        let unknown = |error: &dyn std::fmt::Display| {
            tell!("it is not known which schedules are paused: {error}");
        };
        if !std::mem::replace(&mut self.is_opened, true) {
            let opened = self.open().await;
            self.store = opened.unwrap_or_else(|error| {
                unknown(&error);
                None
            });
        }
        let Some(store) = &self.store else {
            return Vec::new();
        };
        match store.schedules(queue).await {
            Ok(states) => states,
            Err(error) => {
                unknown(&error);
                self.store = None;
                Vec::new()
            }
        }
    }

    /// None for a file that is not there yet, and for memory.
    async fn open(&self) -> anyhow::Result<Option<Arc<dyn Store>>> {
        let is_missing = match open::named_or_default(self.args)? {
            StoreAddress::File(path) => !path.exists(),
            StoreAddress::Memory => true,
            StoreAddress::Redis(_) => false,
        };
        if is_missing {
            return Ok(None);
        }
        open::existing(self.args).await
    }
}

fn print_text(
    (queue, schedule, state): (&QueueName, &Schedule, &ScheduleState),
    ticks: &[Timestamp],
    now: Timestamp,
) -> io::Result<()> {
    let mut out = print::stdout();
    let when = schedule.describe();
    write!(out, "{queue} {}: {}", schedule.name, printable(&when))?;
    match state.skipped {
        0 => {}
        1 => write!(out, ", 1 tick skipped")?,
        skipped => write!(out, ", {} ticks skipped", grouped(skipped))?,
    }
    if let Some(since_ms) = state.paused_since_ms {
        return writeln!(out, ", paused since {}", rfc3339(since_ms));
    }
    writeln!(out)?;
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
