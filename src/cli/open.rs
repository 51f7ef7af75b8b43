//! From arguments to a store, and the log of commands that are not the host.

use std::sync::Arc;

use super::{StoreArgs, Usage};
use crate::store::Store;
use crate::store::redis::{RedisOptions, RedisStore};

/// Opens the store that the arguments or the environment name.
pub(super) async fn store(args: &StoreArgs) -> anyhow::Result<Arc<dyn Store>> {
    let url = match &args.redis {
        Some(url) => url.clone(),
        None => std::env::var("REDIS_URL").map_err(|_| {
            Usage("no store is given: use --redis redis://HOST:PORT, or set REDIS_URL".to_owned())
        })?,
    };
    let options = RedisOptions {
        url,
        hash_tag: !args.no_hash_tag,
        allow_eviction: args.allow_eviction,
    };
    Ok(Arc::new(RedisStore::open(&options).await?))
}
