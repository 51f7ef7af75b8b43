//! The keys of the file: what the parser of the command line knows of the flag with the same name.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command};
use std::any::TypeId;
use std::error::Error as _;
use std::path::PathBuf;

use toml::de::DeValue;

use crate::cli::host_args::{DeliveryArgs, SLOTS_MAX, UpArgs};
use crate::cli::number::{self, AUTO, NumberOrAuto};
use crate::cli::sandbox::SandboxArgs;
use crate::cli::screen::ScreenArgs;
use crate::cli::{StoreArgs, limits, source};
use crate::store::address::StoreAddress;

/// Flags that say what to do now, or which file is read.
const NO_KEYS: [&str; 6] = [
    "config",
    "exit-when-empty",
    "help",
    "queue",
    "snapshot",
    "version",
];

/// Values of these keys may be secret, so no message repeats them.
const SECRET: [&str; 2] = ["env", "redis"];

/// True if values of the key with this name may be secret.
pub(super) fn is_secret(name: &str) -> bool {
    SECRET.contains(&name)
}

/// Keys that only the table of a queue has.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct TableArgs {
    /// Run at most so many handlers of this queue at a time
    #[arg(long, value_name = "N", value_parser = number::from::<usize>(1..=SLOTS_MAX))]
    pub slots: Option<usize>,
    /// Take so many shares of the slots when queues compete
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::from::<u32>(1..=1000))]
    pub weight: u32,
}

/// What kind of value a key has in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    /// A number, or the word for one that the program finds out.
    NumberOrAuto,
    Flag,
    /// Texts; the flag may be repeated.
    List,
    /// Names with values; the flag is given as NAME=VALUE.
    Table,
}

/// A key of the file.
#[derive(Debug, Clone)]
pub(super) struct Key(Arg);

/// One key with its value.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub key: Key,
    /// As the command line takes them: one for each time that the flag would be given.
    pub values: Vec<String>,
    pub line: usize,
}

/// The keys that these flags would have.
pub(super) fn keys(command: &Command) -> Vec<Key> {
    let is_key = |arg: &&Arg| arg.get_long().is_some_and(|long| !NO_KEYS.contains(&long));
    command
        .get_arguments()
        .filter(is_key)
        .cloned()
        .map(Key)
        .collect()
}

/// The keys at the top of the file.
pub(super) fn of_host() -> Vec<Key> {
    keys(&UpArgs::augment_args(Command::new("up")))
}

/// The keys of the table of a queue.
pub(super) fn of_queue() -> Vec<Key> {
    let handler = UpArgs::augment_args(Command::new("up"));
    let handler = handler
        .get_arguments()
        .find(|arg| arg.get_id() == "handler")
        .cloned();
    let command = Command::new("queue").args(handler);
    let command = SandboxArgs::augment_args(DeliveryArgs::augment_args(command));
    let mut all = keys(&command);
    all.extend(of_table());
    all
}

/// Those of [`of_queue`] that are no flags.
pub(super) fn of_table() -> Vec<Key> {
    keys(&TableArgs::augment_args(Command::new("queue")))
}

/// The names of the keys that every command takes from the file, if it has the flag.
pub(super) fn of_every_command() -> Vec<String> {
    let command = StoreArgs::augment_args(Command::new("store"));
    let keys = keys(&ScreenArgs::augment_args(command));
    keys.iter().map(|key| key.name().to_owned()).collect()
}

impl Key {
    pub(super) fn name(&self) -> &str {
        self.0.get_long().unwrap_or_default()
    }

    /// What the parser calls it.
    pub(super) fn id(&self) -> &str {
        self.0.get_id().as_str()
    }

    pub(super) fn arg(&self) -> &Arg {
        &self.0
    }

    pub(super) fn is_secret(&self) -> bool {
        is_secret(self.name())
    }

    /// True if its value says where a handler comes from.
    pub(super) fn is_handler(&self) -> bool {
        self.name() == "handler"
    }

    /// True if one of the values holds a password.
    pub(super) fn has_password(&self, values: &[String]) -> bool {
        let has = |url: &String| StoreAddress::Redis(url.clone()).has_password();
        self.name() == "redis" && values.iter().any(has)
    }

    fn is_pair(&self) -> bool {
        let names = self.0.get_value_names().unwrap_or_default();
        names.first().is_some_and(|name| name.starts_with("NAME="))
    }

    /// True if a value of it is a path, which is relative to the file.
    fn is_path(&self) -> bool {
        let names = self.0.get_value_names().unwrap_or_default();
        let type_of = self.0.get_value_parser().type_id();
        type_of == TypeId::of::<PathBuf>() || names.iter().any(|name| name.ends_with("=PATH"))
    }

    pub(super) fn kind(&self) -> Kind {
        let type_of = self.0.get_value_parser().type_id();
        let is_number = [
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
        ]
        .iter()
        .any(|number| type_of == *number);
        match self.0.get_action() {
            ArgAction::SetTrue => Kind::Flag,
            ArgAction::Append if self.is_pair() => Kind::Table,
            ArgAction::Append => Kind::List,
            _ if is_number => Kind::Number,
            _ if type_of == TypeId::of::<NumberOrAuto>() => Kind::NumberOrAuto,
            _ => Kind::Text,
        }
    }

    /// The value as the command line takes it: a text for each time that the flag would be given. Paths
    /// are made relative to this folder.
    ///
    /// # Errors
    ///
    /// What was found and what is wanted.
    pub(super) fn values(
        &self,
        value: &DeValue<'_>,
        folder: &std::path::Path,
    ) -> Result<Vec<String>, String> {
        let wanted = |found: &DeValue<'_>| {
            let wanted = match self.kind() {
                _ if self.is_handler() => "a string, or a table with `url` and `digest`,",
                kind => kind.wanted(),
            };
            format!("{} is found, and {wanted} is wanted", an(found.type_str()))
        };
        let values = match (self.kind(), value) {
            (Kind::Text, DeValue::String(text)) => vec![text.to_string()],
            (Kind::Flag, DeValue::Boolean(is_on)) => vec![is_on.to_string()],
            (Kind::Number | Kind::NumberOrAuto, DeValue::Integer(_)) => {
                vec![text_of(value).unwrap_or_default()]
            }
            (Kind::NumberOrAuto, DeValue::String(text)) if *text == AUTO => vec![text.to_string()],
            (Kind::List, DeValue::Array(items)) => {
                let texts = items.iter().map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(text.to_string()),
                    other => Err(wanted(other)),
                });
                texts.collect::<Result<_, _>>()?
            }
            (Kind::Table, DeValue::Table(table)) => {
                let pairs = table.iter().map(|(name, value)| {
                    let name = name.get_ref();
                    if name.is_empty() || name.contains('=') {
                        return Err(format!("the name {name:?} is empty or has a = in it"));
                    }
                    let text = text_of(value.get_ref()).ok_or_else(|| {
                        let found = an(value.get_ref().type_str());
                        format!("{name} is {found}, and a string is wanted")
                    })?;
                    Ok(format!("{name}={text}"))
                });
                pairs.collect::<Result<_, _>>()?
            }
            (_, other) => return Err(wanted(other)),
        };
        let placed = values.into_iter().map(|value| self.placed(value, folder));
        Ok(placed.collect())
    }

    fn placed(&self, value: String, folder: &std::path::Path) -> String {
        let (name, path) = match value.split_once('=') {
            Some((name, path)) if self.is_pair() => (format!("{name}="), path),
            _ => (String::new(), value.as_str()),
        };
        let is_path = self.is_path() && !source::is_remote(std::path::Path::new(path));
        if !is_path || path.is_empty() || path == ":memory:" {
            return value;
        }
        // A path in a file of text is text, and that of the file was given as text or is none.
        format!("{name}{}", folder.join(path).display())
    }

    /// Checks one value as the parser does.
    ///
    /// # Errors
    ///
    /// What is wanted, with the key before it.
    pub(super) fn check(&self, value: &str) -> Result<(), String> {
        let name = self.name().to_owned();
        let arg = Arg::new(name.clone())
            .value_parser(self.0.get_value_parser().clone())
            .required(true);
        let command = Command::new("config").no_binary_name(true).arg(arg);
        let Err(error) = command.try_get_matches_from(["--", value]) else {
            return Ok(());
        };
        let reason = match (
            error.kind(),
            error.source(),
            error.get(ContextKind::ValidValue),
        ) {
            (ErrorKind::InvalidValue, _, Some(ContextValue::Strings(valid)))
                if !valid.is_empty() =>
            {
                format!("must be one of {}", valid.join(", "))
            }
            (_, Some(source), _) => source.to_string(),
            _ if value.is_empty() => "must not be empty".to_owned(),
            _ => {
                let text = error.to_string();
                let text = text.strip_prefix("error: ").unwrap_or(&text);
                text.lines().next().unwrap_or_default().to_owned()
            }
        };
        // Words about a flag name it first.
        let reason = reason.strip_prefix(&format!("{name} ")).unwrap_or(&reason);
        Err(if self.is_secret() || reason.starts_with("must ") {
            format!("`{name}` {reason}")
        } else {
            let shown = if self.is_handler() {
                source::without_query(value)
            } else {
                value.into()
            };
            format!("`{name}` is {shown:?}: {reason}")
        })
    }

    /// Names of limits that a queue's table may not have, since they are of the whole host.
    pub(super) fn of_host_only(&self, values: &[String]) -> Option<String> {
        if self.name() != "limit" {
            return None;
        }
        let names = values.iter().filter_map(|value| value.split_once('='));
        let mut names = names.map(|(name, _)| name);
        names
            .find(|name| limits::is_of_host(name))
            .map(str::to_owned)
    }
}

impl Kind {
    fn wanted(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Number => "a whole number",
            Self::NumberOrAuto => "a whole number or \"auto\"",
            Self::Flag => "true or false",
            Self::List => "a list of strings",
            Self::Table => "a table, as in { NAME = \"VALUE\" },",
        }
    }
}

fn an(kind: &str) -> String {
    if kind.starts_with(['a', 'i']) {
        format!("an {kind}")
    } else {
        format!("a {kind}")
    }
}

/// A string, a whole number or a boolean as text.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(is_on) => Some(is_on.to_string()),
        // One that no number holds stays as it is, and is refused as a value.
        DeValue::Integer(number) => Some(
            i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.to_string(), |number| number.to_string()),
        ),
        _ => None,
    }
}

/// The key that is most like this one, if one is.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let with_distance = names.map(|other| (strsim::jaro_winkler(name, other), other));
    let nearest = with_distance.max_by(|(a, _), (b, _)| a.total_cmp(b));
    nearest
        .filter(|(likeness, _)| *likeness > 0.7)
        .map(|(_, other)| other)
}
