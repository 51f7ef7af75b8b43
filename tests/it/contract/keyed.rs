//! Limits for each value of a header: what is over the limit of its key is set aside, in its order.

use std::num::NonZeroU32;
use std::time::Duration;

use dqhost::message::{Claim, Delivery, Due, MessageId, NewMessage, OnRepeat, SendOutcome, State};
use dqhost::store::{
    Audit, Cancelled, First, LimitedReservation, Limits, NextAllowed, Page, Rescheduled,
    Reservation, Settlement, Store,
};

use super::tools::*;

fn running(max: u32) -> Limits {
    Limits {
        max_running: NonZeroU32::new(max),
        by: "header:customer".parse().ok(),
        ..Limits::NONE
    }
}

fn rate(text: &str) -> Limits {
    Limits {
        rate: text
            .parse()
            .ok()
            .map(|rate: dqhost::store::Rate| rate.with_burst(1).unwrap()),
        by: "header:customer".parse().ok(),
        ..Limits::NONE
    }
}

/// Sends `a1` for the customer `a`, and one without a customer for a number alone.
pub(super) async fn send_each(store: &dyn Store, names: &[&str]) -> Vec<MessageId> {
    let message = |name: &&str| {
        let mut message = NewMessage::new(*name);
        let customer = name.trim_end_matches(char::is_numeric);
        if !customer.is_empty() {
            message.headers = vec![("customer".to_owned(), customer.to_owned())];
        }
        message
    };
    let messages: Vec<NewMessage> = names.iter().map(message).collect();
    let sent = store.send(&queue(), &messages).await.unwrap();
    sent.into_iter().map(|sent| sent.id).collect()
}

async fn limited(store: &dyn Store, limits: &Limits, lease: Duration) -> LimitedReservation {
    let wanted = Reservation {
        max: 10,
        lease,
        first: First::Ready,
        retries_default: 3,
    };
    store
        .reserve_limited(&queue(), wanted, limits)
        .await
        .unwrap()
}

fn name(delivery: &Delivery) -> &str {
    std::str::from_utf8(delivery.payload.as_deref().unwrap()).unwrap()
}

pub(super) fn names(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(name).collect()
}

/// Reserves what these are, and nothing else.
async fn get(store: &dyn Store, limits: &Limits, expected: &[&str]) -> Vec<Claim> {
    let reserved = limited(store, limits, LONG).await;
    let mut got = names(&reserved.deliveries);
    got.sort_unstable();
    assert_eq!(got, expected);
    let mut deliveries = reserved.deliveries;
    deliveries.sort_by(|a, b| a.payload.cmp(&b.payload));
    deliveries
        .into_iter()
        .map(|delivery| delivery.claim)
        .collect()
}

async fn ack(store: &dyn Store, claim: &Claim) {
    settle(store, claim, Settlement::ACK).await;
}

async fn held_back(store: &dyn Store) -> u64 {
    store.overview(&queue()).await.unwrap().limited
}

pub(crate) async fn a_key_keeps_its_order_through_retries(store: &dyn Store) {
    let limits = running(1);
    let ids = send_each(store, &["a1", "a2", "a3", "b1", "1", "2"]).await;
    let mut claims = get(store, &limits, &["1", "a1", "b1"]).await;
    assert_eq!(held_back(store).await, 3);
    assert_eq!(depths(store).await, [3, 0, 3, 0, 0]);
    assert_eq!(state_of(store, &ids[1]).await, Some(State::Pending));
    let none = limited(store, &limits, LONG).await;
    assert_eq!(none.deliveries, []);
    assert!(
        matches!(none.next, NextAllowed::OtherKeys(_)),
        "{:?}",
        none.next
    );
    // A retry at once goes before its successors, though it is last in line.
    settle(store, &claims[1], nack(None)).await;
    send_each(store, &["a4"]).await;
    claims[1] = get(store, &limits, &["a1"]).await.remove(0);
    // So does one with a delay: nobody overtakes it meanwhile.
    settle(store, &claims[1], nack(Some(LONG))).await;
    ack(store, &claims[2]).await;
    get(store, &limits, &[]).await;
    store
        .reschedule(&queue(), &ids[..1], Due::NOW)
        .await
        .unwrap();
    let again = limited(store, &limits, LONG).await.deliveries;
    assert_eq!((names(&again), again[0].attempt), (vec!["a1"], 3));
    // And so does one that is given back.
    store
        .release(&queue(), &[again[0].claim.clone()])
        .await
        .unwrap();
    claims = get(store, &limits, &["a1"]).await;
    for next in ["a2", "a3", "a4"] {
        ack(store, &claims[0]).await;
        let some = limited(store, &limits, LONG).await.deliveries;
        assert_eq!((names(&some), some[0].attempt), (vec![next], 1));
        claims = vec![some[0].claim.clone()];
    }
    assert_eq!(held_back(store).await, 1, "the second without a customer");
}

pub(crate) async fn a_key_goes_on_after_a_dead_letter_and_after_a_crash(store: &dyn Store) {
    let limits = running(1);
    send_each(store, &["a1", "a2", "a3"]).await;
    let first = get(store, &limits, &["a1"]).await.remove(0);
    settle(store, &first, reject()).await;
    let crashed = limited(store, &limits, SHORT).await.deliveries;
    assert_eq!(names(&crashed), ["a2"]);
    // What the lease expires for goes before its successor.
    advance_until(store, |advanced| advanced.expired == 1).await;
    let again = limited(store, &limits, LONG).await.deliveries;
    assert_eq!((names(&again), again[0].attempt), (vec!["a2"], 2));
    ack(store, &again[0].claim).await;
    let last = get(store, &limits, &["a3"]).await.remove(0);
    ack(store, &last).await;
    let none = limited(store, &limits, LONG).await;
    assert_eq!(none, LimitedReservation::default());
    assert_eq!(held_back(store).await, 0);
}

pub(crate) async fn so_many_of_a_key_run_at_a_time(store: &dyn Store) {
    let limits = running(2);
    send_each(store, &["a1", "a2", "a3", "a4", "b1"]).await;
    let claims = get(store, &limits, &["a1", "a2", "b1"]).await;
    get(store, &limits, &[]).await;
    ack(store, &claims[1]).await;
    get(store, &limits, &["a3"]).await;
    // One that waits for its retry makes room.
    settle(store, &claims[0], nack(Some(LONG))).await;
    get(store, &limits, &["a4"]).await;
    assert_eq!(depths(store).await, [1, 0, 3, 0, 0]);
}

pub(crate) async fn each_key_has_its_rate(store: &dyn Store) {
    let limits = rate("1/h");
    send_each(store, &["a1", "a2", "b1", "1", "2"]).await;
    let got = limited(store, &limits, LONG).await;
    assert_eq!(names(&got.deliveries), ["a1", "b1", "1"]);
    let NextAllowed::OtherKeys(Some(wait)) = got.next else {
        panic!("{:?}", got.next)
    };
    assert!(
        wait > Duration::from_mins(50) && wait <= Duration::from_hours(1),
        "{wait:?}"
    );
    assert_eq!(held_back(store).await, 2);
    // An ack makes no room.
    for delivery in &got.deliveries {
        ack(store, &delivery.claim).await;
    }
    get(store, &limits, &[]).await;
    assert_eq!(depths(store).await, [2, 0, 0, 0, 0]);
}

pub(crate) async fn the_rate_of_a_key_goes_on_by_the_clock_of_the_store(store: &dyn Store) {
    let limits = rate("25/s");
    send_each(store, &["a1", "a2", "a3", "a4"]).await;
    let before = store.overview(&queue()).await.unwrap().now_ms;
    let mut got: Vec<String> = Vec::new();
    while got.len() < 4 {
        let some = limited(store, &limits, LONG).await;
        assert!(some.deliveries.len() <= 1, "the burst is 1");
        got.extend(names(&some.deliveries).into_iter().map(str::to_owned));
        if let NextAllowed::OtherKeys(wait) = some.next {
            let wait = wait.expect("the rate tells when");
            assert!(wait <= Duration::from_millis(40), "{wait:?}");
            tokio::time::sleep(wait).await;
        }
    }
    assert_eq!(got, ["a1", "a2", "a3", "a4"]);
    let after = store.overview(&queue()).await.unwrap().now_ms;
    assert!(after - before >= 119, "{} ms", after - before);
}

pub(crate) async fn what_is_set_aside_is_found_cancelled_and_rescheduled(store: &dyn Store) {
    let limits = running(1);
    let ids = send_each(store, &["a1", "a2", "a3", "a4", "a5"]).await;
    let first = get(store, &limits, &["a1"]).await.remove(0);
    let page = Page {
        offset: 0,
        limit: 10,
        payload_max: 10,
    };
    let mut listed = store.list(&queue(), State::Pending, page).await.unwrap();
    listed.sort_by(|a, b| a.payload.cmp(&b.payload));
    let listed: Vec<_> = listed.into_iter().map(|record| record.id).collect();
    assert_eq!(listed, ids[1..]);
    let how = Audit {
        repair: true,
        settling: SHORT,
    };
    let found = store.audit(&queue(), how).await.unwrap();
    assert_eq!(found.0, []);
    let cancelled = store.cancel(&queue(), &ids[1..2]).await.unwrap();
    assert_eq!(cancelled, [Cancelled::Done]);
    let later = store
        .reschedule(&queue(), &ids[2..3], Due::In(LONG))
        .await
        .unwrap();
    assert!(matches!(later[0], Rescheduled::At(_)));
    ack(store, &first).await;
    let fourth = get(store, &limits, &["a4"]).await.remove(0);
    assert_eq!(held_back(store).await, 1);
    // Due again, it is a message like any other: behind those that waited before.
    store
        .reschedule(&queue(), &ids[2..3], Due::NOW)
        .await
        .unwrap();
    get(store, &limits, &[]).await;
    ack(store, &fourth).await;
    let fifth = get(store, &limits, &["a5"]).await.remove(0);
    ack(store, &fifth).await;
    get(store, &limits, &["a3"]).await;
    assert_eq!(depths(store).await, [0, 0, 1, 0, 0]);
}

pub(crate) async fn what_is_set_aside_is_replaced_and_put_off(store: &dyn Store) {
    let limits = running(1);
    let second = async |payload: &str, due| {
        let message = NewMessage {
            id: MessageId::of_key("second"),
            headers: vec![("customer".to_owned(), "a".to_owned())],
            due,
            on_repeat: OnRepeat::Replace { max_wait: None },
            ..NewMessage::new(payload)
        };
        store.send(&queue(), &[message]).await.unwrap()[0].outcome
    };
    send_each(store, &["a1"]).await;
    assert_eq!(second("a2", Due::NOW).await, SendOutcome::Sent);
    send_each(store, &["a3"]).await;
    let first = get(store, &limits, &["a1"]).await.remove(0);
    assert_eq!(held_back(store).await, 2);
    assert_eq!(second("new", Due::In(LONG)).await, SendOutcome::Replaced);
    assert_eq!(depths(store).await, [2, 0, 1, 0, 0]);
    ack(store, &first).await;
    let third = get(store, &limits, &["a3"]).await.remove(0);
    // Due again, it waits for its key like any other.
    assert_eq!(second("newest", Due::NOW).await, SendOutcome::Replaced);
    get(store, &limits, &[]).await;
    ack(store, &third).await;
    let last = get(store, &limits, &["newest"]).await.remove(0);
    ack(store, &last).await;
    assert_eq!(depths(store).await, [0; 5]);
}

pub(crate) async fn whoever_reserves_without_limits_takes_what_is_in_line(store: &dyn Store) {
    let limits = running(1);
    send_each(store, &["a1", "a2"]).await;
    let first = get(store, &limits, &["a1"]).await.remove(0);
    send_each(store, &["a3"]).await;
    assert_eq!(names(&reserve(store, 10, LONG).await), ["a3"]);
    ack(store, &first).await;
    get(store, &limits, &["a2"]).await;
}

pub(crate) async fn a_key_with_many_messages_keeps_no_other_waiting(store: &dyn Store) {
    let limits = running(1);
    send_each(store, &vec!["a"; 600]).await;
    send_each(store, &["b"]).await;
    let mut got = Vec::new();
    for _ in 0..5 {
        let some = limited(store, &limits, LONG).await;
        got.extend(names(&some.deliveries).into_iter().map(str::to_owned));
        // More than one call looks at: it says that there is more.
        if got.len() < 2 {
            let wait = Some(Duration::from_micros(1));
            assert!(
                matches!(some.next, NextAllowed::OtherKeys(more) if more <= wait),
                "{:?}",
                some.next
            );
        }
    }
    assert_eq!(got, ["a", "b"]);
    assert_eq!(held_back(store).await, 599);
}

/// A message of this customer, which replaces the one of its id.
fn replacing(id: &str, customer: &str, due: Due) -> NewMessage {
    NewMessage {
        id: MessageId::of_key(id),
        headers: vec![("customer".to_owned(), customer.to_owned())],
        due,
        on_repeat: OnRepeat::Replace { max_wait: None },
        ..NewMessage::new(id)
    }
}

pub(crate) async fn an_id_that_comes_again_keeps_no_key_that_it_has_left(store: &dyn Store) {
    let limits = running(1);
    let send = async |message: NewMessage| store.send(&queue(), &[message]).await.unwrap();
    // For a time of its own: its key is free meanwhile.
    send(replacing("k", "a", Due::NOW)).await;
    let first = get(store, &limits, &["k"]).await.remove(0);
    send(replacing("k", "a", Due::In(LONG))).await;
    send_each(store, &["a2"]).await;
    ack(store, &first).await;
    let second = get(store, &limits, &["a2"]).await.remove(0);
    ack(store, &second).await;
    // Each with the key that the other had.
    send(replacing("k1", "c", Due::NOW)).await;
    send(replacing("k2", "e", Due::NOW)).await;
    let both = get(store, &limits, &["k1", "k2"]).await;
    send(replacing("k1", "e", Due::NOW)).await;
    send(replacing("k2", "c", Due::NOW)).await;
    for claim in &both {
        ack(store, claim).await;
    }
    let got = limited(store, &limits, LONG).await.deliveries;
    assert_eq!(got.len(), 2, "{:?}", names(&got));
}
