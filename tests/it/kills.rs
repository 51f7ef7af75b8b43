//! Hosts that are killed again and again on one file, under load: the file stays whole, and every
//! accepted message ends once.
//!
//! `DQHOST_TEST_KILLS` is the number of kills instead of 30; `DQHOST_TEST_SEED` gives other moments.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dqhost::message::{MessageId, NewMessage, QueueName, State};
use dqhost::store::Store;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{PATIENCE, dqhost, guest};

/// The longest time that a host lives; its start takes a part of it, so some die in the middle.
const LIFE_MS_MAX: u64 = 400;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap())
}

fn start(db: &str, more: &[&str]) -> Child {
    let fast = format!("fast={}", guest("noop").display());
    let slow = format!("slow={}", guest("flaky").display());
    let queues = [
        "--queue", &fast, "--queue", &slow, "--lease", "500ms", "--log", "off",
    ];
    dqhost(Some(db), &[&queues, more].concat())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Sends to both queues while there are kills; returns what was accepted, by queue.
async fn keep_sending(
    store: Arc<dyn Store>,
    stop: Arc<AtomicBool>,
) -> HashMap<QueueName, Vec<MessageId>> {
    let mut accepted: HashMap<QueueName, Vec<MessageId>> = HashMap::new();
    while !stop.load(Ordering::SeqCst) {
        for (name, retries) in [("fast", 1_000_000), ("slow", 2)] {
            let queue: QueueName = name.parse().unwrap();
            let counts = store.counts(&queue).await.unwrap();
            if counts.ready + counts.retry > 200 {
                continue;
            }
            // Those of slow are acked at the second attempt, if a kill leaves them that.
            let batch: Vec<NewMessage> = (0..50)
                .map(|_| NewMessage {
                    retries,
                    ..NewMessage::new("2")
                })
                .collect();
            for sent in store.send(&queue, &batch).await.unwrap() {
                assert!(sent.due_at_ms.is_some());
                accepted.entry(queue.clone()).or_default().push(sent.id);
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    accepted
}

fn integrity(db: &Path) -> String {
    let connection = Connection::open(db).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn a_file_whose_hosts_are_killed_stays_whole_and_loses_nothing() {
    let kills = number("DQHOST_TEST_KILLS", 30);
    let mut random = fastrand::Rng::with_seed(number("DQHOST_TEST_SEED", 1));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let db = path.to_str().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store: Arc<dyn Store> = Arc::new(
        runtime
            .block_on(SqliteStore::open(&SqliteOptions::file(&path)))
            .unwrap(),
    );
    let stop = Arc::new(AtomicBool::new(false));
    let sender = runtime.spawn(keep_sending(Arc::clone(&store), Arc::clone(&stop)));

    let begin = Instant::now();
    let mut hosts = [start(db, &[]), start(db, &[])];
    for kill in 0..kills {
        std::thread::sleep(Duration::from_millis(random.u64(..LIFE_MS_MAX)));
        let host = &mut hosts[usize::from(random.bool())];
        assert!(host.try_wait().unwrap().is_none(), "a host ended by itself");
        host.kill().unwrap();
        host.wait().unwrap();
        assert_eq!(integrity(&path), "ok", "after kill {kill}");
        *host = start(db, &[]);
    }
    stop.store(true, Ordering::SeqCst);
    let accepted = runtime.block_on(sender).unwrap();
    for mut host in hosts {
        host.kill().unwrap();
        host.wait().unwrap();
    }
    assert!(start(db, &["--exit-when-empty"]).wait().unwrap().success());
    assert_eq!(integrity(&path), "ok");

    for (queue, ids) in accepted {
        let counts = runtime.block_on(store.counts(&queue)).unwrap();
        let sent = ids.len() as u64;
        assert!(counts.is_drained(), "{queue}: {counts:?}");
        assert_eq!(counts.totals.sent, sent);
        let mut dead = 0;
        for id in &ids {
            if let Some(record) = runtime.block_on(store.get(&queue, id)).unwrap() {
                assert_eq!(record.state, State::Dead, "{queue} {id}");
                dead += 1;
            }
        }
        // Each that is gone was acked, and nothing was acked or dead-lettered a second time.
        assert_eq!(counts.totals.acked, sent - dead, "{queue}: {counts:?}");
        assert_eq!((counts.totals.dead, counts.dead), (dead, dead));
        println!(
            "{queue}: {sent} sent, {} acked, {dead} dead, {} leases ended, {kills} kills in {:?}",
            counts.totals.acked,
            counts.totals.expired,
            begin.elapsed(),
        );
        assert!(counts.totals.acked > 0);
    }
}
