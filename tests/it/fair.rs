//! Keys that take turns, over several hosts: crashes, what is kept and for how long, and the command line.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dqhost::clock::{Clock, ManualClock};
use dqhost::message::{Delivery, NewMessage};
use dqhost::store::prelude::*;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use dqhost::store::{LimitedReservation, Settlement, Store};
use tempfile::TempDir;

use crate::contract::fair::{reserve_in_turn, share_of_one_that_comes_back, sort, turns};
use crate::contract::tools::{LONG, nack, now_ms, queue, reserve};
use crate::http_api::with_each_store;
use crate::support::{
    Host, PATIENCE, RedisServer, dqhost, eventually, feed, guest, run, stats, stderr, stdout,
};

fn of(customer: &str, payload: &str) -> NewMessage {
    NewMessage {
        headers: vec![("customer".to_owned(), customer.to_owned())],
        retries: 1_000_000,
        ..NewMessage::new(payload)
    }
}

async fn send(store: &dyn Store, customer: &str, numbers: std::ops::Range<usize>) {
    let all: Vec<NewMessage> = numbers.map(|n| of(customer, &n.to_string())).collect();
    for some in all.chunks(500) {
        store.send(&queue(), some).await.unwrap();
    }
}

fn number(delivery: &Delivery) -> usize {
    let payload = delivery.payload.clone().unwrap();
    String::from_utf8(payload).unwrap().parse().unwrap()
}

/// Acks all that there is, in turn.
async fn drain(store: &dyn Store) -> Vec<usize> {
    let mut all = Vec::new();
    loop {
        let some = reserve_in_turn(store, 50, LONG, &turns()).await.deliveries;
        if some.is_empty() {
            return all;
        }
        all.extend(some.iter().map(number));
        let acks: Vec<_> = some
            .into_iter()
            .map(|delivery| (delivery.claim, Settlement::ACK))
            .collect();
        store.settle(&queue(), &acks).await.unwrap();
    }
}

/// A host that acks, nacks and sometimes crashes: then its leases expire. It counts what it acks.
async fn handle(store: Arc<dyn Store>, acked: Arc<Mutex<BTreeMap<String, usize>>>, seed: u64) {
    const LEASE: Duration = Duration::from_secs(2);
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        store.advance(&queue()).await.unwrap();
        let began = Instant::now();
        let max = random.usize(0..6);
        let deliveries = reserve_in_turn(&*store, max, LEASE, &turns())
            .await
            .deliveries;
        if deliveries.is_empty() {
            if store.counts(&queue()).await.unwrap().is_drained() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for delivery in deliveries {
            // As a host does that cannot be sure of its lease.
            if began.elapsed() > LEASE / 2 {
                continue;
            }
            let key = format!("{} {}", delivery.headers[0].1, number(&delivery));
            let how = match random.u32(..100) {
                0 => continue,
                1..10 => nack(None),
                10..20 => nack(Some(Duration::from_millis(random.u64(1..30)))),
                20..25 => {
                    store.release(&queue(), &[delivery.claim]).await.unwrap();
                    continue;
                }
                _ => {
                    *acked.lock().unwrap().entry(key).or_default() += 1;
                    Settlement::ACK
                }
            };
            store
                .settle(&queue(), &[(delivery.claim, how)])
                .await
                .unwrap();
        }
    }
}

async fn all_are_handled_once(stores: Vec<Arc<dyn Store>>) {
    for (customer, number) in [("a", 600), ("b", 40), ("c", 40)] {
        send(&*stores[0], customer, 0..number).await;
    }
    let acked = Arc::new(Mutex::new(BTreeMap::new()));
    let hosts = stores
        .into_iter()
        .enumerate()
        .map(|(seed, store)| tokio::spawn(handle(store, Arc::clone(&acked), seed as u64)));
    let all = futures_util::future::join_all(hosts);
    for ended in tokio::time::timeout(PATIENCE, all).await.unwrap() {
        ended.unwrap();
    }
    let acked = acked.lock().unwrap();
    assert_eq!(acked.len(), 680);
    assert!(acked.values().all(|times| *times == 1), "{acked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_crash_lose_and_repeat_nothing_in_redis() {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(server.store().await);
    }
    let store = Arc::clone(&stores[0]);
    all_are_handled_once(stores).await;
    assert!(drain(&*store).await.is_empty());
    // Of keys with nothing left only the last place is kept.
    let left: Vec<String> = server.command(&["KEYS", "{dp:q}:limit*"]);
    assert_eq!(left, ["{dp:q}:limited:at"]);
    let left: Vec<String> = server.command(&["HKEYS", "{dp:q}:limited:at"]);
    assert_eq!(left, [""]);
}

async fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&SqliteOptions::file(path)).await.unwrap())
}

/// How many rows a table of the file has.
fn rows(path: &Path, table: &str) -> i64 {
    let file = rusqlite::Connection::open(path).unwrap();
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
        row.get(0)
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_crash_lose_and_repeat_nothing_in_a_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..3 {
        stores.push(open(&path).await);
    }
    let store = Arc::clone(&stores[0]);
    all_are_handled_once(stores).await;
    assert!(drain(&*store).await.is_empty());
    for table in ["limited", "fair_keys", "limits"] {
        assert_eq!(rows(&path, table), 0, "{table}");
    }
}

#[tokio::test]
async fn a_store_that_forgets_when_a_key_starts_is_found() {
    let server = RedisServer::start();
    let store = server.store().await;
    let forgets = || {
        let () = server.command(&["DEL", "{dp:q}:limited:turns"]);
    };
    let went = share_of_one_that_comes_back(&*store, 20, forgets).await;
    assert!(!(9..=11).contains(&went), "{went} of 20");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = open(&path).await;
    let forgets = || {
        let file = rusqlite::Connection::open(&path).unwrap();
        file.execute("DELETE FROM fair_keys", []).unwrap();
    };
    let went = share_of_one_that_comes_back(&*store, 20, forgets).await;
    assert!(!(9..=11).contains(&went), "{went} of 20");
}

/// One key waits, and many others come and go meanwhile.
async fn many_come_and_go(store: &dyn Store) {
    send(store, "a", 0..400).await;
    for round in 0..30 {
        let new: Vec<NewMessage> = (0..100).map(|n| of(&format!("{round}/{n}"), "1")).collect();
        store.send(&queue(), &new).await.unwrap();
        let some = reserve_in_turn(store, 110, LONG, &turns()).await.deliveries;
        assert_eq!(some.len(), 110);
    }
}

#[tokio::test]
async fn keys_that_come_and_go_leave_nothing_behind() {
    let server = RedisServer::start();
    let store = server.store().await;
    many_come_and_go(&*store).await;
    let keys: u64 = server.command(&["ZCARD", "{dp:q}:limited:turns"]);
    assert!((1..=1100).contains(&keys), "{keys} of 3000");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = open(&path).await;
    many_come_and_go(&*store).await;
    let keys = rows(&path, "fair_keys");
    assert!((1..=1100).contains(&keys), "{keys} of 3000");
}

#[tokio::test]
async fn what_waits_for_its_turn_is_put_off_and_comes_back_without_turns() {
    let mut options = SqliteOptions::memory();
    let clock = ManualClock::at(1_795_228_395_123);
    options.clock = Clock::Manual(clock.clone());
    let store = SqliteStore::open(&options).await.unwrap();
    // The first has the oldest message, so those of the other are set aside.
    send(&store, "a", 1000..1001).await;
    send(&store, "b", 0..600).await;
    sort(&store).await;
    for _ in 0..20 {
        clock.pass(Duration::from_secs(25));
        sort(&store).await;
        store.advance(&queue()).await.unwrap();
        assert_eq!(store.counts(&queue()).await.unwrap().pending, 600);
    }
    assert_eq!(store.overview(&queue()).await.unwrap().limited, 600);
    let two = reserve_in_turn(&store, 2, LONG, &turns()).await.deliveries;
    assert_eq!(two.iter().map(number).collect::<Vec<_>>(), [1000, 0]);
    // All hosts stop. A part of what comes back is set aside again, and keeps its order.
    clock.pass(Duration::from_secs(91));
    while store.advance(&queue()).await.unwrap().more {}
    assert_eq!(store.counts(&queue()).await.unwrap().ready, 599);
    let two = reserve_in_turn(&store, 2, LONG, &turns()).await.deliveries;
    assert_eq!(two.iter().map(number).collect::<Vec<_>>(), [1, 2]);
    let first = reserve(&store, 1000, LONG).await;
    assert!((300..599).contains(&first.len()), "{}", first.len());
    clock.pass(Duration::from_secs(91));
    while store.advance(&queue()).await.unwrap().more {}
    let rest = reserve(&store, 1000, LONG).await;
    assert_eq!(first.len() + rest.len(), 597);
}

/// What is pending becomes due now, in Redis.
async fn promote_all(server: &RedisServer, store: &dyn Store) {
    let pending: Vec<String> = server.command(&["ZRANGE", "{dp:q}:pending", "0", "-1"]);
    for id in pending {
        let () = server.command(&["ZADD", "{dp:q}:pending", "1.5", &id]);
    }
    while store.advance(&queue()).await.unwrap().more {}
}

#[tokio::test]
async fn in_redis_what_waits_for_its_turn_comes_back_even_if_its_marks_are_lost() {
    let server = RedisServer::start();
    let store = server.store().await;
    send(&*store, "a", 0..20).await;
    send(&*store, "b", 100..120).await;
    sort(&*store).await;
    assert_eq!(store.counts(&queue()).await.unwrap().pending, 40);
    // In line again, it keeps its place.
    promote_all(&server, &*store).await;
    assert_eq!(store.counts(&queue()).await.unwrap().ready, 40);
    let some = reserve_in_turn(&*store, 6, LONG, &turns()).await.deliveries;
    let mut some: Vec<usize> = some.iter().map(number).collect();
    some.sort_unstable();
    assert_eq!(some, [0, 1, 2, 100, 101, 102]);
    for key in [
        "limited",
        "limited:at",
        "limited:turns",
        "limited:run",
        "limits",
    ] {
        let () = server.command(&["DEL", &format!("{{dp:q}}:{key}")]);
    }
    // Nobody knows of them, until their time is over.
    assert_eq!(
        reserve_in_turn(&*store, 5, LONG, &turns()).await,
        LimitedReservation::default()
    );
    promote_all(&server, &*store).await;
    let mut rest = drain(&*store).await;
    rest.sort_unstable();
    assert_eq!(rest, (3..20).chain(103..120).collect::<Vec<_>>());
}

/// Makes all that is aside due at the end of this period of half a minute. Returns that time.
fn make_due_soon(server: &RedisServer) -> String {
    let soon = (now_ms() / 30_000 + 1) * 30_000 + 1;
    let score = format!("{}.{:03}", soon / 1000, soon % 1000);
    let pending: Vec<String> = server.command(&["ZRANGE", "{dp:q}:pending", "0", "-1"]);
    for id in &pending {
        let at: String = server.command(&["HGET", "{dp:q}:limited:at", id]);
        let (place, _) = at.rsplit_once(':').unwrap();
        let at = format!("{place}:{soon}");
        let () = server.command(&["HSET", "{dp:q}:limited:at", id, &at]);
        let () = server.command(&["ZADD", "{dp:q}:pending", &score, id]);
    }
    score
}

#[tokio::test]
async fn in_redis_what_waits_for_its_turn_is_put_off() {
    let server = RedisServer::start();
    let store = server.store().await;
    send(&*store, "a", 0..20).await;
    send(&*store, "b", 20..40).await;
    sort(&*store).await;
    let end = Instant::now() + PATIENCE;
    // The period may end in between.
    loop {
        let soon = make_due_soon(&server);
        sort(&*store).await;
        let left: u64 = server.command(&["ZCOUNT", "{dp:q}:pending", "-inf", &soon]);
        if left == 0 {
            break;
        }
        assert!(Instant::now() < end, "{left} are due at {soon}");
    }
    let mut all = drain(&*store).await;
    all.sort_unstable();
    assert_eq!(all, (0..40).collect::<Vec<_>>());
}

/// The SHA-1 of the key under which each of them was set aside, and that of the value which is its key.
fn digests(server: &RedisServer, ids: &[(String, String)]) -> Vec<(String, String)> {
    let one = |(id, value): &(String, String)| {
        let at: String = server.command(&["HGET", "{dp:q}:limited:at", id]);
        let (digest, _) = at.split_once(':').unwrap();
        let wanted = server.command(&["EVAL", "return redis.sha1hex(ARGV[1])", "0", value]);
        (digest.to_owned(), wanted)
    };
    ids.iter().map(one).collect()
}

#[tokio::test]
async fn in_redis_the_key_is_the_value_of_the_header_however_it_is_written() {
    const LETTERS: [char; 10] = ['"', '\\', '[', ']', ',', '{', ':', 'é', ' ', 'x'];
    let server = RedisServer::start();
    let store = server.store().await;
    send(&*store, "large", 0..20).await;
    let mut keys = Vec::new();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..100 {
        let value: String = (0..random.usize(0..6))
            .map(|_| *random.choice(&LETTERS).unwrap())
            .collect();
        let mut message = of(&value, "ours");
        let note = ("note".to_owned(), format!("[[\"customer\",\"{value}\"]]"));
        message.headers.insert(random.usize(0..2), note);
        keys.push((message.id.to_string(), value));
        store.send(&queue(), &[message]).await.unwrap();
    }
    let of_others = [
        (r#"[ ["customer", "with spaces"] ]"#, "with spaces"),
        (r#"[["customer","caf\u00e9"]]"#, "café"),
        (r#"[["customer","first"],["customer","second"]]"#, "first"),
        (
            r#"[["customer","\"first\""],["customer","second"]]"#,
            "\"first\"",
        ),
        (r#"[["customers","a"],["Customer","b"]]"#, ""),
        (r#"[["customer",7]]"#, "7"),
        ("[[\"customer\",\"cut", ""),
    ];
    for (text, value) in of_others {
        let message = of("not this", "of others");
        keys.push((message.id.to_string(), value.to_owned()));
        store
            .send(&queue(), std::slice::from_ref(&message))
            .await
            .unwrap();
        let () = server.command(&["HSET", "{dp:q}:headers", &message.id.to_string(), text]);
    }
    sort(&*store).await;
    for ((id, value), (digest, wanted)) in keys.iter().zip(digests(&server, &keys)) {
        let text: String = server.command(&["HGET", "{dp:q}:headers", id]);
        assert_eq!(digest, wanted, "{value:?} of {text}");
    }
}

#[tokio::test]
async fn in_redis_a_long_line_of_one_key_is_searched_only_if_others_have_changed_it() {
    let server = RedisServer::start();
    let store = server.store().await;
    send(&*store, "a", 0..2000).await;
    let is_searched = || {
        let stats: String = server.command(&["INFO", "commandstats"]);
        stats.contains("cmdstat_lpos:")
    };
    let next = async |count| -> Vec<usize> {
        let some = reserve_in_turn(&*store, count, LONG, &turns()).await;
        some.deliveries.iter().map(number).collect()
    };
    for first in (0..300).step_by(50) {
        assert_eq!(next(50).await, (first..first + 50).collect::<Vec<_>>());
    }
    assert!(!is_searched());
    // As another consumer takes one, while another producer sends.
    let _taken: String = server.command(&["RPOP", "{dp:q}:ready"]);
    send(&*store, "a", 2000..2001).await;
    assert_eq!(next(3).await, [301, 302, 303]);
    assert!(is_searched());
    let rest = drain(&*store).await;
    assert_eq!(rest, (304..2001).collect::<Vec<_>>());
}

async fn all_are_found(store: &dyn Store, number: usize) {
    for _ in 0..3 {
        let some = reserve_in_turn(store, 50, LONG, &turns()).await.deliveries;
        assert!(!some.is_empty());
        if store.counts(&queue()).await.unwrap().unack == number as u64 {
            return;
        }
    }
    panic!("{:?}", store.counts(&queue()).await.unwrap());
}

#[tokio::test]
async fn keys_that_have_lost_their_turns_are_found_by_what_is_aside() {
    let server = RedisServer::start();
    let store = server.store().await;
    send(&*store, "a", 0..20).await;
    send(&*store, "b", 0..20).await;
    sort(&*store).await;
    let () = server.command(&["DEL", "{dp:q}:limited:turns"]);
    all_are_found(&*store, 40).await;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = open(&path).await;
    for customer in ["a", "b", "c"] {
        send(&*store, customer, 0..10).await;
    }
    sort(&*store).await;
    assert_eq!(rows(&path, "limited"), 20);
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("DELETE FROM fair_keys", []).unwrap();
    all_are_found(&*store, 30).await;
}

/// Sends so many messages of one tenant; each sleeps for some milliseconds.
fn send_slow(store: &str, tenant: &str, (count, ms): (usize, &str)) -> Vec<String> {
    let line = serde_json::json!({"payload": ms, "headers": {"tenant": tenant}, "retries": 100});
    let lines = format!("{line}\n").repeat(count);
    let send = dqhost(Some(store), &["send", "--queue", "q", "--ndjson", "-"]);
    let output = feed(send, lines.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

fn host(store: &str, slots: &str) -> Host {
    let handler = guest("sleeper");
    let args = [
        "--queue",
        "q",
        "--handler",
        handler.to_str().unwrap(),
        "--slots",
        slots,
        "--timeout",
        "1h",
        "--fair-by",
        "header:tenant",
    ];
    Host::start(store, &args)
}

#[test]
fn a_tenant_behind_two_thousand_messages_of_another_is_next() {
    with_each_store(|store| {
        send_slow(store, "a", (2000, "50"));
        let _hosts = [host(store, "1"), host(store, "1")];
        eventually("they work", || {
            (stats(store, "q")["totals"]["acked"].as_u64()? > 4).then_some(())
        });
        // These keep both hosts for good, so what was acked before them stays as it is.
        let held = send_slow(store, "b", (2, "3000000"));
        assert_eq!(held.len(), 2);
        eventually("both hosts have them", || {
            let all = held.iter().all(|id| {
                let shown = run(Some(store), &["get", id, "--queue", "q", "--json"], 0);
                let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
                shown["state"] == "unack"
            });
            all.then_some(())
        });
        let now = stats(store, "q");
        assert!(now["totals"]["acked"].as_u64().unwrap() < 1500, "{now}");
    });
}

#[test]
fn a_host_without_a_free_slot_sorts_what_comes() {
    with_each_store(|store| {
        send_slow(store, "a", (1, "3000000"));
        let _host = host(store, "1");
        eventually("its slot is taken", || {
            (stats(store, "q")["unack"] == 1).then_some(())
        });
        send_slow(store, "a", (1500, "1"));
        send_slow(store, "b", (1, "1"));
        // What is set aside was found behind all the others.
        eventually("the last is found", || {
            (stats(store, "q")["pending"] == 1).then_some(())
        });
        let now = stats(store, "q");
        assert_eq!((&now["unack"], &now["ready"]), (&1.into(), &1500.into()));
    });
}

#[test]
fn hosts_use_all_slots_for_one_tenant_and_end_when_all_are_handled() {
    with_each_store(|store| {
        send_slow(store, "a", (150, "1"));
        send_slow(store, "", (5, "1"));
        let handler = guest("sleeper");
        let args = [
            "--queue",
            "q",
            "--handler",
            handler.to_str().unwrap(),
            "--fair-by",
            "header:tenant",
            "--exit-when-empty",
        ];
        run(Some(store), &args, 0);
        assert_eq!(stats(store, "q")["totals"]["acked"], 155);
    });
}

#[test]
fn wrong_turns_are_refused_with_what_is_wanted() {
    for (args, wanted) in [
        (&["--fair-by", "tenant"][..], "header:customer"),
        (&["--fair-by", "header:"], "header:customer"),
        (
            &[
                "--fair-by",
                "header:a",
                "--limit-by",
                "header:b",
                "--rate",
                "5/s",
            ],
            "do not go together",
        ),
        (
            &["--fair-by", "header:a", "--limit-by", "header:a"],
            "do not go together",
        ),
        (&["--fair-weight", "big=3"], "--fair-weight needs --fair-by"),
        (&["--fair-by", "header:a", "--fair-weight", "big"], "NAME=N"),
        (&["--fair-by", "header:a", "--fair-weight", "=2"], "NAME=N"),
        (
            &["--fair-by", "header:a", "--fair-weight", "big=0"],
            "from 1 to 100",
        ),
        (
            &["--fair-by", "header:a", "--fair-weight", "big=many"],
            "from 1 to 100",
        ),
        (
            &["--fair-by", "header:a", "--fair-weight", "big=2,big=3"],
            "\"big\" has two weights, 2 and 3",
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
