//! Keys that take turns: one with many messages keeps no other waiting.

use std::num::NonZeroU32;
use std::time::Duration;

use dqhost::message::{Claim, Delivery, Due, MessageId, NewMessage, State};
use dqhost::store::{
    Audit, Cancelled, FairWeights, First, LimitedReservation, Limits, NextAllowed, Page,
    Rescheduled, Reservation, Settlement, Store,
};

use super::keyed::{names, send_each};
use super::tools::*;

/// The header of [`send_each`].
pub(crate) fn turns() -> Limits {
    Limits {
        fair_by: "header:customer".parse().ok(),
        ..Limits::NONE
    }
}

pub(crate) async fn reserve_in_turn(
    store: &dyn Store,
    max: usize,
    lease: Duration,
    limits: &Limits,
) -> LimitedReservation {
    let wanted = Reservation {
        max,
        lease,
        first: First::Ready,
        retries_default: 3,
    };
    store
        .reserve_limited(&queue(), wanted, limits)
        .await
        .unwrap()
}

/// The same with weights.
fn weighted(weights: &[(&str, u32)]) -> Limits {
    let weights = weights
        .iter()
        .map(|(key, weight)| ((*key).to_owned(), *weight));
    Limits {
        fair_weights: FairWeights::new(weights).unwrap(),
        ..turns()
    }
}

async fn get(store: &dyn Store, max: usize) -> Vec<Delivery> {
    reserve_in_turn(store, max, LONG, &turns()).await.deliveries
}

/// True when a call says that there is more to sort.
fn has_more(next: NextAllowed) -> bool {
    matches!(next, NextAllowed::OtherKeys(Some(wait)) if wait <= Duration::from_micros(1))
}

/// Sorts all that is in line, as a host does that has no slot. Returns how many calls it took.
pub(crate) async fn sort(store: &dyn Store) -> usize {
    for calls in 1.. {
        let sorted = reserve_in_turn(store, 0, LONG, &turns()).await;
        assert_eq!(sorted.deliveries, []);
        if !has_more(sorted.next) {
            return calls;
        }
    }
    unreachable!()
}

fn numbered(customer: &str, numbers: std::ops::RangeInclusive<usize>) -> Vec<String> {
    numbers.map(|n| format!("{customer}{n}")).collect()
}

async fn send_many(store: &dyn Store, names: &[String]) -> Vec<MessageId> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ids = Vec::new();
    for some in names.chunks(500) {
        ids.extend(send_each(store, some).await);
    }
    ids
}

fn count_of(deliveries: &[Delivery], customer: &str) -> usize {
    let all = names(deliveries);
    all.iter().filter(|name| name.starts_with(customer)).count()
}

async fn ack_all(store: &dyn Store, deliveries: &[Delivery]) {
    let acks: Vec<_> = deliveries
        .iter()
        .map(|delivery| (delivery.claim.clone(), Settlement::ACK))
        .collect();
    store.settle(&queue(), &acks).await.unwrap();
}

async fn ack(store: &dyn Store, claim: &Claim) {
    settle(store, claim, Settlement::ACK).await;
}

pub(crate) async fn who_comes_behind_a_thousand_is_next(store: &dyn Store) {
    send_many(store, &numbered("a", 1..=1000)).await;
    let first = reserve_in_turn(store, 10, LONG, &turns()).await;
    assert_eq!(names(&first.deliveries), numbered("a", 1..=10));
    assert!(has_more(first.next), "{:?}", first.next);
    // Each call sorts a part, whether or not it has to give anything out.
    let calls = sort(store).await;
    assert!((1..=5).contains(&calls), "{calls}");
    // Those of the one that has most stay in ready.
    assert_eq!(depths(store).await, [0, 990, 10, 0, 0]);
    send_each(store, &["b1"]).await;
    let next = get(store, 2).await;
    let mut both = names(&next);
    both.sort_unstable();
    assert_eq!(both, ["a11", "b1"]);
    assert_eq!(next[1].attempt, 1);
    // Work-conserving, in order: nobody else wants the rest.
    let mut rest = Vec::new();
    while rest.len() < 989 {
        let some = get(store, 100).await;
        assert!(!some.is_empty());
        ack_all(store, &some).await;
        rest.extend(names(&some).into_iter().map(str::to_owned));
    }
    assert_eq!(rest, numbered("a", 12..=1000));
    let none = reserve_in_turn(store, 5, LONG, &turns()).await;
    assert_eq!(none, LimitedReservation::default());
    assert_eq!(overview(store).await.limited, 0);
}

pub(crate) async fn keys_that_wait_share_and_one_alone_has_all(store: &dyn Store) {
    send_many(store, &numbered("a", 1..=20)).await;
    send_each(store, &["b1", "b2", "b3", "1", "2", "3"]).await;
    // What has no customer is a customer of its own, the one with an empty name.
    let empty = NewMessage {
        headers: vec![("customer".to_owned(), String::new())],
        ..NewMessage::new("4")
    };
    store.send(&queue(), &[empty]).await.unwrap();
    let shared = get(store, 9).await;
    for (customer, number) in [("a", 3), ("b", 3)] {
        assert_eq!(count_of(&shared, customer), number, "{:?}", names(&shared));
    }
    // b has nothing left: its share goes to the others.
    let rest = get(store, 4).await;
    assert_eq!(count_of(&rest, "a"), 3, "{:?}", names(&rest));
    assert!(names(&rest).contains(&"4"), "{:?}", names(&rest));
    let alone = get(store, 100).await;
    assert_eq!(names(&alone), numbered("a", 7..=20));
}

pub(crate) async fn weights_are_turns_while_others_wait_and_cost_nobody_else_order(
    store: &dyn Store,
) {
    for customer in ["a", "b", "c"] {
        send_many(store, &numbered(customer, 1..=120)).await;
    }
    sort(store).await;
    let limits = weighted(&[("a", 3), ("c", 7)]);
    let mut all = Vec::new();
    for _ in 0..11 {
        all.extend(reserve_in_turn(store, 10, LONG, &limits).await.deliveries);
    }
    for (customer, share) in [("a", 30), ("b", 10), ("c", 70)] {
        let count = count_of(&all, customer);
        assert!(count.abs_diff(share) <= 3, "{customer}: {count}");
        let own: Vec<_> = names(&all)
            .into_iter()
            .filter(|name| name.starts_with(customer))
            .collect();
        assert_eq!(own, numbered(customer, 1..=count));
    }
    // The next reservation may have others, and who comes late waits for no more than a turn of each.
    send_each(store, &["d1"]).await;
    sort(store).await;
    let next = reserve_in_turn(store, 12, LONG, &limits).await.deliveries;
    assert!(names(&next).contains(&"d1"), "{:?}", names(&next));
    let equal = reserve_in_turn(store, 30, LONG, &turns()).await.deliveries;
    assert!(count_of(&equal, "b") >= 8, "{:?}", names(&equal));
    // One alone has all, whatever its weight.
    let all = reserve_in_turn(store, 500, LONG, &limits).await.deliveries;
    assert_eq!(depths(store).await[2], 361, "{}", all.len());
}

pub(crate) async fn who_was_idle_has_no_credit(store: &dyn Store) {
    send_many(store, &numbered("b", 1..=200)).await;
    send_each(store, &["a1"]).await;
    let mut first = get(store, 60).await;
    first.extend(get(store, 40).await);
    assert_eq!(count_of(&first, "a"), 1);
    send_many(store, &numbered("a", 2..=60)).await;
    sort(store).await;
    let shared = get(store, 20).await;
    let of_a = count_of(&shared, "a");
    assert!((9..=11).contains(&of_a), "{:?}", names(&shared));
}

pub(crate) async fn one_key_alone_goes_in_order_and_shares_as_soon_as_another_comes(
    store: &dyn Store,
) {
    send_many(store, &numbered("a", 1..=700)).await;
    let (mut went, mut sent) = (Vec::new(), 700);
    for round in 0..20 {
        // Some come while others go; a few of them not sorted yet.
        send_many(store, &numbered("a", sent + 1..=sent + 10)).await;
        sent += 10;
        if round == 10 {
            sort(store).await;
        }
        let some = get(store, 1 + round % 15).await;
        assert_eq!(some.len(), 1 + round % 15);
        ack_all(store, &some).await;
        went.extend(names(&some).into_iter().map(str::to_owned));
    }
    assert_eq!(went, numbered("a", 1..=went.len()));
    // Neither a credit nor a debt has grown meanwhile.
    send_many(store, &numbered("b", 1..=100)).await;
    sort(store).await;
    let shared = get(store, 40).await;
    let of_b = count_of(&shared, "b");
    assert!((19..=21).contains(&of_b), "{:?}", names(&shared));
    // Retries go first, also of one alone.
    let rest = get(store, 1000).await;
    assert_eq!(shared.len() + rest.len() + went.len(), sent + 100);
    ack_all(store, &rest).await;
    for delivery in shared {
        settle(store, &delivery.claim, nack(None)).await;
    }
    send_many(store, &numbered("a", sent + 1..=sent + 20)).await;
    store.advance(&queue()).await.unwrap();
    assert!(get(store, 10).await.iter().all(|one| one.attempt == 2));
}

/// One key has a lot, the other sends one as soon as its last one has gone. Returns how many of `number`
/// were of the other. `between` is called before each reservation.
pub(crate) async fn share_of_one_that_comes_back(
    store: &dyn Store,
    number: usize,
    between: impl Fn(),
) -> usize {
    send_many(store, &numbered("b", 1..=number + 1)).await;
    let (mut waits, mut went) = (false, 0);
    for _ in 0..number {
        if !waits {
            send_each(store, &["a1"]).await;
            waits = true;
        }
        between();
        let one = get(store, 1).await;
        assert_eq!(one.len(), 1);
        if count_of(&one, "a") == 1 {
            (waits, went) = (false, went + 1);
        }
    }
    went
}

pub(crate) async fn who_comes_back_at_once_has_its_turn_and_no_more(store: &dyn Store) {
    let went = share_of_one_that_comes_back(store, 20, || ()).await;
    assert!((9..=11).contains(&went), "{went} of 20");
}

pub(crate) async fn new_keys_without_end_do_not_stop_an_old_one(store: &dyn Store) {
    send_many(store, &numbered("a", 1..=100)).await;
    get(store, 1).await;
    // Twice as many as go, each of a customer that nobody has seen.
    let mut of_a = 0;
    for round in 0..60 {
        let new: Vec<NewMessage> = (0..100)
            .map(|n| NewMessage {
                headers: vec![("customer".to_owned(), format!("{round}/{n}"))],
                ..NewMessage::new("new")
            })
            .collect();
        store.send(&queue(), &new).await.unwrap();
        sort(store).await;
        let some = get(store, 50).await;
        assert_eq!(some.len(), 50);
        of_a += count_of(&some, "a");
        ack_all(store, &some).await;
    }
    assert!((1..=100).contains(&of_a), "{of_a} of 3000");
}

pub(crate) async fn a_crash_costs_an_attempt_and_no_turn(store: &dyn Store) {
    send_each(store, &["a1", "a2", "a3", "b1", "b2", "b3"]).await;
    let lost = reserve_in_turn(store, 2, SHORT, &turns()).await.deliveries;
    assert_eq!((count_of(&lost, "a"), count_of(&lost, "b")), (1, 1));
    let mut expired = 0;
    while expired < 2 {
        let advanced = advance_until(store, |advanced| advanced.expired > 0).await;
        expired += advanced.expired;
    }
    // Retries come first within their key.
    let again = get(store, 2).await;
    let mut both = names(&again);
    both.sort_unstable();
    assert_eq!(both, ["a1", "b1"]);
    assert!(again.iter().all(|delivery| delivery.attempt == 2));
    // So does a retry that was set aside.
    for delivery in &again {
        settle(store, &delivery.claim, nack(None)).await;
    }
    sort(store).await;
    assert_eq!(depths(store).await, [4, 2, 0, 0, 0]);
    let third = get(store, 6).await;
    assert_eq!(third.len(), 6);
    assert!(third[..2].iter().all(|delivery| delivery.attempt == 3));
    assert_eq!(depths(store).await, [0, 0, 6, 0, 0]);
}

pub(crate) async fn a_paused_queue_sorts_nothing_and_goes_on_in_turn(store: &dyn Store) {
    send_many(store, &numbered("a", 1..=10)).await;
    assert_eq!(get(store, 2).await.len(), 2);
    pause(store, true).await;
    send_each(store, &["b1"]).await;
    let none = reserve_in_turn(store, 10, LONG, &turns()).await;
    assert_eq!(none, LimitedReservation::default());
    assert_eq!(depths(store).await, [0, 9, 2, 0, 0]);
    pause(store, false).await;
    let two = get(store, 2).await;
    assert_eq!((count_of(&two, "a"), count_of(&two, "b")), (1, 1));
}

pub(crate) async fn what_waits_for_its_turn_is_found_cancelled_and_rescheduled(store: &dyn Store) {
    let ids = send_each(store, &["a1", "b1", "b2", "b3", "b4", "b5"]).await;
    let first = get(store, 1).await.remove(0);
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
    assert_eq!(store.audit(&queue(), how).await.unwrap().0, []);
    let cancelled = store.cancel(&queue(), &ids[2..3]).await.unwrap();
    assert_eq!(cancelled, [Cancelled::Done]);
    let later = store
        .reschedule(&queue(), &ids[3..4], Due::In(LONG))
        .await
        .unwrap();
    assert!(matches!(later[0], Rescheduled::At(_)));
    ack(store, &first.claim).await;
    assert_eq!(names(&get(store, 2).await), ["b1", "b4"]);
    // Due again, it is a message like any other.
    store
        .reschedule(&queue(), &ids[3..4], Due::NOW)
        .await
        .unwrap();
    assert_eq!(names(&get(store, 5).await), ["b5", "b3"]);
    assert_eq!(depths(store).await, [0, 0, 4, 0, 0]);
    assert_eq!(
        reserve_in_turn(store, 5, LONG, &turns()).await,
        LimitedReservation::default()
    );
}

pub(crate) async fn limits_of_the_queue_hold_for_all_that_take_turns(store: &dyn Store) {
    send_each(store, &["a1", "a2", "a3", "a4", "b1", "b2"]).await;
    let two = Limits {
        max_running: NonZeroU32::new(2),
        ..turns()
    };
    let first = reserve_in_turn(store, 10, LONG, &two).await;
    assert_eq!(count_of(&first.deliveries, "b"), 1);
    assert_eq!(first.deliveries.len(), 2);
    assert!(matches!(first.next, NextAllowed::OtherKeys(_)));
    assert_eq!(reserve_in_turn(store, 10, LONG, &two).await.deliveries, []);
    ack_all(store, &first.deliveries).await;
    let rate: dqhost::store::Rate = "1/h".parse().unwrap();
    let slow = Limits {
        rate: rate.with_burst(2).ok(),
        ..turns()
    };
    let second = reserve_in_turn(store, 10, LONG, &slow).await;
    assert_eq!(count_of(&second.deliveries, "b"), 1);
    assert_eq!(second.deliveries.len(), 2);
    assert_eq!(reserve_in_turn(store, 10, LONG, &slow).await.deliveries, []);
    assert_eq!(overview(store).await.limited, 2);
}

pub(crate) async fn whoever_reserves_without_turns_takes_what_is_in_line(store: &dyn Store) {
    send_each(store, &["a1", "b1", "b2"]).await;
    assert_eq!(names(&get(store, 1).await), ["a1"]);
    send_each(store, &["a4"]).await;
    assert_eq!(names(&reserve(store, 10, LONG).await), ["a4"]);
    assert_eq!(names(&get(store, 10).await), ["b1", "b2"]);
}

pub(crate) async fn what_is_cancelled_hides_nobody_behind_the_one_that_has_most(store: &dyn Store) {
    let ids = send_many(store, &numbered("a", 1..=1500)).await;
    sort(store).await;
    let cancelled = store.cancel(&queue(), &ids[700..710]).await.unwrap();
    assert_eq!(cancelled, vec![Cancelled::Done; 10]);
    // The newest, up to which all is known to be of one key, and one before it.
    for place in [1499, 20] {
        send_each(store, &["b1"]).await;
        sort(store).await;
        let next = get(store, 2).await;
        let mut both = names(&next);
        both.sort_unstable();
        assert_eq!(both[1], "b1", "{both:?}");
        let cancelled = store.cancel(&queue(), &ids[place..=place]).await.unwrap();
        assert_eq!(cancelled, [Cancelled::Done]);
    }
}

pub(crate) async fn another_header_is_taken_over_in_bounded_steps(store: &dyn Store) {
    send_many(store, &numbered("a", 1..=5000)).await;
    sort(store).await;
    let other = Limits {
        fair_by: "header:other".parse().ok(),
        ..Limits::NONE
    };
    let (mut all, mut calls) = (0, 0);
    while all < 5000 {
        let some = reserve_in_turn(store, 200, LONG, &other).await.deliveries;
        ack_all(store, &some).await;
        all += some.len();
        calls += 1;
        assert!(calls < 500, "{all}");
    }
    assert_eq!(depths(store).await, [0; 5]);
}
