//! Opening: what a server must be before a message is entrusted to it.

use super::guesses::Guesses;
use super::{
    Arc, ConnectionAddr, IntoConnectionInfo, Link, Mutex, RedisStore, StoreError, StoreResult,
    Wake, text,
};

/// Which server, and how its keys are named.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://`, `rediss://` or `unix://`, with user and password if needed.
    pub url: String,
    /// False for the key names of a delayqueue without `UseHashTagKey`.
    pub hash_tag: bool,
    /// Accept a server that may evict messages when its memory is full.
    pub allow_eviction: bool,
}

/// The host and the port that a URL names; none for a socket of this machine.
#[must_use]
pub fn endpoint(url: &str) -> Option<(String, u16)> {
    match url.into_connection_info().ok()?.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

impl RedisStore {
    /// Connects and checks the server: Redis 7.0 or later, a master, and (unless allowed) one that
    /// never evicts keys.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] for what the operator must mend, [`StoreError::Unreachable`] for
    /// what may pass by itself.
    pub async fn open(options: &RedisOptions) -> StoreResult<Self> {
        let unusable = |store: &str, reason: String| StoreError::Unusable {
            store: store.to_owned(),
            reason,
        };
        let info = options
            .url
            .as_str()
            .into_connection_info()
            .map_err(|error| {
                let what = error.detail().unwrap_or("it is not understood").to_owned();
                unusable(
                    "the Redis URL",
                    format!("{what}; give redis://HOST:PORT/DB"),
                )
            })?;
        let name: Arc<str> = match info.addr() {
            ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
            ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}"),
            ConnectionAddr::Unix(path) => format!("unix://{}", path.display()),
            _ => "redis".to_owned(),
        }
        .into();
        let name: Arc<str> = match info.redis_settings().db() {
            0 => name,
            db => format!("{name}/{db}").into(),
        };
        let client = redis::Client::open(info)
            .map_err(|error| unusable(&name, error.detail().unwrap_or("bad URL").to_owned()))?;
        let guesses = Arc::<Guesses>::default();
        let mut store = Self {
            work: Link::new(client.clone(), Arc::clone(&name)),
            leases: Link::new(client.clone(), Arc::clone(&name)),
            wake: Wake::new(client, Arc::clone(&guesses)),
            guesses,
            name,
            hash_tag: options.hash_tag,
            is_cluster: false,
            registered: Mutex::default(),
            known: Mutex::default(),
        };
        store.is_cluster = store.check(options.allow_eviction).await?;
        Ok(store)
    }

    /// Refuses a server that will not do. True for a node of a cluster.
    async fn check(&self, allow_eviction: bool) -> StoreResult<bool> {
        let answers = self.work.run("reading INFO", &[redis::cmd("INFO")]).await?;
        let info: String = answers.into_iter().map(text).collect();
        let unusable = |reason: String| {
            Err(StoreError::Unusable {
                store: self.name.to_string(),
                reason,
            })
        };
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let version = field("redis_version").unwrap_or("unknown");
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < 7) {
            return unusable(format!(
                "it runs Redis {version}, and dqhost needs 7.0 or later (script flags)"
            ));
        }
        if matches!(field("role"), Some("slave" | "replica")) {
            return unusable(format!(
                "it is a read-only replica; give the address of its master ({}:{})",
                field("master_host").unwrap_or("unknown"),
                field("master_port").unwrap_or("unknown"),
            ));
        }
        let policy = field("maxmemory_policy").unwrap_or("unknown");
        if policy != "noeviction" && !allow_eviction {
            return unusable(format!(
                "its maxmemory-policy is {policy}, so a full memory would silently delete \
                 messages; mend it with `redis-cli CONFIG SET maxmemory-policy noeviction`, or \
                 accept the loss with --allow-eviction"
            ));
        }
        if field("aof_enabled") == Some("0") {
            tracing::warn!(
                store = %self.name,
                "this Redis keeps no append-only file: its restart may lose messages \
                 (`redis-cli CONFIG SET appendonly yes`)"
            );
        }
        Ok(field("cluster_enabled") == Some("1"))
    }
}
