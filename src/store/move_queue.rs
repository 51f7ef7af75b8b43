//! From one store to another: the messages of a queue leave the first and arrive in the second.
//!
//! Each batch takes four steps, each atomic in its store. *Export* puts it out of every host's reach, and
//! *import* puts it into the other store, out of reach there too. `remove_exported` takes it out of the
//! first, and `commit_import` puts it into its state in the second. A message is in a host's reach in one store or in none, never in two.
//! After a crash between any two steps another run between the same two stores, in either direction, ends
//! what was under way. This is a two-phase commit (Gray, "Notes on Data Base Operating Systems", 1978)
//! whose coordinator remembers nothing: the first store's "moving" is the prepared state and its removal
//! the decision.

use std::collections::HashSet;
use std::time::Duration;

use super::{Counts, HOST_SILENCE, HostInfo, Operation, Page, Store, StoreError, StoreResult};
use crate::message::{MessageId, QueueName, State};

/// Messages of one batch.
const STEP: usize = 100;

/// How long to wait at most before another look at messages that a host has in flight.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The other store of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// As [`Store::describe`] names it.
    pub name: String,
    /// Go on with messages that are moving to or from a store of another name: it has a new one.
    pub renamed: bool,
    /// Random for each copy.
    pub run: String,
}

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// So many messages have arrived.
    Arrived(u64),
    /// All that is left is in the hands of hosts: until it is settled, or its leases expire.
    Waiting {
        /// Messages in flight.
        in_flight: u64,
    },
}

/// Moves all messages of a queue; returns how many arrived. Goes on until the first store has none
/// left, those in the hands of its hosts included. `renamed` goes on with an interrupted move
/// although a store is called otherwise now.
///
/// A message is removed from the one store once the other has it, so the other must keep what it has said
/// to have. Open an embedded store with full durability for this. Else a power cut at the wrong moment
/// loses messages that were accepted long before.
///
/// # Errors
///
/// Those of the stores, and [`StoreError::Refused`] when the two are the same store, when an earlier
/// copy with a third one was interrupted, or when another copy of the queue begins. What has arrived
/// stays; a repeat goes on.
pub async fn move_queue(
    from: &dyn Store,
    to: &dyn Store,
    queue: &QueueName,
    renamed: bool,
    mut progress: impl FnMut(Progress),
) -> StoreResult<u64> {
    let is_unknown = from.counts(queue).await? == Counts::default();
    if is_unknown && !from.queues().await?.contains(queue) {
        return Ok(0);
    }
    refuse_same(from, to, queue).await?;
    let run = uuid::Uuid::new_v4().to_string();
    let peer = |store: &dyn Store| Peer {
        name: store.describe(),
        renamed,
        run: run.clone(),
    };
    // Both, before anything is looked at: from here on no other copy moves anything.
    from.begin_transfer(queue, &peer(to)).await?;
    to.begin_transfer(queue, &peer(from)).await?;
    // First, so that no tick of one that is paused is sent there, and none is new there. A repeat changes nothing.
    for schedule in from.schedules(queue).await? {
        let is_paused = schedule.paused_since_ms.is_some();
        to.set_schedule_paused(queue, &schedule.name, is_paused)
            .await?;
    }
    let mut arrived = end_arrivals(from, to, queue, &run).await?;
    loop {
        let records = from.export(queue, &run, STEP).await?;
        if !records.is_empty() {
            let ids: Vec<MessageId> = records.iter().map(|record| record.id.clone()).collect();
            to.import(queue, &run, &records).await?;
            from.remove_exported(queue, &run, &ids).await?;
            to.commit_import(queue, &run, &ids).await?;
            arrived += ids.len() as u64;
            progress(Progress::Arrived(arrived));
            continue;
        }
        let counts = from.counts(queue).await?;
        if counts.is_drained() && counts.dead == 0 && counts.moving == 0 {
            return Ok(arrived);
        }
        if counts.unack > 0 {
            progress(Progress::Waiting {
                in_flight: counts.unack,
            });
        }
        // Takes back what a lease has expired for.
        let advanced = from.advance(queue).await?;
        if advanced.promoted + advanced.expired + advanced.dead_lettered == 0 {
            let next_in = advanced.next_in.unwrap_or(LOOK_EVERY);
            tokio::time::sleep(next_in.min(LOOK_EVERY)).await;
        }
    }
}

/// Commits what an interrupted move left behind: it has arrived, and the first store has removed it.
async fn end_arrivals(
    from: &dyn Store,
    to: &dyn Store,
    queue: &QueueName,
    run: &str,
) -> StoreResult<u64> {
    let (mut arrived, mut offset) = (0, 0);
    // What is still there once it was admitted has an id that is no text, and is passed over.
    let mut admitted = HashSet::new();
    loop {
        let page = Page {
            offset,
            limit: STEP,
            payload_max: 0,
        };
        let moving = to.list(queue, State::Moving, page).await?;
        if moving.is_empty() {
            return Ok(arrived);
        }
        let mut ids = Vec::new();
        for record in &moving {
            let is_gone = from.get(queue, &record.id).await?.is_none();
            if is_gone && admitted.insert(record.id.clone()) {
                ids.push(record.id.clone());
            }
        }
        to.commit_import(queue, run, &ids).await?;
        arrived += ids.len() as u64;
        // The others are still in the first store, and are exported again.
        offset += moving.len() - ids.len();
    }
}

/// Refuses to copy a store to itself under another name, or to another prefix that keeps its payloads in
/// the same place: what has "arrived" would be removed. A mark that is put into the one must not be in
/// the other.
async fn refuse_same(from: &dyn Store, to: &dyn Store, queue: &QueueName) -> StoreResult<()> {
    let mark = format!("copy-{}", uuid::Uuid::new_v4());
    from.mark(queue, &mark, true).await?;
    let is_same = to.mark(queue, &mark, false).await;
    let was_there = from.mark(queue, &mark, false).await?;
    let reason = match is_same? {
        true => "it is the store that the messages are in already",
        false if was_there => return Ok(()),
        false => "it did not answer in time to tell whether it is another store; run it again",
    };
    Err(StoreError::Refused {
        store: to.describe(),
        operation: Operation::BeginTransfer,
        reason: reason.to_owned(),
    })
}

/// [`Store::mark`] by the list of hosts, for a store that shares no payloads with others.
pub(super) async fn mark_as_host(
    store: &dyn Store,
    queue: &QueueName,
    mark: &str,
    is_put: bool,
) -> StoreResult<bool> {
    let host = HostInfo {
        id: mark.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        handler: String::new(),
        slots: 0,
        in_flight: 0,
    };
    if is_put {
        store.heartbeat(queue, &host, HOST_SILENCE).await?;
        return Ok(false);
    }
    let hosts = store.hosts(queue, HOST_SILENCE).await?;
    store.leave(queue, mark).await?;
    Ok(hosts.iter().any(|seen| seen.info.id == mark))
}
