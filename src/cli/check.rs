//! `dqhost check`: what a handler's file is and wants, without running it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::sandbox::SandboxArgs;
use super::{Exit, log, print, source};
use crate::runtime::{EngineKind, Import, Inspection, Kind, Need};
use crate::store::address::Endpoints;
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Handler: a WebAssembly component
    #[arg(value_parser = source::parser())]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

pub(super) fn check(args: &CheckArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let permissions = args.sandbox.permissions(Endpoints::default(), 0)?;
    let granted = Granted {
        http: !permissions.http.is_empty(),
        sends: !permissions.sends.is_empty(),
    };
    let runtime = args.sandbox.runtime(1, permissions)?;
    let file = args.sandbox.read(&runtime, &args.file)?;
    let found = runtime.inspect(&file);
    if args.json {
        print_json(&file.name, &found, granted)?;
    } else {
        print_text(&file.name, &found, granted)?;
    }
    Ok(match found.problem {
        Some(_) => Exit::Handler,
        None => Exit::Done,
    })
}

/// What the other flags of the command give.
#[derive(Debug, Clone, Copy)]
struct Granted {
    http: bool,
    sends: bool,
}

impl Granted {
    /// What is said of an import, if anything is.
    fn note(self, import: &Import) -> Option<String> {
        match import.need {
            Need::Nothing => None,
            Need::Http if self.http => Some("allowed".to_owned()),
            Need::Http => Some("refused without --allow-http HOST".to_owned()),
            Need::Sends if self.sends => Some("allowed".to_owned()),
            Need::Sends => Some("refused without --allow-send QUEUE".to_owned()),
            Need::Refused => Some("every call is refused".to_owned()),
            Need::NotGiven => Some("there is no such thing here".to_owned()),
        }
    }
}

fn print_json(name: &str, found: &Inspection, granted: Granted) -> io::Result<()> {
    let imports: Vec<_> = found
        .imports
        .iter()
        .map(|import| json!({"name": import.name, "note": granted.note(import)}))
        .collect();
    print::json_line(&json!({
        "file": name,
        "digest": format!("sha256:{}", found.digest),
        "size": found.size,
        "kind": found.kind.map(Kind::words),
        "engine": found.engine.map(EngineKind::words),
        "exports": found.exports,
        "imports": imports,
        "problem": found.problem.as_ref().map(ToString::to_string),
    }))
}

fn print_text(name: &str, found: &Inspection, granted: Granted) -> io::Result<()> {
    let mut out = print::stdout();
    writeln!(out, "file     {name}")?;
    writeln!(out, "digest   sha256:{}", found.digest)?;
    writeln!(out, "size     {} bytes", found.size)?;
    if let Some(kind) = found.kind {
        writeln!(out, "kind     {}", kind.words())?;
    }
    if let Some(engine) = found.engine {
        writeln!(out, "engine   {}", engine.words())?;
    }
    let mut head = "exports ";
    for export in &found.exports {
        writeln!(out, "{head} {}", printable(export))?;
        head = "        ";
    }
    head = "imports ";
    for import in &found.imports {
        let name = printable(&import.name);
        match granted.note(import) {
            Some(note) => writeln!(out, "{head} {name}: {note}")?,
            None => writeln!(out, "{head} {name}")?,
        }
        head = "        ";
    }
    match &found.problem {
        Some(problem) => writeln!(out, "result   it cannot run: {problem}"),
        None => writeln!(out, "result   it can run"),
    }
}
