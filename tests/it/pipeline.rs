//! The whole way of many messages, with the real program.

use std::collections::HashMap;

use base64::Engine;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::support::{
    Host, RedisServer, eventually, expect, guest, send_patiently, stats, stdout, with_message,
};

/// The number of messages: `DQHOST_TEST_MESSAGES`, else 20,000.
fn messages() -> usize {
    std::env::var("DQHOST_TEST_MESSAGES").map_or(20_000, |n| n.parse().unwrap())
}

/// Lines for `send --ndjson`: random bytes of 0 to 64 KiB behind their SHA-256, due now or within
/// 5 seconds. Each has an idempotency key that starts with `keys`.
fn lines(count: usize, random: &mut fastrand::Rng, keys: &str) -> Vec<u8> {
    let mut lines = Vec::new();
    for n in 0..count {
        let mut body = vec![0; random.usize(..=65_536 - 32)];
        random.fill(&mut body);
        let mut payload = Sha256::digest(&body).to_vec();
        payload.extend(body);
        let text = base64::engine::general_purpose::STANDARD.encode(payload);
        let delay = if random.bool() { 0 } else { random.u32(..5000) };
        let line: Value = json!({
            "payload_base64": text,
            "in": format!("{delay}ms"),
            "idempotency_key": format!("{keys}-{n}"),
            "dedup_window": "1h",
        });
        lines.extend(line.to_string().into_bytes());
        lines.push(b'\n');
    }
    lines
}

#[test]
fn every_message_of_many_senders_is_acked_once_by_one_of_many_hosts_on_redis() {
    let server = RedisServer::start();
    every_message_is_acked_once(&server.url());
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.sort();
    assert_eq!(
        keys,
        [
            "dqhost:queues",
            "{dp:default}:dedup",
            "{dp:default}:ended",
            "{dp:default}:stats"
        ]
    );
}

#[test]
fn every_message_of_many_senders_is_acked_once_by_one_of_many_hosts_on_a_file() {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("dqhost.db");
    every_message_is_acked_once(db.to_str().unwrap());
    let left: i64 = rusqlite::Connection::open(&db)
        .unwrap()
        .query_row("SELECT count(*) FROM messages", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

fn every_message_is_acked_once(store: &str) {
    let handler = guest("checksum");
    // On a busy machine a host may get no processor for longer than the lease of 15 s.
    let handler = handler.to_str().unwrap();
    let args = ["--handler", handler, "--slots", "8", "--lease", "10m"];
    let mut hosts: Vec<Host> = (0..3).map(|_| Host::start(store, &args)).collect();

    let count = messages() / 2;
    let senders: Vec<_> = [1, 2]
        .map(|seed| {
            let store = store.to_owned();
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut ids = Vec::new();
                let mut left = count;
                while left > 0 {
                    let some = left.min(2500);
                    let keys = format!("{seed}-{left}");
                    let lines = lines(some, &mut random, &keys);
                    let output = expect(send_patiently(&store, "default", &lines), 0);
                    ids.extend(stdout(&output).lines().map(str::to_owned));
                    left -= some;
                }
                ids
            })
        })
        .into_iter()
        .collect();
    let sent: Vec<String> = senders
        .into_iter()
        .flat_map(|s| s.join().unwrap())
        .collect();
    assert_eq!(sent.len(), count * 2);

    let total = sent.len() as u64;
    eventually("everything is acked", || {
        (stats(store, "default")["totals"]["acked"] == total).then_some(())
    });
    // A host that ends waits for a second at most until its log is read.
    eventually("the logs say so", || {
        let acked = hosts.iter_mut().map(|host| host.count("acked"));
        (acked.sum::<usize>() >= sent.len()).then_some(())
    });
    let mut acked: HashMap<String, usize> = HashMap::new();
    for host in hosts {
        host.signal(rustix::process::Signal::TERM);
        let (status, lines) = host.end();
        assert!(status.success());
        for line in with_message(&lines, "acked") {
            *acked
                .entry(line["id"].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
    }
    let others = sent.iter().map(|id| (id, acked.get(id)));
    let others: Vec<_> = others.filter(|(_, times)| *times != Some(&1)).collect();
    assert_eq!(others, []);
    assert_eq!(acked.len(), sent.len());
    let stats = stats(store, "default");
    for zero in ["pending", "ready", "unack", "retry", "dead"] {
        assert_eq!(stats[zero], 0, "{stats}");
    }
    for zero in ["nacked", "rejected", "expired", "dead"] {
        assert_eq!(stats["totals"][zero], 0, "{stats}");
    }
}
