//! `dqhost move`.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use serde_json::json;

use super::config::ConfigArg;
use super::open::{self, Missing};
use super::queues::QueuesArgs;
use super::{DurabilityArg, Exit, RedisArgs, SettingsArgs, Usage, log, print};
use crate::control::is_known;
use crate::message::QueueName;
use crate::store::address::StoreAddress;
use crate::store::move_queue::{Progress, move_queue};
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct MoveArgs {
    /// Move messages out of this store
    ///
    /// Give a file, the URL of a Redis server, or env:NAME for what this environment variable holds.
    #[arg(long, value_name = "STORE")]
    from: String,
    /// Move messages into this store; a missing file is made
    #[arg(long, value_name = "STORE")]
    to: String,
    #[command(flatten)]
    queues: QueuesArgs,
    /// Go on with an interrupted move after a store was renamed
    #[arg(long)]
    renamed: bool,
    /// Print a JSON object for each queue
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    redis: RedisArgs,
}

pub(super) async fn run(args: MoveArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let (from, to) = (address("--from", &args.from)?, address("--to", &args.to)?);
    args.redis.given.check([&from, &to])?;
    let settings = SettingsArgs {
        // What has left the one store must not be undone in the other.
        durability: DurabilityArg::Full,
        redis: args.redis,
    };
    let [of_from, of_to] = [(&from, &to), (&to, &from)].map(|both| for_one(both, &settings));
    let from = open::at(&from, &of_from, Missing::Refuse).await?;
    let to = open::at(&to, &of_to, Missing::Make).await?;
    let chosen = args.queues.choose(&*from).await?;
    if chosen.queues.is_empty() {
        let store = from.describe();
        let note = chosen
            .note
            .unwrap_or_else(|| "there is no queue".to_owned());
        anyhow::bail!("nothing was moved from {store}: {note}");
    }
    for queue in args.queues.missing(&*from).await? {
        // One that has moved is there already.
        if !is_known(&*to, &queue).await? {
            anyhow::bail!(
                "there is no queue {queue} in {}, so nothing was moved",
                printable(&from.describe())
            );
        }
    }
    let shows_progress = io::stderr().is_terminal();
    for queue in chosen.queues {
        let mut is_waiting = false;
        let progress = |progress| match progress {
            Progress::Arrived(_) if !shows_progress => {}
            Progress::Arrived(messages) => {
                // Whoever reads may have gone.
                let _ = write!(io::stderr(), "\r{queue}: {messages} messages");
            }
            Progress::Waiting { in_flight } if !is_waiting => {
                is_waiting = true;
                tell!(
                    "{queue}: waiting for {in_flight} messages that hosts have in flight, until they \
                     are settled or their leases expire"
                );
            }
            Progress::Waiting { .. } => {}
        };
        let arrived = move_queue(&*from, &*to, &queue, args.renamed, progress).await?;
        if shows_progress {
            let _ = write!(io::stderr(), "\r");
        }
        let stores = (from.describe(), to.describe());
        print_moved(&queue, arrived, &stores, args.json)?;
    }
    if let Some(note) = chosen.note {
        tell!("{note}");
    }
    Ok(if chosen.complete {
        Exit::Done
    } else {
        Exit::Partly
    })
}

fn print_moved(
    queue: &QueueName,
    messages: u64,
    (from, to): &(String, String),
    as_json: bool,
) -> io::Result<()> {
    if as_json {
        let moved = json!({"queue": queue, "messages": messages, "from": from, "to": to});
        return print::json_line(&moved);
    }
    let (from, to) = (printable(from), printable(to));
    writeln!(
        print::stdout(),
        "{queue}: {messages} messages from {from} to {to}"
    )
}

/// The settings for one of two stores. What only the other can use is left out.
fn for_one((one, other): (&StoreAddress, &StoreAddress), settings: &SettingsArgs) -> SettingsArgs {
    let mut settings = settings.clone();
    let redis = &mut settings.redis;
    if !one.has_tls() && other.has_tls() {
        (redis.redis_ca, redis.redis_cert, redis.redis_key) = (None, None, None);
    }
    if one.has_password() && matches!(other, StoreAddress::Redis(_)) && !other.has_password() {
        redis.redis_password_file = None;
    }
    settings
}

/// The store that a flag names.
fn address(flag: &str, text: &str) -> Result<StoreAddress, Usage> {
    let from_environment = text.strip_prefix("env:").map(|name| {
        std::env::var(name).map_err(|_| Usage(format!("{flag} {text}: {name} is not set")))
    });
    let text = from_environment.transpose()?.unwrap_or(text.to_owned());
    match text.parse() {
        Ok(StoreAddress::Memory) => Err(Usage(format!(
            "{flag} :memory: would go with this command; give the path of a file"
        ))),
        Ok(address) => Ok(address),
        Err(error) => Err(Usage(format!("{flag}: {error}"))),
    }
}
