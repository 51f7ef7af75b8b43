//! Lists the queues of the file.

use async_trait::async_trait;
use rusqlite::Connection;

use super::SqliteStore;
use super::queue::text;
use crate::message::QueueName;
use crate::store::{Discover, Operation, StoreResult};

#[async_trait]
impl Discover for SqliteStore {
    async fn queues(&self) -> StoreResult<Vec<QueueName>> {
        self.read(Operation::ListQueues, queues).await
    }
}

pub(super) fn queues(connection: &Connection) -> rusqlite::Result<Vec<QueueName>> {
    let names: Vec<String> = connection
        .prepare_cached("SELECT name FROM queues")?
        .query_map([], |row| text(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut queues: Vec<QueueName> = names.iter().filter_map(|name| name.parse().ok()).collect();
    queues.sort();
    Ok(queues)
}
