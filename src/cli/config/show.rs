//! `dqhost config`: what holds, where it comes from, and which keys there are.

use std::io::Write;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Subcommand};

use super::file::nowhere;
use super::keys::{self, Key, Kind, Setting};
use super::{Config, last, schema};
use crate::cli::host_args::UpArgs;
use crate::cli::number::AUTO;
use crate::cli::{Exit, Usage, print, source};
use crate::dashboard::Fact;
use crate::message::QueueName;
use crate::store::address::StoreAddress;
use crate::text::{printable, printable_json};

/// Stands for what is not shown.
const HIDDEN: &str = "***";

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ConfigCommand {
    /// Show every setting, as a file that would set it
    ///
    /// It takes every flag of `dqhost up`, and shows what a host with them would use. Passwords, values of
    /// variables and what follows the ? of a handler's address are not shown. A line with *** instead of a
    /// password or a value is a comment.
    Show(Box<ShowArgs>),
    /// Check the file: its keys and their values
    Check(Box<CheckArgs>),
    /// Print the JSON schema of the file, for editors
    Schema,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    /// Show where each value comes from
    #[arg(long)]
    origin: bool,
    #[command(flatten)]
    up: UpArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    #[command(flatten)]
    up: UpArgs,
}

pub(in crate::cli) fn run(command: ConfigCommand, config: &Config) -> anyhow::Result<Exit> {
    match command {
        ConfigCommand::Schema => {
            writeln!(print::stdout(), "{}", schema::text())?;
        }
        ConfigCommand::Show(args) => show(&args, config)?,
        ConfigCommand::Check(args) => {
            let Some(file) = &config.file else {
                return Err(Usage(nowhere()).into());
            };
            args.up.slot_count(1)?;
            let queues = config.queue_names(&args.up);
            if queues.is_empty() {
                args.up.delivery.check()?;
            }
            for queue in &queues {
                let (of_queue, _) = config.of_queue(queue)?;
                of_queue.delivery.check().map_err(|Usage(reason)| {
                    let place = config.place_of(&reason, queue);
                    Usage(format!("{place}queue {queue}: {reason}"))
                })?;
            }
            let names: Vec<String> = queues.iter().map(ToString::to_string).collect();
            writeln!(
                print::stdout(),
                "{}: no mistakes; queues: {}",
                file.name,
                names.join(", ")
            )?;
        }
    }
    Ok(Exit::Done)
}

/// A value, and where it comes from.
struct Shown {
    name: String,
    value: String,
    origin: String,
}

/// What is shown under a heading; that of the whole host has none.
type Section = (String, Vec<Shown>);

fn show(args: &ShowArgs, config: &Config) -> anyhow::Result<()> {
    let mut out = print::stdout();
    for (heading, shown) in config.sections(&config.queue_names(&args.up))? {
        if !heading.is_empty() {
            writeln!(out, "\n{heading}")?;
        }
        let lines = shown.iter().map(
            |Shown {
                 name,
                 value,
                 origin,
             }| {
                let is_hidden = keys::is_secret(name) && value.contains(HIDDEN);
                let comment = if is_hidden { "# " } else { "" };
                (format!("{comment}{name} = {value}"), origin)
            },
        );
        let lines: Vec<(String, &String)> = lines.collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).max();
        let width = width.unwrap_or(0).min(40);
        for (line, origin) in lines {
            if args.origin {
                writeln!(out, "{line:<width$}  # {origin}")?;
            } else {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(())
}

impl Config {
    /// What the dashboard shows of it.
    pub(super) fn facts(&self, queues: &[QueueName]) -> Vec<Fact> {
        // The same arguments were parsed before.
        let sections = self.sections(queues).unwrap_or_default();
        let facts = sections.into_iter().flat_map(|(heading, shown)| {
            let heading = if heading.is_empty() {
                "Of the whole program".to_owned()
            } else {
                heading
            };
            let values = shown.into_iter().map(
                |Shown {
                     name,
                     value,
                     origin,
                 }| Fact::Value {
                    name,
                    value,
                    origin,
                },
            );
            std::iter::once(Fact::Heading(heading)).chain(values)
        });
        facts.collect()
    }

    /// All that the command takes, and what these queues have of their own.
    fn sections(&self, queues: &[QueueName]) -> Result<Vec<Section>, clap::Error> {
        let matches = self.matches(None)?;
        let (_, of_all) = last(&matches);
        let keys = keys::of_host();
        let has = |key: &&Key| of_all.try_contains_id(key.id()).is_ok();
        let shown = keys.iter().filter(has);
        let shown = shown.filter_map(|key| self.shown(key, of_all, None));
        let shown = shown.chain(store_of_environment(of_all)).collect();
        let mut sections = vec![(String::new(), shown)];
        sections.extend(self.keys_section());
        for queue in queues {
            sections.extend(self.sections_of(queue)?);
        }
        Ok(sections)
    }

    /// The keys of the dashboard that the file sets.
    fn keys_section(&self) -> Option<Section> {
        let file = self.file.as_ref()?;
        let set = &file.dashboard.settings;
        let shown = set.iter().map(|one| {
            let words: Vec<String> = one.words.iter().map(|word| quoted(word)).collect();
            Shown {
                name: one.action.to_owned(),
                value: match words.as_slice() {
                    [word] => word.clone(),
                    words => format!("[{}]", words.join(", ")),
                },
                origin: format!("{}:{}", file.name, file.line(one.at)),
            }
        });
        (!set.is_empty()).then(|| ("[dashboard.keys]".to_owned(), shown.collect()))
    }

    fn sections_of(&self, queue: &QueueName) -> Result<Vec<Section>, clap::Error> {
        let (keys, own_keys) = (keys::of_queue(), keys::of_table());
        let matches = self.matches(Some(queue))?;
        let own = self
            .own(queue)
            .try_get_matches_from(std::iter::empty::<&str>())?;
        let is_own = |key: &Key| own_keys.iter().any(|own| own.name() == key.name());
        let shown = keys.iter().filter_map(|key| {
            let matches = if is_own(key) { &own } else { last(&matches).1 };
            self.shown(key, matches, Some(queue))
        });
        let name = name(queue.as_str());
        let mut sections = vec![(format!("[queue.{name}]"), shown.collect())];
        for (file, schedule) in self.schedules(queue) {
            let shown = schedule.settings.iter().map(|setting| Shown {
                name: setting.key.name().to_owned(),
                value: shown_value(&setting.key, &setting.values),
                origin: format!("{file}:{}", setting.line),
            });
            sections.push((format!("[[queue.{name}.schedule]]"), shown.collect()));
        }
        Ok(sections)
    }
}

/// The store that a variable names of which the parser does not know.
fn store_of_environment(matches: &ArgMatches) -> Option<Shown> {
    if matches.contains_id("db") || matches.contains_id("redis") {
        return None;
    }
    let named = ["DQHOST_DB", "DQHOST_REDIS", "REDIS_URL"]
        .iter()
        .find_map(|name| {
            Some((
                *name,
                std::env::var(name).ok().filter(|value| !value.is_empty())?,
            ))
        });
    let (origin, value) = named?;
    let (name, value) = if origin == "DQHOST_DB" {
        ("db", quoted(&value))
    } else {
        ("redis", quoted(&without_password(&value)))
    };
    Some(Shown {
        name: name.to_owned(),
        value,
        origin: origin.to_owned(),
    })
}

impl Config {
    /// A setting that has a value.
    fn shown(&self, key: &Key, matches: &ArgMatches, queue: Option<&QueueName>) -> Option<Shown> {
        let Some(values) = matches.get_raw(key.id()) else {
            // A list or a table with nothing in it takes away what stands at the top.
            let is_empty = |(_, setting): &(&str, &Setting)| setting.values.is_empty();
            let (file, setting) = self.setting(key, queue).filter(is_empty)?;
            return Some(Shown {
                name: key.name().to_owned(),
                value: shown_value(key, &[]),
                origin: format!("{file}:{}", setting.line),
            });
        };
        let values: Vec<String> = values
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let origin = match matches.value_source(key.id())? {
            ValueSource::CommandLine => format!("--{}", key.name()),
            ValueSource::EnvVariable => key
                .arg()
                .get_env()
                .map(|name| name.to_string_lossy().into_owned())?,
            _ => match self.setting(key, queue) {
                Some((file, setting)) => format!("{file}:{}", setting.line),
                None => "default".to_owned(),
            },
        };
        Some(Shown {
            name: key.name().to_owned(),
            value: shown_value(key, &values),
            origin,
        })
    }

    /// Where the file sets the first flag that a reason names, with a colon after it; empty if it sets none.
    fn place_of(&self, reason: &str, queue: &QueueName) -> String {
        let keys = keys::of_queue();
        let places = keys.iter().filter_map(|key| {
            let at = reason.find(&format!("--{} ", key.name()))?;
            let (file, setting) = self.setting(key, Some(queue))?;
            Some((at, format!("{file}:{}: ", setting.line)))
        });
        places.min().map_or_else(String::new, |(_, place)| place)
    }

    fn setting(&self, key: &Key, queue: Option<&QueueName>) -> Option<(&str, &Setting)> {
        let file = self.file.as_ref()?;
        let of_queue = queue.and_then(|queue| file.queue(queue));
        let of_queue = of_queue
            .iter()
            .flat_map(|table| table.settings.iter().chain(&table.own));
        let is_own = queue.is_some() && keys::of_table().iter().any(|own| own.name() == key.name());
        let of_top = file.settings.iter().filter(|_| !is_own);
        let mut settings = of_queue.chain(of_top);
        let found = settings.find(|setting| setting.key.name() == key.name())?;
        Some((&file.name, found))
    }
}

/// As it stands in a file.
fn shown_value(key: &Key, values: &[String]) -> String {
    let first = values.first().map(String::as_str).unwrap_or_default();
    match key.kind() {
        Kind::NumberOrAuto if first == AUTO => quoted(first),
        Kind::Number | Kind::NumberOrAuto | Kind::Flag => printable(first).into_owned(),
        Kind::Text if key.is_secret() => quoted(&without_password(first)),
        Kind::Text if key.is_handler() => quoted(&source::without_query(first)),
        Kind::Text => quoted(first),
        Kind::List => {
            let items: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            format!("[{}]", items.join(", "))
        }
        Kind::Table => {
            let pairs = values.iter().filter_map(|value| value.split_once('='));
            let pairs = pairs.map(|(left, right)| {
                let right = if key.is_secret() { HIDDEN } else { right };
                format!("{} = {}", name(left), quoted(right))
            });
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A string of TOML: one of JSON is one.
fn quoted(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    printable_json(&json).into_owned()
}

/// A name of TOML.
fn name(text: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !text.is_empty() && text.bytes().all(is_bare) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// The URL of a server without what may be a password.
fn without_password(url: &str) -> String {
    if !StoreAddress::Redis(url.to_owned()).has_password() {
        return url.to_owned();
    }
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => {
            let place = place.split('?').next().unwrap_or_default();
            format!("{scheme}://{HIDDEN}@{place}")
        }
        _ => HIDDEN.to_owned(),
    }
}
