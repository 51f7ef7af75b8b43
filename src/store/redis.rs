//! The pipeline in Redis 7 or later: one Lua script a transition (`lua/`), in the key layout of
//! HDT3213/delayqueue.
//!
//! Two connections (to each node, in a cluster), so that renewals and settlements never queue behind
//! reservations and their payloads, and a third that listens for wake-ups. No blocking command, no transaction that spans
//! round trips: a crash between two calls leaves every message in one state.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use redis::Cmd;

use self::decode::{decode, text, unexpected};
use self::foreign::Walks;
use self::keys::{Keys, Naming};
use self::prefetch::PayloadPrefetch;
use self::transport::client::Client;
use self::wake::Wake;
use super::Operation;
use super::common::ms;
use super::{
    Advanced, Audit, AuditReport, BATCH_MAX, EventBuffer, First, Overview, Peer, Reservation,
    Settled, Settlement, StoreError, StoreResult,
};
use crate::message::{
    Claim, Delivery, MessageId, NewMessage, QueueName, Record, Sent, State, Token,
};

mod advance;
mod args;
mod audit;
mod close;
mod decode;
mod deliver;
mod discover;
mod ended;
mod events;
mod examine;
mod foreign;
mod hosts;
mod inspect;
mod keys;
mod manage;
mod open;
mod overview;
mod prefetch;
mod queues;
mod repeats;
mod reserved;
mod scripts;
mod send;
mod server_info;
mod settle;
mod ticks;
mod topics;
mod transfer;
mod transport;
mod wake;
mod wrong_key;

pub use examine::{Examination, Examined, examine};
pub use keys::{KeyPrefix, KeyPrefixError};
pub use open::RedisOptions;
pub use server_info::{Defect, ServerInfo};
pub use transport::server::{Access, UrlFacts, facts};

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
    events: Arc<EventBuffer>,
    /// How operators and errors name it; without secrets.
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
