//! The flags that say which store is used, and how.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};

use super::{DEFAULT_QUEUE, config, help, open};
use crate::message::QueueName;
use crate::store::redis::KeyPrefix;
use crate::store::sqlite::Durability;

/// Which store to use.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = help::STORE)]
pub(super) struct StoreArgs {
    // First: the parser forgets of a flag what the fields below have taken.
    #[command(flatten)]
    pub given: open::GivenStore,
    #[command(flatten)]
    pub config: config::ConfigArg,
    /// Keep messages in this file, made if it is missing
    ///
    /// :memory: keeps nothing. Precedence: a flag, then DQHOST_DB or DQHOST_REDIS (set only one), then the
    /// file of --config, then REDIS_URL, then $XDG_DATA_HOME/dqhost/dqhost.db
    /// (~/.local/share/dqhost/dqhost.db).
    #[arg(long, value_name = "PATH", conflicts_with = "redis")]
    pub db: Option<PathBuf>,
    /// Keep messages in Redis 7 or later
    ///
    /// Use redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., unix:///PATH, any node of a cluster,
    /// or redis+sentinel://HOST[,HOST...]/MASTER. A password is better kept in DQHOST_REDIS, REDIS_URL
    /// or a file.
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// How a store is used.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = help::STORE)]
pub(super) struct SettingsArgs {
    /// Choose what a file survives
    ///
    /// full: a power cut. normal: the crash of any process, while a power cut may undo the last
    /// moments.
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "full",
        env = "DQHOST_DURABILITY"
    )]
    pub durability: DurabilityArg,
    #[command(flatten)]
    pub redis: RedisArgs,
}

/// How Redis is used.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = help::STORE)]
pub(super) struct RedisArgs {
    // First: the parser forgets of a flag what the fields below have taken.
    #[command(flatten)]
    pub given: open::GivenForRedis,
    /// Read the password of Redis from this file
    ///
    /// It is read again for each new connection.
    #[arg(long, value_name = "PATH", env = "DQHOST_REDIS_PASSWORD_FILE")]
    pub redis_password_file: Option<PathBuf>,
    /// Trust the CAs in this PEM file, not the public ones
    ///
    /// This is for Redis that is reached by rediss://.
    #[arg(long, value_name = "PATH", env = "DQHOST_REDIS_CA")]
    pub redis_ca: Option<PathBuf>,
    /// Show Redis this certificate, with its chain, as PEM
    #[arg(
        long,
        value_name = "PATH",
        env = "DQHOST_REDIS_CERT",
        requires = "redis_key"
    )]
    pub redis_cert: Option<PathBuf>,
    /// Use this key of --redis-cert, as PEM
    #[arg(
        long,
        value_name = "PATH",
        env = "DQHOST_REDIS_KEY",
        requires = "redis_cert"
    )]
    pub redis_key: Option<PathBuf>,
    /// Name keys dp:QUEUE:... instead of {dp:QUEUE}:...
    ///
    /// This fits a delayqueue without UseHashTagKey.
    #[arg(long, env = "DQHOST_NO_HASH_TAG",
        value_parser = BoolishValueParser::new())]
    pub no_hash_tag: bool,
    /// Begin the keys with this instead of dp
    ///
    /// This fits a delayqueue with UseCustomPrefix.
    #[arg(long, value_name = "PREFIX", default_value_t, env = "DQHOST_PREFIX")]
    pub prefix: KeyPrefix,
    /// Accept a Redis that may delete messages when it is full
    ///
    /// Its maxmemory-policy decides that.
    #[arg(long, env = "DQHOST_ALLOW_EVICTION",
        value_parser = BoolishValueParser::new())]
    pub allow_eviction: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DurabilityArg {
    Full,
    Normal,
}

impl From<DurabilityArg> for Durability {
    fn from(level: DurabilityArg) -> Self {
        match level {
            DurabilityArg::Full => Self::Full,
            DurabilityArg::Normal => Self::Normal,
        }
    }
}

/// Which queue is meant.
#[derive(Debug, Clone, Args)]
pub(super) struct QueueArg {
    /// Use this queue
    #[arg(
        long,
        short,
        value_name = "NAME",
        default_value = DEFAULT_QUEUE,
        env = "DQHOST_QUEUE"
    )]
    pub queue: QueueName,
}
