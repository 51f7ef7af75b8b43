//! What a handler sent goes with the ack of its message, or nowhere.

use std::time::Duration;

use dqhost::message::{
    Claim, Due, MessageId, NewMessage, Outgoing, QueueName, Record, Sent, State,
};
use dqhost::store::{Counts, OUTBOX_MAX, Page, Settled, Settlement, Store};

use crate::contract::tools::*;
use crate::support::PATIENCE;

pub(crate) fn other(name: &str) -> QueueName {
    name.parse().unwrap()
}

pub(crate) fn to(queue: &str, message: NewMessage) -> Outgoing {
    Outgoing {
        queue: other(queue),
        message,
    }
}

pub(crate) fn ack_with(outbox: &[Outgoing]) -> Settlement {
    Settlement::Ack {
        outbox: outbox.to_vec(),
    }
}

/// Sends so many messages and takes them in flight.
pub(crate) async fn in_flight(store: &dyn Store, count: usize) -> Vec<Claim> {
    for n in 0..count {
        send(store, &format!("in flight {n}"), Due::NOW, 3).await;
    }
    let deliveries = reserve(store, count, LONG).await;
    assert_eq!(deliveries.len(), count);
    deliveries.into_iter().map(|d| d.claim).collect()
}

async fn counts(store: &dyn Store, queue: &str) -> Counts {
    store.counts(&other(queue)).await.unwrap()
}

async fn listed(store: &dyn Store, queue: &str, state: State) -> Vec<Record> {
    let page = Page {
        offset: 0,
        limit: 1000,
        payload_max: 1000,
    };
    store.list(&other(queue), state, page).await.unwrap()
}

fn ids(records: &[Record]) -> Vec<&MessageId> {
    records.iter().map(|record| &record.id).collect()
}

pub(crate) async fn an_ack_takes_messages_to_its_own_and_to_other_queues(store: &dyn Store) {
    let earlier = NewMessage::new("was there");
    store
        .send(&other("known"), &[earlier.clone()])
        .await
        .unwrap();
    let claim = in_flight(store, 1).await.remove(0);
    let headers = vec![("k".to_owned(), "v\n\"".to_owned())];
    let one = NewMessage {
        headers: headers.clone(),
        ..NewMessage::new(b"\x00one\xff")
    };
    let two = NewMessage::new("two");
    let later = NewMessage {
        due: Due::In(LONG),
        retries: 7,
        headers: headers.clone(),
        ..NewMessage::new("later")
    };
    let now = NewMessage::new("now");
    let past = NewMessage {
        due: Due::At(1000),
        ..NewMessage::new("past")
    };
    let outbox = [
        to("q", one.clone()),
        to("known", later.clone()),
        to("new", past.clone()),
        to("q", two.clone()),
        to("known", now.clone()),
    ];
    assert!(outbox.iter().all(|sent| {
        store.can_send_along(&queue(), &sent.queue) && store.can_send_along(&sent.queue, &queue())
    }));
    let how = ack_with(&outbox);
    assert_eq!(settle(store, &claim, how).await, Settled::Done);

    assert_eq!(store.get(&queue(), &claim.id).await.unwrap(), None);
    assert_eq!(depths(store).await, [0, 2, 0, 0, 0]);
    let totals = counts(store, "q").await.totals;
    assert_eq!((totals.sent, totals.acked), (3, 1));
    let ready = listed(store, "known", State::Ready).await;
    assert_eq!(ids(&ready), [&earlier.id, &now.id]);
    let pending = listed(store, "known", State::Pending).await.remove(0);
    assert_eq!(
        (&pending.id, &pending.headers, pending.retries_left),
        (&later.id, &headers, 7)
    );
    assert!(pending.at_ms.is_some());
    assert_eq!(counts(store, "known").await.totals.sent, 3);
    assert_eq!(
        ids(&listed(store, "new", State::Ready).await),
        [&past.id],
        "a queue that was not there is made"
    );
    let queues = store.queues().await.unwrap();
    assert_eq!(queues, ["known", "new", "q"].map(other));
    // In the order in which they were sent, as they were sent.
    let deliveries = reserve(store, 10, LONG).await;
    let got: Vec<_> = deliveries.iter().map(|d| &d.claim.id).collect();
    assert_eq!(got, [&one.id, &two.id]);
    assert_eq!(deliveries[0].payload.as_deref(), Some(&*one.payload));
    assert_eq!(deliveries[0].headers, headers);
    assert_eq!((deliveries[0].attempt, deliveries[0].attempts_max), (1, 4));
}

pub(crate) async fn only_an_ack_that_is_done_sends(store: &dyn Store) {
    let outbox = [
        to("q", NewMessage::new("own")),
        to("other", NewMessage::new("other")),
    ];
    let [nacked, rejected, acked] = in_flight(store, 3).await.try_into().unwrap();
    settle(store, &nacked, nack(None)).await;
    settle(store, &rejected, reject()).await;
    for stale in [&nacked, &rejected] {
        let answer = settle(store, stale, ack_with(&outbox)).await;
        assert_eq!(answer, Settled::LeaseLost);
    }
    // Nor does one of a lease that another has now.
    let again = reserve_one(store, LONG).await.claim;
    let answer = settle(store, &nacked, ack_with(&outbox)).await;
    assert_eq!(answer, Settled::LeaseLost);
    assert_eq!(counts(store, "other").await, Counts::default());
    assert_eq!(counts(store, "q").await.totals.sent, 3);
    settle(store, &again, Settlement::ACK).await;

    assert_eq!(
        settle(store, &acked, ack_with(&outbox)).await,
        Settled::Done
    );
    let fresh = [to("other", NewMessage::new("once more"))];
    for repeat in [ack_with(&outbox), ack_with(&fresh)] {
        assert_eq!(settle(store, &acked, repeat).await, Settled::LeaseLost);
    }
    let totals = [counts(store, "q").await, counts(store, "other").await];
    let totals = totals.map(|counts| (counts.totals.sent, counts.ready));
    assert_eq!(totals, [(4, 1), (1, 1)]);
}

pub(crate) async fn an_id_that_lives_is_not_sent_along_again(store: &dyn Store) {
    let claim = in_flight(store, 1).await.remove(0);
    let waits = send(store, "waits", Due::NOW, 3).await;
    let twin = NewMessage::new("twin");
    let with_id = |id: &MessageId| NewMessage {
        id: id.clone(),
        ..NewMessage::new("another")
    };
    let outbox = [
        to("q", with_id(&waits)),
        to("q", with_id(&claim.id)),
        to("q", twin.clone()),
        to("q", with_id(&twin.id)),
        // An id is one within its queue.
        to("other", with_id(&waits)),
    ];
    let answer = settle(store, &claim, ack_with(&outbox)).await;
    assert_eq!(answer, Settled::Done);
    assert_eq!(state_of(store, &claim.id).await, None);
    let payloads: Vec<_> = reserve(store, 10, LONG)
        .await
        .into_iter()
        .map(|delivery| delivery.payload.unwrap())
        .collect();
    assert_eq!(payloads, [b"waits".to_vec(), b"twin".to_vec()]);
    assert_eq!(counts(store, "q").await.totals.sent, 3);
    assert_eq!(counts(store, "other").await.ready, 1);
    // What was sent along is as known as what was sent.
    let sent = store.send(&queue(), &[twin.clone()]).await.unwrap();
    assert_eq!(sent, [Sent::new(twin.id, None)]);
}

pub(crate) async fn a_full_outbox_is_accepted_whole(store: &dyn Store) {
    let claims = in_flight(store, 3).await;
    let message = |n: usize| NewMessage {
        headers: vec![("n".to_owned(), n.to_string())],
        due: Due::In(LONG * u32::from(n.is_multiple_of(3))),
        ..NewMessage::new(vec![b'x'; 4000])
    };
    let of_one: Vec<_> = (0..OUTBOX_MAX).map(|n| to("q", message(n))).collect();
    let of_many: Vec<_> = (0..OUTBOX_MAX)
        .map(|n| to(&format!("to-{}", n % 10), message(n)))
        .collect();
    let batch = [
        (claims[0].clone(), ack_with(&of_one)),
        (claims[1].clone(), ack_with(&of_many)),
        (claims[2].clone(), Settlement::ACK),
    ];
    let answers = store.settle(&queue(), &batch).await.unwrap();
    assert_eq!(answers, [Settled::Done; 3]);
    assert_eq!(depths(store).await, [334, 666, 0, 0, 0]);
    for n in 0..10 {
        let counts = counts(store, &format!("to-{n}")).await;
        assert_eq!(counts.totals.sent, 100);
        assert_eq!(counts.pending + counts.ready, 100);
    }
}

pub(crate) async fn a_batch_with_outboxes_is_answered_in_order(store: &dyn Store) {
    let [a, b, c, d, stale] = in_flight(store, 5).await.try_into().unwrap();
    settle(store, &stale, Settlement::ACK).await;
    let one = || ack_with(&[to("other", NewMessage::new("x"))]);
    let batch = [
        (stale.clone(), one()),
        (a.clone(), one()),
        (b.clone(), Settlement::ACK),
        (stale, Settlement::ACK),
        (c.clone(), nack(None)),
        (d, one()),
        (c, one()),
        (a, Settlement::ACK),
    ];
    let answers = store.settle(&queue(), &batch).await.unwrap();
    // Of two settlements of one delivery either may come first when they are of two kinds.
    assert_eq!(answers.len(), 8);
    assert_eq!(answers[..4], {
        let lost = Settled::LeaseLost;
        let a_in_hand = answers[1];
        [lost, a_in_hand, Settled::Done, lost]
    });
    assert_eq!(answers[5], Settled::Done);
    for (one, other) in [(answers[1], answers[7]), (answers[4], answers[6])] {
        assert_ne!(one, other);
        assert!([one, other].contains(&Settled::Done));
    }
    let with_outbox = [1, 5, 6].map(|place| answers[place]);
    let done = with_outbox.iter().filter(|said| **said == Settled::Done);
    assert_eq!(counts(store, "other").await.ready, done.count() as u64);
}

pub(crate) async fn a_wait_ends_with_what_an_ack_sends(store: &dyn Store) {
    let hints = store.subscribe(&[other("other")]);
    let claims = in_flight(store, 150).await;
    // A first wait may end by itself, since something may have happened before it.
    for claims in claims.chunks(50) {
        let waited = async {
            tokio::join!(hints.notified(), async {
                // Until it is heard: a hint may be lost before the wait is set up.
                for claim in claims {
                    let outbox = [to("other", NewMessage::new("x"))];
                    settle(store, claim, ack_with(&outbox)).await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        };
        tokio::time::timeout(PATIENCE, waited)
            .await
            .expect("no wait ended");
    }
    assert_eq!(counts(store, "other").await.ready, 150);
}
