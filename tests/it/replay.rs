//! What delayqueue v1.1.2 asks of Redis, recorded from the real library, and played again line by
//! line: at each line our host takes over, or does a part of the work and gives the queue back.
//!
//! Each line is `[seconds, who, command, arguments...]`; `@+N` is N seconds after the recording's start.
//! A script of delayqueue is played as a script: what it did is on the lines that follow it, and would
//! be wrong after our host had done its part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dqhost::message::{MessageId, QueueName, State};
use dqhost::store::{First, Page, Reservation, Settled, Settlement, Store};
use futures_util::{StreamExt, stream};
use redis::aio::MultiplexedConnection;
use serde_json::Value;

use crate::contract::tools::{LONG, SHORT, nack, reject};
use crate::support::{PATIENCE, RedisServer, guest, run, stats};

const RECORDINGS: [(&str, &str); 9] = [
    ("consume-ack", include_str!("replay/consume-ack.jsonl")),
    (
        "consume-crash-lease",
        include_str!("replay/consume-crash-lease.jsonl"),
    ),
    (
        "consume-nack-until-dead",
        include_str!("replay/consume-nack-until-dead.jsonl"),
    ),
    (
        "intercept-pending",
        include_str!("replay/intercept-pending.jsonl"),
    ),
    (
        "produce-hashtag",
        include_str!("replay/produce-hashtag.jsonl"),
    ),
    (
        "produce-now-later",
        include_str!("replay/produce-now-later.jsonl"),
    ),
    (
        "produce-prefix",
        include_str!("replay/produce-prefix.jsonl"),
    ),
    (
        "produce-publisher-ttl",
        include_str!("replay/produce-publisher-ttl.jsonl"),
    ),
    ("report-events", include_str!("replay/report-events.jsonl")),
];

/// At once in work.
const AT_A_TIME: usize = 48;

const PENDING_TO_READY: &str = r"
local ids = redis.call('ZRangeByScore', KEYS[1], '0', ARGV[1])
if #ids == 0 then return end
redis.call('LPush', KEYS[2], unpack(ids))
redis.call('ZRemRangeByScore', KEYS[1], '0', ARGV[1])";

const TAKE_ONE: &str = r"
local id = redis.call('RPop', KEYS[1])
if not id then return end
redis.call('ZAdd', KEYS[2], ARGV[1], id)
return id";

const TAKE_BACK: &str = r"
local ids = redis.call('ZRangeByScore', KEYS[1], '0', ARGV[1])
if #ids == 0 then return end
local counts = redis.call('HMGet', KEYS[2], unpack(ids))
for i, id in ipairs(ids) do
  if counts[i] and tonumber(counts[i]) > 0 then
    redis.call('HIncrBy', KEYS[2], id, '-1')
    redis.call('LPush', KEYS[3], id)
  else
    redis.call('HDel', KEYS[2], id)
    redis.call('SAdd', KEYS[4], id)
  end
end
redis.call('ZRemRangeByScore', KEYS[1], '0', ARGV[1])
return table.concat(ids, ' ')";

const NACK: &str = r"
if redis.call('zrank', KEYS[1], ARGV[2]) ~= nil then redis.call('zadd', KEYS[1], ARGV[1], ARGV[2]) end";

/// How the names of keys are made.
#[derive(Debug, Clone, Copy)]
enum Layout {
    Plain,
    HashTag,
    /// `UseCustomPrefix("shop")`, of which the payloads keep `dp`.
    Prefix,
}

impl Layout {
    /// A key of the recording, as a queue of this layout has it.
    fn key(self, queue: &str, recorded: &str) -> Option<String> {
        let name = ["dp:q:", "{dp:q}:", "shop:q:"]
            .iter()
            .find_map(|start| recorded.strip_prefix(start))?;
        Some(match self {
            Self::Plain => format!("dp:{queue}:{name}"),
            Self::HashTag => format!("{{dp:{queue}}}:{name}"),
            Self::Prefix if name.starts_with("msg:") => format!("dp:{queue}:{name}"),
            Self::Prefix => format!("shop:{queue}:{name}"),
        })
    }
}

struct Line {
    at_ms: u64,
    is_client: bool,
    words: Vec<String>,
}

struct Recording {
    lines: Vec<Line>,
    /// When each message is due, ms after the start.
    due: BTreeMap<String, u64>,
}

fn recording(text: &str) -> Recording {
    let mut lines = Vec::new();
    let mut due = BTreeMap::new();
    let mut asked = 0;
    for line in text.lines() {
        let parts: Vec<Value> = serde_json::from_str(line).unwrap();
        let words: Vec<String> = parts[1..]
            .iter()
            .map(|word| word.as_str().unwrap().to_owned())
            .collect();
        let seconds = parts[0].as_f64().unwrap();
        let at_ms = Duration::from_secs_f64(seconds).as_micros().div_ceil(1000);
        if words[1] == "set" {
            let payload: Value = serde_json::from_str(&words[3]).unwrap();
            asked = payload["due"].as_u64().unwrap();
        }
        if words[1] == "zadd" && words[2].ends_with(":pending") {
            // The score is the due time, cut to seconds.
            let cut: u64 = words[3].strip_prefix("@+").unwrap().parse().unwrap();
            due.insert(words[4].clone(), cut * 1000 + asked % 1000);
        }
        lines.push(Line {
            at_ms: u64::try_from(at_ms).unwrap(),
            is_client: words[0].starts_with("client"),
            words: words[1..].to_vec(),
        });
    }
    Recording { lines, due }
}

/// One recording on its way, in a queue of its own.
struct Replay<'r> {
    recording: &'r Recording,
    layout: Layout,
    queue: QueueName,
    store: Arc<dyn Store>,
    redis: MultiplexedConnection,
    /// Unix seconds of the recording's start.
    start: u64,
    /// What the delayqueue consumers have taken, and have found to be garbage.
    taken: BTreeSet<String>,
    garbage: BTreeSet<String>,
    sent: BTreeSet<String>,
    /// Ended by delayqueue: acked, intercepted or deleted.
    ended: BTreeSet<String>,
    /// Of these the garbage that it deleted: our host may have dead-lettered it meanwhile.
    deleted: BTreeSet<String>,
    acked: BTreeSet<String>,
}

impl Replay<'_> {
    fn key(&self, name: &str) -> String {
        self.layout
            .key(self.queue.as_str(), &format!("dp:q:{name}"))
            .unwrap()
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.redis.clone()).await.unwrap()
    }

    async fn now_ms(&self) -> u64 {
        let (seconds, us): (u64, u64) = self.ask(&["TIME"]).await;
        seconds * 1000 + us / 1000
    }

    /// Plays lines as they were, but for those of consumers that would not come to them now.
    async fn play(&mut self, from: usize, to: usize) {
        let recording = self.recording;
        for line in &recording.lines[from..to] {
            if line.is_client {
                self.play_line(line).await;
            }
        }
    }

    async fn play_line(&mut self, line: &Line) {
        let words: Vec<String> = line.words[1..]
            .iter()
            .map(|word| match word.strip_prefix("@+") {
                Some(seconds) => (self.start + seconds.parse::<u64>().unwrap()).to_string(),
                None => self
                    .layout
                    .key(self.queue.as_str(), word)
                    .unwrap_or_else(|| word.clone()),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let id = words
            .iter()
            .find_map(|word| word.split("msg:").nth(1))
            .or(words.last().copied())
            .unwrap()
            .to_owned();
        match (line.words[0].as_str(), words.as_slice()) {
            ("(script: pending_to_ready)", [pending, ready, now]) => {
                self.script(PENDING_TO_READY, &[pending, ready], &[now])
                    .await;
            }
            ("(script: take one)", [from, unack, end, ..]) => {
                let taken = self.script(TAKE_ONE, &[from, unack], &[end]).await;
                self.taken.extend(taken);
            }
            ("(script: take back ended leases)", [unack, counts, retry, garbage, now]) => {
                let keys = [*unack, *counts, *retry, *garbage];
                let moved = self.script(TAKE_BACK, &keys, &[now]).await;
                // No recording has an ack that comes later than that.
                for id in moved.unwrap_or_default().split(' ') {
                    self.taken.remove(id);
                }
            }
            ("(script: nack)", [unack, at, id]) => {
                if self.taken.remove(*id) {
                    self.script(NACK, &[unack], &[at, id]).await;
                }
            }
            ("set", [key, payload, "px", ttl]) => {
                let ttl: u64 = ttl.parse().unwrap();
                let end = (self.start * 1000 + line.at_ms + ttl).to_string();
                let () = self.ask(&["SET", key, payload, "PXAT", &end]).await;
            }
            ("smembers", [garbage]) => self.garbage = self.ask(&["SMEMBERS", garbage]).await,
            ("publish", _) => {}
            (name, words) => self.command(name, words, &id).await,
        }
    }

    async fn command(&mut self, name: &str, words: &[&str], id: &str) {
        let is_intercept = self.recording.lines.iter().any(|l| l.words[0] == "lrem");
        let is_producer = matches!(name, "hset" | "zadd" | "lrem");
        let is_ours = is_producer
            || is_intercept
            || self.taken.contains(id)
            || self.garbage.contains(id)
            || name == "get";
        if !is_ours {
            return;
        }
        let () = self.ask(&[&[name], words].concat()).await;
        match name {
            "zadd" => drop(self.sent.insert(id.to_owned())),
            // An ack or an intercept begins with the one, the deletion of garbage with the other.
            "zrem" => drop(self.ended.insert(id.to_owned())),
            "del" => {
                self.ended.insert(id.to_owned());
                if self.garbage.contains(id) {
                    self.deleted.insert(id.to_owned());
                }
            }
            "hdel" => drop(self.taken.remove(id)),
            "srem" => drop(self.garbage.remove(id)),
            _ => {}
        }
    }

    async fn script(&self, text: &str, keys: &[&str], args: &[&str]) -> Option<String> {
        let script = redis::Script::new(text);
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for arg in args {
            call.arg(*arg);
        }
        let mut redis = self.redis.clone();
        call.invoke_async(&mut redis).await.unwrap()
    }

    async fn reserve(&mut self, lease: Duration) -> Vec<dqhost::message::Delivery> {
        let wanted = Reservation {
            max: 10,
            lease,
            first: First::Ready,
            retries_default: 3,
        };
        let answer = self.store.advance_and_reserve(&self.queue, wanted).await;
        let deliveries = answer.unwrap().1;
        let now_ms = self.now_ms().await;
        for delivery in &deliveries {
            let id = delivery.claim.id.as_str();
            let due_ms = self.start * 1000 + self.recording.due[id];
            assert!(now_ms >= due_ms, "{id} is {} ms early", due_ms - now_ms);
            // An ack that is under way takes the payload before it lets go of the rest.
            assert!(
                delivery.payload.is_some() || self.ended.contains(id),
                "{id}"
            );
        }
        deliveries
    }

    /// A host of ours does everything that is left to do.
    async fn take_over(&mut self) {
        let work = async {
            while !self.store.counts(&self.queue).await.unwrap().is_drained() {
                for delivery in self.reserve(LONG).await {
                    let id = delivery.claim.id.to_string();
                    let settled = self
                        .store
                        .settle(&self.queue, &[(delivery.claim, Settlement::ACK)])
                        .await;
                    assert_eq!(settled.unwrap(), [Settled::Done], "{id}");
                    self.acked.insert(id);
                }
                // Leases of others need not be waited for.
                let unack = self.key("unack");
                let held: Vec<String> = self.ask(&["ZRANGE", &unack, "0", "-1"]).await;
                for id in held {
                    let () = self.ask(&["ZADD", &unack, "XX", "1", &id]).await;
                }
                let next = self.store.advance(&self.queue).await.unwrap().next_in;
                tokio::time::sleep(next.unwrap_or_default().min(Duration::from_millis(50))).await;
            }
            while self.store.advance(&self.queue).await.unwrap().dead_lettered > 0 {}
        };
        tokio::time::timeout(PATIENCE, work).await.unwrap();
    }

    /// Nothing is lost, and no dead letter is false or without payload.
    async fn check(&self) {
        let counts = self.store.counts(&self.queue).await.unwrap();
        let page = Page {
            offset: 0,
            limit: 100,
            payload_max: 1 << 20,
        };
        let dead = self.store.list(&self.queue, State::Dead, page).await;
        let mut dead_lettered = BTreeSet::new();
        for letter in dead.unwrap() {
            assert!(!letter.history.is_empty(), "{letter:?}");
            if !self.deleted.contains(letter.id.as_str()) {
                assert!(letter.payload.is_some(), "{letter:?}");
                let key = self.key(&format!("msg:{}", letter.id));
                assert_eq!(self.ask::<i64>(&["PTTL", &key]).await, -1);
            }
            dead_lettered.insert(letter.id.to_string());
        }
        for id in &self.sent {
            let ends = [&self.acked, &self.ended, &dead_lettered];
            assert!(ends.iter().any(|end| end.contains(id)), "{id} is lost");
        }
        let mut false_ends = dead_lettered.intersection(&self.ended);
        assert!(
            false_ends.all(|id| self.deleted.contains(id)),
            "{dead_lettered:?}"
        );
        assert!(dead_lettered.is_disjoint(&self.acked));
        let totals = counts.totals;
        assert_eq!(totals.acked, self.acked.len() as u64, "{totals:?}");
        assert_eq!(totals.dead, dead_lettered.len() as u64, "{totals:?}");
        // Each was seen once, or never.
        assert!(totals.sent <= self.sent.len() as u64, "{totals:?}");
        assert!(totals.sent >= totals.acked + totals.dead, "{totals:?}");
    }
}

/// What our host does before it gives the queue back.
#[derive(Debug, Clone, Copy)]
enum Part {
    All,
    Advance,
    Release,
    Crash,
    Nack,
    Reject,
    Ack,
}

async fn one(mut replay: Replay<'_>, line: usize, part: Part) {
    replay.play(0, line).await;
    match part {
        Part::All => {}
        Part::Advance => drop(replay.store.advance(&replay.queue).await.unwrap()),
        part => {
            let lease = if matches!(part, Part::Crash) {
                SHORT
            } else {
                LONG
            };
            let deliveries = replay.reserve(lease).await;
            for delivery in deliveries {
                let claim = delivery.claim;
                let how = match part {
                    Part::Nack => nack(None),
                    Part::Reject => reject(),
                    Part::Ack => Settlement::ACK,
                    Part::Release => {
                        let claims = [claim];
                        replay.store.release(&replay.queue, &claims).await.unwrap();
                        continue;
                    }
                    _ => continue,
                };
                let id = claim.id.to_string();
                let settled = replay.store.settle(&replay.queue, &[(claim, how)]).await;
                assert_eq!(settled.unwrap(), [Settled::Done], "{id}");
                if matches!(part, Part::Ack) {
                    replay.acked.insert(id);
                }
            }
        }
    }
    if !matches!(part, Part::All) {
        replay.play(line, replay.recording.lines.len()).await;
    }
    replay.take_over().await;
    replay.check().await;
}

async fn at_every_line(layout: Layout, parts: &[Part]) {
    let server = RedisServer::start_with(&["--appendonly", "no"]);
    let store = match layout {
        Layout::Plain => server.store_with(false).await,
        Layout::HashTag => server.store_with(true).await,
        Layout::Prefix => server.store_named(false, "shop").await,
    };
    let client = redis::Client::open(server.url()).unwrap();
    let redis = client.get_multiplexed_async_connection().await.unwrap();
    let recordings = RECORDINGS.map(|(name, text)| (name, recording(text)));
    let mut cases = Vec::new();
    for (name, recording) in &recordings {
        for line in 0..=recording.lines.len() {
            cases.extend(parts.iter().map(|part| (*name, recording, line, *part)));
        }
    }
    let all = cases.into_iter().enumerate();
    let work = stream::iter(all).map(|(number, (name, recording, line, part))| {
        let (store, redis) = (Arc::clone(&store), redis.clone());
        async move {
            let queue: QueueName = format!("{name}-{line}-{number}").parse().unwrap();
            let mut replay = Replay {
                recording,
                layout,
                queue,
                store,
                redis,
                start: 0,
                taken: BTreeSet::new(),
                garbage: BTreeSet::new(),
                sent: BTreeSet::new(),
                ended: BTreeSet::new(),
                deleted: BTreeSet::new(),
                acked: BTreeSet::new(),
            };
            let passed = line
                .checked_sub(1)
                .map_or(0, |last| recording.lines[last].at_ms);
            // Whole seconds, so that what is cut to seconds is cut where it was.
            replay.start = (replay.now_ms().await - passed) / 1000;
            println!("{name}: line {line}, {part:?}");
            one(replay, line, part).await;
        }
    });
    work.buffer_unordered(AT_A_TIME).collect::<()>().await;
}

#[tokio::test]
async fn our_host_takes_over_at_every_line() {
    for layout in [Layout::Plain, Layout::HashTag, Layout::Prefix] {
        at_every_line(layout, &[Part::All]).await;
    }
}

#[tokio::test]
async fn our_host_does_its_part_and_gives_back_at_every_line() {
    let parts = [
        Part::Advance,
        Part::Release,
        Part::Crash,
        Part::Nack,
        Part::Reject,
        Part::Ack,
    ];
    for layout in [Layout::Plain, Layout::HashTag, Layout::Prefix] {
        at_every_line(layout, &parts).await;
    }
}

/// The program itself, at the end of what a producer recorded.
#[tokio::test]
async fn the_program_handles_what_a_delayqueue_producer_sent() {
    let server = RedisServer::start();
    let (_, text) = RECORDINGS[5];
    let recording = recording(text);
    let client = redis::Client::open(server.url()).unwrap();
    let mut replay = Replay {
        recording: &recording,
        layout: Layout::HashTag,
        queue: "default".parse().unwrap(),
        store: server.store().await,
        redis: client.get_multiplexed_async_connection().await.unwrap(),
        start: 0,
        taken: BTreeSet::new(),
        garbage: BTreeSet::new(),
        sent: BTreeSet::new(),
        ended: BTreeSet::new(),
        deleted: BTreeSet::new(),
        acked: BTreeSet::new(),
    };
    replay.start = replay.now_ms().await / 1000;
    replay.play(0, recording.lines.len()).await;
    let ids: Vec<MessageId> = recording.due.keys().map(|id| id.as_str().into()).collect();
    assert_eq!(ids.len(), 2);
    let handler = guest("noop");
    let args = ["--handler", handler.to_str().unwrap(), "--exit-when-empty"];
    run(Some(&server.url()), &args, 0);
    let last = replay.start * 1000 + recording.due.values().max().unwrap();
    assert!(replay.now_ms().await >= last);
    let counts = stats(&server.url(), "default");
    assert_eq!(counts["totals"]["sent"], 2);
    assert_eq!(counts["totals"]["acked"], 2);
}
