//! Who serves a queue.

use std::time::Duration;

use dqhost::store::{HostInfo, Store};

use super::tools::*;
use crate::support::PATIENCE;

fn host(id: &str) -> HostInfo {
    HostInfo {
        id: id.to_owned(),
        version: "0.1.0".to_owned(),
        handler: "ab".to_owned(),
        slots: 4,
        in_flight: 1,
    }
}

/// What the hosts say of themselves.
async fn hosts(store: &dyn Store) -> Vec<HostInfo> {
    let hosts = store.hosts(&queue(), LONG).await.unwrap();
    hosts.into_iter().map(|seen| seen.info).collect()
}

pub(crate) async fn hosts_are_seen_until_they_leave(store: &dyn Store) {
    for id in ["b", "a"] {
        store.heartbeat(&queue(), &host(id), LONG).await.unwrap();
    }
    store.heartbeat(&queue(), &host("a"), LONG).await.unwrap();
    assert_eq!(hosts(store).await, [host("a"), host("b")]);
    store.leave(&queue(), "a").await.unwrap();
    assert_eq!(hosts(store).await, [host("b")]);
    store.leave(&queue(), "never here").await.unwrap();
    assert_eq!(hosts(store).await, [host("b")]);
    // Nobody has been heard of within no time at all.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert!(
        store
            .hosts(&queue(), Duration::ZERO)
            .await
            .unwrap()
            .is_empty()
    );
    // One that has been silent for longer than another allows is forgotten.
    let forget_b = async {
        while hosts(store).await != [host("c")] {
            store.heartbeat(&queue(), &host("c"), SHORT).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, forget_b).await.unwrap();
}

pub(crate) async fn hosts_tell_how_long_ago_they_were_seen(store: &dyn Store) {
    store.heartbeat(&queue(), &host("a"), LONG).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    store.heartbeat(&queue(), &host("b"), LONG).await.unwrap();
    let hosts = store.hosts(&queue(), LONG).await.unwrap();
    let [a, b] = &hosts[..] else {
        panic!("{hosts:?}")
    };
    assert!(a.seen_ms_ago >= b.seen_ms_ago + 20, "{hosts:?}");
    assert!(
        u128::from(a.seen_ms_ago) < PATIENCE.as_millis(),
        "{hosts:?}"
    );
}
