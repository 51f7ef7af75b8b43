//! `dqhost wit`: the interface of handlers, for whoever builds one.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use wit_parser::{PackageId, Resolve};

use super::{Exit, Usage, print};
use crate::files::{self, Owner};
use crate::text::printable;

/// The files, by their paths in the folder.
pub(super) const FILES: [(&str, &str); 2] = [
    ("queue.wit", include_str!("../../wit/queue.wit")),
    (
        "deps/logging/logging.wit",
        include_str!("../../wit/deps/logging/logging.wit"),
    ),
];

/// The interface with what it refers to, and which of the packages it is.
pub(super) fn resolved() -> anyhow::Result<(Resolve, PackageId)> {
    let mut resolve = Resolve::default();
    let mut package = None;
    // What the first file refers to has to be there before it.
    for (path, text) in FILES.iter().rev() {
        package = Some(resolve.push_str(path, text)?);
    }
    Ok((resolve, package.context("there is no interface")?))
}

#[derive(Debug, Args)]
pub(super) struct WitArgs {
    /// Folder to write to, made if it is missing
    #[arg(default_value = "wit")]
    folder: PathBuf,
}

/// Writes the files that are not there. A file that differs is the user's own and stays.
pub(super) fn wit(args: &WitArgs) -> anyhow::Result<Exit> {
    let paths = FILES.map(|(name, text)| (args.folder.join(name), text));
    let mut missing = Vec::new();
    for (path, text) in &paths {
        check_folders(path)?;
        if !is_written(path, text)? {
            missing.push(path);
        }
    }
    for (path, text) in &paths {
        let shown = path.display();
        if missing.contains(&path) {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)
                    .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            }
            files::write_whole(path, text.as_bytes())
                .with_context(|| format!("cannot write {shown}"))?;
        }
        writeln!(print::stdout(), "{}", printable(&shown.to_string()))?;
    }
    Ok(Exit::Done)
}

/// Refuses a path through something that is no folder.
fn check_folders(path: &Path) -> Result<(), Usage> {
    for folder in path.ancestors().skip(1) {
        // A link to a folder is one, and a link to nothing is not.
        let is_there = fs::symlink_metadata(folder).is_ok();
        if is_there && !folder.is_dir() {
            return Err(Usage(format!(
                "{} is not a folder: remove it, or name another folder",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// True if the file is there with this text, false if nothing is there.
fn is_written(path: &Path, text: &str) -> anyhow::Result<bool> {
    let shown = path.display();
    let there = match files::check(path, Owner::Anyone) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::Other => {
            return Err(Usage(error.to_string()).into());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
    };
    if there.is_none() {
        return Ok(false);
    }
    let bytes = files::read_named(path, text.len() as u64)
        .with_context(|| format!("cannot read {shown}"))?;
    if bytes == text.as_bytes() {
        return Ok(true);
    }
    let refusal = format!("{shown} is there and differs: remove it, or name another folder");
    Err(Usage(refusal).into())
}
