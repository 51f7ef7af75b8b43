//! Messages that have to begin by a time.

use std::time::Duration;

use dqhost::message::expiry::EXPIRES_AT;
use dqhost::message::{Delivery, Due, Headers, MessageId, NewMessage, Outgoing};
use dqhost::store::{First, Limits, Redriven, Reservation, Settled, Settlement, Store};

use super::tools::{
    LONG, collect_garbage, nack, now_ms, queue, reject, reserve, reserve_one, settle,
};

/// An hour, in milliseconds. The clocks of the tests' machine and store are the same.
const HOUR_MS: u64 = 3_600_000;

fn pairs(pairs: &[(&str, &str)]) -> Headers {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(own).collect()
}

/// Sends a message with these headers.
async fn send(store: &dyn Store, headers: &[(&str, &str)]) -> MessageId {
    let message = NewMessage {
        headers: pairs(headers),
        ..NewMessage::new("x")
    };
    let sent = store.send(&queue(), &[message]).await.unwrap();
    sent[0].id.clone()
}

fn expires_at(headers: &Headers) -> u64 {
    let header = headers.iter().find(|(name, _)| name == EXPIRES_AT);
    header.unwrap().1.parse().unwrap()
}

pub(crate) async fn a_message_that_was_not_begun_in_time_is_said_to_be_expired(store: &dyn Store) {
    let past = (now_ms() - HOUR_MS).to_string();
    let future = (now_ms() + HOUR_MS).to_string();
    let (past, future) = (past.as_str(), future.as_str());
    let quoted = format!("[\"{EXPIRES_AT}\",\"{past}\"]");
    let mut expected = Vec::new();
    for (headers, is_expired) in [
        (&[(EXPIRES_AT, past)][..], true),
        (&[("a", "\"]"), (EXPIRES_AT, past), ("b", "")], true),
        (&[(EXPIRES_AT, "soon"), (EXPIRES_AT, past)], true),
        (
            &[(EXPIRES_AT, "1234567890123456"), (EXPIRES_AT, past)],
            true,
        ),
        (&[(EXPIRES_AT, future)], false),
        (&[(EXPIRES_AT, future), (EXPIRES_AT, past)], false),
        (&[(EXPIRES_AT, "")], false),
        (&[("a", quoted.as_str())], false),
        (&[("Dqhost-Expires-At", past)], false),
        (&[], false),
    ] {
        expected.push((send(store, headers).await, is_expired));
    }
    let half = expected.len() / 2;
    let said = |delivery: Delivery| {
        assert!(delivery.payload.is_some());
        (delivery.claim.id, delivery.expired)
    };
    let mut found: Vec<_> = reserve(store, half, LONG)
        .await
        .into_iter()
        .map(said)
        .collect();
    // Each way to reserve says so.
    let wanted = Reservation {
        max: expected.len(),
        lease: LONG,
        first: First::Ready,
        retries_default: 3,
    };
    let limits = Limits {
        rate: Some(
            "1000/s"
                .parse::<dqhost::store::Rate>()
                .unwrap()
                .with_burst(100)
                .unwrap(),
        ),
        ..Limits::NONE
    };
    let limited = store
        .reserve_limited(&queue(), wanted, &limits)
        .await
        .unwrap();
    found.extend(limited.deliveries.into_iter().map(said));
    assert_eq!(found, expected);
    let late = send(store, &[("k", "v"), (EXPIRES_AT, past)]).await;
    let by = Limits {
        by: Some("header:k".parse().unwrap()),
        ..limits
    };
    let keyed = store.reserve_limited(&queue(), wanted, &by).await.unwrap();
    let keyed: Vec<_> = keyed.deliveries.into_iter().map(said).collect();
    assert_eq!(keyed, [(late, true)]);
    send(store, &[(EXPIRES_AT, past)]).await;
    let (_, deliveries) = store.advance_and_reserve(&queue(), wanted).await.unwrap();
    assert!(deliveries.len() == 1 && deliveries[0].expired);
}

pub(crate) async fn a_time_from_now_is_one_of_the_store_however_it_was_sent(store: &dyn Store) {
    let before = now_ms();
    let message = || NewMessage {
        headers: pairs(&[("a", "+1"), (EXPIRES_AT, "5")]),
        ..NewMessage::new("x")
    };
    let message = || message().expiring_in(Duration::from_millis(HOUR_MS));
    let asked = message().headers;
    store.send(&queue(), &[message()]).await.unwrap();
    let first = reserve_one(store, LONG).await;
    let along = Settlement::Ack {
        outbox: vec![Outgoing {
            queue: queue(),
            message: message(),
        }],
    };
    assert_eq!(settle(store, &first.claim, along).await, Settled::Done);
    let second = reserve_one(store, LONG).await;
    let after = now_ms();
    for delivery in [first, second] {
        let at_ms = expires_at(&delivery.headers);
        // Rounded up.
        let bounds = before + HOUR_MS..=after + 1 + HOUR_MS;
        assert!(bounds.contains(&at_ms), "{at_ms} {bounds:?}");
        assert!(!delivery.expired);
        assert_eq!(delivery.headers[0], asked[0]);
        assert_eq!(delivery.headers.len(), 2);
    }
}

pub(crate) async fn a_retry_has_to_begin_in_time_too(store: &dyn Store) {
    let soon = NewMessage::new("x").expiring_in(Duration::from_millis(300));
    store.send(&queue(), &[soon]).await.unwrap();
    let first = reserve_one(store, LONG).await;
    let at_ms = expires_at(&first.headers);
    // A slow machine may have taken so long already.
    let is_begun = !first.expired;
    assert!(is_begun || now_ms() >= at_ms);
    let delay = Duration::from_millis(at_ms.saturating_sub(now_ms()) + 1);
    settle(store, &first.claim, nack(Some(delay))).await;
    super::tools::advance_until(store, |advanced| advanced.promoted > 0).await;
    let second = reserve_one(store, LONG).await;
    assert_eq!((second.attempt, second.expired), (2, true));
    assert_eq!(expires_at(&second.headers), at_ms);
}

pub(crate) async fn a_redriven_message_need_not_begin_by_any_time(store: &dyn Store) {
    let past = (now_ms() - HOUR_MS).to_string();
    let past = past.as_str();
    let more = ("a", "[\"b\",\"c\"]");
    for headers in [
        &[(EXPIRES_AT, past)][..],
        &[(EXPIRES_AT, past), more],
        &[more, (EXPIRES_AT, past)],
        &[more, (EXPIRES_AT, past), more],
    ] {
        let id = send(store, headers).await;
        let claim = reserve_one(store, LONG).await.claim;
        settle(store, &claim, reject()).await;
        collect_garbage(store).await;
        let dead = store.get(&queue(), &id).await.unwrap().unwrap();
        assert_eq!(dead.headers, pairs(headers));
        let edited = store
            .redrive_edited(&queue(), &id, b"y", None)
            .await
            .unwrap();
        let redriven = store
            .redrive(&queue(), &[id], dqhost::store::Redrive::default())
            .await
            .unwrap();
        assert!(matches!(
            (edited, &redriven[0]),
            (Redriven::As(_), Redriven::As(_))
        ));
        for delivery in reserve(store, 2, LONG).await {
            assert!(!delivery.expired);
            let kept = headers.iter().filter(|(name, _)| *name != EXPIRES_AT);
            let kept: Vec<_> = kept.copied().collect();
            assert_eq!(delivery.headers, pairs(&kept));
            settle(store, &delivery.claim, Settlement::ACK).await;
        }
    }
    let message = NewMessage {
        due: Due::NOW,
        ..NewMessage::new("last")
    };
    store.send(&queue(), &[message]).await.unwrap();
    reserve_one(store, LONG).await;
}
