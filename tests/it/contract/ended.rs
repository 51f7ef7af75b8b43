//! How messages ended, as hosts tell it and operators see it.

use std::time::Duration;

use dqhost::message::Due;
use dqhost::store::{BATCH_MAX, End, Ended, Store};

use super::tools::*;

async fn keep(store: &dyn Store, ids: impl IntoIterator<Item = usize>, keep: usize) {
    let one = |n: usize| (ended(&n.to_string(), End::Acked), Duration::ZERO);
    let told: Vec<_> = ids.into_iter().map(one).collect();
    store.keep_ended(&queue(), &told, keep).await.unwrap();
}

/// The ids of a page, as numbers.
async fn ids(store: &dyn Store, offset: usize, limit: usize) -> Vec<usize> {
    let ended = store.ended(&queue(), offset, limit).await.unwrap();
    ended
        .iter()
        .map(|ended| ended.id.as_str().parse().unwrap())
        .collect()
}

pub(crate) async fn the_latest_are_told_and_the_oldest_forgotten(store: &dyn Store) {
    assert!(ids(store, 0, 10).await.is_empty());
    send(store, "makes the queue", Due::NOW, 3).await;
    for n in 0..3 {
        keep(store, [2 * n, 2 * n + 1], 4).await;
    }
    assert_eq!(ids(store, 0, 10).await, [5, 4, 3, 2]);
    assert_eq!(ids(store, 1, 2).await, [4, 3]);
    assert!(ids(store, 4, 2).await.is_empty());
    assert!(ids(store, usize::MAX, usize::MAX).await.is_empty());
    assert!(ids(store, 0, 0).await.is_empty());
    // One by one.
    for n in 6..16 {
        keep(store, [n], 4).await;
    }
    assert_eq!(ids(store, 0, 10).await, [15, 14, 13, 12]);
    // More than one step takes, of which more than a page are kept.
    keep(store, 16..16 + 3 * BATCH_MAX, BATCH_MAX + 1).await;
    let last = 16 + 3 * BATCH_MAX - 1;
    assert_eq!(ids(store, 0, 2).await, [last, last - 1]);
    let first = ids(store, 0, usize::MAX).await;
    assert_eq!(first.len(), BATCH_MAX);
    assert_eq!(ids(store, BATCH_MAX, 1).await, [last - BATCH_MAX]);
    // A step that brought some of them may be there whole.
    assert!(ids(store, 2 * BATCH_MAX, 1).await.is_empty());
}

pub(crate) async fn what_ended_is_told_as_it_was_and_when_by_the_clock_of_the_store(
    store: &dyn Store,
) {
    send(store, "makes the queue", Due::NOW, 3).await;
    let died = Ended {
        due_at_ms: Some(1_700_000_000_000),
        class: "rejected".to_owned(),
        reason: "no \"such\"\norder \u{e9}".to_owned(),
        has_result: false,
        ..ended("of another\nform {}", End::Died)
    };
    let acked = ended("acked", End::Acked);
    let before = overview(store).await.now_ms;
    let told = [(died.clone(), LONG), (acked.clone(), Duration::ZERO)];
    store.keep_ended(&queue(), &told, 10).await.unwrap();
    let after = overview(store).await.now_ms;
    let kept = store.ended(&queue(), 0, 10).await.unwrap();
    let at: Vec<u64> = kept.iter().map(|ended| ended.at_ms).collect();
    let long = u64::try_from(LONG.as_millis()).unwrap();
    assert!((before..=after).contains(&at[0]), "{at:?}");
    assert!((before - long..=after - long).contains(&at[1]), "{at:?}");
    let untimed = kept.into_iter().map(|ended| Ended { at_ms: 0, ..ended });
    assert_eq!(untimed.collect::<Vec<_>>(), [acked, died]);
    // It is no message.
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(store.get(&queue(), &"acked".into()).await.unwrap(), None);
}

pub(crate) async fn nothing_is_kept_where_nothing_is_to_be_kept(store: &dyn Store) {
    // There is no such queue.
    keep(store, [1], 0).await;
    keep(store, [], 10).await;
    assert!(store.queues().await.unwrap().is_empty());
    send(store, "makes the queue", Due::NOW, 3).await;
    keep(store, [1], 10).await;
    keep(store, [2], 0).await;
    keep(store, [], 10).await;
    assert_eq!(ids(store, 0, 10).await, [1]);
}

async fn keep_results(store: &dyn Store, results: &[(&str, &[u8])], bytes_max: usize) {
    let results: Vec<_> = results
        .iter()
        .map(|(id, bytes)| ((*id).into(), bytes.to_vec()))
        .collect();
    store
        .keep_results(&queue(), &results, bytes_max)
        .await
        .unwrap();
}

async fn result(store: &dyn Store, id: &str) -> Option<Vec<u8>> {
    store.result(&queue(), &id.into()).await.unwrap()
}

pub(crate) async fn the_latest_results_are_kept_within_so_many_bytes(store: &dyn Store) {
    assert_eq!(result(store, "a").await, None);
    send(store, "makes the queue", Due::NOW, 3).await;
    keep_results(store, &[("a b", b"\xff\x00"), ("b", b"")], 10).await;
    assert_eq!(
        result(store, "a b").await.as_deref(),
        Some(&b"\xff\x00"[..])
    );
    assert_eq!(result(store, "b").await.as_deref(), Some(&b""[..]));
    keep_results(store, &[("none", b"x")], 0).await;
    assert_eq!(result(store, "none").await, None);
    // Of one id the latest.
    keep_results(store, &[("c", b"1234"), ("c", b"567")], 10).await;
    assert_eq!(result(store, "c").await.as_deref(), Some(&b"567"[..]));
    assert!(result(store, "a b").await.is_some());
    keep_results(store, &[("d", b"12")], 10).await;
    assert_eq!(result(store, "a b").await, None);
    assert!(result(store, "c").await.is_some());
    // One that is too large by itself takes the place of all.
    keep_results(store, &[("e", b"12345678901")], 10).await;
    for id in ["a b", "b", "c", "d", "e"] {
        assert_eq!(result(store, id).await, None, "{id}");
    }
    let many: Vec<String> = (0..BATCH_MAX + 5).map(|n| n.to_string()).collect();
    let many: Vec<_> = many.iter().map(|id| (id.as_str(), &b"x"[..])).collect();
    keep_results(store, &many, 1 << 20).await;
    assert_eq!(result(store, "4").await, None);
    assert!(result(store, "5").await.is_some());
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
}
