//! Messages of queues of the same name under other prefixes. Their payloads have the names of ours, so
//! here they look like orphans.

use std::collections::{BTreeSet, HashSet};

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::{Found, Id, OPERATION};
use crate::message::QueueName;
use crate::store::redis::decode::decode;
use crate::store::redis::keys::Keys;
use crate::store::redis::{RedisStore, scripts};
use crate::store::{FindingKind, StoreResult};

/// What is known of other prefixes.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// What the keys of such queues start with.
    bases: BTreeSet<String>,
    /// True when not all of them can be looked at, so that an orphan may be one of theirs.
    pub is_unsure: bool,
}

fn is_not_allowed(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

impl RedisStore {
    /// Leaves out payloads that belong to a queue of this name under another prefix.
    pub(super) async fn without_others(
        &self,
        queue: &QueueName,
        mut found: Vec<Found>,
        others: &mut Others,
    ) -> StoreResult<Vec<Found>> {
        let is_payload = |(.., kind): &Found| *kind == FindingKind::OrphanPayload;
        let mut open: Vec<Id> = (found.iter().filter(|found| is_payload(found)))
            .map(|(id, ..)| id.clone())
            .collect();
        if open.is_empty() {
            return Ok(found);
        }
        // Those that were seen before as well: keys come and go with their messages.
        let (bases, complete) = self.other_bases(queue).await?;
        others.bases.extend(bases);
        if !complete && !others.is_unsure {
            others.is_unsure = true;
            tracing::warn!(
                %queue, "orphaned payloads are left as they are, since they may be of a queue under another \
                 prefix: there are too many keys to look at all, or some have names that are no text"
            );
        }
        let mut theirs = HashSet::new();
        for base in &others.bases {
            open.retain(|id| !theirs.contains(id));
            match self.messages_of(base, &open).await? {
                Some(of_base) => theirs.extend(of_base),
                None => others.is_unsure = true,
            }
        }
        found.retain(|one| !is_payload(one) || !theirs.contains(&one.0));
        Ok(found)
    }

    /// Those ids that are messages there; none when this user may not look.
    async fn messages_of(&self, base: &str, ids: &[Id]) -> StoreResult<Option<Vec<Id>>> {
        let k = Keys::of_base(base);
        let (mut theirs, mut left) = (Vec::new(), ids);
        while !left.is_empty() {
            let (step, rest) = left.split_at(self.step(&k).await?.min(left.len()));
            let mut look = scripts::ELSEWHERE.call_ro(&k, scripts::NO_MORE);
            look.arg(step);
            for answer in self.work.run_each(OPERATION, &[look]).await? {
                let answer = match answer {
                    Err(error) if is_not_allowed(&error) => {
                        tracing::warn!(
                            "orphaned payloads are left as they are, since this user of Redis may not \
                             look at {base}:*, whose messages they may be"
                        );
                        return Ok(None);
                    }
                    Err(error) => return Err(self.work.error(OPERATION, &error)),
                    Ok(answer) => answer,
                };
                let answers: Vec<i64> = decode(&self.name, OPERATION, answer)?;
                let is_theirs = step.iter().zip(answers).filter(|(_, there)| *there == 1);
                theirs.extend(is_theirs.map(|(id, _)| id.clone()));
            }
            left = rest;
        }
        Ok(Some(theirs))
    }
}
