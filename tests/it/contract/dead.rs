//! Dead letters, and what people and hosts see.

use std::time::Duration;

use dqhost::message::{Due, HistoryEntry, MessageId, NewMessage, State};
use dqhost::store::{HostInfo, Page, Redriven, Retention, Settled, Settlement, Store};

use super::tools::*;
use crate::support::PATIENCE;

/// A message that is rejected and dead-lettered.
async fn dead_letter(store: &dyn Store, payload: &str, retries: u32) -> MessageId {
    let id = send(store, payload, Due::NOW, retries).await;
    let claim = reserve_one(store, LONG).await.claim;
    assert_eq!(settle(store, &claim, reject()).await, Settled::Done);
    collect_garbage(store).await;
    id
}

pub(crate) async fn a_reject_is_final(store: &dyn Store) {
    let id = send(store, "bad", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    assert_eq!(settle(store, &claim, reject()).await, Settled::Done);
    // Counted as dead at once, whether or not it is one yet.
    assert_eq!(depths(store).await, [0, 0, 0, 0, 1]);
    collect_garbage(store).await;
    assert_eq!(depths(store).await, [0, 0, 0, 0, 1]);
    assert_eq!(state_of(store, &id).await, Some(State::Dead));
    assert!(reserve(store, 1, LONG).await.is_empty());
    let totals = store.counts(&queue()).await.unwrap().totals;
    assert_eq!((totals.rejected, totals.dead), (1, 1));
}

pub(crate) async fn a_dead_letter_keeps_what_is_known(store: &dyn Store) {
    let headers = vec![("k".to_owned(), "v".to_owned())];
    let message = NewMessage {
        retries: 1,
        headers: headers.clone(),
        ..NewMessage::new("payload")
    };
    store.send(&queue(), &[message.clone()]).await.unwrap();
    for reason in ["first", "second"] {
        let claim = reserve_one(store, LONG).await.claim;
        let how = Settlement::Nack {
            delay: None,
            attempt: attempt(reason),
        };
        settle(store, &claim, how).await;
    }
    collect_garbage(store).await;
    let record = store.get(&queue(), &message.id).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.attempts, record.retries_left),
        (State::Dead, 2, 0)
    );
    assert_eq!(record.payload.as_deref(), Some(b"payload".as_slice()));
    assert_eq!(record.headers, headers);
    assert!(record.at_ms.is_some());
    let expected = ["first", "second"].map(|reason| HistoryEntry::Attempt(attempt(reason)));
    assert_eq!(record.history, expected);
}

pub(crate) async fn a_redrive_is_a_new_message_with_the_whole_budget(store: &dyn Store) {
    let headers = vec![("k".to_owned(), "v".to_owned())];
    let message = NewMessage {
        retries: 2,
        headers: headers.clone(),
        ..NewMessage::new("again")
    };
    store.send(&queue(), &[message.clone()]).await.unwrap();
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    let ids = [message.id.clone(), message.id.clone(), MessageId::new()];
    let answers = store.redrive(&queue(), &ids, None).await.unwrap();
    let Redriven::As(new) = &answers[0] else {
        panic!("{answers:?}")
    };
    assert_eq!(answers[1..], [Redriven::Unknown, Redriven::Unknown]);
    assert_ne!(*new, message.id);
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(state_of(store, &message.id).await, None);
    let delivery = reserve_one(store, LONG).await;
    assert_eq!(
        (&delivery.claim.id, delivery.attempt, delivery.attempts_max),
        (new, 1, 3)
    );
    assert_eq!(delivery.payload.as_deref(), Some(b"again".as_slice()));
    assert_eq!(delivery.headers, headers);
    let record = store.get(&queue(), new).await.unwrap().unwrap();
    assert!(matches!(&record.history[..],
        [HistoryEntry::Redriven { redriven_from, .. }] if *redriven_from == message.id.as_str()));
    assert_eq!(
        settle(store, &delivery.claim, Settlement::ACK).await,
        Settled::Done
    );
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn a_redrive_can_set_the_retries(store: &dyn Store) {
    let id = dead_letter(store, "a", 3).await;
    store.redrive(&queue(), &[id], Some(0)).await.unwrap();
    assert_eq!(reserve_one(store, LONG).await.attempts_max, 1);
}

pub(crate) async fn a_deleted_dead_letter_is_gone(store: &dyn Store) {
    let id = dead_letter(store, "a", 3).await;
    let live = send(store, "live", Due::NOW, 3).await;
    let ids = [id.clone(), id.clone(), live.clone()];
    assert_eq!(
        store.delete_dead(&queue(), &ids).await.unwrap(),
        [true, false, false]
    );
    assert_eq!(state_of(store, &id).await, None);
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(
        store.redrive(&queue(), &[id, live], None).await.unwrap(),
        [Redriven::Unknown, Redriven::Unknown]
    );
}

pub(crate) async fn dead_letters_past_their_retention_are_named(store: &dyn Store) {
    let past = async |age, number| {
        let retention = Retention { age, number };
        store.past_retention(&queue(), retention).await.unwrap()
    };
    assert_eq!(past(Some(Duration::ZERO), Some(0)).await, []);
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(dead_letter(store, &format!("payload {n}"), 3).await);
    }
    send(store, "alive", Due::NOW, 3).await;
    assert_eq!(past(None, None).await, []);
    assert_eq!(past(Some(LONG), Some(3)).await, []);
    assert_eq!(past(Some(Duration::ZERO), None).await, ids);
    assert_eq!(past(None, Some(2)).await, ids[..1]);
    assert_eq!(past(Some(LONG), Some(2)).await, ids[..1]);
    assert_eq!(past(None, Some(0)).await.len(), 3);
    let other = "other".parse().unwrap();
    let retention = Retention {
        age: Some(Duration::ZERO),
        number: Some(0),
    };
    assert_eq!(store.past_retention(&other, retention).await.unwrap(), []);
}

pub(crate) async fn dead_letters_are_listed_latest_first_in_pages(store: &dyn Store) {
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(dead_letter(store, &format!("payload {n}"), 3).await);
    }
    let page = |offset| Page {
        offset,
        limit: 2,
        payload_max: 7,
    };
    let mut listed = Vec::new();
    for offset in [0, 2, 4] {
        listed.extend(
            store
                .list(&queue(), State::Dead, page(offset))
                .await
                .unwrap(),
        );
    }
    assert_eq!(listed.len(), 5);
    for record in &listed {
        assert_eq!(record.payload.as_deref(), Some(b"payload".as_slice()));
        assert_eq!(record.last_attempt().unwrap().reason, "never");
    }
    // Those of one millisecond may come in any order.
    let times: Vec<_> = listed.iter().map(|record| record.at_ms).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    let mut listed: Vec<_> = listed.into_iter().map(|record| record.id).collect();
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
    assert!(
        store
            .list(&queue(), State::Dead, page(5))
            .await
            .unwrap()
            .is_empty()
    );
    // The other states: next out first.
    let waiting = [
        send(store, "one", Due::NOW, 3).await,
        send(store, "two", Due::NOW, 3).await,
    ];
    let page = Page {
        offset: 0,
        limit: 10,
        payload_max: 0,
    };
    let ready = store.list(&queue(), State::Ready, page).await.unwrap();
    assert_eq!(
        ready.iter().map(|record| &record.id).collect::<Vec<_>>(),
        [&waiting[0], &waiting[1]]
    );
    assert!(ready.iter().all(|record| record.payload.is_none()));
    let page = Page {
        payload_max: 1,
        ..page
    };
    let ready = store.list(&queue(), State::Ready, page).await.unwrap();
    assert_eq!(ready[0].payload.as_deref(), Some(b"o".as_slice()));
    for state in [State::Pending, State::Unack, State::Retry, State::Garbage] {
        assert!(store.list(&queue(), state, page).await.unwrap().is_empty());
    }
}

pub(crate) async fn what_is_no_dead_letter_yet_is_listed_in_pages(store: &dyn Store) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(send(store, "a", Due::NOW, 3).await);
        let claim = reserve_one(store, LONG).await.claim;
        settle(store, &claim, reject()).await;
    }
    // One that was dead-lettered meanwhile is dead.
    let mut listed = Vec::new();
    for state in [State::Garbage, State::Dead] {
        for offset in (0..).step_by(2) {
            let page = Page {
                offset,
                limit: 2,
                payload_max: 0,
            };
            let records = store.list(&queue(), state, page).await.unwrap();
            let is_last = records.is_empty();
            listed.extend(records.into_iter().map(|record| record.id));
            if is_last {
                break;
            }
            assert!(listed.len() <= ids.len(), "{listed:?}");
        }
    }
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
}

pub(crate) async fn the_history_is_bounded(store: &dyn Store) {
    let id = send(store, "a", Due::NOW, 40).await;
    for n in 0..30 {
        let claim = reserve_one(store, LONG).await.claim;
        let how = Settlement::Nack {
            delay: None,
            attempt: attempt(&n.to_string()),
        };
        settle(store, &claim, how).await;
    }
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    let expected: Vec<_> = (10..30)
        .map(|n: i32| HistoryEntry::Attempt(attempt(&n.to_string())))
        .collect();
    assert_eq!(record.history, expected);
    assert_eq!(record.attempts, 30);
    // By size as well: of long attempts fewer are kept, and always the last.
    let long = |n: usize| attempt(&format!("{n} {}", "x".repeat(1500)));
    for n in 0..5 {
        let claim = reserve_one(store, LONG).await.claim;
        let how = Settlement::Nack {
            delay: None,
            attempt: long(n),
        };
        settle(store, &claim, how).await;
    }
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    let kept = record.history.len();
    assert!((2..5).contains(&kept), "{kept}");
    let expected: Vec<_> = (5 - kept..5)
        .map(|n| HistoryEntry::Attempt(long(n)))
        .collect();
    assert_eq!(record.history, expected);
}

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

pub(crate) async fn a_wait_ends_with_a_send(store: &dyn Store) {
    let hints = store.subscribe(&[queue()]);
    // A first wait may end by itself, since something may have happened before it.
    for _ in 0..3 {
        let waited = async {
            tokio::join!(hints.notified(), async {
                // Until it is heard: a hint may be lost before the wait is set up.
                for n in 0..50 {
                    send(store, &n.to_string(), Due::NOW, 3).await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        };
        tokio::time::timeout(PATIENCE, waited)
            .await
            .expect("no wait ended");
    }
    let claims: Vec<_> = reserve(store, 150, LONG).await;
    assert_eq!(claims.len(), 150);
}
