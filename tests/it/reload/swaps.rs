//! Handlers that are replaced while messages flow: none is lost, none is handled twice, and each attempt names the
//! handler that was current when it began.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dqhost::store::BATCH_MAX;
use dqhost::store::address::{self, StoreSettings};
use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{File, REFUSED, REPLACED, SetOnDrop, database, start};
use crate::contract::tools::now_ms;
use crate::support::{
    Host, RedisServer, dqhost, eventually, expect, feed, guest, stats, with_message,
};

/// How many builds of the handlers there are.
const BUILDS: u32 = 10;

/// How a host hears of another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Hangup,
    /// It looks by itself.
    Watch,
}

/// A build of one of two handlers, which take their time or do not.
fn build(number: u32) -> Vec<u8> {
    let example = if number.is_multiple_of(2) {
        "echo"
    } else {
        "sleeper"
    };
    let mut component = fs::read(guest(example)).unwrap();
    // A custom section: its number, its length, the length of its name, its name, what it holds.
    component.extend([0, 10, 5]);
    component.extend(b"build");
    component.extend(number.to_le_bytes());
    component
}

/// A handler, and the time in unix ms within which it became current.
struct Current {
    digest: String,
    from_ms: u64,
    to_ms: u64,
}

/// Replaces the handler so often; one file in ten is none. Returns which were current, in order.
fn replace(host: &mut Host, file: &File, (times, by): (u32, By)) -> Vec<Current> {
    let (mut current, mut refused) = (Vec::new(), 0);
    let change = |host: &Host, bytes: &[u8]| {
        file.set(bytes);
        if by == By::Hangup {
            host.signal(Signal::HUP);
        }
    };
    for n in 1..=times {
        if n.is_multiple_of(10) || by == By::Watch && n == 2 {
            change(host, b"not a component");
            refused += 1;
            host.wait_for_count(REFUSED, refused);
        }
        let from_ms = now_ms();
        change(host, &build(n % BUILDS));
        host.wait_for_count(REPLACED, n as usize);
        current.push(Current {
            digest: host.latest(REPLACED)["handler"]
                .as_str()
                .unwrap()
                .to_owned(),
            from_ms,
            to_ms: now_ms(),
        });
    }
    current
}

/// The digests of the handlers of all messages, by their ids.
fn handlers(store: &str) -> BTreeMap<String, String> {
    let read = async {
        let address = store.parse().unwrap();
        let store = address::open(&address, StoreSettings::default()).await;
        let (store, queue) = (store.unwrap(), "default".parse().unwrap());
        let mut found = BTreeMap::new();
        loop {
            let page = store.ended(&queue, found.len(), BATCH_MAX).await.unwrap();
            if page.is_empty() {
                return found;
            }
            let entries = page
                .into_iter()
                .map(|one| (one.id.to_string(), one.handler));
            found.extend(entries);
        }
    };
    tokio::runtime::Runtime::new().unwrap().block_on(read)
}

fn unix_ms(line: &Value) -> u64 {
    let time: Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
    time.as_millisecond().try_into().unwrap()
}

/// Each attempt names a handler that was current at some time between its reservation and the latest moment at which
/// it can have begun.
fn check_handlers(lines: &[Value], current: &[Current], named: &BTreeMap<String, String>) {
    let asked: BTreeMap<&str, u64> = with_message(lines, "reserved")
        .into_iter()
        .map(|line| {
            (
                line["id"].as_str().unwrap(),
                line["asked_at_ms"].as_u64().unwrap(),
            )
        })
        .collect();
    for line in with_message(lines, "acked") {
        let id = line["id"].as_str().unwrap();
        let took = Duration::from_secs_f64(line["took"].as_f64().unwrap());
        let took_ms = u64::try_from(took.as_millis()).unwrap();
        let (asked_ms, began_ms) = (asked[id], unix_ms(line) + 1 - took_ms);
        let named = &named[id];
        let was_current = |n: usize| {
            let until_ms = current.get(n + 1).map_or(u64::MAX, |next| next.to_ms);
            let Current {
                digest, from_ms, ..
            } = &current[n];
            digest == named && *from_ms <= began_ms && until_ms >= asked_ms
        };
        assert!(
            (0..current.len()).any(was_current),
            "{id} {named} from {asked_ms} to {began_ms}: {line}"
        );
    }
}

/// Messages flow while the handler is replaced.
fn replacements_lose_nothing(store: &str, (times, by): (u32, By)) {
    let folder = TempDir::new().unwrap();
    let file = File::new(&folder, "echo");
    let mut args = vec!["--handler", file.text(), "--slots", "64", "--log", "debug"];
    args.extend(["--keep-ended", "100000"]);
    args.extend((by == By::Watch).then_some("--watch"));
    let mut host = start(store, &args);
    let first = host.wait_for("serving", |_| true)["handler"]
        .as_str()
        .unwrap()
        .to_owned();
    let is_over = AtomicBool::new(false);
    let (sent, mut current) = std::thread::scope(|threads| {
        let producer = threads.spawn(|| {
            let mut sent = 0;
            while !is_over.load(Ordering::SeqCst) {
                let lines = "{\"payload\": \"20\"}\n".repeat(100);
                let command = dqhost(Some(store), &["send", "--ndjson"]);
                expect(feed(command, lines.as_bytes()), 0);
                sent += 100;
            }
            sent
        });
        // A failure ends the producer too, which the scope waits for.
        let ends = SetOnDrop(&is_over);
        let current = replace(&mut host, &file, (times, by));
        drop(ends);
        (producer.join().unwrap(), current)
    });
    let first = Current {
        digest: first,
        from_ms: 0,
        to_ms: 0,
    };
    current.insert(0, first);
    eventually("all are acked", || {
        (stats(store, "default")["totals"]["acked"] == sent).then_some(())
    });
    host.signal(Signal::TERM);
    let (status, lines) = host.end();
    assert!(status.success());
    let acked = with_message(&lines, "acked");
    let ids: BTreeSet<&str> = acked
        .iter()
        .map(|line| line["id"].as_str().unwrap())
        .collect();
    assert_eq!((acked.len(), ids.len()), (sent, sent));
    let totals = &stats(store, "default")["totals"];
    for name in ["nacked", "rejected", "expired", "released"] {
        assert_eq!(totals[name], 0, "{name}");
    }
    let stopped = with_message(&lines, "stopped")[0];
    assert_eq!(
        (&stopped["lost"], &stopped["stale"]),
        (&0.into(), &0.into())
    );
    let named = handlers(store);
    assert_eq!(named.len(), sent);
    check_handlers(&lines, &current, &named);
}

#[test]
fn a_hundred_replacements_lose_nothing_on_redis() {
    let server = RedisServer::start();
    replacements_lose_nothing(&server.url(), (100, By::Hangup));
}

#[test]
fn a_hundred_replacements_lose_nothing_on_a_file() {
    let folder = TempDir::new().unwrap();
    replacements_lose_nothing(&database(&folder), (100, By::Hangup));
}

#[test]
fn replacements_of_a_watched_file_lose_nothing() {
    let folder = TempDir::new().unwrap();
    replacements_lose_nothing(&database(&folder), (5, By::Watch));
}
