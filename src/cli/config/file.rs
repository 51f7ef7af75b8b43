//! A file of settings: where it is, whether it may be used, and what stands in it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::dashboard::{self, DashboardTable};
use super::handler;
use super::keys::{self, Key, Setting};
use super::schedules::{self, ScheduleArgs};
use crate::cli::folder;
use crate::files::{self, Trust};
use crate::message::QueueName;
use crate::text::{line_and_column, printable};

/// The name of the file where it is looked for.
pub(super) const NAME: &str = "dqhost.toml";

/// Bytes of a file; a larger one is not one of settings.
const SIZE_MAX: u64 = 1024 * 1024;

/// What is wrong with a file: a line for each problem, with its place first.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(super) struct Problems(pub Vec<String>);

/// The table of a queue.
#[derive(Debug, Clone)]
pub(super) struct QueueTable {
    pub name: QueueName,
    /// In place of flags.
    pub settings: Vec<Setting>,
    /// Of keys that are no flags.
    pub own: Vec<Setting>,
    pub schedules: Vec<ScheduleTable>,
}

/// A schedule of a queue, as it is given and as it is meant.
#[derive(Debug, Clone)]
pub(super) struct ScheduleTable {
    pub settings: Vec<Setting>,
    pub args: ScheduleArgs,
}

/// A file that was read and checked.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub path: PathBuf,
    pub text: String,
    /// As it is shown.
    pub name: String,
    pub settings: Vec<Setting>,
    /// In the order of their names.
    pub queues: Vec<QueueTable>,
    pub dashboard: DashboardTable,
    /// Who else can read or write it.
    pub warnings: Vec<String>,
}

/// The file that is used if none is named: the one in this folder, or the user's own.
pub(super) fn found() -> Option<PathBuf> {
    let of_user = folder_of_user().map(|folder| folder.join(NAME));
    let places = std::iter::once(PathBuf::from(NAME)).chain(of_user);
    // A link that leads nowhere is there, and is told of.
    places
        .into_iter()
        .find(|path| path.symlink_metadata().is_ok())
}

fn folder_of_user() -> Option<PathBuf> {
    folder::of_user("XDG_CONFIG_HOME", ".config")
}

/// What is said where a command needs the file and none is found.
pub(super) fn nowhere() -> String {
    let of_user = folder_of_user();
    let of_user = of_user.map_or_else(String::new, |at| format!(" nor in {}", at.display()));
    format!("there is no {NAME} here{of_user}; name one with --config FILE")
}

impl File {
    /// Reads a file and checks all of it.
    pub(super) fn read(path: &Path, trust: Trust) -> Result<Self, Problems> {
        let name = printable(&path.display().to_string()).into_owned();
        let fail = |reason: String| Problems(vec![format!("cannot use {name}: {reason}")]);
        let read = files::read_trusted(path, SIZE_MAX, trust);
        let (bytes, writer) = read.map_err(|error| fail(error.to_string()))?;
        if bytes.len() as u64 > SIZE_MAX {
            return Err(fail(format!("it has more than {SIZE_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| fail("it is not text".to_owned()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder.to_str().is_none() {
            return Err(fail("the name of its folder is not valid text".to_owned()));
        }
        let reader = Reader {
            path,
            name: &name,
            text: &text,
            folder,
            problems: Vec::new(),
        };
        let mut file = reader.file()?;
        file.warnings.extend(writer);
        let mut settings = file.settings.iter();
        let has_password = settings.any(|one| one.key.has_password(&one.values));
        if has_password && files::is_public(path).unwrap_or(false) {
            let reason = "any user of this machine can read it, and it holds a password";
            file.warnings.push(reason.to_owned());
        }
        Ok(file)
    }

    /// The line of a byte.
    pub(super) fn line(&self, at: usize) -> usize {
        line_and_column(&self.text, at).0
    }

    pub(super) fn queue(&self, name: &QueueName) -> Option<&QueueTable> {
        self.queues.iter().find(|queue| queue.name == *name)
    }
}

struct Reader<'a> {
    path: &'a Path,
    name: &'a str,
    text: &'a str,
    folder: &'a Path,
    problems: Vec<(usize, String)>,
}

/// Where a key stands.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    Top,
    Queue(&'a QueueName),
    Schedule,
}

type Entry<'a, 'b> = (&'a Spanned<Cow<'b, str>>, &'a Spanned<DeValue<'b>>);

impl Reader<'_> {
    fn file(mut self) -> Result<File, Problems> {
        let table = match DeTable::parse(self.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                self.problem(at, format!("this is not TOML: {}", error.message()));
                return Err(self.into_problems());
            }
        };
        let host = keys::of_host();
        let mut file = File {
            path: self.path.to_owned(),
            text: self.text.to_owned(),
            name: self.name.to_owned(),
            settings: Vec::new(),
            queues: Vec::new(),
            dashboard: DashboardTable::default(),
            warnings: Vec::new(),
        };
        for entry in &table {
            if entry.0.get_ref() == "queue" {
                file.queues = self.queues(entry.1);
            } else if entry.0.get_ref() == "dashboard" {
                match dashboard::read(entry.1) {
                    Ok(table) => file.dashboard = table,
                    Err(problems) => self.problems.extend(problems),
                }
            } else if let Some(key) = self.key(entry.0, &host, Place::Top) {
                file.settings.extend(self.setting(key, entry));
            }
        }
        self.check_together(&file.settings);
        if self.problems.is_empty() {
            Ok(file)
        } else {
            Err(self.into_problems())
        }
    }

    fn queues(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<QueueTable> {
        let DeValue::Table(tables) = value.get_ref() else {
            let found = value.get_ref().type_str();
            let text = format!(
                "`queue` is of the type {found}: write a table [queue.NAME] for each queue"
            );
            self.problem(value.span().start, text);
            return Vec::new();
        };
        let keys = keys::of_queue();
        let mut queues = Vec::new();
        for (name, value) in tables {
            match (name.get_ref().parse(), value.get_ref()) {
                (Ok(name), DeValue::Table(table)) => queues.push(self.queue(name, table, &keys)),
                (Err(error), _) => self.problem(name.span().start, format!("{error}")),
                (Ok(name), _) => {
                    let text = format!("`queue.{name}` must be a table: write [queue.{name}]");
                    self.problem(value.span().start, text);
                }
            }
        }
        queues
    }

    fn queue(&mut self, name: QueueName, table: &DeTable<'_>, keys: &[Key]) -> QueueTable {
        let of_table = keys::of_table();
        let is_own = |key: &Key| of_table.iter().any(|own| own.name() == key.name());
        let (mut settings, mut own, mut schedules) = (Vec::new(), Vec::new(), Vec::new());
        for entry in table {
            if entry.0.get_ref() == "schedule" {
                schedules = self.schedules(&name, entry.1);
                continue;
            }
            let Some(key) = self.key(entry.0, keys, Place::Queue(&name)) else {
                continue;
            };
            let is_own = is_own(key);
            let Some(setting) = self.setting(key, entry) else {
                continue;
            };
            if let Some(limit) = setting.key.of_host_only(&setting.values) {
                let text = format!(
                    "the limit {limit} is the same for all queues of a host: set it in `limit` at the \
                     top of the file"
                );
                self.problem(entry.0.span().start, text);
            }
            if is_own {
                own.push(setting);
            } else {
                settings.push(setting);
            }
        }
        QueueTable {
            name,
            settings,
            own,
            schedules,
        }
    }

    fn schedules(&mut self, queue: &QueueName, value: &Spanned<DeValue<'_>>) -> Vec<ScheduleTable> {
        let wanted = format!("write [[queue.{queue}.schedule]] for each schedule");
        let DeValue::Array(items) = value.get_ref() else {
            self.problem(
                value.span().start,
                format!("`schedule` must be a list: {wanted}"),
            );
            return Vec::new();
        };
        let keys = schedules::of_schedule();
        let mut found: Vec<ScheduleTable> = Vec::new();
        for item in items {
            let at = item.span().start;
            let DeValue::Table(table) = item.get_ref() else {
                self.problem(at, format!("a schedule must be a table: {wanted}"));
                continue;
            };
            let before = self.problems.len();
            let mut settings = Vec::new();
            for entry in table {
                if let Some(key) = self.key(entry.0, &keys, Place::Schedule) {
                    settings.extend(self.setting(key, entry));
                }
            }
            if self.problems.len() > before {
                continue;
            }
            match ScheduleArgs::of(&settings) {
                Ok(args) if found.iter().any(|other| other.args.name() == args.name()) => {
                    let text = format!("the queue has two schedules with the name {}", args.name());
                    self.problem(at, text);
                }
                Ok(args) => found.push(ScheduleTable { settings, args }),
                Err(reason) => self.problem(at, reason),
            }
        }
        found
    }

    /// The key of this name, or a problem that names the nearest.
    fn key<'k>(
        &mut self,
        name: &Spanned<Cow<'_, str>>,
        keys: &'k [Key],
        place: Place<'_>,
    ) -> Option<&'k Key> {
        let is_named = |key: &&Key| key.name() == name.get_ref();
        if let Some(found) = keys.iter().find(is_named) {
            return Some(found);
        }
        let (place, elsewhere, there) = match place {
            Place::Top => {
                let there = "it is for one queue: set it in a table [queue.NAME]";
                ("at the top of the file".to_owned(), keys::of_queue(), there)
            }
            Place::Queue(queue) => {
                let there = "it is for the whole host: set it at the top of the file";
                (format!("in [queue.{queue}]"), keys::of_host(), there)
            }
            Place::Schedule => ("in a schedule".to_owned(), Vec::new(), ""),
        };
        let remedy = if elsewhere.iter().any(|key| is_named(&key)) {
            there.to_owned()
        } else {
            match keys::nearest(name.get_ref(), keys.iter().map(Key::name)) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => "`dqhost config schema` has all keys".to_owned(),
            }
        };
        let text = format!("there is no key `{}` {place}; {remedy}", name.get_ref());
        self.problem(name.span().start, text);
        None
    }

    fn setting(&mut self, key: &Key, (name, value): Entry<'_, '_>) -> Option<Setting> {
        let at = value.span().start;
        let values = match value.get_ref() {
            DeValue::Table(table) if key.is_handler() => handler::address(table)
                .map(|address| vec![address])
                .map_err(|(inner, reason)| (inner.unwrap_or(at), reason)),
            value => key
                .values(value, self.folder)
                .map_err(|reason| (at, reason)),
        };
        let values = match values {
            Ok(values) => values,
            Err((at, reason)) => {
                self.problem(at, format!("`{}`: {reason}", key.name()));
                return None;
            }
        };
        let mut is_right = true;
        for value in &values {
            if let Err(reason) = key.check(value) {
                is_right = false;
                self.problem(at, reason);
            }
        }
        is_right.then(|| Setting {
            key: key.clone(),
            values,
            line: line_and_column(self.text, name.span().start).0,
        })
    }

    /// Refuses keys that exclude each other, and one without the other that it needs.
    fn check_together(&mut self, settings: &[Setting]) {
        let places: Vec<_> = settings
            .iter()
            .map(|setting| (setting.key.name(), setting.line))
            .collect();
        let line_of = |name: &str| {
            places
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, line)| *line)
        };
        let mut found = Vec::new();
        if let (Some(_), Some(line)) = (line_of("db"), line_of("redis")) {
            found.push((
                line,
                "`db` and `redis` are both set, and one store is used: remove one of them",
            ));
        }
        match (line_of("redis-cert"), line_of("redis-key")) {
            (Some(line), None) => found.push((line, "`redis-cert` needs `redis-key` as well")),
            (None, Some(line)) => found.push((line, "`redis-key` needs `redis-cert` as well")),
            _ => {}
        }
        for (line, text) in found {
            let start: usize = self
                .text
                .split_inclusive('\n')
                .take(line - 1)
                .map(str::len)
                .sum();
            self.problem(start, text.to_owned());
        }
    }

    fn problem(&mut self, at: usize, text: String) {
        self.problems.push((at, text));
    }

    /// In the order of the file.
    fn into_problems(mut self) -> Problems {
        self.problems.sort();
        let lines = self.problems.iter().map(|(at, text)| {
            let (line, column) = line_and_column(self.text, *at);
            format!("{}:{line}:{column}: {text}", self.name)
        });
        Problems(lines.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<File, Problems> {
        let reader = Reader {
            path: Path::new("/etc/dqhost.toml"),
            name: "dqhost.toml",
            text,
            folder: Path::new("/etc"),
            problems: Vec::new(),
        };
        reader.file()
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let file = read(
            "db = \"a.db\"\nhandler = \"/b.wasm\"\nredis-ca = \"c.pem\"\nlog = \"warn\"\n\
             secret-file = { D = \"d\" }\nenv = { E = \"e\" }\n",
        );
        let settings = file.unwrap().settings;
        let values: Vec<&str> = settings.iter().map(|one| one.values[0].as_str()).collect();
        assert_eq!(
            values,
            [
                "/etc/a.db",
                "E=e",
                "/b.wasm",
                "warn",
                "/etc/c.pem",
                "D=/etc/d"
            ]
        );
        let memory = read("db = \":memory:\"").unwrap();
        assert_eq!(memory.settings[0].values, [":memory:"]);
    }

    proptest! {
        #[test]
        fn a_file_of_any_text_is_taken_or_told_of_line_by_line(
            text in "((\\[{0,2}queue(\\.[a-z\"]{0,2}){0,2}(\\.schedule)?\\]{0,2}|(slots|lease|limit|env|db|name|cron|every|schedule|allow-http|queue) ?= ?(\"[a-z0-9*/ ]{0,6}\"|[0-9.-]{0,3}|\\[.{0,4}\\]|\\{ ?[a-z]{1,4} ?= ?[0-9\"]{0,3} ?\\}|true))?\n){0,6}|.{0,60}",
        ) {
            if let Err(Problems(lines)) = read(&text) {
                prop_assert!(!lines.is_empty());
                prop_assert!(lines.iter().all(|line| line.starts_with("dqhost.toml:")));
            }
        }
    }
}
