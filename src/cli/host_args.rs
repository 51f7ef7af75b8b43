//! The flags of a host, which are the keys of `dqhost.toml` as well.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use super::backoff_args::BackoffArgs;
use super::listen::ListenArgs;
use super::log::LogArgs;
use super::machine_memory;
use super::number::NumberOrAuto;
use super::queue_limits::QueueLimitsArgs;
use super::sandbox::SandboxArgs;
use super::screen::ScreenArgs;
use super::traces::TraceArgs;
use super::{StoreArgs, Usage, number, source, time};
use crate::host::{QueueSettings, SlotCount};
use crate::message::{NewMessage, QueueName, RETRIES_MAX};

/// More slots than this are refused: each reserves address space for its memory.
pub(super) const SLOTS_MAX: u64 = 4096;

/// With slots that the host finds out itself: the fewest that there has to be room for, and the most.
pub(super) const AUTO_SLOTS: (usize, usize) = (16, 1024);

/// Of more messages than this it is not kept how they ended: whoever asks for one looks through all.
const KEEP_ENDED_MAX: u64 = 100_000;

/// More bytes of results than this are refused: one step of the store looks through all of them.
const KEEP_RESULTS_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(super) struct UpArgs {
    /// Handle messages with this WebAssembly component
    ///
    /// It exports dqhost:queue/handler. FILE may be https://HOST/PATH#sha256=HEX or
    /// oci://HOST/NAME@sha256:HEX: what comes from there is kept by its digest.
    #[arg(long, value_name = "FILE", value_parser = source::parser(), env = "DQHOST_HANDLER")]
    pub handler: Option<PathBuf>,
    /// Serve this queue; may be repeated [default: default]
    ///
    /// With =FILE the queue has a handler of its own instead of --handler.
    #[arg(
        long,
        short,
        value_name = "NAME[=FILE]",
        env = "DQHOST_QUEUE",
        value_delimiter = ','
    )]
    pub queue: Vec<QueueSpec>,
    /// Run so many handlers at a time, over all queues
    ///
    /// With auto, the host finds out for each queue how many get the most done, up to 1024 for all.
    #[arg(long, value_name = "N|auto", default_value = number::AUTO, env = "DQHOST_SLOTS",
        value_parser = number::or_auto(1..=SLOTS_MAX))]
    pub slots: NumberOrAuto,
    /// Give all handlers so much memory, in MiB, with --slots auto
    ///
    /// The default is a quarter of the machine's or of its control group's. At least one handler of each queue
    /// can run, whatever memory it takes.
    #[arg(long, value_name = "MIB", env = "DQHOST_MEMORY_TOTAL", hide_short_help = true,
        value_parser = number::from::<u32>(1..=u32::MAX.into()))]
    pub memory_total: Option<u32>,
    /// Let handlers finish for so long when the host stops
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = time::duration,
        env = "DQHOST_DRAIN")]
    pub drain: Duration,
    /// Load a handler or dqhost.toml again when its file changes
    ///
    /// SIGHUP does so at any time. A file that cannot be used changes nothing.
    #[arg(long, env = "DQHOST_WATCH", value_parser = clap::builder::BoolishValueParser::new())]
    pub watch: bool,
    /// Stop when no message waits and none is in flight
    #[arg(long)]
    pub exit_when_empty: bool,
    /// Refuse to start if the handler of any queue cannot be loaded
    #[arg(long, env = "DQHOST_STRICT", value_parser = clap::builder::BoolishValueParser::new())]
    pub strict: bool,
    /// Report events to the monitors of a delayqueue
    ///
    /// They are published in Redis in its format, whether a monitor is there or not.
    #[arg(long, env = "DQHOST_REPORT_EVENTS", value_parser = clap::builder::BoolishValueParser::new())]
    pub report_events: bool,
    #[command(flatten)]
    pub log: LogArgs,
    /// Print log lines instead of opening the dashboard
    ///
    /// Without a terminal this is the default.
    #[arg(long, env = "DQHOST_NO_TUI", value_parser = clap::builder::BoolishValueParser::new())]
    pub no_tui: bool,
    #[command(flatten)]
    pub delivery: DeliveryArgs,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub traces: TraceArgs,
    #[command(flatten)]
    pub screen: ScreenArgs,
    #[command(flatten)]
    pub store: StoreArgs,
}

impl UpArgs {
    /// How many handlers run at a time, if the sandbox has room for so many.
    pub(super) fn slot_count(&self, room: usize) -> Result<SlotCount, Usage> {
        match (self.slots, self.memory_total) {
            (NumberOrAuto::Number(_), Some(_)) => Err(Usage(
                "--memory-total is for --slots auto: with a number of slots, --memory limits each of them"
                    .to_owned(),
            )),
            (NumberOrAuto::Number(slots), None) => Ok(SlotCount::Fixed(slots)),
            (NumberOrAuto::Auto, mib) => {
                let given = mib.map(|mib| u64::from(mib) * 1024 * 1024);
                let bytes = given.unwrap_or_else(machine_memory::quarter);
                Ok(SlotCount::Auto {
                    most: room,
                    memory: usize::try_from(bytes).unwrap_or(usize::MAX),
                })
            }
        }
    }
}

/// How the messages of a queue are handled. Each flag is a key of a queue's table as well.
#[derive(Debug, Args)]
#[command(next_help_heading = "Delivery")]
pub(super) struct DeliveryArgs {
    /// Own a message so long before other hosts may take it
    ///
    /// A lease is renewed while its handler runs. If a host crashes, its messages are delivered again
    /// so much later.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = time::lease,
        env = "DQHOST_LEASE")]
    pub lease: Duration,
    /// Retry so often if the producer recorded no number
    #[arg(long, value_name = "N", default_value_t = NewMessage::RETRIES_DEFAULT,
        env = "DQHOST_RETRIES",
        value_parser = number::from::<u32>(0..=RETRIES_MAX.into()))]
    pub retries: u32,
    #[command(flatten)]
    pub backoff: BackoffArgs,
    /// Keep dead letters for so long
    ///
    /// If no host of the queue sets this, dead letters are kept until they are deleted.
    #[arg(long, value_name = "DURATION", value_parser = dead_max_age,
        env = "DQHOST_DEAD_MAX_AGE")]
    pub dead_max_age: Option<Duration>,
    /// Keep the latest so many dead letters of each queue
    ///
    /// If no host of the queue sets this, all are kept.
    #[arg(long, value_name = "N", env = "DQHOST_DEAD_MAX",
        value_parser = number::from::<u32>(0..=u32::MAX.into()))]
    pub dead_max: Option<u32>,
    /// Redrive a message so often at most, unless forced
    ///
    /// It holds for the dashboard and the HTTP API of this host. In dqhost.toml, it also holds for
    /// `dqhost dead redrive`, which has --force.
    #[arg(long, value_name = "N", env = "DQHOST_MAX_REDRIVES", hide_short_help = true,
        value_parser = number::from::<u32>(0..=u32::MAX.into()))]
    pub max_redrives: Option<u32>,
    /// Keep how so many messages ended, the latest of each queue
    ///
    /// `dqhost get ID` and `dqhost list ended` show it. With 0 this host keeps nothing of the kind.
    #[arg(long, value_name = "N", default_value_t = QueueSettings::KEEP_ENDED_DEFAULT,
        env = "DQHOST_KEEP_ENDED",
        value_parser = number::from::<usize>(0..=KEEP_ENDED_MAX))]
    pub keep_ended: usize,
    /// Keep the latest results of handlers, so many bytes
    ///
    /// `dqhost get ID` shows them. Of each queue at most 1000 are kept, and none with 0 or --keep-ended 0.
    #[arg(long, value_name = "BYTES", default_value_t = QueueSettings::KEEP_RESULTS_DEFAULT,
        env = "DQHOST_KEEP_RESULTS",
        value_parser = number::from::<usize>(0..=KEEP_RESULTS_MAX))]
    pub keep_results: usize,
    #[command(flatten)]
    pub limits: QueueLimitsArgs,
}

impl DeliveryArgs {
    /// Refuses values that are right each by itself and not together.
    pub(super) fn check(&self) -> Result<(), Usage> {
        self.backoff.backoff()?;
        self.limits.limits()?;
        Ok(())
    }
}

fn dead_max_age(text: &str) -> Result<Duration, String> {
    match time::duration(text)? {
        Duration::ZERO => {
            Err("it must be more than zero, or every dead letter is deleted at once".to_owned())
        }
        age => Ok(age),
    }
}

/// `NAME` or `NAME=FILE`.
#[derive(Debug, Clone)]
pub(super) struct QueueSpec {
    pub name: QueueName,
    pub handler: Option<PathBuf>,
}

impl FromStr for QueueSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, handler) = match text.split_once('=') {
            Some((_, "")) => return Err("the handler's file is missing after =".to_owned()),
            Some((name, file)) => {
                let file = PathBuf::from(file);
                source::check(&file)?;
                (name, Some(file))
            }
            None => (text, None),
        };
        Ok(Self {
            name: name.parse().map_err(|error| format!("{error}"))?,
            handler,
        })
    }
}
