//! From arguments to a store.

use std::ffi::OsString;
use std::sync::Arc;

use super::{SettingsArgs, StoreArgs, Usage, folder};
use crate::store::address::{self, StoreAddress, StoreSettings};
use crate::store::{Store, StoreError};

/// Whether a file is made when it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// For what puts messages in.
    Make,
    /// For what looks at them: a wrong path is to be told. The default file is made all the same.
    Refuse,
}

/// Opens the store that the arguments or the environment name, for a command that leaves: what it
/// put into memory would go with it.
pub(super) async fn store(args: &StoreArgs, missing: Missing) -> anyhow::Result<Arc<dyn Store>> {
    match address(args)? {
        Some(StoreAddress::Memory) => Err(Usage(
            "a store in memory goes with the process that holds it, so only `dqhost up` can use \
             one; give --db PATH"
                .to_owned(),
        )
        .into()),
        Some(address) => at(&address, args.settings, missing).await,
        None => at(&default_file()?, args.settings, Missing::Make).await,
    }
}

/// Opens the store that the arguments or the environment name, for a host.
pub(super) async fn host_store(args: &StoreArgs) -> anyhow::Result<Arc<dyn Store>> {
    let address = match address(args)? {
        Some(address) => address,
        None => default_file()?,
    };
    if address == StoreAddress::Memory {
        tracing::warn!("the store is in memory: nothing is kept when this host ends");
    }
    at(&address, args.settings, Missing::Make).await
}

/// Where the store is reached over the network, if it is.
pub(super) fn endpoint(args: &StoreArgs) -> anyhow::Result<Option<(String, u16)>> {
    Ok(address(args)?.and_then(|address| address.endpoint()))
}

/// Opens one store.
pub(super) async fn at(
    address: &StoreAddress,
    args: SettingsArgs,
    missing: Missing,
) -> anyhow::Result<Arc<dyn Store>> {
    let settings = StoreSettings {
        durability: args.durability.into(),
        create: missing == Missing::Make,
        hash_tag: !args.redis.no_hash_tag,
        allow_eviction: args.redis.allow_eviction,
    };
    Ok(address::open(address, settings).await?)
}

/// The store that is named, if one is. Flags come before the environment, and what is ours there
/// before what others use as well.
fn address(args: &StoreArgs) -> Result<Option<StoreAddress>, Usage> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let text = |name, value: OsString| {
        value
            .into_string()
            .map_err(|_| Usage(format!("{name} is not valid text")))
    };
    let file = |path: OsString| match path.to_str() {
        Some(":memory:") => StoreAddress::Memory,
        _ => StoreAddress::File(path.into()),
    };
    if let Some(url) = &args.redis {
        return Ok(Some(StoreAddress::Redis(url.clone())));
    }
    if let Some(path) = &args.db {
        return Ok(Some(file(path.clone().into())));
    }
    let ours = match (set("DQHOST_DB"), set("DQHOST_REDIS")) {
        (Some(_), Some(_)) => {
            return Err(Usage(
                "DQHOST_DB and DQHOST_REDIS are both set, and one store is used: unset one of \
                 them, or give --db or --redis"
                    .to_owned(),
            ));
        }
        (Some(path), None) => return Ok(Some(file(path))),
        (None, url) => url.map(|url| ("DQHOST_REDIS", url)),
    };
    let named = ours.or_else(|| set("REDIS_URL").map(|url| ("REDIS_URL", url)));
    named
        .map(|(name, url)| text(name, url).map(StoreAddress::Redis))
        .transpose()
}

/// The file in the user's data folder, which is made for this user alone.
fn default_file() -> anyhow::Result<StoreAddress> {
    let folder = folder::of_user("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
        Usage("there is no home folder to keep messages in: give --db PATH".to_owned())
    })?;
    folder::make(&folder).map_err(|error| StoreError::Unusable {
        store: format!("sqlite://{}", folder.join("dqhost.db").display()),
        reason: format!("its folder cannot be made: {error}; give another one with --db PATH"),
    })?;
    Ok(StoreAddress::File(folder.join("dqhost.db")))
}
