//! The pipeline in Redis 7 or later: one Lua script a transition (`lua/`), in the key layout of
//! HDT3213/delayqueue.
//!
//! Two connections (to each node, in a cluster), so that renewals and settlements never queue behind
//! reservations and their payloads, and a third that listens for wake-ups. No blocking command, no transaction that spans
//! round trips: a crash between two calls leaves every message in one state.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;

use self::client::Client;
use self::decode::{decode, text, unexpected};
use self::foreign::Walks;
use self::keys::{Keys, Naming};
use self::prefetch::PayloadPrefetch;
use self::scripts::Script;
use self::wake::Wake;
use super::Operation;
use super::common::ms;
use super::{
    Advanced, Audit, AuditReport, BATCH_MAX, Cancelled, Counts, Discovered, First, HostInfo,
    Overview, Page, Peer, Redriven, Rescheduled, Reservation, Retention, SeenHost, Settled,
    Settlement, Store, StoreError, StoreResult,
};
use crate::message::{
    Claim, DELAY_MS_MAX, Delivery, Due, MessageId, NewMessage, QueueName, Record, Sent, State,
    Token,
};

mod advance;
mod audit;
mod client;
mod cluster;
mod connection;
mod decode;
mod deliver;
mod discover;
mod faults;
mod foreign;
mod keys;
mod open;
mod overview;
mod prefetch;
mod queues;
mod read;
mod reserved;
mod scripts;
mod sentinel;
mod server;
mod settle;
mod transfer;
mod wake;
mod write;
mod wrong_key;

pub use keys::{KeyPrefix, KeyPrefixError};
pub use open::RedisOptions;
pub use server::{Access, UrlFacts, facts};

/// A queue store in one Redis server, in one that sentinels watch, or in a cluster.
pub struct RedisStore {
    /// Everything but what follows.
    work: Client,
    /// Renewals and settlements.
    leases: Client,
    wake: Wake,
    /// Shared with `wake`.
    prefetch: Arc<PayloadPrefetch>,
    walks: Walks,
    /// How people and errors name it; without secrets.
    name: Arc<str>,
    naming: Naming,
    /// It was logged that messages are delivered although `advance` fails.
    has_logged_advance: AtomicBool,
    /// The server is a node of a cluster: a script cannot reach the keys of two queues.
    is_cluster: bool,
    /// Queues that this process has put into the list of queues. A std mutex: nothing is awaited
    /// while it is held.
    registered: Mutex<HashSet<QueueName>>,
    /// The keys of queues that were asked for, which are a score of strings each. As above.
    known: Mutex<HashMap<QueueName, Arc<Keys>>>,
}

/// An EVALSHA of one script; the keys are those that its header lists, in that order.
fn evalsha<'a>(script: &Script, keys: impl IntoIterator<Item = &'a str>) -> Cmd {
    call(redis::cmd("EVALSHA"), script, keys)
}

/// The same for a script that only reads, so that whoever may only read may call it.
fn evalsha_ro<'a>(script: &Script, keys: impl IntoIterator<Item = &'a str>) -> Cmd {
    call(redis::cmd("EVALSHA_RO"), script, keys)
}

fn call<'a>(mut command: Cmd, script: &Script, keys: impl IntoIterator<Item = &'a str>) -> Cmd {
    let keys: Vec<&str> = keys.into_iter().collect();
    command.arg(&script.hash).arg(keys.len()).arg(keys);
    command
}

/// Queues whose keys are kept; after so many it begins anew.
const KEYS_KNOWN_MAX: usize = 1000;

impl RedisStore {
    fn keys(&self, queue: &QueueName) -> Arc<Keys> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = known.get(queue) {
            return Arc::clone(keys);
        }
        if known.len() >= KEYS_KNOWN_MAX {
            known.clear();
        }
        let keys = Arc::new(Keys::new(queue, &self.naming));
        known.insert(queue.clone(), Arc::clone(&keys));
        keys
    }

    /// One command, one answer.
    async fn one<T: redis::FromRedisValue>(
        &self,
        link: &Client,
        operation: Operation,
        command: Cmd,
    ) -> StoreResult<T> {
        let mut answers = link.run(operation, &[command]).await?;
        let answer = answers
            .pop()
            .ok_or_else(|| unexpected(&self.name, operation))?;
        decode(&self.name, operation, answer)
    }
}

#[async_trait]
impl Store for RedisStore {
    fn describe(&self) -> String {
        self.name.to_string()
    }

    async fn send(&self, queue: &QueueName, messages: &[NewMessage]) -> StoreResult<Vec<Sent>> {
        self.send_messages(queue, messages).await
    }

    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced> {
        self.advance_queue(queue).await
    }

    async fn reserve(&self, queue: &QueueName, wanted: Reservation) -> StoreResult<Vec<Delivery>> {
        self.reserve_messages(queue, wanted).await
    }

    async fn advance_and_reserve(
        &self,
        queue: &QueueName,
        wanted: Reservation,
    ) -> StoreResult<(Advanced, Vec<Delivery>)> {
        self.advance_and_reserve_messages(queue, wanted).await
    }

    async fn extend(
        &self,
        queue: &QueueName,
        claims: &[Claim],
        lease: Duration,
    ) -> StoreResult<Vec<Settled>> {
        self.extend_leases(queue, claims, lease).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        settlements: &[(Claim, Settlement)],
    ) -> StoreResult<Vec<Settled>> {
        self.settle_deliveries(queue, settlements).await
    }

    fn can_send_along(&self, from: &QueueName, to: &QueueName) -> bool {
        !self.is_cluster || from == to
    }

    async fn release(&self, queue: &QueueName, claims: &[Claim]) -> StoreResult<Vec<Settled>> {
        self.release_deliveries(queue, claims).await
    }

    async fn cancel(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<Cancelled>> {
        self.cancel_messages(queue, ids).await
    }

    async fn reschedule(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        due: Due,
    ) -> StoreResult<Vec<Rescheduled>> {
        self.reschedule_messages(queue, ids, due).await
    }

    async fn set_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<()> {
        self.pause_queue(queue, paused).await
    }

    async fn counts(&self, queue: &QueueName) -> StoreResult<Counts> {
        self.read_counts(queue).await
    }

    async fn overview(&self, queue: &QueueName) -> StoreResult<Overview> {
        self.read_overview(queue).await
    }

    async fn get(&self, queue: &QueueName, id: &MessageId) -> StoreResult<Option<Record>> {
        self.read_message(queue, id).await
    }

    async fn list(&self, queue: &QueueName, state: State, page: Page) -> StoreResult<Vec<Record>> {
        self.read_page(queue, state, page).await
    }

    async fn redrive(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        retries: Option<u32>,
    ) -> StoreResult<Vec<Redriven>> {
        self.redrive_dead(queue, ids, retries).await
    }

    async fn redrive_edited(
        &self,
        queue: &QueueName,
        id: &MessageId,
        payload: &[u8],
        retries: Option<u32>,
    ) -> StoreResult<Redriven> {
        self.send_dead_again(queue, id, payload, retries).await
    }

    async fn past_retention(
        &self,
        queue: &QueueName,
        retention: Retention,
    ) -> StoreResult<Vec<MessageId>> {
        self.read_past_retention(queue, retention).await
    }

    async fn delete_dead(&self, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Vec<bool>> {
        self.remove_dead(queue, ids).await
    }

    async fn begin_transfer(&self, queue: &QueueName, peer: &Peer) -> StoreResult<()> {
        self.begin_transfer_with(queue, peer).await
    }

    async fn export(&self, queue: &QueueName, run: &str, max: usize) -> StoreResult<Vec<Record>> {
        self.export_messages(queue, run, max).await
    }

    async fn import(&self, queue: &QueueName, run: &str, records: &[Record]) -> StoreResult<()> {
        self.import_messages(queue, run, records).await
    }

    async fn remove_exported(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        self.remove_exported_messages(queue, run, ids).await
    }

    async fn commit_import(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        self.commit_imported(queue, run, ids).await
    }

    async fn audit(&self, queue: &QueueName, how: Audit) -> StoreResult<AuditReport> {
        self.audit_queue(queue, how).await
    }

    async fn audit_store(&self, _repair: bool) -> StoreResult<AuditReport> {
        self.audit_list_of_queues().await
    }

    async fn queues(&self) -> StoreResult<Vec<QueueName>> {
        self.list_queues().await
    }

    fn has_other_users(&self) -> bool {
        true
    }

    async fn discover(&self, keys_max: u64) -> StoreResult<Discovered> {
        self.discover_queues(keys_max).await
    }

    async fn mark(&self, queue: &QueueName, mark: &str, is_put: bool) -> StoreResult<bool> {
        self.mark_payloads(queue, mark, is_put).await
    }

    async fn naming_hint(&self, queue: &QueueName) -> StoreResult<Option<String>> {
        self.hint_of_naming(queue).await
    }

    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()> {
        self.register(queue).await?;
        let info = serde_json::json!(host).to_string();
        let command = self.beat(queue, &host.id, &info, silence);
        self.one::<i64>(&self.work, Operation::Heartbeat, command)
            .await?;
        Ok(())
    }

    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()> {
        // It says nothing of others, however long they have been silent.
        let nobody = Duration::from_millis(DELAY_MS_MAX);
        let command = self.beat(queue, host_id, "", nobody);
        self.one::<i64>(&self.work, Operation::Leave, command)
            .await?;
        Ok(())
    }

    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<SeenHost>> {
        self.read_hosts(queue, silence).await
    }

    async fn wait(&self, queues: &[QueueName]) {
        let channels: Vec<String> = queues
            .iter()
            .map(|queue| self.keys(queue).wake.clone())
            .collect();
        self.wake.notified(&channels).await;
    }
}

impl RedisStore {
    fn beat(&self, queue: &QueueName, host_id: &str, info: &str, silence: Duration) -> Cmd {
        let k = self.keys(queue);
        let keys = [&k.hosts, &k.hosts_info, &k.dedup];
        let mut command = evalsha(&scripts::HEARTBEAT, keys.map(String::as_str));
        command.arg(host_id).arg(info).arg(ms(silence));
        command
    }
}
