//! Limits of a queue as a whole: what is over them stays in line.

use std::time::Duration;

use dqhost::message::{Delivery, Due};
use dqhost::store::{
    Cancelled, First, LimitedReservation, Limits, NextAllowed, Reservation, Settlement, Store,
};

use super::tools::*;

fn rate(text: &str, burst: u32) -> Limits {
    let rate: dqhost::store::Rate = text.parse().unwrap();
    Limits {
        rate: Some(rate.with_burst(burst).unwrap()),
        ..Limits::NONE
    }
}

fn max_running(max: u32) -> Limits {
    Limits {
        max_running: std::num::NonZeroU32::new(max),
        ..Limits::NONE
    }
}

async fn limited(store: &dyn Store, max: usize, limits: &Limits) -> LimitedReservation {
    let wanted = Reservation {
        max,
        lease: LONG,
        first: First::Ready,
        retries_default: 3,
    };
    store
        .reserve_limited(&queue(), wanted, limits)
        .await
        .unwrap()
}

async fn send_many(store: &dyn Store, count: usize) {
    for n in 0..count {
        send(store, &n.to_string(), Due::NOW, 3).await;
    }
}

fn payloads(deliveries: &[Delivery]) -> Vec<String> {
    let text = |d: &Delivery| String::from_utf8(d.payload.clone().unwrap()).unwrap();
    deliveries.iter().map(text).collect()
}

async fn held_back(store: &dyn Store) -> u64 {
    store.overview(&queue()).await.unwrap().limited
}

pub(crate) async fn a_rate_lets_its_burst_go_and_holds_the_rest_in_line(store: &dyn Store) {
    send_many(store, 10).await;
    let limits = rate("1/h", 3);
    let first = limited(store, 2, &limits).await;
    assert_eq!(payloads(&first.deliveries), ["0", "1"]);
    assert_eq!(first.next, NextAllowed::Now, "one more may go");
    assert_eq!(held_back(store).await, 0);
    let second = limited(store, 10, &limits).await;
    assert_eq!(payloads(&second.deliveries), ["2"]);
    for _ in 0..2 {
        let none = limited(store, 10, &limits).await;
        assert_eq!(none.deliveries, []);
        let NextAllowed::In(wait) = none.next else {
            panic!("{:?}", none.next)
        };
        assert!(
            wait > Duration::from_mins(50) && wait <= Duration::from_hours(1),
            "{wait:?}"
        );
        assert_eq!(held_back(store).await, 7);
    }
    // It costs no attempt, and is nowhere else.
    assert_eq!(depths(store).await, [0, 7, 3, 0, 0]);
    // Whoever reserves without limits is not held back.
    let rest = reserve(store, 10, LONG).await;
    assert_eq!(payloads(&rest), ["3", "4", "5", "6", "7", "8", "9"]);
    assert!(rest.iter().all(|delivery| delivery.attempt == 1));
    assert_eq!(limited(store, 10, &limits).await.next, NextAllowed::Now);
    assert_eq!(held_back(store).await, 0, "nothing waits");
}

pub(crate) async fn a_rate_goes_on_by_the_clock_of_the_store(store: &dyn Store) {
    send_many(store, 6).await;
    let limits = rate("25/s", 1);
    let before = store.overview(&queue()).await.unwrap().now_ms;
    let mut got = Vec::new();
    while got.len() < 6 {
        let some = limited(store, 10, &limits).await;
        assert!(some.deliveries.len() <= 1, "the burst is 1");
        got.extend(payloads(&some.deliveries));
        if let NextAllowed::In(wait) = some.next {
            assert!(wait <= Duration::from_millis(40), "{wait:?}");
            tokio::time::sleep(wait).await;
        }
    }
    assert_eq!(got, ["0", "1", "2", "3", "4", "5"]);
    let after = store.overview(&queue()).await.unwrap().now_ms;
    // Five times between six, but for the milliseconds that are cut off.
    assert!(after - before >= 199, "{} ms", after - before);
}

pub(crate) async fn what_is_killed_runs_no_more(store: &dyn Store) {
    send_many(store, 3).await;
    let limits = max_running(1);
    let first = limited(store, 10, &limits).await;
    assert_eq!(payloads(&first.deliveries), ["0"]);
    assert_eq!(limited(store, 10, &limits).await.deliveries, []);
    let id = first.deliveries[0].claim.id.clone();
    assert_eq!(
        store.kill(&queue(), &[id]).await.unwrap(),
        [Cancelled::Killed]
    );
    let second = limited(store, 10, &limits).await;
    assert_eq!(payloads(&second.deliveries), ["1"]);
    assert_eq!(limited(store, 10, &limits).await.deliveries, []);
    assert_eq!(depths(store).await, [0, 1, 1, 0, 0]);
}

pub(crate) async fn so_many_run_at_a_time_whoever_has_them(store: &dyn Store) {
    send_many(store, 6).await;
    let others = reserve(store, 1, LONG).await;
    let limits = max_running(3);
    let mine = limited(store, 10, &limits).await;
    assert_eq!(payloads(&mine.deliveries), ["1", "2"]);
    assert_eq!(mine.next, NextAllowed::WhenSettled);
    assert_eq!(held_back(store).await, 3);
    let none = limited(store, 10, &limits).await;
    assert_eq!(
        (none.deliveries, none.next),
        (vec![], NextAllowed::WhenSettled)
    );
    // One that is acked makes room, and so does one that waits for a retry.
    settle(store, &others[0].claim, Settlement::ACK).await;
    settle(store, &mine.deliveries[0].claim, nack(Some(LONG))).await;
    let more = limited(store, 10, &limits).await;
    assert_eq!(payloads(&more.deliveries), ["3", "4"]);
    // So does one that is given back; it is next in line.
    let claims = [more.deliveries[1].claim.clone()];
    store.release(&queue(), &claims).await.unwrap();
    let again = limited(store, 10, &limits).await;
    assert_eq!(payloads(&again.deliveries), ["4"]);
    assert_eq!(again.deliveries[0].attempt, 1);
    assert_eq!(depths(store).await, [1, 1, 3, 0, 0]);
    assert_eq!(again.next, NextAllowed::WhenSettled);
    // A smaller limit takes nothing back.
    assert_eq!(limited(store, 10, &max_running(1)).await.deliveries, []);
    assert_eq!(
        limited(store, 10, &max_running(4)).await.deliveries.len(),
        1
    );
    assert_eq!(held_back(store).await, 0);
}

pub(crate) async fn a_lease_that_expires_makes_room_for_another(store: &dyn Store) {
    send_many(store, 2).await;
    let lost = reserve(store, 1, SHORT).await;
    let limits = max_running(1);
    let none = limited(store, 1, &limits).await;
    assert_eq!(
        (none.deliveries, none.next),
        (vec![], NextAllowed::WhenSettled)
    );
    advance_until(store, |advanced| advanced.expired == 1).await;
    let one = limited(store, 5, &limits).await;
    assert_eq!(payloads(&one.deliveries), ["1"]);
    settle(store, &one.deliveries[0].claim, Settlement::ACK).await;
    let again = limited(store, 5, &limits).await;
    assert_eq!(again.deliveries[0].claim.id, lost[0].claim.id);
    assert_eq!(again.deliveries[0].attempt, 2);
}

pub(crate) async fn both_limits_hold_at_once(store: &dyn Store) {
    send_many(store, 5).await;
    let limits = Limits {
        rate: rate("1/h", 3).rate,
        max_running: std::num::NonZeroU32::new(2),
        by: None,
        fair_by: None,
        fair_weights: dqhost::store::FairWeights::EQUAL,
    };
    let two = limited(store, 5, &limits).await;
    assert_eq!(two.deliveries.len(), 2);
    assert_eq!(two.next, NextAllowed::WhenSettled);
    settle(store, &two.deliveries[0].claim, Settlement::ACK).await;
    settle(store, &two.deliveries[1].claim, Settlement::ACK).await;
    let one = limited(store, 5, &limits).await;
    assert_eq!(payloads(&one.deliveries), ["2"]);
    assert!(matches!(one.next, NextAllowed::In(_)), "{:?}", one.next);
}

pub(crate) async fn limits_that_are_not_reached_change_nothing(store: &dyn Store) {
    assert_eq!(
        limited(store, 5, &rate("1/s", 1)).await,
        LimitedReservation::default(),
        "there is no such queue"
    );
    send_many(store, 4).await;
    let claim = reserve(store, 1, LONG).await.remove(0).claim;
    settle(store, &claim, nack(None)).await;
    for limits in [Limits::NONE, rate("100000/s", 100_000), max_running(100)] {
        let all = limited(store, 10, &limits).await;
        assert_eq!(payloads(&all.deliveries), ["1", "2", "3", "0"]);
        assert_eq!(all.next, NextAllowed::Now);
        assert_eq!(all.deliveries[3].attempt, 2);
        let claims: Vec<_> = all.deliveries.into_iter().rev().map(|d| d.claim).collect();
        store.release(&queue(), &claims).await.unwrap();
        assert_eq!(held_back(store).await, 0);
    }
}

pub(crate) async fn a_paused_queue_uses_nothing_of_its_rate(store: &dyn Store) {
    send_many(store, 2).await;
    let limits = rate("1/d", 1);
    store.set_paused(&queue(), true).await.unwrap();
    assert_eq!(
        limited(store, 5, &limits).await,
        LimitedReservation::default()
    );
    store.set_paused(&queue(), false).await.unwrap();
    assert_eq!(limited(store, 5, &limits).await.deliveries.len(), 1);
}
