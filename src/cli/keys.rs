//! `dqhost keys`: the table of keys.

use std::io::Write;

use clap::Args;

use super::config::{Config, ConfigArg};
use super::{Exit, print};
use crate::dashboard::{key_lines, screens};

#[derive(Debug, Args)]
pub(super) struct KeysArgs {
    #[command(flatten)]
    config: ConfigArg,
}

/// Prints all keys, as the file of settings has them.
pub(super) fn keys(config: &Config) -> anyhow::Result<Exit> {
    let keys = config.keys();
    let mut out = print::stdout();
    for scope in screens::PLACES {
        writeln!(out, "{}", scope.name())?;
        for (keys, help) in key_lines(&keys, scope) {
            writeln!(out, "  {keys:<18} {help}")?;
        }
    }
    Ok(Exit::Done)
}
