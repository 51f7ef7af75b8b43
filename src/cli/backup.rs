//! `dqhost backup`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use serde_json::json;

use super::open::{self, Missing};
use super::{Exit, StoreArgs, Usage, log, print};
use crate::store::address::StoreAddress;
use crate::store::sqlite::{Older, SqliteOptions, SqliteStore};
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// Write the copy to this file, which must not be there
    #[arg(value_name = "FILE")]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn backup(args: BackupArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let StoreAddress::File(from) = open::named_or_default(&args.store)? else {
        let reason = "only a file can be copied like this: Redis keeps copies of its own (`BGSAVE`), and \
                      `dqhost move` takes queues from one store to another";
        return Err(Usage(reason.to_owned()).into());
    };
    let address = StoreAddress::File(from.clone());
    let settings = open::settings(&address, &args.store.settings, Missing::Refuse)?;
    let mut options = SqliteOptions::file(&from);
    (options.durability, options.create) = (settings.durability, settings.create);
    // Whoever copies before an upgrade wants to be able to go back.
    options.older = Older::Keep;
    let store = SqliteStore::open(&options).await?;
    if let Some((0, _)) = store.older_schema() {
        let refusal = format!("{} is empty: there is nothing to copy", from.display());
        return Err(Usage(refusal).into());
    }
    let to = printable(&args.to.display().to_string()).into_owned();
    if args.to.is_dir() {
        let refusal = format!("{to} is a folder: name the file of the copy, as in {to}/dqhost.db");
        return Err(Usage(refusal).into());
    }
    let bytes = store
        .backup(&args.to)
        .await
        .map_err(|error| anyhow!("no copy was made in {to}: {error}"))?;
    let mut out = print::stdout();
    if args.json {
        writeln!(out, "{}", json!({"file": to, "bytes": bytes}))?;
    } else {
        writeln!(out, "copied into {to}: {bytes} bytes")?;
    }
    Ok(Exit::Done)
}
