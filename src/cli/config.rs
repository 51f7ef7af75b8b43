//! `dqhost.toml`: settings of the store, the host and its queues.
//!
//! A key of the file is a flag without its dashes. The parser of the command line so knows all keys with
//! their types, and the values of the file take the place of its defaults: a flag comes before the
//! environment, and that before the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use self::file::{File, ScheduleTable};
use self::keys::Setting;
pub(super) use self::keys::TableArgs;
pub(super) use self::show::{ConfigCommand, run};
use super::host_args::UpArgs;
use super::{Cli, Exit, StoreArgs, help, open};
use crate::dashboard::{Fact, Keys};
use crate::files::Trust;
use crate::message::QueueName;
use crate::schedule::Schedule;
use crate::text::printable;

mod dashboard;
mod file;
mod handler;
mod keys;
mod schedules;
mod schema;
mod show;

/// Which file of settings is read.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = help::STORE)]
pub(super) struct ConfigArg {
    /// Read settings from this file [default: dqhost.toml]
    ///
    /// By default it is ./dqhost.toml or, if there is none, $XDG_CONFIG_HOME/dqhost/dqhost.toml
    /// (~/.config/dqhost/dqhost.toml). A key is a flag without its dashes. A flag comes before the
    /// environment, and the environment before the file.
    #[arg(long, value_name = "FILE", env = "DQHOST_CONFIG")]
    config: Option<PathBuf>,
}

/// Why there are no arguments.
#[derive(Debug)]
pub(super) enum Failure {
    /// The parser's answer: a wrong argument, or a wish for help.
    Parser(clap::Error),
    /// What is wrong with the file, a line for each problem.
    File(Vec<String>),
}

impl Failure {
    /// Says it, and with which code the program ends.
    pub(super) fn tell(&self, args: &[OsString]) -> ExitCode {
        match self {
            Self::Parser(error) => help::refused(error, args),
            Self::File(problems) => {
                for problem in problems {
                    tell!("error: {}", printable(problem));
                }
                Exit::Usage.into()
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parser(error) => {
                let text = error.render().to_string();
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                f.write_str(&lines.collect::<Vec<_>>().join("; "))
            }
            Self::File(problems) => f.write_str(&problems.join("; ")),
        }
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Parser(error)
    }
}

/// The command line and the file, for what differs from queue to queue.
#[derive(Debug, Clone)]
pub(super) struct Config {
    args: Vec<OsString>,
    file: Option<File>,
}

/// Reads the command line, and the file that it or the environment names or that is found.
pub(super) fn parse(args: &[OsString]) -> Result<(Cli, Config), Failure> {
    let matches = help::command().try_get_matches_from(args)?;
    let config = Config {
        args: args.to_vec(),
        file: file_of(last(&matches).1)?,
    };
    let matches = config.matches(None)?;
    Ok((Cli::from_arg_matches(&matches)?, config))
}

/// The names of the command and its subcommands, and what was parsed for the last of them.
fn last(matches: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut path, mut matches) = (Vec::new(), matches);
    while let Some((name, below)) = matches.subcommand() {
        path.push(name.to_owned());
        matches = below;
    }
    (path, matches)
}

/// The store and the queue that an unfinished command line names, as far as it can be read.
pub(super) fn of_unfinished(words: &[OsString]) -> Option<(StoreArgs, Option<QueueName>)> {
    let parser = || help::command().ignore_errors(true);
    // The word that is typed may be empty, which ends the parser's work as a value.
    let words = words.iter().map(|word| match word.as_encoded_bytes() {
        [] => OsString::from("x"),
        _ => word.clone(),
    });
    let words: Vec<OsString> = words.collect();
    let matches = parser().try_get_matches_from(&words).ok()?;
    let (path, below) = last(&matches);
    let config = Config {
        file: file_of(below).ok()?,
        args: Vec::new(),
    };
    let parser = with_defaults(parser(), &path, &config.settings(below, None));
    let matches = parser.try_get_matches_from(&words).ok()?;
    let below = last(&matches).1;
    let store = StoreArgs::from_arg_matches(below).ok()?;
    let queue = below.try_get_one::<QueueName>("queue").ok().flatten();
    Some((store, queue.cloned()))
}

fn file_of(matches: &ArgMatches) -> Result<Option<File>, Failure> {
    // A command without a store has no such flag, and needs no file.
    let Ok(named) = matches.try_get_one::<PathBuf>("config") else {
        return Ok(None);
    };
    let read = match named {
        Some(path) => File::read(path, Trust::Named),
        None => match file::found() {
            Some(path) => File::read(&path, Trust::Found),
            None => return Ok(None),
        },
    };
    read.map(Some).map_err(|problems| Failure::File(problems.0))
}

/// True if a flag or the environment has it.
fn is_given(matches: &ArgMatches, id: &str) -> bool {
    let source = matches.value_source(id);
    matches!(
        source,
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}

/// True for a command that takes every flag of a host.
fn is_of_host(matches: &ArgMatches) -> bool {
    matches.try_contains_id("drain").is_ok()
}

/// The parser, with these values in the place of its defaults for one of its commands.
fn with_defaults(command: Command, path: &[String], settings: &[&Setting]) -> Command {
    if let [first, rest @ ..] = path {
        return command.mut_subcommand(first, |below| with_defaults(below, rest, settings));
    }
    settings.iter().fold(command, |command, setting| {
        // Each value is one already: a comma in it stays.
        command.mut_arg(setting.key.id(), |arg| {
            arg.default_values(&setting.values)
                .value_delimiter(None::<char>)
        })
    })
}

impl Config {
    /// Says who else can read or write the file.
    pub(super) fn tell_warnings(&self) {
        let Some(file) = &self.file else { return };
        for warning in &file.warnings {
            tell!("warning: {}: {}", file.name, printable(warning));
        }
    }

    /// Logs who else can read or write the file.
    pub(super) fn log_warnings(&self) {
        let Some(file) = &self.file else { return };
        for warning in &file.warnings {
            tracing::warn!("{}: {}", file.name, printable(warning));
        }
    }

    /// True if the other file has the same text.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        let text = |config: &Self| config.file.as_ref().map(|file| file.text.clone());
        text(self) == text(other)
    }

    /// The same command line, with what stands in the file now.
    pub(super) fn again(&self) -> Result<(Cli, Self), Failure> {
        parse(&self.args)
    }

    /// Where the file is that was read, or would be.
    pub(super) fn path(&self) -> &Path {
        let file = self.file.as_ref();
        file.map_or(Path::new(file::NAME), |file| &file.path)
    }

    /// The keys that are for the whole host, and differ in the other file. Those that a flag or the
    /// environment sets do not count.
    pub(super) fn differing_for_host(&self, other: &Self) -> Result<Vec<String>, clap::Error> {
        let (own, others) = (self.of_host()?, other.of_host()?);
        let names = own.keys().chain(others.keys());
        let mut differing: Vec<String> = names
            .filter(|name| own.get(*name) != others.get(*name))
            .cloned()
            .collect();
        differing.sort_unstable();
        differing.dedup();
        Ok(differing)
    }

    fn of_host(&self) -> Result<BTreeMap<String, Vec<String>>, clap::Error> {
        let matches = help::command().try_get_matches_from(&self.args)?;
        // What a table has of its own is no value for all queues.
        let (of_queues, of_table) = (keys::of_queue(), keys::of_table());
        let has =
            |keys: &[keys::Key], one: &Setting| keys.iter().any(|key| key.name() == one.key.name());
        let is_for_all = |one: &&Setting| !has(&of_queues, one) || has(&of_table, one);
        let settings = self.settings(last(&matches).1, None);
        let settings = settings.into_iter().filter(is_for_all);
        let settings = settings.map(|one| (one.key.name().to_owned(), one.values.clone()));
        let keys = self.file.iter().flat_map(|file| &file.dashboard.settings);
        let keys = keys.map(|one| (format!("dashboard.keys.{}", one.action), one.words.clone()));
        Ok(settings.chain(keys).collect())
    }

    /// Which keys of the dashboard do what.
    pub(super) fn keys(&self) -> Keys {
        let file = self.file.as_ref();
        file.map_or_else(Keys::default, |file| file.dashboard.keys.clone())
    }

    /// The same, and what its screen of settings shows.
    pub(super) fn look(&self, queues: &[QueueName]) -> (Keys, Vec<Fact>) {
        (self.keys(), self.facts(queues))
    }

    /// The file that was read, as it is shown.
    pub(super) fn file_name(&self) -> Option<&str> {
        self.file.as_ref().map(|file| file.name.as_str())
    }

    /// What is said if no file has a schedule: that it has none, or where it was looked for.
    pub(super) fn no_schedules(&self) -> String {
        let none = |name| format!("{name} has no schedule: [[queue.NAME.schedule]] is one");
        self.file_name().map_or_else(file::nowhere, none)
    }

    /// The queues that are served: those that a flag or the environment names, or else those that have a
    /// table.
    pub(super) fn queue_names(&self, args: &UpArgs) -> Vec<QueueName> {
        let named: Vec<QueueName> = args.queue.iter().map(|spec| spec.name.clone()).collect();
        if !named.is_empty() {
            return named;
        }
        self.tables()
    }

    /// The queues that have a table.
    pub(super) fn tables(&self) -> Vec<QueueName> {
        let tables = self.file.iter().flat_map(|file| &file.queues);
        tables.map(|table| table.name.clone()).collect()
    }

    /// The schedules of a queue, with the name of the file.
    fn schedules(&self, queue: &QueueName) -> impl Iterator<Item = (&str, &ScheduleTable)> {
        let table = self
            .file
            .iter()
            .filter_map(|file| Some((file, file.queue(queue)?)));
        table.flat_map(|(file, table)| table.schedules.iter().map(|one| (file.name.as_str(), one)))
    }

    /// The schedules of a queue whose messages have so many retries by default.
    pub(super) fn schedules_of(&self, queue: &QueueName, retries: u32) -> Vec<Schedule> {
        self.schedules(queue)
            .map(|(_, table)| table.args.schedule(retries))
            .collect()
    }

    /// How often a message of this queue may be redriven, as the file says.
    pub(super) fn max_redrives(&self, queue: &QueueName) -> Option<u32> {
        let file = self.file.as_ref()?;
        let table = file.queue(queue).map_or(&[][..], |table| &table.settings);
        let is_it = |one: &&Setting| one.key.id() == "max_redrives";
        let top = || file.settings.iter().find(is_it);
        let found = table.iter().find(is_it).or_else(top)?;
        // The file was checked when it was read.
        found.values.first()?.parse().ok()
    }

    /// What holds for one queue: the flags, the environment, its table, and the top of the file.
    pub(super) fn of_queue(&self, queue: &QueueName) -> Result<(UpArgs, TableArgs), clap::Error> {
        let matches = self.matches(Some(queue))?;
        let own = self
            .own(queue)
            .try_get_matches_from(std::iter::empty::<OsString>())?;
        Ok((
            UpArgs::from_arg_matches(last(&matches).1)?,
            TableArgs::from_arg_matches(&own)?,
        ))
    }

    /// The parser of the keys that only a table has.
    fn own(&self, queue: &QueueName) -> Command {
        let command = TableArgs::augment_args(Command::new("queue").no_binary_name(true));
        let table = self.file.as_ref().and_then(|file| file.queue(queue));
        let own = table
            .iter()
            .flat_map(|table| &table.own)
            .collect::<Vec<_>>();
        with_defaults(command, &[], &own)
    }

    /// The command line once more, with the values of the file. Those of the queue's table come before
    /// those at the top.
    fn matches(&self, queue: Option<&QueueName>) -> Result<ArgMatches, clap::Error> {
        let matches = help::command().try_get_matches_from(&self.args)?;
        let (path, last) = last(&matches);
        let settings = self.settings(last, queue);
        if settings.is_empty() {
            return Ok(matches);
        }
        with_defaults(help::command(), &path, &settings).try_get_matches_from(&self.args)
    }

    /// The values of the file that count for these arguments.
    fn settings(&self, matches: &ArgMatches, queue: Option<&QueueName>) -> Vec<&Setting> {
        let Some(file) = &self.file else {
            return Vec::new();
        };
        let of_all = keys::of_every_command();
        let is_host = is_of_host(matches);
        let table = queue.and_then(|queue| file.queue(queue));
        let table = table.map_or(&[][..], |table| &table.settings);
        let is_in_table =
            |one: &Setting| table.iter().any(|other| other.key.name() == one.key.name());
        let top = file.settings.iter().filter(|one| !is_in_table(one));
        let names_store = ["db", "redis"]
            .iter()
            .any(|id| matches.try_contains_id(id).is_ok() && is_given(matches, id));
        top.chain(table)
            .filter(|one| is_host || of_all.iter().any(|name| name == one.key.name()))
            .filter(|one| matches.try_contains_id(one.key.id()).is_ok())
            .filter(|one| !is_given(matches, one.key.id()))
            .filter(|one| match one.key.id() {
                // One store is used: whoever names it otherwise means none of the file.
                "db" | "redis" => !names_store && !open::is_in_environment(),
                _ => true,
            })
            .collect()
    }
}
