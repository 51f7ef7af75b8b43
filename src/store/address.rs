//! Which store: what a person writes, and the store that it names.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::redis::{self, RedisOptions, RedisStore};
use super::sqlite::{Durability, SqliteOptions, SqliteStore};
use super::{Store, StoreResult};

/// Where a store is.
///
/// As text: `:memory:`, a path (also as `sqlite:///PATH`), or the URL of a Redis server
/// (`redis://`, `rediss://` or `unix://`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// In this process; nothing is kept.
    Memory,
    /// A file on this machine.
    File(PathBuf),
    /// A Redis server, with user and password if needed.
    Redis(String),
}

/// Why a text names no store. It does not repeat the text, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; give a path, :memory:, or the URL of a Redis server (redis://, rediss:// or unix://)"
)]
pub struct StoreAddressError(String);

impl FromStr for StoreAddress {
    type Err = StoreAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once("://") {
            None if text.is_empty() => Err(StoreAddressError("no store is named".to_owned())),
            None if text == ":memory:" => Ok(Self::Memory),
            None => Ok(Self::File(text.into())),
            Some(("sqlite", path)) if path.starts_with('/') => Ok(Self::File(path.into())),
            Some(("redis" | "rediss" | "unix" | "redis+unix" | "valkey" | "valkeys", _)) => {
                Ok(Self::Redis(text.to_owned()))
            }
            Some((scheme, _)) => Err(StoreAddressError(format!(
                "a store cannot be named by {scheme}://"
            ))),
        }
    }
}

impl StoreAddress {
    /// The host and the port that it is reached at; none for what is on this machine.
    #[must_use]
    pub fn endpoint(&self) -> Option<(String, u16)> {
        match self {
            Self::Memory | Self::File(_) => None,
            Self::Redis(url) => redis::endpoint(url),
        }
    }
}

impl fmt::Display for StoreAddress {
    /// Without the URL of a server, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str(":memory:"),
            Self::File(path) => path.display().fmt(f),
            Self::Redis(_) => f.write_str("a Redis server"),
        }
    }
}

/// How a store is used. Each setting is for the kind of store that knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// What a file survives.
    pub durability: Durability,
    /// Make a file when it is missing.
    pub create: bool,
    /// False for the key names of a delayqueue without `UseHashTagKey`.
    pub hash_tag: bool,
    /// Accept a Redis server that may evict messages when its memory is full.
    pub allow_eviction: bool,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            create: true,
            hash_tag: true,
            allow_eviction: false,
        }
    }
}

/// Opens the store at an address.
///
/// # Errors
///
/// As [`SqliteStore::open`] and [`RedisStore::open`].
pub async fn open(address: &StoreAddress, settings: StoreSettings) -> StoreResult<Arc<dyn Store>> {
    let sqlite = |mut options: SqliteOptions| {
        options.durability = settings.durability;
        options.create = settings.create;
        options
    };
    Ok(match address {
        StoreAddress::Memory => {
            Arc::new(SqliteStore::open(&sqlite(SqliteOptions::memory())).await?)
        }
        StoreAddress::File(path) => {
            Arc::new(SqliteStore::open(&sqlite(SqliteOptions::file(path))).await?)
        }
        StoreAddress::Redis(url) => {
            let options = RedisOptions {
                url: url.clone(),
                hash_tag: settings.hash_tag,
                allow_eviction: settings.allow_eviction,
            };
            Arc::new(RedisStore::open(&options).await?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_at_an_endpoint() {
        let of = |text: &str| text.parse::<StoreAddress>().unwrap().endpoint();
        assert_eq!(of("redis://h"), Some(("h".to_owned(), 6379)));
        assert_eq!(of("rediss://u:p@h:7/1"), Some(("h".to_owned(), 7)));
        for here in ["unix:///s", "a.db", ":memory:"] {
            assert_eq!(of(here), None);
        }
    }

    #[test]
    fn addresses_are_told_apart() {
        for (text, address) in [
            (":memory:", StoreAddress::Memory),
            ("a.db", StoreAddress::File("a.db".into())),
            ("/a/b", StoreAddress::File("/a/b".into())),
            ("sqlite:///a/b", StoreAddress::File("/a/b".into())),
            ("redis://h", StoreAddress::Redis("redis://h".to_owned())),
            ("unix:///s", StoreAddress::Redis("unix:///s".to_owned())),
        ] {
            assert_eq!(text.parse::<StoreAddress>().unwrap(), address);
        }
        for bad in ["", "http://user:secret@h", "sqlite://a"] {
            let error = bad.parse::<StoreAddress>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
