//! The scripts of `lua/`, one static for each, with their includes put in.

use std::sync::LazyLock;

use redis::Cmd;

use super::keys::{Key, Keys};

/// No key but those of the header.
pub(super) const NO_MORE: &[&str] = &[];

/// The text of a script and the hash by which the server knows it.
#[derive(Debug)]
pub(super) struct Script {
    /// Complete, with its includes.
    pub source: String,
    /// SHA-1 of the source, hexadecimal: what EVALSHA takes.
    pub hash: String,
    /// The keys that its header lists, in order; none for one that the caller gives.
    keys: Vec<Option<Key>>,
}

/// The keys of a header: `-- KEYS[1] {dp:<queue>}:pending  zset ...`. What has no fixed place
/// (`KEYS[6+i]`) comes after them.
fn listed_keys(text: &str) -> Vec<Option<Key>> {
    let mut keys = Vec::new();
    for line in text.lines() {
        let Some((index, key)) = line
            .strip_prefix("-- KEYS[")
            .and_then(|line| line.split_once(']'))
        else {
            continue;
        };
        let Ok(index) = index.parse::<usize>() else {
            continue;
        };
        assert_eq!(
            index,
            keys.len() + 1,
            "the keys of a header count up: {line}"
        );
        let mut words = key.split_whitespace();
        let part = words.next().and_then(|key| key.split_once("}:"));
        // One of several keys, or that of a payload.
        let is_open = words.next() == Some("or");
        let key = part.and_then(|(_, part)| Keys::named(part));
        keys.push(key.filter(|_| !is_open));
    }
    keys
}

/// What `-- include: NAME` stands for.
fn included(name: &str) -> &'static str {
    match name {
        "clock" => include_str!("../../../lua/include/clock.lua"),
        "gcra" => include_str!("../../../lua/include/gcra.lua"),
        "reserve" => include_str!("../../../lua/include/reserve.lua"),
        "room" => include_str!("../../../lua/include/room.lua"),
        "aside" => include_str!("../../../lua/include/aside.lua"),
        "header_key" => include_str!("../../../lua/include/header_key.lua"),
        "held" => include_str!("../../../lua/include/held.lua"),
        "place" => include_str!("../../../lua/include/place.lua"),
        "foreign" => include_str!("../../../lua/include/foreign.lua"),
        "acked" => include_str!("../../../lua/include/acked.lua"),
        "enqueue" => include_str!("../../../lua/include/enqueue.lua"),
        "targets" => include_str!("../../../lua/include/targets.lua"),
        "expiry" => include_str!("../../../lua/include/expiry.lua"),
        "change" => include_str!("../../../lua/include/change.lua"),
        "fail" => include_str!("../../../lua/include/fail.lua"),
        "redriven" => include_str!("../../../lua/include/redriven.lua"),
        "run" => include_str!("../../../lua/include/run.lua"),
        "presence" => include_str!("../../../lua/include/presence.lua"),
        other => panic!("lua/include/{other}.lua is not compiled in: add it to included()"),
    }
}

impl Script {
    fn new(text: &str) -> Self {
        let mut source = String::with_capacity(text.len() * 2);
        for line in text.lines() {
            source.push_str(match line.strip_prefix("-- include: ") {
                Some(name) => included(name),
                None => line,
            });
            source.push('\n');
        }
        let hash = redis::Script::new(&source).get_hash().to_owned();
        Self {
            source,
            hash,
            keys: listed_keys(text),
        }
    }

    /// Calls the script with the keys of its header. `given` are those of payloads and others that
    /// the header leaves to the caller, in order.
    pub(super) fn call<G: AsRef<[u8]>>(&self, k: &Keys, given: &[G]) -> Cmd {
        self.command("EVALSHA", k, given)
    }

    /// The same for a script that only reads, so that a read-only user may call it.
    pub(super) fn call_ro<G: AsRef<[u8]>>(&self, k: &Keys, given: &[G]) -> Cmd {
        self.command("EVALSHA_RO", k, given)
    }

    fn command<G: AsRef<[u8]>>(&self, name: &str, k: &Keys, given: &[G]) -> Cmd {
        let count = given.len();
        let mut given = given.iter().map(AsRef::as_ref);
        let listed = self.keys.iter().map(|key| match key {
            Some(key) => Some(key(k).as_bytes()),
            None => given.next(),
        });
        let mut keys: Vec<&[u8]> = Vec::with_capacity(self.keys.len() + count);
        keys.extend(listed.flatten());
        debug_assert!(keys.len() == self.keys.len(), "a key is not given");
        keys.extend(given);
        let mut command = redis::cmd(name);
        command.arg(&self.hash).arg(keys.len()).arg(keys);
        command
    }
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("../../../lua/", $file, ".lua"))));)*

        /// All of them, for a server that does not know them yet or has forgotten them.
        pub(super) fn all() -> Vec<&'static Script> {
            vec![$(&*$name),*]
        }
    };
}

scripts! {
    SEND = "send";
    TICK = "tick";
    SEND_OR_CHANGE = "send_or_change";
    AFTER_RUN = "after_run";
    SEND_TO_EACH = "send_to_each";
    LOCATE = "locate";
    PENDING_TO_READY = "pending_to_ready";
    ADOPT = "adopt";
    PERSIST = "persist";
    READY_TO_UNACK = "ready_to_unack";
    LIMITED_TO_UNACK = "limited_to_unack";
    KEYED_TO_UNACK = "keyed_to_unack";
    FAIR_TO_UNACK = "fair_to_unack";
    DROP = "drop";
    UNACK_TO_RETRY = "unack_to_retry";
    ACK = "ack";
    ACK_AND_SEND = "ack_and_send";
    NACK = "nack";
    REJECT = "reject";
    KEEP_ENDED = "keep_ended";
    KEEP_RESULTS = "keep_results";
    EXTEND = "extend";
    RELEASE = "release";
    COLLECT_GARBAGE = "collect_garbage";
    CANCEL = "cancel";
    RESCHEDULE = "reschedule";
    PAUSE = "pause";
    PAUSE_SCHEDULE = "pause_schedule";
    REDRIVE = "redrive";
    REDRIVE_EDITED = "redrive_edited";
    DELETE_DEAD = "delete_dead";
    PAST_RETENTION = "past_retention";
    BEGIN_TRANSFER = "begin_transfer";
    EXPORT = "export";
    IMPORT = "import";
    REMOVE_EXPORTED = "remove_exported";
    COMMIT_IMPORT = "commit_import";
    INSPECT = "inspect";
    HEARTBEAT = "heartbeat";
    AUDIT = "audit";
    AUDIT_REPAIR = "audit_repair";
    ELSEWHERE = "elsewhere";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_include_is_put_in_and_the_flags_stay_first() {
        for script in all() {
            assert!(script.source.starts_with("#!lua"), "{}", script.source);
            assert!(!script.source.contains("-- include:"), "{}", script.source);
        }
    }

    #[test]
    fn no_two_scripts_are_the_same() {
        let mut hashes: Vec<_> = all().into_iter().map(|script| &script.hash).collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), all().len());
    }
}
