//! An audit that repairs, again and again, while others work: it finds nothing, and breaks nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use dqhost::store::{First, Reservation, StoreError};
use tempfile::TempDir;

use super::*;
use crate::support::{Host, PATIENCE, RedisServer, guest, stats};

/// Messages, by two producers.
const MESSAGES: usize = 3000;
const BATCH: usize = 25;

const REPAIR: Audit = Audit {
    repair: true,
    settling: AT_ONCE,
};

/// What a call answers once it gets its turn. A file may be locked for longer than a call waits, when the
/// disk is slow: then nothing was done, and a host asks again as well.
macro_rules! in_its_turn {
    ($call:expr) => {
        loop {
            match $call.await {
                Err(StoreError::Unreachable { reason, .. }) if reason.contains("locked") => {}
                answer => break answer.unwrap(),
            }
        }
    };
}

async fn produce(store: Arc<dyn Store>) {
    for batch in 0..MESSAGES / BATCH / 2 {
        let messages: Vec<NewMessage> = (0..BATCH)
            .map(|n| NewMessage {
                due: Due::In(Duration::from_millis(((batch + n) % 3) as u64)),
                headers: vec![("k".to_owned(), n.to_string())],
                ..NewMessage::new("x")
            })
            .collect();
        in_its_turn!(store.send(&queue(), &messages));
        tokio::task::yield_now().await;
    }
}

/// Handles messages until so many are acked: each fails, waits, or is given back before that.
async fn handle(store: Arc<dyn Store>, acked: Arc<AtomicUsize>) -> HashMap<MessageId, usize> {
    let wanted = Reservation {
        max: 20,
        lease: LONG,
        first: First::Ready,
        retries_default: 3,
    };
    let mut ours = HashMap::new();
    let mut turn = 0_usize;
    while acked.load(Ordering::SeqCst) < MESSAGES {
        in_its_turn!(store.advance(&queue()));
        let deliveries = in_its_turn!(store.reserve(&queue(), wanted));
        let claims: Vec<Claim> = deliveries.iter().map(|d| d.claim.clone()).collect();
        in_its_turn!(store.extend(&queue(), &claims, LONG));
        let mut settlements = Vec::new();
        for delivery in deliveries {
            assert!(delivery.payload.is_some());
            turn += 1;
            let how = match (delivery.attempt, turn % 4) {
                (1, 0) => nack(None),
                (1, 1) => nack(Some(SHORT)),
                (1, 2) => {
                    let claim = [delivery.claim];
                    let released = in_its_turn!(store.release(&queue(), &claim));
                    assert_eq!(released, [Settled::Done]);
                    continue;
                }
                _ => Settlement::ACK,
            };
            settlements.push((delivery.claim, how));
        }
        let settled = in_its_turn!(store.settle(&queue(), &settlements));
        for ((claim, how), settled) in settlements.into_iter().zip(settled) {
            assert_eq!(settled, Settled::Done);
            if how == Settlement::ACK {
                *ours.entry(claim.id).or_default() += 1;
                acked.fetch_add(1, Ordering::SeqCst);
            }
        }
        tokio::task::yield_now().await;
    }
    ours
}

/// Audits and repairs until the work is done; returns how often.
async fn audit_until_done(store: &dyn Store, acked: &AtomicUsize) -> usize {
    for n in 0.. {
        let is_over = acked.load(Ordering::SeqCst) >= MESSAGES;
        let report = in_its_turn!(store.audit_store(true));
        assert_eq!(report, AuditReport::default());
        let report = in_its_turn!(store.audit(&queue(), REPAIR));
        assert_eq!(report, AuditReport::default());
        if is_over {
            return n;
        }
    }
    0
}

/// Each with a store of its own, as if they were processes.
async fn work_is_not_disturbed(stores: [Arc<dyn Store>; 5]) {
    let acked = Arc::new(AtomicUsize::new(0));
    let [one, two, three, four, auditor] = stores;
    let producers = [one, two].map(|store| tokio::spawn(produce(store)));
    let hosts = [three, four].map(|store| tokio::spawn(handle(store, Arc::clone(&acked))));
    let work = audit_until_done(&*auditor, &acked);
    let audits = tokio::time::timeout(PATIENCE, work).await.unwrap();
    assert!(audits > 1, "{audits}");
    for producer in producers {
        producer.await.unwrap();
    }
    let mut ids = HashMap::new();
    for host in hosts {
        for (id, times) in host.await.unwrap() {
            *ids.entry(id).or_insert(0) += times;
        }
    }
    assert_eq!(ids.len(), MESSAGES);
    assert!(ids.values().all(|times| *times == 1));
    assert_eq!(depths(&*auditor).await, [0; 5]);
    let totals = auditor.counts(&queue()).await.unwrap().totals;
    assert_eq!(
        (totals.sent, totals.acked),
        (MESSAGES as u64, MESSAGES as u64)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn in_redis_work_is_not_disturbed() {
    let server = RedisServer::start();
    let store = async || server.store().await;
    let stores = [
        store().await,
        store().await,
        store().await,
        store().await,
        store().await,
    ];
    work_is_not_disturbed(stores).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_file_work_is_not_disturbed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = async || {
        let opened = SqliteStore::open(&SqliteOptions::file(&path)).await;
        let store: Arc<dyn Store> = Arc::new(opened.unwrap());
        store
    };
    let stores = [
        store().await,
        store().await,
        store().await,
        store().await,
        store().await,
    ];
    work_is_not_disturbed(stores).await;
}

/// The same with a host of the real program, and with damage: only that is found.
#[tokio::test]
async fn beside_a_host_only_what_is_damaged_is_mended() {
    let server = RedisServer::start();
    let store = server.store().await;
    let handler = format!("q={}", guest("echo").display());
    let host = Host::start(&server.url(), &["--queue", &handler]);
    let sent = 400;
    let mut orphans = 0;
    let mut dead_lettered = 0;
    for n in 0..sent {
        store.send(&queue(), &[NewMessage::new("x")]).await.unwrap();
        if n % 40 == 0 {
            let key = format!("{{dp:q}}:msg:orphan {n}");
            let () = server.command(&["SET", &key, "x"]);
            orphans += 1;
            for findings in audit(&*store, true).await.0 {
                assert_eq!(findings.kind, FindingKind::OrphanPayload);
                dead_lettered += findings.dead_lettered;
            }
        }
    }
    assert_eq!(dead_lettered, orphans);
    crate::support::eventually("all are acked", || {
        (stats(&server.url(), "q")["totals"]["acked"] == sent).then_some(())
    });
    assert_eq!(depths(&*store).await, [0, 0, 0, 0, orphans]);
    drop(host);
}
