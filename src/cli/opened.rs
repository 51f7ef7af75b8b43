//! What this process does to the stores that it has opened is told to those who listen.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;

use crate::store::address::{self, StoreAddress, StoreSettings};
use crate::store::{Store, flush_events, publish_events};

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

/// Tells what is not told yet, and lets the stores go.
pub(super) async fn close_all() {
    let opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    join_all(opened.iter().map(|store| flush_events(&**store))).await;
}
