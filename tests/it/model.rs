//! Random sequences of a store's methods, compared with a small model in memory step by step. A
//! difference is cut down to a short script that still shows it.
//!
//! `DQHOST_TEST_SEQUENCES` is the number of sequences a store instead of the usual one,
//! `DQHOST_TEST_SEED` a number that gives other sequences.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dqhost::clock::{Clock, ManualClock};
use dqhost::message::QueueName;
use dqhost::store::Store;
use dqhost::store::sqlite::{Durability, SqliteOptions, SqliteStore};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tempfile::TempDir;

use self::run::World;
use self::script::{Step, script};
use crate::support::RedisServer;

mod keys;
mod mistakes;
mod reference;
mod run;
mod script;

/// A file whose clock moves by hand.
struct SqliteWorld {
    _folder: TempDir,
    store: Arc<dyn Store>,
    clock: ManualClock,
}

impl SqliteWorld {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let clock = ManualClock::at(1_795_228_395_123);
        let mut options = SqliteOptions::file(folder.path().join("dqhost.db"));
        options.clock = Clock::Manual(clock.clone());
        options.durability = Durability::Normal;
        let store = Arc::new(SqliteStore::open(&options).await.unwrap());
        Self {
            _folder: folder,
            store,
            clock,
        }
    }
}

impl World for SqliteWorld {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn pass(&self, _queues: &[QueueName], by: Duration) {
        self.clock.pass(by);
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn told(&self, at_ms: u64) -> u64 {
        at_ms
    }
}

/// Moves all times of a queue back, which is the same as letting time pass. KEYS: five sorted sets by
/// time, two in microseconds, what is set aside with its due times, and the hash of due times. ARGV[1]: ms.
const PASS: &str = r"
local by = tonumber(ARGV[1])
for k = 1, 5 do
  local all = redis.call('ZRANGE', KEYS[k], 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local ms = math.floor(tonumber(all[i + 1]) * 1000 + 0.5) - by
    redis.call('ZADD', KEYS[k], string.format('%.3f', ms / 1000), all[i])
  end
end
for k = 6, 7 do
  for _, name in ipairs(redis.call('ZRANGE', KEYS[k], 0, -1)) do
    -- Whose turn it is has no time.
    if name ~= 'turn' then redis.call('ZINCRBY', KEYS[k], -by * 1000, name) end
  end
end
local aside = redis.call('HGETALL', KEYS[8])
for i = 1, #aside, 2 do
  local place, ms = string.match(aside[i + 1], '^(.*):(%d+)$')
  if place then
    redis.call('HSET', KEYS[8], aside[i], string.format('%s:%.0f', place, tonumber(ms) - by))
  end
end
local due = redis.call('HGETALL', KEYS[#KEYS])
for i = 1, #due, 2 do
  redis.call('HSET', KEYS[#KEYS], due[i], string.format('%.0f', tonumber(due[i + 1]) - by))
end
return 0";

/// A server whose messages are moved in time, since its clock cannot be.
struct RedisWorld {
    _server: RedisServer,
    store: Arc<dyn Store>,
    connection: redis::aio::MultiplexedConnection,
    passed_ms: AtomicU64,
}

impl RedisWorld {
    async fn new() -> Self {
        let server = RedisServer::start_with(&["--appendonly", "no"]);
        let client = redis::Client::open(server.url()).unwrap();
        Self {
            store: server.store().await,
            connection: client.get_multiplexed_async_connection().await.unwrap(),
            _server: server,
            passed_ms: AtomicU64::new(0),
        }
    }
}

impl World for RedisWorld {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn pass(&self, queues: &[QueueName], by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap();
        let script = redis::Script::new(PASS);
        for queue in queues {
            let mut call = script.prepare_invoke();
            for key in [
                "pending",
                "unack",
                "dead",
                "hosts",
                "dedup",
                "limits",
                "limited:keys",
                "limited:at",
                "due",
            ] {
                call.key(format!("{{dp:{queue}}}:{key}"));
            }
            let mut connection = self.connection.clone();
            let () = call.arg(ms).invoke_async(&mut connection).await.unwrap();
        }
        self.passed_ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn now_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(now.as_millis()).unwrap() + self.passed_ms.load(Ordering::SeqCst)
    }

    fn told(&self, at_ms: u64) -> u64 {
        at_ms + self.passed_ms.load(Ordering::SeqCst)
    }
}

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok().map(|n| n.parse().unwrap())
}

/// Runs so many random scripts. An error is the shortest script that was found to fail, and why.
fn search<W: World>(
    runtime: &tokio::runtime::Runtime,
    world: &W,
    sequences: u32,
) -> Result<(), (String, Vec<Step>)> {
    search_in(("q", &script()), sequences, |queue, script: &Vec<Step>| {
        runtime.block_on(run::run(world, queue, script))
    })
}

/// The same with what keys share.
fn search_keys<W: World>(
    runtime: &tokio::runtime::Runtime,
    world: &W,
    sequences: u32,
) -> Result<(), (String, keys::Script)> {
    search_in(
        ("keys", &keys::script()),
        sequences,
        |queue, script: &keys::Script| runtime.block_on(keys::run(world, queue, script)),
    )
}

fn search_in<S: Strategy>(
    (prefix, scripts): (&str, &S),
    sequences: u32,
    run: impl Fn(QueueName, &S::Value) -> Result<(), String>,
) -> Result<(), (String, S::Value)> {
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number("DQHOST_TEST_SEED").unwrap_or(1).to_le_bytes());
    let config = Config {
        cases: sequences,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let queues = AtomicUsize::new(0);
    let outcome = TestRunner::new_with_rng(config, rng).run(scripts, |script| {
        // One store for all; each sequence has queues of its own.
        let queue = format!("{prefix}{}", queues.fetch_add(1, Ordering::SeqCst));
        run(queue.parse().unwrap(), &script).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, script)) => Err((reason.to_string(), script)),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

fn check<W: World>(runtime: &tokio::runtime::Runtime, world: &W, sequences: u32) {
    let sequences = number("DQHOST_TEST_SEQUENCES").unwrap_or(sequences);
    if let Err((reason, script)) = search(runtime, world, sequences) {
        panic!("{reason}\nshown by: {script:#?}");
    }
}

/// A quarter of so many scripts on keys: each has many more calls.
fn check_keys<W: World>(runtime: &tokio::runtime::Runtime, world: &W, sequences: u32) {
    let sequences = number("DQHOST_TEST_SEQUENCES").unwrap_or(sequences) / 4;
    if let Err((reason, script)) = search_keys(runtime, world, sequences) {
        panic!("{reason}\nshown by: {script:#?}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

#[test]
fn the_file_does_what_the_model_does() {
    let runtime = runtime();
    let world = runtime.block_on(SqliteWorld::new());
    check(&runtime, &world, 2000);
}

#[test]
fn redis_does_what_the_model_does() {
    let runtime = runtime();
    let world = runtime.block_on(RedisWorld::new());
    check(&runtime, &world, 300);
}

#[test]
fn keys_share_a_file_as_is_promised() {
    let runtime = runtime();
    let world = runtime.block_on(SqliteWorld::new());
    check_keys(&runtime, &world, 2000);
}

#[test]
fn keys_share_redis_as_is_promised() {
    let runtime = runtime();
    let world = runtime.block_on(RedisWorld::new());
    check_keys(&runtime, &world, 300);
}
