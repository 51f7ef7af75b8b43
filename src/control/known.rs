//! Whether a queue is there: what steers a queue refuses a name that nobody uses.

use crate::message::QueueName;
use crate::store::{Counts, HOST_SILENCE, Store, StoreResult};

/// True when the store knows of the queue: a message was sent to it, another program keeps messages
/// there, it is paused, or a host serves it.
pub async fn is_known(store: &dyn Store, queue: &QueueName) -> StoreResult<bool> {
    if store.queues().await?.contains(queue) {
        return Ok(true);
    }
    let overview = store.overview(queue).await?;
    if overview.paused || overview.counts != Counts::default() {
        return Ok(true);
    }
    Ok(!store.hosts(queue, HOST_SILENCE).await?.is_empty())
}

/// What is said of a queue that is not there, to whoever wants to pause or to resume it.
#[must_use]
pub fn not_there(queue: &QueueName, paused: bool) -> String {
    if paused {
        format!("there is no queue {queue}: --create makes it, paused")
    } else {
        format!("there is no queue {queue}, so nothing is resumed")
    }
}
