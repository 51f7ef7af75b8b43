//! Every key name, in one place.

use crate::message::{MessageId, QueueName};

/// The set of queue names that dqhost has used on this server. It belongs to no queue.
pub(super) const QUEUES: &str = "dqhost:queues";

/// The keys of one queue, made once. The first seven are those of HDT3213/delayqueue, by name,
/// type and content; the others are ours and absent for messages that its producers sent.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// zset: id -> due time.
    pub pending: String,
    /// list: due, never delivered.
    pub ready: String,
    /// zset: id -> end of the lease.
    pub unack: String,
    /// list: due for another attempt.
    pub retry: String,
    /// hash: id -> retries left.
    pub counts: String,
    /// set: ids to bury.
    pub garbage: String,
    /// What a payload's key starts with.
    message: String,
    /// hash: id -> "failed:released", of a dead letter "failed:released:left".
    pub attempts: String,
    /// hash: id -> unix ms at which a waiting message became due.
    pub due: String,
    /// hash: id -> headers as JSON.
    pub headers: String,
    /// hash: id -> failed attempts, one JSON object a line.
    pub history: String,
    /// zset: id -> time of death.
    pub dead: String,
    /// hash: totals.
    pub stats: String,
    /// zset: id -> unix seconds until which a send with it finds it there.
    pub dedup: String,
    /// zset: id -> unix seconds since which it is moving to or from another store.
    pub moving: String,
    /// hash: id -> "state:ms" that it had or will have.
    pub moving_was: String,
    /// hash: the name of the other store, and the run of the copy that may move messages.
    pub moving_peer: String,
    /// string: 1 while no host is given messages.
    pub paused: String,
    /// zset: host id -> last heartbeat.
    pub hosts: String,
    /// hash: host id -> what it says of itself.
    pub hosts_info: String,
    /// Channel, not a key: published to when a message may be ready sooner than a host knows.
    pub wake: String,
}

impl Keys {
    /// With a hash tag (`{dp:NAME}:...`) all keys of a queue are in one cluster slot; without, the
    /// names are those of a delayqueue without `UseHashTagKey`.
    pub(super) fn new(queue: &QueueName, hash_tag: bool) -> Self {
        let prefix = if hash_tag {
            format!("{{dp:{queue}}}")
        } else {
            format!("dp:{queue}")
        };
        let key = |name: &str| format!("{prefix}:{name}");
        Self {
            pending: key("pending"),
            ready: key("ready"),
            unack: key("unack"),
            retry: key("retry"),
            counts: key("retry:cnt"),
            garbage: key("garbage"),
            message: key("msg:"),
            attempts: key("attempts"),
            due: key("due"),
            headers: key("headers"),
            history: key("history"),
            dead: key("dead"),
            stats: key("stats"),
            dedup: key("dedup"),
            moving: key("moving"),
            moving_was: key("moving:was"),
            moving_peer: key("moving:peer"),
            paused: key("paused"),
            hosts: key("hosts"),
            hosts_info: key("hosts:info"),
            wake: key("wake"),
        }
    }

    /// What the keys of all payloads start with. No character of it means anything in a pattern.
    pub(super) fn message_prefix(&self) -> &str {
        &self.message
    }

    /// What is under a key, as `TYPE` says it; none for what is no key of a queue, or may be anything.
    pub(super) fn kind(key: &str) -> Option<&'static str> {
        if key == QUEUES {
            return Some("set");
        }
        let name = match key.strip_prefix("{dp:") {
            Some(rest) => rest.split_once("}:")?.1,
            None => key.strip_prefix("dp:")?.split_once(':')?.1,
        };
        Some(match name {
            "pending" | "unack" | "dead" | "dedup" | "moving" | "hosts" => "zset",
            "ready" | "retry" => "list",
            "garbage" => "set",
            "retry:cnt" | "attempts" | "due" | "headers" | "history" | "stats" | "moving:was"
            | "moving:peer" | "hosts:info" => "hash",
            name if name.starts_with("msg:") => "string",
            _ => return None,
        })
    }

    /// The key of one payload.
    pub(super) fn message(&self, id: &MessageId) -> String {
        format!("{}{id}", self.message)
    }
}
