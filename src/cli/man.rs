//! `dqhost man`: the manual pages.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Command};
use clap_mangen::Man;

use super::{Exit, Usage, help};

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Folder for the pages, made if it is missing
    folder: PathBuf,
}

/// Writes a page for each command; `dqhost.1` is that of all.
pub(super) fn man(args: &ManArgs) -> anyhow::Result<Exit> {
    let folder = &args.folder;
    let mut command = help::command().disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(folder)
        .and_then(|()| write(&command, folder))
        .map_err(|error| {
            let folder = folder.display();
            Usage(format!(
                "cannot write pages into {folder}: {error}; give another folder"
            ))
        })?;
    Ok(Exit::Done)
}

/// Writes the page of a command, and those of the commands below it.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    let source = concat!("dqhost ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).source(source).manual("dqhost");
    page.generate_to(folder)?;
    command
        .get_subcommands()
        .try_for_each(|below| write(below, folder))
}
