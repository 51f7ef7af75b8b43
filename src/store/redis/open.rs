//! Opening: what a server must be before a message is entrusted to it.

use std::fmt;
use std::sync::atomic::AtomicBool;

use super::foreign::Walks;
use super::keys::{KeyPrefix, Naming};
use super::prefetch::PayloadPrefetch;
use super::server_info::{Defect, ServerInfo};
use super::transport::client::Client;
use super::transport::cluster::Cluster;
use super::transport::server::{Access, Server};
use super::wake::SubscriptionSource;
use super::{Arc, Mutex, RedisStore, StoreError, StoreResult, Wake};
use crate::store::Operation;

/// Which server, and how its keys are named.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://`, `rediss://` or `unix://`, with user and password if needed; any node of a cluster; or
    /// `redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB`.
    pub url: String,
    /// False for the key names of a delayqueue without `UseHashTagKey`.
    pub hash_tag: bool,
    /// That of `UseCustomPrefix`, if a delayqueue uses it.
    pub prefix: KeyPrefix,
    /// Accept a server that may evict messages when its memory is full.
    pub allow_eviction: bool,
    /// What the server wants before it answers.
    pub access: Access,
}

impl fmt::Debug for RedisOptions {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("hash_tag", &self.hash_tag)
            .field("prefix", &self.prefix)
            .field("allow_eviction", &self.allow_eviction)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl RedisOptions {
    /// With our own key names, and all else as it is safest.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            hash_tag: true,
            prefix: KeyPrefix::default(),
            allow_eviction: false,
            access: Access::default(),
        }
    }
}

impl RedisStore {
    /// Connects and checks the server: Redis 7.0 or later, a master, and (unless allowed) one that
    /// never evicts keys. Of a cluster all masters are checked that can be reached.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unusable`] for what the operator must mend, [`StoreError::Unreachable`] for
    /// what may pass by itself.
    pub async fn open(options: &RedisOptions) -> StoreResult<Self> {
        let server = Arc::new(Server::new(&options.url, options.access.clone())?);
        let one = Client::to_one(&server);
        let name = Arc::clone(&server.name);
        let is_cluster = check(&one, &name, options.allow_eviction).await?;
        let (work, leases, source) = if is_cluster {
            refuse_names(options).map_err(|reason| StoreError::Unusable {
                store: name.to_string(),
                reason: reason.to_owned(),
            })?;
            let cluster = Cluster::join(server).await;
            let cluster = cluster.map_err(|error| one.error(Operation::ReadSlots, &error))?;
            let cluster = Arc::new(cluster);
            check_masters(&cluster, options.allow_eviction).await?;
            let [work, leases] = [(); 2].map(|()| Client::to_cluster(&cluster));
            (work, leases, SubscriptionSource::Cluster(cluster))
        } else {
            let leases = Client::to_one(&server);
            (one, leases, SubscriptionSource::One(server))
        };
        let prefetch = Arc::<PayloadPrefetch>::default();
        // Under each prefix it is another store: what moves from one to the other must be told apart.
        let name = if options.prefix.is_default() {
            name
        } else {
            format!("{name} (prefix {})", options.prefix).into()
        };
        Ok(Self {
            work,
            leases,
            wake: Wake::new(source, Arc::clone(&prefetch)),
            prefetch,
            walks: Walks::default(),
            events: Arc::default(),
            has_logged_advance: AtomicBool::new(false),
            name,
            naming: Naming {
                hash_tag: options.hash_tag,
                prefix: options.prefix.clone(),
            },
            is_cluster,
            registered: Mutex::default(),
            known: Mutex::default(),
        })
    }
}

/// Refuses names that put the keys of one queue into several slots of a cluster.
fn refuse_names(options: &RedisOptions) -> Result<(), &'static str> {
    match (options.hash_tag, options.prefix.is_default()) {
        (false, _) => Err(NO_TAG),
        (true, false) => Err(PREFIX),
        (true, true) => Ok(()),
    }
}

/// Why a cluster is refused.
const PREFIX: &str = "it is a cluster, in which all keys of a queue must be in one slot, and with a prefix \
    the payloads are in another: a delayqueue leaves them under {dp:QUEUE}. Leave out --prefix";

/// The same.
const NO_TAG: &str = "it is a cluster, in which the keys of a queue are together only with a hash tag \
    in their names: leave out --no-hash-tag";

/// Every master of a cluster is checked that can be reached; the others are seen to be away later.
async fn check_masters(cluster: &Arc<Cluster>, allow_eviction: bool) -> StoreResult<()> {
    for place in cluster.masters() {
        let node = Client::to_node(&cluster.server, place.clone());
        let name = match &place {
            Some((host, port)) => format!("{} (its node {host}:{port})", cluster.server.name),
            None => cluster.server.name.to_string(),
        };
        let checked = check(&node, &name, allow_eviction).await;
        if let Err(error @ StoreError::Unusable { .. }) = checked {
            return Err(error);
        }
    }
    Ok(())
}

/// Refuses a server that will not do. True for a node of a cluster.
async fn check(route: &Client, name: &str, allow_eviction: bool) -> StoreResult<bool> {
    let info = ServerInfo::read(route).await?;
    let eviction = info.eviction().filter(|_| !allow_eviction);
    if let Some(Defect { what, mend }) = info.age().or_else(|| info.role()).or(eviction) {
        return Err(StoreError::Unusable {
            store: name.to_owned(),
            reason: format!("{what}; {mend}"),
        });
    }
    if let Some(Defect { what, mend }) = info.persistence() {
        tracing::warn!(store = %name, "{what} ({mend})");
    }
    Ok(info.is_cluster())
}
