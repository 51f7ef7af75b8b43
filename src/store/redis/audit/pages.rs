//! Everything that a queue has, read in pages: not at one moment, and keeping nobody waiting.

use std::collections::{HashMap, HashSet};

use redis::{Cmd, Value};

use super::presence::{
    ATTEMPTS, COUNTS, DEAD, DUE, GARBAGE, HEADERS, HISTORY, MOVING, NO_STRING, PAYLOAD, PENDING,
    Presence, READY, READY_TWICE, RETRY, RETRY_TWICE, UNACK, UNREADABLE, WAS,
};
use super::{Id, OPERATION};
use crate::store::redis::RedisStore;
use crate::store::redis::decode::{bytes, decode, text, unexpected};
use crate::store::redis::inspect::command;
use crate::store::redis::keys::Keys;
use crate::store::{StoreError, StoreResult};

/// What one request asks for at most.
const PAGE: usize = 1000;

/// The same where each comes with up to 8 KiB.
const PAGE_OF_TEXTS: usize = 100;

/// Where a scan begins, and where it has ended.
const START: &str = "0";

/// Bytes of the names of all ids seen, and where they were.
type Seen = HashMap<Id, Presence>;

/// How a key is read.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Zset,
    Set,
    Hash(usize),
    /// With the mark for what is in it more than once.
    List(u32),
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Zset => "zset",
            Self::Set => "set",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
        }
    }
}

/// The keys that hold ids, what being in one means, and how it is read. In the order in which they
/// are read: fields, then the states in the order in which a message goes through them.
fn structures(k: &Keys) -> [(&String, u32, Kind); 13] {
    [
        (&k.counts, COUNTS, Kind::Hash(PAGE)),
        (&k.attempts, ATTEMPTS, Kind::Hash(PAGE)),
        (&k.due, DUE, Kind::Hash(PAGE)),
        (&k.moving_was, WAS, Kind::Hash(PAGE)),
        (&k.headers, HEADERS, Kind::Hash(PAGE_OF_TEXTS)),
        (&k.history, HISTORY, Kind::Hash(PAGE_OF_TEXTS)),
        (&k.pending, PENDING, Kind::Zset),
        (&k.ready, READY, Kind::List(READY_TWICE)),
        (&k.unack, UNACK, Kind::Zset),
        (&k.retry, RETRY, Kind::List(RETRY_TWICE)),
        (&k.garbage, GARBAGE, Kind::Set),
        (&k.dead, DEAD, Kind::Zset),
        (&k.moving, MOVING, Kind::Zset),
    ]
}

/// Those that hold none.
fn others(k: &Keys) -> [(&String, &'static str); 8] {
    [
        (&k.stats, "hash"),
        (&k.ended, "list"),
        (&k.dedup, "zset"),
        (&k.repeats, "hash"),
        (&k.moving_peer, "hash"),
        (&k.paused, "string"),
        (&k.hosts, "zset"),
        (&k.hosts_info, "hash"),
    ]
}

fn mark(seen: &mut Seen, id: Id, bits: u32) {
    seen.entry(id).or_default().0 |= bits;
}

impl RedisStore {
    /// The ids that do not look right, and the keys whose type is wrong.
    pub(super) async fn suspects(&self, k: &Keys) -> StoreResult<(HashSet<Id>, Vec<String>)> {
        let structures = structures(k);
        let wrong = self.wrong_keys(k).await?;
        let mut unseen = 0;
        let mut seen = Seen::new();
        self.read_payloads(k, &mut seen).await?;
        for (key, bit, kind) in structures {
            match kind {
                Kind::Hash(_) if wrong.contains(key) => {}
                _ if wrong.contains(key) => unseen = UNREADABLE,
                Kind::List(twice) => self.read_list(key, bit, twice, &mut seen).await?,
                kind => self.read_scanned(key, bit, kind, &mut seen).await?,
            }
        }
        let suspects = seen
            .into_iter()
            .filter(|(_, marks)| Presence(marks.0 | unseen).finding().is_some())
            .map(|(id, _)| id)
            .collect();
        Ok((suspects, wrong))
    }

    async fn wrong_keys(&self, k: &Keys) -> StoreResult<Vec<String>> {
        let structures = structures(k);
        let keys: Vec<(&String, &str)> = structures
            .iter()
            .map(|(key, _, kind)| (*key, kind.name()))
            .chain(others(k))
            .collect();
        let commands: Vec<Cmd> = keys.iter().map(|(key, _)| command("TYPE", key)).collect();
        let answers = self.work.run(OPERATION, &commands).await?;
        Ok(keys
            .into_iter()
            .zip(answers)
            .map(|((key, kind), answer)| (key, kind, text(answer)))
            .filter(|(_, kind, found)| found != "none" && found != kind)
            .map(|(key, ..)| key.clone())
            .collect())
    }

    /// A page of the keys that start so, of all and of those that hold strings, and where the next
    /// page begins. All keys of a queue with a hash tag are on one node.
    async fn page_of_keys(
        &self,
        prefix: &str,
        cursor: &str,
    ) -> StoreResult<(String, Vec<Id>, HashSet<Id>)> {
        let mut all = command("SCAN", cursor);
        all.arg("MATCH").arg(format!("{prefix}*"));
        all.arg("COUNT").arg(PAGE);
        let mut strings = all.clone();
        strings.arg("TYPE").arg("string");
        let answers = self.work.run(OPERATION, &[all, strings]).await?;
        let [all, strings] = <[Value; 2]>::try_from(answers).map_err(|_| self.unexpected_page())?;
        let (next, all) = self.page(all)?;
        let (_, strings) = self.page(strings)?;
        Ok((next, all, strings.into_iter().collect()))
    }

    async fn read_payloads(&self, k: &Keys, seen: &mut Seen) -> StoreResult<()> {
        let prefix = k.message_prefix();
        let mut cursor = START.to_owned();
        loop {
            let (next, keys, strings) = self.page_of_keys(prefix, &cursor).await?;
            for mut key in keys {
                let no_string = if strings.contains(&key) { 0 } else { NO_STRING };
                let id = key.split_off(prefix.len().min(key.len()));
                mark(seen, id, PAYLOAD | no_string);
            }
            if next == START {
                return Ok(());
            }
            cursor = next;
        }
    }

    async fn read_scanned(
        &self,
        key: &str,
        bit: u32,
        kind: Kind,
        seen: &mut Seen,
    ) -> StoreResult<()> {
        // What stands beside each member is passed over.
        let (name, count, stride) = match kind {
            Kind::Zset => ("ZSCAN", PAGE, 2),
            Kind::Hash(count) => ("HSCAN", count, 2),
            Kind::Set | Kind::List(_) => ("SSCAN", PAGE, 1),
        };
        let mut cursor = START.to_owned();
        loop {
            let mut scan = command(name, key);
            scan.arg(&cursor).arg("COUNT").arg(count);
            let (next, members) = self.page(self.one(&self.work, OPERATION, scan).await?)?;
            for id in members.into_iter().step_by(stride) {
                mark(seen, id, bit);
            }
            if next == START {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// From the left, where what comes meanwhile pushes the rest on: nothing that stays is missed.
    async fn read_list(&self, key: &str, bit: u32, twice: u32, seen: &mut Seen) -> StoreResult<()> {
        for from in (0..).step_by(PAGE) {
            let mut range = command("LRANGE", key);
            range.arg(from).arg(from + PAGE - 1);
            let ids: Vec<Value> = self.one(&self.work, OPERATION, range).await?;
            let is_last = ids.len() < PAGE;
            for id in ids.into_iter().filter_map(bytes) {
                let marks = &mut seen.entry(id).or_default().0;
                *marks |= if *marks & bit == 0 { bit } else { twice };
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// What a scan answers: where it goes on, and what it found.
    fn page(&self, answer: Value) -> StoreResult<(String, Vec<Id>)> {
        let (cursor, found): (Value, Vec<Value>) = decode(&self.name, OPERATION, answer)?;
        Ok((text(cursor), found.into_iter().filter_map(bytes).collect()))
    }

    fn unexpected_page(&self) -> StoreError {
        unexpected(&self.name, OPERATION)
    }
}
