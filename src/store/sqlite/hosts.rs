//! Keeps the list of hosts that serve a queue.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::error::Failure;
use super::queue::{QueueRow, QueueTx, signed, text, unsigned};
use super::transaction::TxOptions;
use super::{SqliteStore, dedup};
use crate::message::QueueName;
use crate::store::common::ms;
use crate::store::{HostInfo, Hosts, Operation, SeenHost, StoreResult};

#[async_trait]
impl Hosts for SqliteStore {
    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()> {
        let host = host.clone();
        let work = move |tx: &mut QueueTx<'_>| heartbeat(tx, &host, silence);
        self.transact(Operation::Heartbeat, queue, TxOptions::PASSING_CREATE, work)
            .await?;
        Ok(())
    }

    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()> {
        let host_id = host_id.to_owned();
        let work = move |tx: &mut QueueTx<'_>| leave(tx, &host_id);
        self.transact(Operation::Leave, queue, TxOptions::PASSING, work)
            .await?;
        Ok(())
    }

    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<SeenHost>> {
        let now_ms = self.clock.now().ms;
        let hosts = self.read_queue(Operation::ListHosts, queue, move |connection, row| {
            hosts(connection, row, now_ms, silence)
        });
        Ok(hosts.await?.unwrap_or_default())
    }
}

pub(super) fn heartbeat(
    tx: &mut QueueTx<'_>,
    host: &HostInfo,
    silence: Duration,
) -> Result<(), Failure> {
    forget_silent(tx, tx.now.ms.saturating_sub(ms(silence)))?;
    dedup::forget(tx, dedup::FORGOTTEN_PER_HEARTBEAT)?;
    tx.tx
        .prepare_cached(
            "INSERT OR REPLACE INTO hosts (queue, host, beat_ms, info) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            tx.row.id,
            host.id,
            signed(tx.now.ms),
            serde_json::json!(host).to_string(),
        ])?;
    Ok(())
}

/// A host that dies without leave is forgotten by the next heartbeat of any other.
fn forget_silent(tx: &QueueTx<'_>, until_ms: u64) -> rusqlite::Result<()> {
    tx.tx
        .prepare_cached("DELETE FROM hosts WHERE queue = ?1 AND beat_ms <= ?2")?
        .execute(params![tx.row.id, signed(until_ms)])?;
    Ok(())
}

pub(super) fn leave(tx: &mut QueueTx<'_>, host_id: &str) -> Result<(), Failure> {
    tx.tx
        .prepare_cached("DELETE FROM hosts WHERE queue = ?1 AND host = ?2")?
        .execute(params![tx.row.id, host_id])?;
    Ok(())
}

pub(super) fn hosts(
    connection: &Connection,
    row: &QueueRow,
    now_ms: u64,
    silence: Duration,
) -> rusqlite::Result<Vec<SeenHost>> {
    let since_ms = now_ms.saturating_sub(ms(silence));
    let beats: Vec<(String, i64)> = connection
        .prepare_cached(
            "SELECT info, beat_ms FROM hosts WHERE queue = ?1 AND beat_ms >= ?2 ORDER BY host",
        )?
        .query_map(params![row.id, signed(since_ms)], |row| {
            Ok((text(row, 0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let seen = |(info, beat_ms): (String, i64)| {
        Some(SeenHost {
            info: serde_json::from_str(&info).ok()?,
            seen_ms_ago: now_ms.saturating_sub(unsigned(beat_ms)),
        })
    };
    Ok(beats.into_iter().filter_map(seen).collect())
}
