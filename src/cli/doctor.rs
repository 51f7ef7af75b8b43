//! `dqhost doctor`: whether a host can work here, and what to mend if not.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::sandbox;
use super::{Exit, QueueArg, StoreArgs, log, print, source};
use crate::runtime::{Limits, Permissions};
use crate::text::printable;

mod machine;
mod store;

/// As many as a host has unless it is told otherwise.
const SLOTS: usize = 16;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Check this handler as well
    #[arg(long, value_name = "FILE", value_parser = source::parser(), env = "DQHOST_HANDLER")]
    handler: Option<PathBuf>,
    /// Print a line of JSON for each finding
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    queue: QueueArg,
    #[command(flatten)]
    store: StoreArgs,
}

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    /// It may be found out by a user with more rights.
    Unknown,
    Warn,
    /// A host cannot work so, or loses messages.
    Bad,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// What was found, in the order in which it was looked for.
#[derive(Debug, Default)]
struct Findings {
    all: Vec<Finding>,
    /// The node of a cluster that they are about.
    node: Option<String>,
}

#[derive(Debug)]
struct Finding {
    level: Level,
    /// What was looked at, in a word or two.
    about: &'static str,
    what: String,
    mend: Option<String>,
}

impl Findings {
    fn ok(&mut self, about: &'static str, what: impl Into<String>) {
        self.add(Level::Ok, about, &what.into(), None);
    }

    fn unknown(&mut self, about: &'static str, what: impl Into<String>, mend: &str) {
        self.add(Level::Unknown, about, &what.into(), Some(mend));
    }

    fn warn(&mut self, about: &'static str, what: impl Into<String>, mend: impl Into<String>) {
        self.add(Level::Warn, about, &what.into(), Some(&mend.into()));
    }

    fn bad(&mut self, about: &'static str, what: impl Into<String>, mend: impl Into<String>) {
        self.add(Level::Bad, about, &what.into(), Some(&mend.into()));
    }

    fn add(&mut self, level: Level, about: &'static str, what: &str, mend: Option<&str>) {
        let node = self.node.as_ref();
        let what = node.map_or_else(|| what.to_owned(), |node| format!("{node}: {what}"));
        self.all.push(Finding {
            level,
            about,
            what: printable(&what).into_owned(),
            mend: mend.map(|mend| printable(mend).into_owned()),
        });
    }

    fn print(&self, as_json: bool) -> io::Result<()> {
        for Finding {
            level,
            about,
            what,
            mend,
        } in &self.all
        {
            let level = level.word();
            if as_json {
                print::json_line(&json!({
                    "level": level,
                    "about": about,
                    "what": what,
                    "mend": mend,
                }))?;
                continue;
            }
            let mend = mend.as_ref().map(|mend| format!(" -> {mend}"));
            let mend = mend.unwrap_or_default();
            writeln!(print::stdout(), "{level:<7} {about:<13} {what}{mend}")?;
        }
        Ok(())
    }
}

pub(super) async fn doctor(args: DoctorArgs) -> anyhow::Result<Exit> {
    // What a host warns of when it starts is among the findings.
    log::to_stderr("error", false)?;
    let mut findings = Findings::default();
    store::look(&mut findings, &args.store, &args.queue.queue).await?;
    handler(&mut findings, args.handler.as_deref());
    machine::look(&mut findings);
    findings.print(args.json)?;
    let is_bad = findings.all.iter().any(|one| one.level == Level::Bad);
    Ok(if is_bad { Exit::Failed } else { Exit::Done })
}

/// Makes the sandbox, and loads the handler if one is given.
fn handler(findings: &mut Findings, path: Option<&Path>) {
    let limits = Limits::default();
    let runtime = match sandbox::runtime(SLOTS, limits, Permissions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            let mend = "see docs/operations.md, Address space";
            return findings.bad("sandbox", error.to_string(), mend);
        }
    };
    findings.ok("sandbox", format!("{SLOTS} handlers can run at a time"));
    let Some(path) = path else {
        return;
    };
    let file = match source::read(&runtime, path, None) {
        Ok(file) => file,
        Err(error) => return findings.bad("handler", error.to_string(), "give another --handler"),
    };
    let found = runtime.inspect(&file);
    let mend = "`dqhost check FILE` tells more";
    match found.problem {
        None => findings.ok("handler", format!("{} can run", file.name)),
        Some(problem) => findings.bad("handler", format!("it cannot run: {problem}"), mend),
    }
}
