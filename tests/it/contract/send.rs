//! What goes in.

use std::time::Duration;

use dqhost::message::{Due, MessageId, NewMessage, Outgoing, State};
use dqhost::store::{Cancelled, Settled, Settlement, Store};

use super::tools::*;
use crate::support::PATIENCE;

pub(crate) async fn a_message_that_is_due_goes_to_ready(store: &dyn Store) {
    let id = send(store, "a", Due::NOW, 3).await;
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(state_of(store, &id).await, Some(State::Ready));
    assert_eq!(store.counts(&queue()).await.unwrap().totals.sent, 1);
}

pub(crate) async fn a_message_with_a_delay_waits_in_pending(store: &dyn Store) {
    let message = NewMessage {
        due: Due::In(Duration::from_hours(1)),
        ..NewMessage::new("later")
    };
    let sent = store.send(&queue(), &[message]).await.unwrap();
    let record = store.get(&queue(), &sent[0].id).await.unwrap().unwrap();
    assert_eq!(record.state, State::Pending);
    assert_eq!(record.at_ms, sent[0].due_at_ms);
    assert_eq!((record.attempts, record.retries_left), (0, 3));
    assert_eq!(store.advance(&queue()).await.unwrap().promoted, 0);
    assert!(reserve(store, 1, LONG).await.is_empty());
}

pub(crate) async fn a_time_that_has_passed_means_now(store: &dyn Store) {
    let id = send(store, "past", Due::At(1000), 3).await;
    assert_eq!(state_of(store, &id).await, Some(State::Ready));
}

pub(crate) async fn the_same_id_is_accepted_once(store: &dyn Store) {
    let message = NewMessage::new("first");
    let other = NewMessage {
        payload: b"second".to_vec(),
        ..message.clone()
    };
    assert!(
        store.send(&queue(), &[message.clone()]).await.unwrap()[0]
            .due_at_ms
            .is_some()
    );
    for batch in [vec![other.clone()], vec![other.clone(), other]] {
        for sent in store.send(&queue(), &batch).await.unwrap() {
            assert_eq!((sent.id, sent.due_at_ms), (message.id.clone(), None));
        }
    }
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(reserve_one(store, LONG).await.payload.unwrap(), b"first");
    // In one batch, too, only the first counts.
    let twin = NewMessage::new("twin");
    let sent = store.send(&queue(), &[twin.clone(), twin]).await.unwrap();
    assert!(sent[0].due_at_ms.is_some() && sent[1].due_at_ms.is_none());
    assert_eq!(depths(store).await, [0, 1, 1, 0, 0]);
}

pub(crate) async fn a_repeat_within_its_window_writes_nothing(store: &dyn Store) {
    let once = NewMessage {
        dedup_window: Duration::from_hours(1),
        ..NewMessage::new("once")
    };
    let is_new = async |message: &NewMessage| {
        let sent = store.send(&queue(), &[message.clone()]).await.unwrap();
        sent[0].due_at_ms.is_some()
    };
    assert!(is_new(&once).await);
    let delivery = reserve_one(store, LONG).await;
    assert!(!is_new(&once).await);
    assert_eq!(
        settle(store, &delivery.claim, Settlement::ACK).await,
        Settled::Done
    );
    // It is gone. One that comes with it, and one of another queue, are new.
    let other = NewMessage {
        id: MessageId::new(),
        ..once.clone()
    };
    let both = [once.clone(), other.clone()];
    let sent = store.send(&queue(), &both).await.unwrap();
    assert!(sent[0].due_at_ms.is_none() && sent[1].due_at_ms.is_some());
    assert_eq!(depths(store).await, [0, 1, 0, 0, 0]);
    assert_eq!(store.counts(&queue()).await.unwrap().totals.sent, 2);
    let elsewhere = "elsewhere".parse().unwrap();
    let sent = store.send(&elsewhere, &[once.clone()]).await.unwrap();
    assert!(sent[0].due_at_ms.is_some());
    // What an ack sends is looked at as well, and kept.
    let delivery = reserve_one(store, LONG).await;
    let along = NewMessage {
        id: MessageId::new(),
        ..once.clone()
    };
    let outbox = [&once, &along].map(|message| Outgoing {
        queue: queue(),
        message: message.clone(),
    });
    let outbox = outbox.to_vec();
    assert_eq!(
        settle(store, &delivery.claim, Settlement::Ack { outbox }).await,
        Settled::Done
    );
    let delivery = reserve_one(store, LONG).await;
    assert_eq!(delivery.claim.id, along.id);
    assert_eq!(
        settle(store, &delivery.claim, Settlement::ACK).await,
        Settled::Done
    );
    assert!(!is_new(&along).await);
    assert_eq!(depths(store).await, [0, 0, 0, 0, 0]);
    // Who does not ask does not hear of it.
    let unasked = NewMessage {
        dedup_window: Duration::ZERO,
        ..once
    };
    assert!(is_new(&unasked).await);
}

pub(crate) async fn a_window_lasts_from_the_due_time_and_then_ends(store: &dyn Store) {
    let window = Duration::from_millis(100);
    let message = NewMessage {
        due: Due::In(Duration::from_millis(300)),
        dedup_window: window,
        ..NewMessage::new("later")
    };
    let sent = store.send(&queue(), &[message.clone()]).await.unwrap();
    let end_ms = sent[0].due_at_ms.unwrap() + 100;
    // As if it had been handled.
    let cancelled = store.cancel(&queue(), &[message.id.clone()]).await.unwrap();
    assert_eq!(cancelled, [Cancelled::Done]);
    let again = NewMessage {
        due: Due::NOW,
        ..message
    };
    let limit = tokio::time::Instant::now() + PATIENCE;
    loop {
        let sent = store.send(&queue(), &[again.clone()]).await.unwrap();
        if let Some(due_ms) = sent[0].due_at_ms {
            assert!(due_ms >= end_ms, "{due_ms} is before {end_ms}");
            return;
        }
        assert!(tokio::time::Instant::now() < limit, "it does not end");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn payloads_and_headers_come_back_as_they_were_sent(store: &dyn Store) {
    let large = vec![7; 300_000];
    let payloads: [&[u8]; 4] = [b"", b"\x00\xff\r\n", "é\u{1f600}".as_bytes(), &large];
    let headers = vec![
        ("k".to_owned(), "v\n\"".to_owned()),
        ("k".to_owned(), String::new()),
    ];
    for payload in payloads {
        let message = NewMessage {
            headers: headers.clone(),
            ..NewMessage::new(payload)
        };
        store.send(&queue(), &[message.clone()]).await.unwrap();
        let record = store.get(&queue(), &message.id).await.unwrap().unwrap();
        assert_eq!(record.payload.as_deref(), Some(payload));
        assert_eq!(record.headers, headers);
        let delivery = reserve_one(store, LONG).await;
        assert_eq!(delivery.payload.as_deref(), Some(payload));
        assert_eq!(delivery.headers, headers);
        assert_eq!((delivery.attempt, delivery.attempts_max), (1, 4));
    }
}

pub(crate) async fn a_large_batch_is_accepted_whole(store: &dyn Store) {
    let batch: Vec<NewMessage> = (0..2500).map(|n| NewMessage::new(n.to_string())).collect();
    assert_eq!(store.send(&queue(), &batch).await.unwrap().len(), 2500);
    assert_eq!(depths(store).await, [0, 2500, 0, 0, 0]);
    let heavy: Vec<NewMessage> = (0..40)
        .map(|_| NewMessage::new(vec![1; 256 * 1024]))
        .collect();
    assert_eq!(store.send(&queue(), &heavy).await.unwrap().len(), 40);
    assert_eq!(depths(store).await, [0, 2540, 0, 0, 0]);
}
