//! The end: whoever still holds the store, its connections are closed.

use async_trait::async_trait;

use super::SqliteStore;
use crate::store::Close;

#[async_trait]
impl Close for SqliteStore {
    async fn close(&self) {
        // One after the other: of two that are closed at once, each would leave the log to the other.
        if let Some(read) = &self.read {
            read.close().await;
        }
        self.write.close().await;
    }
}
