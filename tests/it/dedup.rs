//! What stays of the ids that are sent once: as many as count, and not for ever.

use std::time::Duration;

use dqhost::message::{MessageId, NewMessage};
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use dqhost::store::{HOST_SILENCE, HostInfo, Settlement, Store};
use tempfile::TempDir;

use crate::contract::tools::{queue, reserve_one, settle};
use crate::support::{PATIENCE, RedisServer};

/// Sends a message under a new id and handles it. Returns the unix ms at which it was due.
async fn handle_one(store: &dyn Store, window: Duration) -> u64 {
    let message = NewMessage {
        dedup_window: window,
        ..NewMessage::new("x")
    };
    let sent = store.send(&queue(), &[message]).await.unwrap();
    let delivery = reserve_one(store, Duration::from_mins(10)).await;
    settle(store, &delivery.claim, Settlement::ACK).await;
    sent[0].due_at_ms.unwrap()
}

/// Until the store's clock is past this, as its own messages tell.
async fn wait_until_past(store: &dyn Store, unix_ms: u64) {
    let limit = tokio::time::Instant::now() + PATIENCE;
    while handle_one(store, Duration::ZERO).await <= unix_ms {
        assert!(tokio::time::Instant::now() < limit);
    }
}

async fn those_that_are_over_are_taken_out(store: &dyn Store, kept: impl AsyncFn() -> isize) {
    let mut last = 0;
    for _ in 0..20 {
        last = handle_one(store, Duration::from_millis(1)).await;
    }
    wait_until_past(store, last + 1).await;
    let hour = Duration::from_hours(1);
    for _ in 0..10 {
        handle_one(store, hour).await;
    }
    assert_eq!(kept().await, 10);
    // Those without a window leave nothing.
    handle_one(store, Duration::ZERO).await;
    assert_eq!(kept().await, 10);
    // When nothing more is sent, a host sees to it.
    let last = handle_one(store, Duration::from_millis(1)).await;
    assert_eq!(kept().await, 11);
    wait_until_past(store, last + 1).await;
    let host = HostInfo {
        id: "host".to_owned(),
        version: String::new(),
        handler: String::new(),
        slots: 1,
        in_flight: 0,
    };
    store
        .heartbeat(&queue(), &host, HOST_SILENCE)
        .await
        .unwrap();
    assert_eq!(kept().await, 10);
    // Many in one send, too.
    let batch: Vec<NewMessage> = std::iter::repeat_with(|| NewMessage {
        id: MessageId::new(),
        dedup_window: hour,
        ..NewMessage::new("x")
    })
    .take(1500)
    .collect();
    store.send(&queue(), &batch).await.unwrap();
    assert_eq!(kept().await, 1510);
}

#[tokio::test]
async fn redis_keeps_no_ids_that_are_over() {
    let server = RedisServer::start();
    let store = server.store().await;
    let kept = async || server.command::<isize>(&["ZCARD", "{dp:q}:dedup"]);
    those_that_are_over_are_taken_out(&*store, kept).await;
}

#[tokio::test]
async fn a_file_keeps_no_ids_that_are_over() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = SqliteStore::open(&SqliteOptions::file(path.clone()))
        .await
        .unwrap();
    let kept = async || {
        let file = rusqlite::Connection::open(&path).unwrap();
        file.query_row("SELECT count(*) FROM dedup", [], |row| row.get(0))
            .unwrap()
    };
    those_that_are_over_are_taken_out(&store, kept).await;
}
