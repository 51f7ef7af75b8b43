//! Limits over several hosts, and what they remember after a crash.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dqhost::clock::{Clock, ManualClock};
use dqhost::message::{Due, NewMessage};
use dqhost::store::prelude::*;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use dqhost::store::{
    First, LimitedReservation, Limits, NextAllowed, Rate, Reservation, Settlement, Store,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use crate::contract::tools::{LONG, nack, queue, send};
use crate::http_api::with_each_store;
use crate::support::{
    Host, PATIENCE, RedisServer, dqhost, eventually, guest, run, stats, stderr, stdout,
};

fn rate(text: &str, burst: u32) -> Rate {
    text.parse::<Rate>().unwrap().with_burst(burst).unwrap()
}

async fn reserve(store: &dyn Store, max: usize, rate: Rate) -> LimitedReservation {
    let wanted = Reservation {
        max,
        lease: LONG,
        first: First::Ready,
        retries_default: 3,
    };
    let limits = Limits {
        rate: Some(rate),
        ..Limits::NONE
    };
    store
        .reserve_limited(&queue(), wanted, &limits)
        .await
        .unwrap()
}

async fn only_one_of_two_goes(before: &dyn Store, after: &dyn Store) {
    let first = reserve(before, 5, rate("1/d", 1)).await;
    assert_eq!(first.deliveries.len(), 1);
    let second = reserve(after, 5, rate("1/d", 1)).await;
    assert_eq!(second.deliveries.len(), 0);
    assert!(matches!(second.next, NextAllowed::In(_)));
}

#[tokio::test]
async fn a_rate_is_remembered_after_a_crash_of_the_server() {
    let mut server = RedisServer::start_with(&["--appendfsync", "always"]);
    let store = server.store().await;
    for _ in 0..2 {
        send(&*store, "x", Due::NOW, 3).await;
    }
    assert_eq!(
        reserve(&*store, 1, rate("1/d", 1)).await.deliveries.len(),
        1
    );
    server.kill();
    server.restart();
    let again = server.store().await;
    assert_eq!(
        reserve(&*again, 1, rate("1/d", 1)).await.deliveries.len(),
        0
    );
}

#[tokio::test]
async fn two_processes_share_the_limits_of_a_queue() {
    let folder = TempDir::new().unwrap();
    let options = SqliteOptions::file(folder.path().join("dqhost.db"));
    let [one, other] = [
        SqliteStore::open(&options).await.unwrap(),
        SqliteStore::open(&options).await.unwrap(),
    ];
    for _ in 0..2 {
        send(&one, "x", Due::NOW, 3).await;
    }
    only_one_of_two_goes(&one, &other).await;
    let server = RedisServer::start();
    let [one, other] = [server.store().await, server.store().await];
    for _ in 0..2 {
        send(&*one, "x", Due::NOW, 3).await;
    }
    only_one_of_two_goes(&*one, &*other).await;
}

#[tokio::test]
async fn a_clock_that_was_set_back_or_a_damaged_time_holds_nothing_back_for_long() {
    let server = RedisServer::start();
    let store = server.store().await;
    for _ in 0..2 {
        send(&*store, "x", Due::NOW, 3).await;
    }
    for at in ["9007199254740000", "1e300", "inf", "-inf", "-1"] {
        let () = server.command(&["ZADD", "{dp:q}:limits", at, "rate", at, "until"]);
        let rate = rate("100/s", 10);
        if let NextAllowed::In(wait) = reserve(&*store, 1, rate).await.next {
            assert!(wait <= Duration::from_millis(100), "{at}: {wait:?}");
            tokio::time::sleep(wait).await;
            assert_eq!(reserve(&*store, 1, rate).await.deliveries.len(), 1, "{at}");
        }
        store.overview(&queue()).await.unwrap();
        send(&*store, "x", Due::NOW, 3).await;
    }
}

/// Two messages of a key, of which one goes and the other is set aside; then the clock is set back.
async fn set_one_aside(store: &dyn Store) {
    send_numbered(store, 1, 2).await;
    let first = reserve_in_order(store, LONG).await.remove(0);
    assert_eq!(reserve_in_order(store, LONG).await, []);
    let ack = [(first.claim, Settlement::ACK)];
    store.settle(&queue(), &ack).await.unwrap();
}

#[tokio::test]
async fn what_is_set_aside_for_its_key_goes_also_after_the_clock_was_set_back() {
    const HOUR_MS: u64 = 3_600_000;
    let folder = TempDir::new().unwrap();
    let mut options = SqliteOptions::file(folder.path().join("dqhost.db"));
    let now_ms = 1_795_228_395_123;
    options.clock = Clock::Manual(ManualClock::at(now_ms + 3 * HOUR_MS));
    set_one_aside(&SqliteStore::open(&options).await.unwrap()).await;
    options.clock = Clock::Manual(ManualClock::at(now_ms));
    let store = SqliteStore::open(&options).await.unwrap();
    assert_eq!(number(&reserve_in_order(&store, LONG).await[0]), 1);
    let server = RedisServer::start();
    let store = server.store().await;
    set_one_aside(&*store).await;
    let keys: Vec<(String, u64)> =
        server.command(&["ZRANGE", "{dp:q}:limited:keys", "0", "-1", "WITHSCORES"]);
    for (key, at_us) in keys {
        let at_us = (at_us + 3 * HOUR_MS * 1000).to_string();
        let () = server.command(&["ZADD", "{dp:q}:limited:keys", &at_us, &key]);
    }
    assert_eq!(number(&reserve_in_order(&*store, LONG).await[0]), 1);
}

/// Runs `include/gcra.lua` over calls at given times. ARGV: count, `per_us`, burst, then for each call its
/// time and how many are wanted. Returns for each call how many went, and us until one more may.
const GCRA: &str = concat!(
    include_str!("../../lua/include/gcra.lua"),
    "
local count, per_us, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local kept, result = nil, {}
for i = 4, #ARGV, 2 do
  local now, wanted = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local tat = tat_now(kept, now, count, per_us, burst)
  local number = math.min(allowed_by(tat, now, count, per_us, burst), wanted)
  kept = tat_after(tat, number, count, per_us)
  result[#result + 1] = number
  result[#result + 1] = wait_by(kept, now, count, per_us, burst)
end
return result"
);

/// Runs calls at these times, with so many wanted at each, and compares them with a bucket in exact
/// numbers: a token is `per_us` drops, and `count` drops fall each microsecond.
fn check_rate(
    connection: &mut redis::Connection,
    rate: Rate,
    steps: Vec<(u64, u64)>,
) -> Result<(), TestCaseError> {
    let (count, per) = (u128::from(rate.count()), u128::from(rate.per_us()));
    let mut now = 1_795_000_000_000_000_u64;
    let mut call = redis::cmd("EVAL");
    call.arg(GCRA).arg(0);
    call.arg(rate.count()).arg(rate.per_us()).arg(rate.burst());
    let mut calls = Vec::new();
    for (pass, wanted) in steps {
        now += pass;
        call.arg(now).arg(wanted);
        calls.push((now, u128::from(wanted)));
    }
    let answers: Vec<u64> = call.query(connection).unwrap();
    let full = u128::from(rate.burst()) * per;
    let (mut drops, mut last) = (full, calls[0].0);
    let mut went: Vec<(u64, u128)> = Vec::new();
    for (number, (&(now, wanted), answer)) in calls.iter().zip(answers.chunks(2)).enumerate() {
        drops = (drops + u128::from(now - last) * count).min(full);
        last = now;
        let (got, wait) = (u128::from(answer[0]), answer[1]);
        // Each call rounds by up to a microsecond. What goes shows it from the next call on, the wait at once.
        let rounding = (number as u128 * count).div_ceil(per);
        prop_assert!(got <= drops / per && got <= wanted);
        prop_assert!(got + rounding >= (drops / per).min(wanted));
        drops -= got * per;
        let rounded = (number as u128 + 1) * count;
        prop_assert!(wait == 0 || drops < per + rounded, "{wait} with {drops}");
        went.push((now, got));
        for (from, _) in &went {
            let since = went.iter().filter(|(at, _)| at >= from);
            let sum: u128 = since.map(|(_, number)| number).sum();
            let most = u128::from(now - from) * count / per + u128::from(rate.burst());
            prop_assert!(sum <= most, "{sum} in {} us", now - from);
        }
    }
    Ok(())
}

#[test]
fn in_redis_no_window_has_more_than_the_rate_and_the_burst() {
    let server = RedisServer::start();
    let connection = Mutex::new(server.connection());
    let cases = (
        prop_oneof![1_u32..200, 1_u32..=100_000],
        prop::sample::select(vec!["s", "m", "h", "d"]),
        prop_oneof![1_u32..5, 1_u32..500, 1_u32..=100_000],
        prop::collection::vec((0_u64..3_000_000, 0_u64..300), 1..60),
    );
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    };
    let outcome = TestRunner::new(config).run(&cases, |(count, unit, burst, steps)| {
        let rate = rate(&format!("{count}/{unit}"), burst);
        check_rate(&mut connection.lock().unwrap(), rate, steps)
    });
    outcome.unwrap();
}

/// What Redis was told of deliveries: the time of each by the server's clock, in microseconds, and the
/// number of messages that went.
struct Deliveries {
    monitor: Child,
    lines: std::thread::JoinHandle<Vec<(u64, u64)>>,
}

impl Deliveries {
    fn watch(server: &RedisServer) -> Self {
        let socket = server.url().replace("unix://", "");
        let mut monitor = std::process::Command::new("redis-cli")
            .args(["-s", &socket, "MONITOR"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(monitor.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert_eq!(first.trim(), "OK");
        let read = move || {
            output
                .lines()
                .map_while(Result::ok)
                .filter_map(|line| delivered(&line))
        };
        let lines = std::thread::spawn(move || read().collect());
        Self { monitor, lines }
    }

    fn end(mut self) -> Vec<(u64, u64)> {
        self.monitor.kill().unwrap();
        self.monitor.wait().unwrap();
        self.lines.join().unwrap()
    }
}

/// A line of MONITOR that puts ids into unack: `1795228395.123456 [0 lua] "ZADD" "{dp:q}:unack" ...`, each
/// with its score. The member that makes a tree of the set is none. The line itself may be late on a busy
/// machine. The score is the time of the reservation and its lease of a second.
fn delivered(line: &str) -> Option<(u64, u64)> {
    let members = line.split_once("\"ZADD\" \"{dp:q}:unack\" ")?.1;
    let long = "-".repeat(65);
    let mut words = members.split(' ').filter(|word| !word.contains(&long));
    let score = words.next()?.trim_matches('"').replace('.', "");
    // A renewal begins with XX.
    let ends_ms: u64 = score.parse().ok()?;
    let words = 1 + words.count() as u64;
    let is_long = u64::from(members.contains(&long));
    Some(((ends_ms - 1000) * 1000, (words - is_long) / 2))
}

/// A lease begins at the end of the millisecond.
const SLACK_US: u64 = 1000;

/// In no time have more gone than the rate and the burst allow. The times may be wrong by so much.
fn no_window_has_more(deliveries: &[(u64, u64)], (rate, burst): (u64, u64), slack_us: u64) {
    assert!(deliveries.len() > 1, "{deliveries:?}");
    for (place, (from, _)) in deliveries.iter().enumerate() {
        let mut sum = 0;
        for (at, number) in &deliveries[place..] {
            sum += number;
            let most = (at - from + slack_us) * rate / 1_000_000 + burst;
            assert!(sum <= most, "{sum} in {} us", at - from);
        }
    }
}

/// Three hosts handle what 500 a second let go, and one after the other is killed: at any moment, whatever the speed
/// of the machine.
fn handle_at_a_high_rate(store: &str) {
    let handler = guest("noop");
    let args = [
        "--queue",
        "q",
        "--handler",
        handler.to_str().unwrap(),
        "--rate",
        "500/s",
        "--lease",
        "1s",
    ];
    let mut random = fastrand::Rng::with_seed(11);
    let mut hosts: Vec<Host> = (0..3).map(|_| Host::start(store, &args)).collect();
    let mut next_kill = 100;
    eventually("most are acked", || {
        let acked = stats(store, "q")["totals"]["acked"].as_u64().unwrap();
        if acked >= next_kill {
            // kill -9
            hosts.swap_remove(random.usize(0..3));
            hosts.push(Host::start(store, &args));
            next_kill = acked + random.u64(20..300);
        }
        (acked >= HIGH_RATE_MESSAGES - 100).then_some(())
    });
    assert!(next_kill > 1000, "{next_kill}");
}

const HIGH_RATE_MESSAGES: u64 = 3000;

fn send_noops(store: &str, number: usize) {
    let line = serde_json::json!({"payload": "x", "retries": 1000});
    let send = dqhost(Some(store), &["send", "--queue", "q", "--ndjson", "-"]);
    let lines = format!("{line}\n").repeat(number);
    let output = crate::support::feed(send, lines.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn five_hundred_a_second_are_never_more_in_redis_whoever_is_killed() {
    let server = RedisServer::start();
    send_noops(&server.url(), HIGH_RATE_MESSAGES.try_into().unwrap());
    let deliveries = Deliveries::watch(&server);
    handle_at_a_high_rate(&server.url());
    no_window_has_more(&deliveries.end(), (500, 50), SLACK_US);
}

/// The file itself notes each delivery: its lease of a second ends at `place`.
const NOTE_DELIVERIES: &str = "
CREATE TABLE went (at_ms INTEGER NOT NULL);
CREATE TRIGGER note_went AFTER UPDATE OF state ON messages WHEN NEW.state = 4
BEGIN INSERT INTO went VALUES (NEW.place - 1000); END";

#[test]
fn five_hundred_a_second_are_never_more_in_a_file_whoever_is_killed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    send_noops(store, HIGH_RATE_MESSAGES.try_into().unwrap());
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(NOTE_DELIVERIES).unwrap();
    handle_at_a_high_rate(store);
    let mut went = file
        .prepare("SELECT at_ms FROM went ORDER BY at_ms")
        .unwrap();
    let at_ms = went.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    let deliveries: Vec<(u64, u64)> = at_ms
        .map(|ms| (ms.unwrap().cast_unsigned() * 1000, 1))
        .collect();
    assert!(deliveries.len() as u64 >= HIGH_RATE_MESSAGES - 100);
    no_window_has_more(&deliveries, (500, 50), SLACK_US);
}

#[test]
fn three_hosts_that_are_killed_share_a_rate_and_use_it() {
    const RATE: u64 = 100;
    const KILLS: usize = 5;
    let server = RedisServer::start();
    let url = server.url();
    let line = serde_json::json!({"payload": "x", "retries": 1000}).to_string();
    let mut lines = String::new();
    for _ in 0..5000 {
        let _ = writeln!(lines, "{line}");
    }
    let send = dqhost(Some(&url), &["send", "--queue", "q", "--ndjson", "-"]);
    assert!(
        crate::support::feed(send, lines.as_bytes())
            .status
            .success()
    );
    let deliveries = Deliveries::watch(&server);
    let (rate, burst) = (format!("{RATE}/s"), RATE.to_string());
    let handler = guest("noop");
    let args = [
        "--queue",
        "q",
        "--handler",
        handler.to_str().unwrap(),
        "--rate",
        &rate,
        "--burst",
        &burst,
        "--lease",
        "1s",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let mut hosts: Vec<Host> = (0..3).map(|_| Host::start(&url, &args)).collect();
    let began = Instant::now();
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(random.u64(500..1500)));
        // kill -9
        hosts.swap_remove(random.usize(0..3));
        hosts.push(Host::start(&url, &args));
    }
    let limited = stats(&url, "q");
    assert_eq!(
        limited["limited"],
        limited["ready"].as_u64().unwrap() + limited["retry"].as_u64().unwrap()
    );
    let held = began.elapsed();
    drop(hosts);
    let deliveries = deliveries.end();
    let number: u64 = deliveries.iter().map(|(_, number)| number).sum();
    no_window_has_more(&deliveries, (RATE, RATE), SLACK_US);
    // While there is demand the rate is used. A burst of a second forgives hosts that come late.
    let by_rate = u64::try_from(held.as_millis()).unwrap() * RATE / 1000;
    println!("{number} deliveries in {held:?}, {by_rate} by the rate");
    assert!(number * 100 >= by_rate * 97, "{number} of {by_rate}");
    assert!(
        stats(&url, "q")["ready"].as_u64().unwrap() > 0,
        "there was demand all the time"
    );
}

#[test]
fn hosts_run_so_many_at_a_time_together() {
    let server = RedisServer::start();
    let url = server.url();
    for _ in 0..6 {
        run(Some(&url), &["send", "--queue", "q", "600000"], 0);
    }
    let handler = guest("sleeper");
    let args = [
        "--queue",
        "q",
        "--handler",
        handler.to_str().unwrap(),
        "--max-running",
        "2",
        "--timeout",
        "1h",
        "--lease",
        "1s",
    ];
    let hosts: Vec<Host> = (0..3).map(|_| Host::start(&url, &args)).collect();
    eventually("two run", || (stats(&url, "q")["unack"] == 2).then_some(()));
    eventually("four are held back", || {
        (stats(&url, "q")["limited"] == 4).then_some(())
    });
    let text = crate::support::stdout(&run(Some(&url), &["stats", "--queue", "q"], 0));
    assert!(
        text.contains("q: a limit holds back 4 messages that are due"),
        "{text}"
    );
    assert_eq!(stats(&url, "q")["unack"], 2);
    // Whoever had the two: their leases end, and two others run.
    drop(hosts);
    let _host = Host::start(&url, &args);
    eventually("two run again", || {
        let now = stats(&url, "q");
        assert!(now["unack"].as_u64().unwrap() <= 2, "{now}");
        (now["totals"]["expired"] == 2 && now["unack"] == 2).then_some(())
    });
}

#[test]
fn wrong_limits_are_refused_with_what_is_wanted() {
    for (args, wanted) in [
        (&["--rate", "fast"][..], "100/s"),
        (&["--rate", "0/s"], "100/s"),
        (&["--rate", "5/y"], "100/s"),
        (&["--burst", "5"], "--rate"),
        (&["--rate", "5/s", "--burst", "0"], "burst"),
        (&["--max-running", "0"], "max-running"),
        (&["--limit-by", "header:a"], "--rate or --max-running"),
        (&["--limit-by", "a", "--rate", "5/s"], "header:customer"),
        (
            &["--limit-by", "header:a", "--max-running", "101"],
            "at most 100",
        ),
    ] {
        let output = run(None, &[&["up", "--handler", "x.wasm"], args].concat(), 2);
        assert!(
            stderr(&output).contains(wanted),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}

/// One at a time of each value of `k`, in order.
fn in_order() -> Limits {
    Limits {
        max_running: std::num::NonZeroU32::new(1),
        by: "header:k".parse().ok(),
        ..Limits::NONE
    }
}

async fn reserve_in_order(store: &dyn Store, lease: Duration) -> Vec<dqhost::message::Delivery> {
    let wanted = Reservation {
        max: 5,
        lease,
        first: First::Ready,
        retries_default: 3,
    };
    let reserved = store.reserve_limited(&queue(), wanted, &in_order()).await;
    reserved.unwrap().deliveries
}

/// So many messages of each of these keys; the payload is the number.
async fn send_numbered(store: &dyn Store, keys: usize, each: usize) {
    for number in 0..each {
        let batch: Vec<NewMessage> = (0..keys)
            .map(|key| NewMessage {
                headers: vec![("k".to_owned(), key.to_string())],
                retries: 1_000_000,
                ..NewMessage::new(number.to_string())
            })
            .collect();
        store.send(&queue(), &batch).await.unwrap();
    }
}

fn number(delivery: &dqhost::message::Delivery) -> usize {
    let payload = delivery.payload.clone().unwrap();
    String::from_utf8(payload).unwrap().parse().unwrap()
}

/// A host that acks, nacks and sometimes crashes: then its leases expire. It notes what it begins.
async fn handle_in_order(
    store: Arc<dyn Store>,
    begun: Arc<Mutex<Vec<(String, usize)>>>,
    seed: u64,
) {
    const LEASE: Duration = Duration::from_secs(2);
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        store.advance(&queue()).await.unwrap();
        let asked = Instant::now();
        let deliveries = reserve_in_order(&*store, LEASE).await;
        if deliveries.is_empty() {
            if store.counts(&queue()).await.unwrap().is_drained() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for delivery in deliveries {
            // As a host does that cannot be sure of its lease.
            if asked.elapsed() > LEASE / 2 {
                continue;
            }
            let key = delivery.headers[0].1.clone();
            begun.lock().unwrap().push((key, number(&delivery)));
            let how = match random.u32(..100) {
                0 => continue,
                1..15 => nack(None),
                15..30 => nack(Some(Duration::from_millis(random.u64(1..30)))),
                30..35 => {
                    store.release(&queue(), &[delivery.claim]).await.unwrap();
                    continue;
                }
                _ => Settlement::ACK,
            };
            store
                .settle(&queue(), &[(delivery.claim, how)])
                .await
                .unwrap();
        }
    }
}

async fn keys_keep_their_order(stores: Vec<Arc<dyn Store>>) {
    send_numbered(&*stores[0], 8, 25).await;
    let begun = Arc::new(Mutex::new(Vec::new()));
    let hosts = stores
        .into_iter()
        .enumerate()
        .map(|(seed, store)| tokio::spawn(handle_in_order(store, Arc::clone(&begun), seed as u64)));
    let all = futures_util::future::join_all(hosts);
    for ended in tokio::time::timeout(PATIENCE, all).await.unwrap() {
        ended.unwrap();
    }
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    for (key, number) in begun.lock().unwrap().iter() {
        let before = last.insert(key.clone(), *number).unwrap_or(0);
        assert!(
            before == *number || before + 1 == *number,
            "{key}: {number} after {before}"
        );
    }
    assert!(
        last.len() == 8 && last.values().all(|last| *last == 24),
        "{last:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_keep_their_order_over_hosts_that_crash_in_redis() {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(server.store().await);
    }
    let store = Arc::clone(&stores[0]);
    keys_keep_their_order(stores).await;
    // Of keys with nothing left only the last place is kept, once they were looked at again.
    let end = Instant::now() + PATIENCE;
    loop {
        assert_eq!(reserve_in_order(&*store, LONG).await, []);
        let left: Vec<String> = server.command(&["KEYS", "{dp:q}:limited*"]);
        if left == ["{dp:q}:limited:at"] {
            break;
        }
        assert!(Instant::now() < end, "{left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_keep_their_order_over_hosts_that_crash_in_a_file() {
    let folder = TempDir::new().unwrap();
    let options = SqliteOptions::file(folder.path().join("dqhost.db"));
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..3 {
        stores.push(Arc::new(SqliteStore::open(&options).await.unwrap()));
    }
    keys_keep_their_order(stores).await;
}

/// Acks all of one key in order, with an advance before each.
async fn drain_in_order(store: &dyn Store, numbers: std::ops::Range<usize>) {
    for expected in numbers {
        while store.advance(&queue()).await.unwrap().more {}
        let got = reserve_in_order(store, LONG).await;
        assert_eq!(got.iter().map(number).collect::<Vec<_>>(), [expected]);
        let claim = got[0].claim.clone();
        store
            .settle(&queue(), &[(claim, Settlement::ACK)])
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn after_a_minute_what_is_set_aside_is_looked_at_again_in_its_order() {
    let mut options = SqliteOptions::memory();
    let clock = ManualClock::at(1_795_228_395_123);
    options.clock = Clock::Manual(clock.clone());
    let store = SqliteStore::open(&options).await.unwrap();
    send_numbered(&store, 1, 6).await;
    let first = reserve_in_order(&store, LONG).await.remove(0);
    for _ in 0..3 {
        clock.pass(Duration::from_secs(61));
        while store.advance(&queue()).await.unwrap().more {}
        assert_eq!(store.counts(&queue()).await.unwrap().ready, 5);
        assert_eq!(reserve_in_order(&store, LONG).await, []);
        assert_eq!(store.overview(&queue()).await.unwrap().limited, 5);
    }
    clock.pass(Duration::from_secs(61));
    store
        .settle(&queue(), &[(first.claim, Settlement::ACK)])
        .await
        .unwrap();
    drain_in_order(&store, 1..6).await;
}

/// What is pending becomes due now, in Redis.
fn promote_all(server: &RedisServer) {
    let pending: Vec<String> = server.command(&["ZRANGE", "{dp:q}:pending", "0", "-1"]);
    for id in pending {
        let () = server.command(&["ZADD", "{dp:q}:pending", "1.5", &id]);
    }
}

#[tokio::test]
async fn in_redis_what_is_set_aside_comes_back_even_if_its_marks_are_lost() {
    let server = RedisServer::start();
    let store = server.store().await;
    send_numbered(&*store, 1, 6).await;
    let first = reserve_in_order(&*store, LONG).await.remove(0);
    assert_eq!(reserve_in_order(&*store, LONG).await, []);
    // Its minute is over: in line again, it keeps its place.
    promote_all(&server);
    store.advance(&queue()).await.unwrap();
    assert_eq!(reserve_in_order(&*store, LONG).await, []);
    assert_eq!(store.overview(&queue()).await.unwrap().limited, 5);
    store
        .settle(&queue(), &[(first.claim, Settlement::ACK)])
        .await
        .unwrap();
    drain_in_order(&*store, 1..3).await;
    for key in [
        "limited",
        "limited:at",
        "limited:keys",
        "limited:holders",
        "limits",
    ] {
        let () = server.command(&["DEL", &format!("{{dp:q}}:{key}")]);
    }
    promote_all(&server);
    store.advance(&queue()).await.unwrap();
    let mut left = Vec::new();
    while let Some(one) = reserve_in_order(&*store, LONG).await.pop() {
        left.push(number(&one));
        store
            .settle(&queue(), &[(one.claim, Settlement::ACK)])
            .await
            .unwrap();
    }
    left.sort_unstable();
    assert_eq!(left, [3, 4, 5]);
    assert!(store.counts(&queue()).await.unwrap().is_drained());
}

#[test]
fn hosts_handle_each_key_in_order() {
    let server = RedisServer::start();
    let url = server.url();
    for number in 0..8 {
        let header = format!("k={}", number % 2);
        run(
            Some(&url),
            &["send", "--queue", "q", "--header", &header, "2"],
            0,
        );
    }
    let handler = guest("flaky");
    let args = [
        "--queue",
        "q",
        "--handler",
        handler.to_str().unwrap(),
        "--max-running",
        "1",
        "--limit-by",
        "header:k",
        "--backoff",
        "20ms",
    ];
    let _hosts: Vec<Host> = (0..2).map(|_| Host::start(&url, &args)).collect();
    eventually("all are acked", || {
        let now = stats(&url, "q");
        assert!(now["unack"].as_u64().unwrap() <= 2, "{now}");
        (now["totals"]["acked"] == 8).then_some(())
    });
    assert_eq!(stats(&url, "q")["totals"]["nacked"], 8);
}

/// How long a handler keeps the only slot.
const BUSY_MS: u64 = 5000;

/// The limit of a key lets the next one go while no slot is free. When one is, it goes, and not when its
/// minute aside is over.
#[test]
fn what_may_go_while_all_slots_are_taken_goes_when_one_is_free() {
    with_each_store(|store| {
        let send = |key: &str, payload: &str| {
            let header = format!("k={key}");
            let args = ["send", "--queue", "q", "--header", &header, payload];
            stdout(&run(Some(store), &args, 0)).trim().to_owned()
        };
        let (_, waits, busy) = (
            send("a", "0"),
            send("a", "0"),
            send("b", &BUSY_MS.to_string()),
        );
        let handler = guest("sleeper").display().to_string();
        let args = [
            "--queue",
            "q",
            "--handler",
            &handler,
            "--slots",
            "1",
            "--log",
            "debug",
        ];
        let limits = ["--rate", "20/m", "--burst", "1", "--limit-by", "header:k"];
        let mut host = Host::start(store, &[&args[..], &limits].concat());
        let mut asked_at = |id: &str| {
            let line = host.wait_for("reserved", |line| line["id"] == *id);
            line["asked_at_ms"].as_u64().unwrap()
        };
        let later = asked_at(&waits) - asked_at(&busy);
        assert!((BUSY_MS..BUSY_MS + 30_000).contains(&later), "{later} ms");
    });
}
