//! Every key name, in one place.

use crate::message::{MessageId, QueueName};

mod prefix;

pub use prefix::{KeyPrefix, KeyPrefixError};

/// What stands before a queue's name unless it is set otherwise, and before every payload's.
const PREFIX: &str = "dp";

/// The set of queue names that dqhost has used on this server under the usual prefix. It belongs to no
/// queue. That of another prefix has it behind a colon.
const QUEUES: &str = "dqhost:queues";

/// The set of subscriptions to topics under the usual prefix, as above.
const TOPICS: &str = "dqhost:topics";

/// The parts of a queue that hold ids of messages, as their keys end, with their types.
pub(super) const HOLDERS: [(&str, &str); 8] = [
    ("pending", "zset"),
    ("ready", "list"),
    ("unack", "zset"),
    ("retry", "list"),
    ("retry:cnt", "hash"),
    ("garbage", "set"),
    ("dead", "zset"),
    ("moving", "zset"),
];

/// The others, whose type is known.
const OTHERS: [(&str, &str); 22] = [
    ("dedup", "zset"),
    ("repeats", "hash"),
    ("hosts", "zset"),
    ("hosts:info", "hash"),
    ("attempts", "hash"),
    ("due", "hash"),
    ("headers", "hash"),
    ("history", "hash"),
    ("stats", "hash"),
    ("ended", "list"),
    ("results", "hash"),
    ("results:order", "list"),
    ("limits", "zset"),
    ("limited", "zset"),
    ("limited:at", "hash"),
    ("limited:keys", "zset"),
    ("limited:holders", "hash"),
    ("limited:turns", "zset"),
    ("limited:run", "string"),
    ("schedules", "hash"),
    ("moving:was", "hash"),
    ("moving:peer", "hash"),
];

/// What matches the ends of all keys in [`HOLDERS`], and of few payloads, which can be very many.
const HOLDER_PATTERN: &str = "[prugdm][eano]*";

/// How keys are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Naming {
    /// With a hash tag (`{dp:NAME}:...`) all keys of a queue are in one cluster slot; without, the
    /// names are those of a delayqueue without `UseHashTagKey`.
    pub hash_tag: bool,
    pub prefix: KeyPrefix,
}

impl Naming {
    /// The set of the queues that dqhost has used under this prefix.
    pub(super) fn queues(&self) -> String {
        self.of_all(QUEUES)
    }

    /// The set of subscriptions to topics under this prefix.
    pub(super) fn topics(&self) -> String {
        self.of_all(TOPICS)
    }

    fn of_all(&self, name: &str) -> String {
        if self.prefix.is_default() {
            name.to_owned()
        } else {
            format!("{name}:{}", self.prefix)
        }
    }

    /// The same prefix, with a hash tag if this is without.
    pub(super) fn other(&self) -> Self {
        Self {
            hash_tag: !self.hash_tag,
            prefix: self.prefix.clone(),
        }
    }

    /// What all keys of a queue start with, but for payloads.
    fn base(&self, queue: &QueueName) -> String {
        base(self.prefix.as_str(), queue, self.hash_tag)
    }

    /// What matches the keys of all queues that hold ids, and more.
    pub(super) fn pattern(&self) -> String {
        // No character of a prefix means anything in a pattern.
        let prefix = &self.prefix;
        if self.hash_tag {
            format!("{{{prefix}:*}}:{HOLDER_PATTERN}")
        } else {
            format!("{prefix}:*:{HOLDER_PATTERN}")
        }
    }

    /// The queue whose ids are under this key, and the type that the key must have.
    pub(super) fn queue_of(&self, key: &str) -> Option<(QueueName, &'static str)> {
        let key = if self.hash_tag {
            key.strip_prefix('{')?
        } else {
            key
        };
        let rest = key.strip_prefix(self.prefix.as_str())?.strip_prefix(':')?;
        let (name, part) = rest.split_once(if self.hash_tag { "}:" } else { ":" })?;
        let (_, kind) = HOLDERS.iter().find(|(holder, _)| *holder == part)?;
        Some((name.parse().ok()?, kind))
    }

    /// What matches the keys that hold ids of this queue under any prefix, and more.
    pub(super) fn pattern_of_any_prefix(&self, queue: &QueueName) -> String {
        if self.hash_tag {
            format!("{{*:{queue}}}:{HOLDER_PATTERN}")
        } else {
            format!("*:{queue}:{HOLDER_PATTERN}")
        }
    }

    /// What the keys start with of a queue of this name under another prefix, if this is one of them.
    /// Its payloads are under the same names as ours.
    pub(super) fn other_base<'k>(&self, queue: &QueueName, key: &'k str) -> Option<&'k str> {
        let ends = HOLDERS.iter();
        let base = ends
            .filter_map(|(holder, _)| key.strip_suffix(holder)?.strip_suffix(':'))
            .min_by_key(|base| base.len())?;
        let named = if self.hash_tag {
            base.strip_prefix('{')?.strip_suffix('}')?
        } else {
            base
        };
        let prefix = named.strip_suffix(queue.as_str())?.strip_suffix(':')?;
        (prefix != self.prefix.as_str()).then_some(base)
    }
}

fn base(prefix: &str, queue: &QueueName, hash_tag: bool) -> String {
    if hash_tag {
        format!("{{{prefix}:{queue}}}")
    } else {
        format!("{prefix}:{queue}")
    }
}

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
    /// set: ids that become dead letters.
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
    /// list: how messages ended, latest first.
    pub ended: String,
    /// hash: id -> what its handler returned.
    pub results: String,
    /// list: size and id of each result, latest first.
    pub results_order: String,
    /// zset: id -> unix seconds until which a send with it finds it there.
    pub dedup: String,
    /// hash: id -> repeat that takes effect when a run has ended.
    pub repeats: String,
    /// zset: id -> unix seconds since which it is moving to or from another store.
    pub moving: String,
    /// hash: id -> "state:ms" that it had or will have.
    pub moving_was: String,
    /// hash: the name of the other store, and the run of the copy that may move messages.
    pub moving_peer: String,
    /// string: 1 while no host is given messages.
    pub paused: String,
    /// zset: what the limits of the queue remember -> unix microseconds.
    pub limits: String,
    /// zset: what limits by key have set aside, in order.
    pub limited: String,
    /// hash: id -> its place in `limited`.
    pub limited_at: String,
    /// zset: key of a limit -> when to look at it next, unix microseconds.
    pub limited_look: String,
    /// hash: key of a limit -> ids that occupy it.
    pub limited_holders: String,
    /// zset: key of fairness -> virtual time at which its next message starts.
    pub limited_turns: String,
    /// string: key that has the oldest of ready, and how many.
    pub limited_run: String,
    /// hash: name of a schedule -> whether it is paused, and its last tick.
    pub schedules: String,
    /// zset: host id -> last heartbeat.
    pub hosts: String,
    /// hash: host id -> what it says of itself.
    pub hosts_info: String,
    /// string: 1 while somebody listens to events.
    pub listeners: String,
    /// Channel, not a key: published to when a message may be ready sooner than a host knows.
    pub wake: String,
    /// Channel: what happens, while somebody listens.
    pub events: String,
}

/// One of [`Keys`].
pub(super) type Key = fn(&Keys) -> &str;

impl Keys {
    /// The key whose name ends so.
    pub(super) fn named(part: &str) -> Option<Key> {
        Some(match part {
            "pending" => |k| &k.pending,
            "ready" => |k| &k.ready,
            "unack" => |k| &k.unack,
            "retry" => |k| &k.retry,
            "retry:cnt" => |k| &k.counts,
            "garbage" => |k| &k.garbage,
            "attempts" => |k| &k.attempts,
            "due" => |k| &k.due,
            "headers" => |k| &k.headers,
            "history" => |k| &k.history,
            "dead" => |k| &k.dead,
            "stats" => |k| &k.stats,
            "ended" => |k| &k.ended,
            "results" => |k| &k.results,
            "results:order" => |k| &k.results_order,
            "dedup" => |k| &k.dedup,
            "repeats" => |k| &k.repeats,
            "moving" => |k| &k.moving,
            "moving:was" => |k| &k.moving_was,
            "moving:peer" => |k| &k.moving_peer,
            "paused" => |k| &k.paused,
            "limits" => |k| &k.limits,
            "limited" => |k| &k.limited,
            "limited:at" => |k| &k.limited_at,
            "limited:keys" => |k| &k.limited_look,
            "limited:holders" => |k| &k.limited_holders,
            "limited:turns" => |k| &k.limited_turns,
            "limited:run" => |k| &k.limited_run,
            "schedules" => |k| &k.schedules,
            "hosts" => |k| &k.hosts,
            "hosts:info" => |k| &k.hosts_info,
            _ => return None,
        })
    }

    /// The keys of payloads start with `dp` whatever the prefix is, as those of a delayqueue do.
    pub(super) fn new(queue: &QueueName, naming: &Naming) -> Self {
        let message = format!("{}:msg:", base(PREFIX, queue, naming.hash_tag));
        Self::under(&naming.base(queue), message)
    }

    /// The keys that start so, whatever queue they are of, and no payload.
    pub(super) fn of_base(base: &str) -> Self {
        Self::under(base, String::new())
    }

    fn under(base: &str, message: String) -> Self {
        let key = |name: &str| format!("{base}:{name}");
        Self {
            pending: key("pending"),
            ready: key("ready"),
            unack: key("unack"),
            retry: key("retry"),
            counts: key("retry:cnt"),
            garbage: key("garbage"),
            message,
            attempts: key("attempts"),
            due: key("due"),
            headers: key("headers"),
            history: key("history"),
            dead: key("dead"),
            stats: key("stats"),
            ended: key("ended"),
            results: key("results"),
            results_order: key("results:order"),
            dedup: key("dedup"),
            repeats: key("repeats"),
            moving: key("moving"),
            moving_was: key("moving:was"),
            moving_peer: key("moving:peer"),
            paused: key("paused"),
            limits: key("limits"),
            limited: key("limited"),
            limited_at: key("limited:at"),
            limited_look: key("limited:keys"),
            limited_holders: key("limited:holders"),
            limited_turns: key("limited:turns"),
            limited_run: key("limited:run"),
            schedules: key("schedules"),
            hosts: key("hosts"),
            hosts_info: key("hosts:info"),
            listeners: key("listeners"),
            wake: key("wake"),
            events: key("events"),
        }
    }

    /// What the keys of all payloads start with. No character of it means anything in a pattern.
    pub(super) fn message_prefix(&self) -> &str {
        &self.message
    }

    /// What is under a key, as `TYPE` says it; none for what is no key of a queue, or may be anything.
    pub(super) fn kind(key: &str) -> Option<&'static str> {
        let is_of_all = |name: &str| {
            let rest = key.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        if is_of_all(QUEUES) || is_of_all(TOPICS) {
            return Some("set");
        }
        let part = if key.starts_with('{') {
            key.split_once("}:")?.1
        } else if let Some((_, part)) = key
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_prefix(':')?.split_once(':'))
            .filter(|(_, part)| part.starts_with("msg:"))
        {
            part
        } else {
            let parts = HOLDERS.iter().chain(&OTHERS).map(|(part, _)| *part);
            let is_it = |part: &&str| {
                let base = key
                    .strip_suffix(part)
                    .and_then(|base| base.strip_suffix(':'));
                base.is_some_and(|base| base.contains(':'))
            };
            parts.filter(is_it).max_by_key(|part| part.len())?
        };
        if part.starts_with("msg:") {
            return Some("string");
        }
        let mut parts = HOLDERS.iter().chain(&OTHERS);
        parts.find(|(name, _)| *name == part).map(|(_, kind)| *kind)
    }

    /// The key of one payload.
    pub(super) fn message(&self, id: &MessageId) -> String {
        [self.message.as_str(), id.as_str()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(prefix: &str, hash_tag: bool) -> Naming {
        Naming {
            hash_tag,
            prefix: prefix.parse().unwrap(),
        }
    }

    fn queue() -> QueueName {
        "q".parse().unwrap()
    }

    #[test]
    fn keys_are_named_as_a_delayqueue_with_a_prefix_names_them() {
        for (prefix, hash_tag, base, message) in [
            ("dp", true, "{dp:q}", "{dp:q}:msg:x"),
            ("dp", false, "dp:q", "dp:q:msg:x"),
            ("shop", true, "{shop:q}", "{dp:q}:msg:x"),
            ("a:b", false, "a:b:q", "dp:q:msg:x"),
        ] {
            let k = Keys::new(&queue(), &naming(prefix, hash_tag));
            assert_eq!(k.message(&MessageId::from("x")), message);
            assert_eq!(k.pending, format!("{base}:pending"));
            assert_eq!(k.wake, format!("{base}:wake"));
            assert_eq!(k.hosts_info, format!("{base}:hosts:info"));
        }
        assert_eq!(naming("dp", true).queues(), "dqhost:queues");
        assert_eq!(naming("shop", true).queues(), "dqhost:queues:shop");
        for bad in [
            "",
            "a b",
            "{a",
            "a*",
            "dqhost",
            "dqhost:queues",
            "a\nb",
            &"x".repeat(65),
        ] {
            assert!(bad.parse::<KeyPrefix>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_queue_is_known_by_its_keys_and_by_no_other() {
        let (tagged, plain) = (naming("dp", true), naming("dp", false));
        let name = |naming: &Naming, key: &str| {
            let found = naming.queue_of(key);
            found.map(|(queue, kind)| (queue.to_string(), kind))
        };
        let q = |kind| Some(("q".to_owned(), kind));
        assert_eq!(name(&tagged, "{dp:q}:pending"), q("zset"));
        assert_eq!(name(&tagged, "{dp:q}:retry:cnt"), q("hash"));
        assert_eq!(name(&plain, "dp:q:ready"), q("list"));
        assert_eq!(name(&naming("a:b", false), "a:b:q:ready"), q("list"));
        for key in [
            "{dp:q}:msg:x:pending",
            "{dp:q}:msg:}:pending",
            "{dp:q}:stats",
            "{dp:a b}:pending",
            "{dp:}:pending",
            "{shop:q}:pending",
            "dp:q:pending",
        ] {
            assert_eq!(name(&tagged, key), None, "{key}");
        }
        for key in [
            "dp:q:msg:x:pending",
            "dp:q:msg:pending",
            "dp:pending",
            "{dp:q}:pending",
        ] {
            assert_eq!(name(&plain, key), None, "{key}");
        }
    }

    #[test]
    fn other_prefixes_of_a_queue_are_known_by_their_keys() {
        let (tagged, plain) = (naming("dp", true), naming("dp", false));
        for (naming, key, base) in [
            (&tagged, "{shop:q}:retry:cnt", Some("{shop:q}")),
            (&tagged, "{a:b:q}:moving", Some("{a:b:q}")),
            (&tagged, "{:q}:dead", Some("{:q}")),
            (&tagged, "{dp:q}:pending", None),
            (&tagged, "{shop:xq}:pending", None),
            (&tagged, "shop:q:pending", None),
            (&plain, "shop:q:retry:cnt", Some("shop:q")),
            (&plain, "shop:q:retry", Some("shop:q")),
            (&plain, "dp:q:retry:cnt", None),
            (&plain, "dp:q:msg:pending", None),
        ] {
            assert_eq!(naming.other_base(&queue(), key), base, "{key}");
        }
    }
}
