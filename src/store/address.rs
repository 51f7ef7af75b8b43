//! Which store: what an operator writes, and the store that it names.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use super::redis::{self, Access, Examined, KeyPrefix, RedisOptions, RedisStore, UrlFacts};
use super::sqlite::{Durability, Older, SqliteOptions, SqliteStore};
use super::{Store, StoreResult};
use crate::message::QueueName;

/// Where a store is.
///
/// As text: `:memory:`, a path (also as `sqlite:///PATH`), or the URL of a Redis server
/// (`redis://`, `rediss://`, `unix://`, or `redis+sentinel://HOST,HOST/MASTER`).
#[derive(Clone, PartialEq, Eq)]
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
    "{0}; give a path, :memory:, or the URL of a Redis server (redis://, rediss://, unix:// or \
     redis+sentinel://)"
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
            Some((
                "redis" | "rediss" | "unix" | "redis+unix" | "valkey" | "valkeys"
                | "redis+sentinel" | "rediss+sentinel",
                _,
            )) => Ok(Self::Redis(text.to_owned())),
            Some((scheme, _)) => Err(StoreAddressError(format!(
                "a store cannot be named by {scheme}://"
            ))),
        }
    }
}

impl StoreAddress {
    fn facts(&self) -> UrlFacts {
        match self {
            Self::Memory | Self::File(_) => UrlFacts::default(),
            Self::Redis(url) => redis::facts(url),
        }
    }

    /// The hosts and the ports that it names; none for what is on this machine.
    #[must_use]
    pub fn endpoints(&self) -> Vec<(String, u16)> {
        self.facts().endpoints
    }

    /// True when a password is in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.facts().has_password
    }

    /// True for a server that is reached through TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.facts().has_tls
    }

    /// True when passwords and messages go over a network in the clear.
    #[must_use]
    pub fn is_in_the_clear(&self) -> bool {
        let is_here = |host: &str| {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        let facts = self.facts();
        !facts.has_tls && facts.endpoints.iter().any(|(host, _)| !is_here(host))
    }
}

/// Hosts and ports at which a store is reached, as far as they are known by now. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Endpoints(Arc<Mutex<BTreeSet<(String, u16)>>>);

impl Endpoints {
    /// Adds one, if it is new.
    pub fn add(&self, host: &str, port: u16) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((host.to_owned(), port));
    }

    /// The hosts that are known at this port.
    #[must_use]
    pub fn at_port(&self, port: u16) -> Vec<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_port = known.iter().filter(|(_, of)| *of == port);
        of_port.map(|(host, _)| host.clone()).collect()
    }
}

impl fmt::Debug for StoreAddress {
    /// As [`Display`](fmt::Display) has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// What a file survives.
    pub durability: Durability,
    /// Make a file when it is missing.
    pub create: bool,
    /// What is done with a file of an older version.
    pub older: Older,
    /// False for the key names of a delayqueue without `UseHashTagKey`.
    pub hash_tag: bool,
    /// That of `UseCustomPrefix`, if a delayqueue uses it.
    pub prefix: KeyPrefix,
    /// Accept a Redis server that may evict messages when its memory is full.
    pub allow_eviction: bool,
    /// What a Redis server wants before it answers.
    pub access: Access,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            create: true,
            older: Older::Migrate,
            hash_tag: true,
            prefix: KeyPrefix::default(),
            allow_eviction: false,
            access: Access::default(),
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
        options.older = settings.older;
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
            let options = redis_options(url, settings);
            Arc::new(RedisStore::open(&options).await?)
        }
    })
}

fn redis_options(url: &str, settings: StoreSettings) -> RedisOptions {
    RedisOptions {
        url: url.to_owned(),
        hash_tag: settings.hash_tag,
        prefix: settings.prefix,
        allow_eviction: settings.allow_eviction,
        access: settings.access,
    }
}

/// Asks a server what operators want to know of it.
///
/// # Errors
///
/// If it cannot be reached, or does not say what it is.
pub async fn examine(
    url: &str,
    settings: StoreSettings,
    queue: &QueueName,
) -> StoreResult<Vec<Examined>> {
    redis::examine(&redis_options(url, settings), queue).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_url_tells() {
        let of = |text: &str| text.parse::<StoreAddress>().unwrap();
        let at = |text: &str| of(text).endpoints();
        assert_eq!(at("redis://h"), [("h".to_owned(), 6379)]);
        assert_eq!(at("rediss://u:p@h:7/1"), [("h".to_owned(), 7)]);
        for here in ["unix:///s", "a.db", ":memory:"] {
            assert_eq!(at(here), []);
        }
        let sentinels = "redis+sentinel://u:p@a,b:7/main";
        assert_eq!(
            at(sentinels),
            [("a".to_owned(), 26_379), ("b".to_owned(), 7)]
        );
        assert!(of(sentinels).has_password() && of(sentinels).is_in_the_clear());
        assert!(of("rediss+sentinel://a/main").has_tls());
        assert!(of("rediss://u:p@h").has_tls() && of("rediss://u:p@h").has_password());
        assert!(!of("redis://u@h").has_tls() && !of("redis://u@h").has_password());
        assert!(of("unix:///s?pass=p").has_password());
        for clear in ["redis://h", "redis://10.0.0.1:7", "redis://[fd00::1]"] {
            assert!(of(clear).is_in_the_clear(), "{clear}");
        }
        for safe in [
            "rediss://h",
            "redis://localhost",
            "redis://127.0.0.2",
            "redis://[::1]",
        ] {
            assert!(!of(safe).is_in_the_clear(), "{safe}");
        }
        assert!(!of("unix:///s").is_in_the_clear() && !of("a.db").is_in_the_clear());
    }

    #[test]
    fn endpoints_are_shared() {
        let one = Endpoints::default();
        let other = one.clone();
        for port in [1, 1, 2] {
            other.add("h", port);
        }
        assert_eq!(one.at_port(1), ["h"]);
        assert!(one.at_port(3).is_empty());
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

    proptest! {
        #[test]
        fn an_address_of_any_form_is_taken_or_refused_and_keeps_its_password(
            text in "(rediss?|unix|valkeys?|redis\\+unix|sqlite|http)?(://)?([a-z]{0,3}:SECRET@)?\\[?[a-z0-9.:%-]{0,12}\\]?(:[0-9]{0,7})?(/[0-9]{0,22})?(\\?[a-z=&%0-9]{0,9})?|.*",
        ) {
            let shown = match text.parse::<StoreAddress>() {
                Ok(address) => {
                    let _ = address.endpoints();
                    match address {
                        // A path is shown as it is.
                        StoreAddress::File(_) => String::new(),
                        address => address.to_string(),
                    }
                }
                Err(error) => error.to_string(),
            };
            prop_assert!(!shown.contains("SECRET"), "{}", shown);
        }
    }
}
