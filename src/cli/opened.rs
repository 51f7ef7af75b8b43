//! What this process does to the stores that it has opened is told to those who listen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::store::address::{self, StoreAddress, StoreSettings};
use crate::store::{Store, flush_events, publish_events};

/// How long a program that ends waits for its store. A disk that hangs keeps none from ending.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The stores that this process has opened, until it has told what it did to them.
static OPENED: Mutex<Vec<Arc<dyn Store>>> = Mutex::new(Vec::new());

/// Opens a store, and tells those who listen what this process does to it.
pub(super) async fn opened(
    address: &StoreAddress,
    settings: StoreSettings,
) -> anyhow::Result<Arc<dyn Store>> {
    let store = address::open(address, settings).await?;
    tokio::spawn(publish_events(&store));
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.push(Arc::clone(&store));
    Ok(store)
}

/// Tells what is not told yet, and closes the stores, whoever still holds them.
pub(super) async fn close_all() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    join_all(opened.into_iter().map(close)).await;
}

async fn close(store: Arc<dyn Store>) {
    flush_events(&*store).await;
    if timeout(CLOSE_LIMIT, store.close()).await.is_err() {
        // To drop it would wait as well.
        std::mem::forget(store);
    }
}
