//! From arguments to a store.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::opened::opened;
use super::{SettingsArgs, StoreArgs, Usage, folder};
use crate::message::QueueName;
use crate::store::address::{self, Endpoints, StoreAddress, StoreSettings};
use crate::store::redis::Access;
use crate::store::sqlite::Older;
use crate::store::{Store, StoreError};
use crate::text::shell_word;

/// The file in the user's data folder.
const DEFAULT_FILE: &str = "dqhost.db";

/// Whether a file is made when it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// For what puts messages in.
    Make,
    /// For what looks at them: a wrong path is to be told. The default file is made all the same.
    Refuse,
}

/// The flags for Redis that are on the command line, by their names. The environment may hold settings
/// for Redis while some command uses a file.
#[derive(Debug, Clone)]
pub(super) struct GivenForRedis(Vec<&'static str>);

impl GivenForRedis {
    const FLAGS: [(&str, &str); 7] = [
        ("redis_password_file", "--redis-password-file"),
        ("redis_ca", "--redis-ca"),
        ("redis_cert", "--redis-cert"),
        ("redis_key", "--redis-key"),
        ("no_hash_tag", "--no-hash-tag"),
        ("prefix", "--prefix"),
        ("allow_eviction", "--allow-eviction"),
    ];

    /// Refuses the flags if no store is in Redis.
    pub(super) fn check<'a>(
        &self,
        stores: impl IntoIterator<Item = &'a StoreAddress>,
    ) -> Result<(), Usage> {
        let is_redis = |address| matches!(address, &StoreAddress::Redis(_));
        match self.0.first() {
            Some(flag) if !stores.into_iter().any(is_redis) => Err(Usage(format!(
                "{flag} is for Redis, and the store is not in Redis: leave it out, or name another store"
            ))),
            _ => Ok(()),
        }
    }
}

impl FromArgMatches for GivenForRedis {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let given = Self::FLAGS.iter().filter(|(id, _)| is_given(id));
        Ok(Self(given.map(|(_, flag)| *flag).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It adds no flags, it only tells of those of [`super::RedisArgs`].
impl Args for GivenForRedis {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// The flag on the command line that names a store. A store that the file of settings names is in the same
/// place of the arguments.
#[derive(Debug, Clone)]
pub(super) struct GivenStore(Option<&'static str>);

impl FromArgMatches for GivenStore {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let flags = [("db", "--db"), ("redis", "--redis")];
        let given = flags.into_iter().find(|(id, _)| is_given(id));
        Ok(Self(given.map(|(_, flag)| flag)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It adds no flags, it only tells of those of [`super::StoreArgs`].
impl Args for GivenStore {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// Opens the store that the arguments or the environment name, for a command that leaves: what it
/// put into memory would go with it.
pub(super) async fn store(args: &StoreArgs, missing: Missing) -> anyhow::Result<Arc<dyn Store>> {
    store_noting(args, missing, &Endpoints::default()).await
}

/// The same, and where the store is reached is noted in `endpoints`.
pub(super) async fn store_noting(
    args: &StoreArgs,
    missing: Missing,
    endpoints: &Endpoints,
) -> anyhow::Result<Arc<dyn Store>> {
    let named = address(args)?;
    args.settings.redis.given.check(&named)?;
    match named {
        Some(StoreAddress::Memory) => Err(Usage(
            "a store in memory goes with the process that holds it, so only `dqhost up` can use \
             one; give --db PATH"
                .to_owned(),
        )
        .into()),
        Some(address) => {
            let mut settings = settings(&address, &args.settings, missing)?;
            settings.access.endpoints = endpoints.clone();
            opened(&address, settings).await
        }
        None => at(&default_file()?, &args.settings, Missing::Make).await,
    }
}

/// Opens the store that the arguments or the environment name if it is there. It makes nothing, and leaves a
/// file of an older version to that version.
pub(super) async fn existing(args: &StoreArgs) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let address = match (address(args)?, folder_of_default()) {
        (Some(StoreAddress::Memory), _) | (None, None) => return Ok(None),
        (Some(address), _) => address,
        (None, Some(folder)) => StoreAddress::File(folder.join(DEFAULT_FILE)),
    };
    let mut settings = settings(&address, &args.settings, Missing::Refuse)?;
    settings.older = Older::Refuse;
    Ok(Some(address::open(&address, settings).await?))
}

/// Refuses flags that name a store where `flag`, which would use it, is not given.
pub(super) fn refuse_store(args: &StoreArgs, flag: &str) -> Result<(), Usage> {
    let Some(given) = args.given.0 else {
        return Ok(());
    };
    Err(Usage(format!(
        "{given} is only used with {flag}: leave it out, or give {flag} as well"
    )))
}

/// Opens the store that the arguments or the environment name, for a host. Where it is reached is
/// noted in `endpoints`, now and later.
pub(super) async fn host_store(
    args: &StoreArgs,
    endpoints: Endpoints,
) -> anyhow::Result<Arc<dyn Store>> {
    let address = named_or_default(args)?;
    if address == StoreAddress::Memory {
        tracing::warn!("the store is in memory: nothing is kept when this host ends");
    }
    if address.is_in_the_clear() {
        tracing::warn!(
            "passwords and messages go over the network in the clear; a Redis with TLS is reached by \
             rediss://"
        );
    }
    let mut settings = settings(&address, &args.settings, Missing::Make)?;
    settings.access.endpoints = endpoints;
    opened(&address, settings).await
}

/// Opens the store of a host once more, for what works beside it: neither waits for the requests of the
/// other. A store in memory is one for both.
pub(super) async fn beside(
    args: &StoreArgs,
    host: Arc<dyn Store>,
) -> anyhow::Result<Arc<dyn Store>> {
    let address = match address(args)? {
        Some(StoreAddress::Memory) => return Ok(host),
        Some(address) => address,
        None => default_file()?,
    };
    let store = at(&address, &args.settings, Missing::Make).await?;
    if host.events().reports() {
        store.events().report_to_delayqueue();
    }
    Ok(store)
}

/// Says it when a queue looks empty only because its keys are named in another way. A user who may not
/// look at those keys is told nothing.
pub(super) async fn naming_hint(store: &dyn Store, queue: &QueueName) -> Option<String> {
    match store.naming_hint(queue).await {
        Ok(hint) => hint,
        Err(error) => {
            tracing::debug!(%queue, "it is not known whether its keys have other names: {error}");
            None
        }
    }
}

/// Where the store is reached over the network, as far as its address tells.
pub(super) fn endpoints(args: &StoreArgs) -> anyhow::Result<Endpoints> {
    let endpoints = Endpoints::default();
    if let Some(address) = address(args)? {
        for (host, port) in address.endpoints() {
            endpoints.add(&host, port);
        }
    }
    Ok(endpoints)
}

/// The store that the arguments or the environment name, or the file of this user.
pub(super) fn named_or_default(args: &StoreArgs) -> anyhow::Result<StoreAddress> {
    let named = address(args)?;
    args.settings.redis.given.check(&named)?;
    named.map_or_else(default_file, Ok)
}

/// Opens one store.
pub(super) async fn at(
    address: &StoreAddress,
    args: &SettingsArgs,
    missing: Missing,
) -> anyhow::Result<Arc<dyn Store>> {
    opened(address, settings(address, args, missing)?).await
}

/// Reports what happens to the monitors of a delayqueue as well, if that is asked for.
pub(super) fn report_events(
    is_asked: bool,
    args: &StoreArgs,
    store: &Arc<dyn Store>,
) -> anyhow::Result<()> {
    if !is_asked {
        return Ok(());
    }
    if !matches!(named_or_default(args)?, StoreAddress::Redis(_)) {
        return Err(Usage(
            "--report-events is for the monitors of a delayqueue, which are in Redis, and the store is \
             not: leave it out, or name another store"
                .to_owned(),
        )
        .into());
    }
    store.events().report_to_delayqueue();
    Ok(())
}

pub(super) fn settings(
    address: &StoreAddress,
    args: &SettingsArgs,
    missing: Missing,
) -> Result<StoreSettings, Usage> {
    let redis = &args.redis;
    if address.has_password() && redis.redis_password_file.is_some() {
        return Err(Usage(
            "there is a password in the URL of Redis and one in --redis-password-file: give one of \
             them"
                .to_owned(),
        ));
    }
    let wants_tls = redis.redis_ca.is_some() || redis.redis_cert.is_some();
    if wants_tls && matches!(address, StoreAddress::Redis(_)) && !address.has_tls() {
        return Err(Usage(
            "--redis-ca and --redis-cert are for TLS, and the URL of Redis does not begin with \
             rediss://"
                .to_owned(),
        ));
    }
    Ok(StoreSettings {
        durability: args.durability.into(),
        create: missing == Missing::Make,
        older: Older::Migrate,
        hash_tag: !redis.no_hash_tag,
        prefix: redis.prefix.clone(),
        allow_eviction: redis.allow_eviction,
        access: Access {
            ca: redis.redis_ca.clone(),
            cert: redis.redis_cert.clone(),
            key: redis.redis_key.clone(),
            password_file: redis.redis_password_file.clone(),
            endpoints: Endpoints::default(),
        },
    })
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// True if a variable of ours names a store.
pub(super) fn is_in_environment() -> bool {
    ["DQHOST_DB", "DQHOST_REDIS"]
        .into_iter()
        .any(|name| set(name).is_some())
}

/// The store that is named, if one is. The arguments have what the file of settings names only if no
/// variable of ours names another. What others use as well comes last.
fn address(args: &StoreArgs) -> Result<Option<StoreAddress>, Usage> {
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

/// The flags that name the same store once more, as a shell reads them, each with a space before
/// it. A password is not repeated.
pub(super) fn flags(args: &StoreArgs) -> String {
    let mut flags = String::new();
    if let Some(path) = &args.db {
        flags = format!(" --db {}", shell_word(&path.display().to_string()));
    }
    if let Some(url) = &args.redis {
        let shown = match StoreAddress::Redis(url.clone()) {
            address if address.has_password() => "URL".to_owned(),
            _ => shell_word(url),
        };
        flags = format!(" --redis {shown}");
    }
    if args.settings.redis.no_hash_tag {
        flags.push_str(" --no-hash-tag");
    }
    let prefix = &args.settings.redis.prefix;
    if !prefix.is_default() {
        flags = flags + " --prefix " + &shell_word(&prefix.to_string());
    }
    flags
}

fn folder_of_default() -> Option<PathBuf> {
    folder::of_user("XDG_DATA_HOME", ".local/share")
}

/// The file in the user's data folder, which is made for this user alone.
fn default_file() -> anyhow::Result<StoreAddress> {
    let folder = folder_of_default().ok_or_else(|| {
        Usage("there is no home folder to keep messages in: give --db PATH".to_owned())
    })?;
    folder::make(&folder).map_err(|error| StoreError::Unusable {
        store: format!("sqlite://{}", folder.join(DEFAULT_FILE).display()),
        reason: format!("its folder cannot be made: {error}; give another one with --db PATH"),
    })?;
    Ok(StoreAddress::File(folder.join(DEFAULT_FILE)))
}
