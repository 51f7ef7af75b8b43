//! Looking through all keys: for queues that only others have used, and for what they call theirs. This
//! is done when somebody asks for it, a page at a time, and no host does it.

use crate::store::Discover;
use async_trait::async_trait;
use std::collections::BTreeSet;

use redis::{Cmd, Value};

use super::decode::{decode, text};
use super::inspect::command;
use super::keys::Keys;
use super::transport::client::Client;
use super::{QueueName, RedisStore, StoreResult};
use crate::store::{Discovered, Operation};

/// Keys that one request looks at.
const PAGE: u64 = 1000;

/// Keys of a node that are looked through for other prefixes at most: as many as `--discover` looks at.
const OTHERS_KEYS_MAX: u64 = 1_000_000;

/// Where a scan begins, and where it has ended.
const START: &str = "0";

#[async_trait]
impl Discover for RedisStore {
    async fn queues(&self) -> StoreResult<Vec<QueueName>> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(self.naming.queues());
        let names: Vec<Value> = self.one(&self.work, Operation::ListQueues, command).await?;
        let mut queues: Vec<QueueName> = names
            .into_iter()
            .filter_map(|name| text(name).parse().ok())
            .collect();
        queues.sort();
        Ok(queues)
    }

    fn has_other_users(&self) -> bool {
        true
    }

    async fn discover(&self, keys_max: u64) -> StoreResult<Discovered> {
        let pattern = self.naming.pattern();
        let masters = self.masters().await?;
        let nodes: Vec<&Client> = match &masters {
            Some(masters) => masters.iter().collect(),
            None => vec![&self.work],
        };
        let mut known: BTreeSet<QueueName> = self.queues().await?.into_iter().collect();
        let (mut left, mut complete) = (keys_max, true);
        for (number, node) in nodes.iter().enumerate() {
            // Each gets its part of what is left.
            let share = left.div_ceil((nodes.len() - number) as u64);
            let mut looked_at = 0;
            let mut cursor = START.to_owned();
            loop {
                if looked_at >= share {
                    complete = false;
                    break;
                }
                let (next, keys) = self.page_of_keys_on(node, &cursor, &pattern).await?;
                looked_at += PAGE;
                self.note_queues(node, &keys, &mut known).await?;
                cursor = next;
                if cursor == START {
                    break;
                }
            }
            left = left.saturating_sub(looked_at);
        }
        Ok(Discovered {
            queues: known.into_iter().collect(),
            complete,
        })
    }

    async fn naming_hint(&self, queue: &QueueName) -> StoreResult<Option<String>> {
        const OPERATION: Operation = Operation::NameQueue;
        let ours = self.keys(queue);
        let other = self.naming.other();
        let theirs = Keys::new(queue, &other);
        let mut is_here = redis::cmd("EXISTS");
        is_here.arg(&[
            &ours.pending,
            &ours.ready,
            &ours.counts,
            &ours.unack,
            &ours.retry,
        ]);
        let here: i64 = self.one(&self.work, OPERATION, is_here).await?;
        if here > 0 {
            return Ok(None);
        }
        for key in [
            &theirs.pending,
            &theirs.ready,
            &theirs.counts,
            &theirs.unack,
            &theirs.retry,
        ] {
            // Each alone: without a hash tag they are in slots of their own.
            let there: i64 = self
                .one(&self.work, OPERATION, command("EXISTS", key))
                .await?;
            if there == 0 {
                continue;
            }
            let mend = match (other.hash_tag, self.is_cluster) {
                (true, _) => "leave out --no-hash-tag",
                (false, false) => "give --no-hash-tag",
                (false, true) => "let its producers and consumers use UseHashTagKey",
            };
            return Ok(Some(format!(
                "it has no messages under {}, and there are some under {key}, as a delayqueue {} \
                 UseHashTagKey names its keys: to reach those, {mend}",
                ours.pending,
                if other.hash_tag { "with" } else { "without" },
            )));
        }
        Ok(None)
    }
}

impl RedisStore {
    /// The masters; none for a single server, which commands reach as it is.
    async fn masters(&self) -> StoreResult<Option<Vec<Client>>> {
        self.work.masters(Operation::ListQueues).await
    }

    /// Adds the queues that these keys are of, if the keys hold what those of a queue do.
    async fn note_queues(
        &self,
        node: &Client,
        keys: &[String],
        known: &mut BTreeSet<QueueName>,
    ) -> StoreResult<()> {
        let named = keys.iter().filter_map(|key| {
            let (queue, kind) = self.naming.queue_of(key)?;
            (!known.contains(&queue)).then_some((key, queue, kind))
        });
        let named: Vec<(&String, QueueName, &str)> = named.collect();
        let types: Vec<Cmd> = named.iter().map(|(key, ..)| command("TYPE", key)).collect();
        let answers = node.run_each(Operation::ListQueues, &types).await?;
        for ((_, queue, kind), answer) in named.into_iter().zip(answers) {
            // One that has moved to another node meanwhile is found there.
            if answer.is_ok_and(|answer| text(answer) == kind) {
                known.insert(queue);
            }
        }
        Ok(())
    }

    async fn page_of_keys_on(
        &self,
        node: &Client,
        cursor: &str,
        pattern: &str,
    ) -> StoreResult<(String, Vec<String>)> {
        const OPERATION: Operation = Operation::ListQueues;
        let mut scan = command("SCAN", cursor);
        scan.arg("MATCH").arg(pattern).arg("COUNT").arg(PAGE);
        let answer: Vec<Value> = node.run(OPERATION, &[scan]).await?;
        let answer = answer.into_iter().next().unwrap_or(Value::Nil);
        let (cursor, keys): (Value, Vec<Value>) = decode(&self.name, OPERATION, answer)?;
        Ok((text(cursor), keys.into_iter().map(text).collect()))
    }

    /// What the keys start with of queues of this name under other prefixes, on all nodes. False beside
    /// them when there may be more: of up to [`OTHERS_KEYS_MAX`] keys on each node, or with names that
    /// are no text.
    pub(super) async fn other_bases(
        &self,
        queue: &QueueName,
    ) -> StoreResult<(BTreeSet<String>, bool)> {
        let pattern = self.naming.pattern_of_any_prefix(queue);
        let masters = self.masters().await?;
        let nodes: Vec<&Client> = match &masters {
            Some(masters) => masters.iter().collect(),
            None => vec![&self.work],
        };
        let (mut bases, mut complete) = (BTreeSet::new(), true);
        for node in nodes {
            let (mut cursor, mut looked_at) = (START.to_owned(), 0);
            loop {
                if looked_at >= OTHERS_KEYS_MAX {
                    complete = false;
                    break;
                }
                looked_at += PAGE;
                let (next, keys) = self.page_of_keys_on(node, &cursor, &pattern).await?;
                let of_others = keys.iter();
                let of_others = of_others.filter_map(|key| self.naming.other_base(queue, key));
                for base in of_others {
                    // The hash tag of `{}x:q}` is none, so in a cluster its keys are on many nodes and are
                    // no queue's.
                    let is_none = self.is_cluster && base.starts_with("{}");
                    if base.contains(char::REPLACEMENT_CHARACTER) {
                        complete = false;
                    } else if !is_none {
                        bases.insert(base.to_owned());
                    }
                }
                cursor = next;
                if cursor == START {
                    break;
                }
            }
        }
        Ok((bases, complete))
    }
}
