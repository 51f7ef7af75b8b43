//! `dqhost wit`: the interface of handlers, for whoever builds one.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::{Exit, Usage};
use crate::text::printable;

/// The files, by their paths in the folder.
const FILES: [(&str, &str); 2] = [
    ("queue.wit", include_str!("../../wit/queue.wit")),
    (
        "deps/logging/logging.wit",
        include_str!("../../wit/deps/logging/logging.wit"),
    ),
];

#[derive(Debug, Args)]
pub(super) struct WitArgs {
    /// Folder to write to, made if it is missing
    #[arg(default_value = "wit")]
    folder: PathBuf,
}

/// Writes the files that are not there. One that differs is somebody's own and stays.
pub(super) fn wit(args: &WitArgs) -> anyhow::Result<Exit> {
    let paths = FILES.map(|(name, text)| (args.folder.join(name), text));
    for (path, text) in &paths {
        match fs::read(path) {
            Ok(there) if there != text.as_bytes() => {
                return Err(Usage(format!(
                    "{} is there and differs: remove it, or name another folder",
                    path.display()
                ))
                .into());
            }
            _ => {}
        }
    }
    for (path, text) in &paths {
        let shown = path.display().to_string();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {shown}"))?;
        }
        fs::write(path, text).with_context(|| format!("cannot write {shown}"))?;
        writeln!(io::stdout().lock(), "{}", printable(&shown))?;
    }
    Ok(Exit::Done)
}
