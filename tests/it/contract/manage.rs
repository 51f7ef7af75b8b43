//! What people see of a queue and change in it.

use std::time::Duration;

use dqhost::message::{Due, HistoryEntry, MessageId, NewMessage, State};
use dqhost::store::{
    Audit, AuditReport, BATCH_MAX, DUE_SPANS_MAX, DueAhead, FAILED_SAMPLE_MAX, FailedAt,
    FailedSample, First, Overview, Page, Redriven, Rescheduled, Settled, Settlement, Store,
};

use super::tools::*;
use crate::support::PATIENCE;

async fn overview(store: &dyn Store) -> Overview {
    store.overview(&queue()).await.unwrap()
}

async fn pause(store: &dyn Store, paused: bool) {
    store.set_paused(&queue(), paused).await.unwrap();
}

/// Sends a message that then fails once, and says when it runs again.
async fn send_failing(store: &dyn Store, retries: u32, delay: Option<Duration>) -> MessageId {
    let id = send(store, "failing", Due::NOW, retries).await;
    let delivery = reserve(store, 1, LONG).await.remove(0);
    assert_eq!(delivery.claim.id, id);
    settle(store, &delivery.claim, nack(delay)).await;
    id
}

/// Due, as the store lists it.
async fn due_of(store: &dyn Store, id: &MessageId) -> u64 {
    let record = store.get(&queue(), id).await.unwrap().unwrap();
    assert_eq!(record.state, State::Pending);
    record.at_ms.unwrap()
}

/// Advances until nothing is pending.
async fn promote_all(store: &dyn Store) {
    while store.counts(&queue()).await.unwrap().pending > 0 {
        advance_until(store, |advanced| advanced.promoted > 0).await;
    }
}

/// Checks that a wait ends when something is done again and again.
async fn ends_a_wait(store: &dyn Store, what: impl AsyncFn()) {
    let hints = store.subscribe(&[queue()]);
    // A first wait may end by itself, since something may have happened before it.
    for _ in 0..3 {
        let waited = async {
            tokio::join!(hints.notified(), async {
                // Until it is heard: a hint may be lost before the wait is set up.
                for _ in 0..50 {
                    what().await;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        };
        tokio::time::timeout(PATIENCE, waited)
            .await
            .expect("no wait ended");
    }
}

pub(crate) async fn a_paused_queue_gives_nothing_and_goes_on_with_the_rest(store: &dyn Store) {
    send_failing(store, 3, None).await;
    for payload in ["acked", "nacked", "released"] {
        send(store, payload, Due::NOW, 3).await;
    }
    let claims: Vec<_> = reserve(store, 3, LONG)
        .await
        .into_iter()
        .map(|delivery| delivery.claim)
        .collect();
    // A repeat changes nothing.
    for _ in 0..2 {
        pause(store, true).await;
        assert!(overview(store).await.paused);
    }
    send(store, "now", Due::NOW, 3).await;
    send(store, "soon", Due::In(SHORT), 3).await;
    promote_all(store).await;
    assert_eq!(
        store.extend(&queue(), &claims, LONG).await.unwrap(),
        [Settled::Done; 3]
    );
    assert_eq!(
        settle(store, &claims[0], Settlement::ACK).await,
        Settled::Done
    );
    assert_eq!(settle(store, &claims[1], nack(None)).await, Settled::Done);
    assert_eq!(
        store.release(&queue(), &claims[2..]).await.unwrap(),
        [Settled::Done]
    );
    assert_eq!(depths(store).await, [0, 3, 0, 2, 0]);
    for first in [First::Ready, First::Retry] {
        assert!(reserve_first(store, 10, LONG, first).await.is_empty());
    }
    assert_eq!(depths(store).await, [0, 3, 0, 2, 0]);
    for _ in 0..2 {
        pause(store, false).await;
        assert!(!overview(store).await.paused);
    }
    assert_eq!(reserve(store, 10, LONG).await.len(), 5);
}

pub(crate) async fn a_queue_can_be_paused_before_its_first_message(store: &dyn Store) {
    pause(store, true).await;
    assert_eq!(store.queues().await.unwrap(), [queue()]);
    let other = "other".parse().unwrap();
    store
        .send(&other, &[NewMessage::new("elsewhere")])
        .await
        .unwrap();
    send(store, "a", Due::NOW, 3).await;
    assert!(reserve(store, 1, LONG).await.is_empty());
    assert!(!store.overview(&other).await.unwrap().paused);
    pause(store, false).await;
    assert_eq!(
        reserve_one(store, LONG).await.payload.as_deref(),
        Some(b"a".as_slice())
    );
}

pub(crate) async fn a_wait_ends_when_a_queue_is_resumed(store: &dyn Store) {
    ends_a_wait(store, async || {
        pause(store, true).await;
        pause(store, false).await;
    })
    .await;
}

pub(crate) async fn an_overview_tells_how_a_queue_stands(store: &dyn Store) {
    let nothing = overview(store).await;
    assert!(nothing.now_ms > 1_700_000_000_000, "{nothing:?}");
    let expected = Overview {
        now_ms: nothing.now_ms,
        ..Overview::default()
    };
    assert_eq!(nothing, expected);

    send(store, "dead", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    let backing_off = send_failing(store, 3, Some(LONG)).await;
    send_failing(store, 1, None).await;
    assert_eq!(reserve_one(store, LONG).await.attempt, 2);
    send_failing(store, 2, None).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    send(store, "in flight", Due::NOW, 3).await;
    assert_eq!(reserve(store, 1, LONG).await[0].attempt, 1);
    let first = send(store, "first in line", Due::In(SHORT), 3).await;
    let due = due_of(store, &first).await;
    advance_until(store, |advanced| advanced.promoted == 1).await;
    send(store, "second in line", Due::NOW, 3).await;
    send(store, "later", Due::In(2 * LONG), 3).await;
    pause(store, true).await;

    let counts = store.counts(&queue()).await.unwrap();
    assert_eq!(depths(store).await, [2, 2, 2, 1, 1]);
    let overview = overview(store).await;
    assert!(overview.now_ms >= due.max(nothing.now_ms), "{overview:?}");
    let at = |failed, count, last| FailedAt {
        failed,
        count,
        last,
    };
    let expected = Overview {
        limited: 0,
        counts,
        paused: true,
        now_ms: overview.now_ms,
        next_due_ms: Some(due_of(store, &backing_off).await),
        oldest_ready_ms: Some(due),
        failed: FailedSample {
            partial: false,
            backing_off: 1,
            by_failed: vec![at(1, 2, 1), at(2, 1, 1)],
        },
    };
    assert_eq!(overview, expected);
}

pub(crate) async fn due_times_are_counted_by_span(store: &dyn Store) {
    const HOUR: Duration = Duration::from_hours(1);
    let ahead = async |spans| store.due_ahead(&queue(), HOUR, spans).await.unwrap();
    let counts = |ahead: &DueAhead| -> Vec<(u64, u64)> {
        assert!(!ahead.partial && ahead.spans.iter().all(|span| !span.is_more));
        let both = ahead.spans.iter().map(|span| (span.count, span.failed));
        both.collect()
    };
    let nothing = ahead(3).await;
    assert!(nothing.from_ms > 1_700_000_000_000, "{nothing:?}");
    assert_eq!(counts(&nothing), [(0, 0); 3]);

    send_failing(store, 3, Some(HOUR / 2)).await;
    for due in [HOUR / 2, HOUR / 2, HOUR * 3 / 2, HOUR * 19 / 2] {
        send(store, "later", Due::In(due), 3).await;
    }
    send(store, "now", Due::NOW, 3).await;
    let some = ahead(3).await;
    assert!(some.from_ms >= nothing.from_ms);
    assert_eq!(counts(&some), [(3, 1), (1, 0), (0, 0)]);
    assert_eq!(counts(&ahead(11).await)[8..], [(0, 0), (1, 0), (0, 0)]);

    // What no host has promoted yet is in the first span.
    let overdue = send(store, "soon", Due::In(SHORT), 3).await;
    let due = due_of(store, &overdue).await;
    while overview(store).await.now_ms <= due {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(counts(&ahead(2).await), [(4, 1), (1, 0)]);
    let many = store.due_ahead(&queue(), Duration::ZERO, usize::MAX).await;
    assert_eq!(many.unwrap().spans.len(), DUE_SPANS_MAX);
}

pub(crate) async fn what_was_due_at_once_is_as_old_as_its_id(store: &dyn Store) {
    let id = send(store, "a", Due::NOW, 3).await;
    assert_eq!(overview(store).await.oldest_ready_ms, id.sent_at_ms());
    let message = NewMessage {
        id: "of another producer".into(),
        ..NewMessage::new("b")
    };
    store.cancel(&queue(), &[id]).await.unwrap();
    store.send(&queue(), &[message]).await.unwrap();
    let overview = overview(store).await;
    assert_eq!((overview.counts.ready, overview.oldest_ready_ms), (1, None));
}

pub(crate) async fn of_many_that_have_failed_a_part_is_looked_at(store: &dyn Store) {
    let batch: Vec<NewMessage> = (0..2 * BATCH_MAX)
        .map(|n| NewMessage::new(n.to_string()))
        .collect();
    store.send(&queue(), &batch).await.unwrap();
    for _ in 0..2 {
        let nacks: Vec<_> = reserve(store, BATCH_MAX, LONG)
            .await
            .into_iter()
            .map(|delivery| (delivery.claim, nack(Some(LONG))))
            .collect();
        store.settle(&queue(), &nacks).await.unwrap();
    }
    let overview = overview(store).await;
    assert_eq!(overview.counts.pending, 2 * BATCH_MAX as u64);
    assert!(overview.failed.partial);
    let [at] = overview.failed.by_failed[..] else {
        panic!("{overview:?}")
    };
    assert!((1..=FAILED_SAMPLE_MAX as u64).contains(&at.count), "{at:?}");
    assert_eq!(
        (at.failed, at.last, overview.failed.backing_off),
        (1, 0, at.count)
    );
    let ahead = store.due_ahead(&queue(), 2 * LONG, 1).await.unwrap();
    assert!(ahead.partial);
    assert_eq!(ahead.spans[0].count, 2 * BATCH_MAX as u64);
    let failed = ahead.spans[0].failed;
    assert!(
        (1..=FAILED_SAMPLE_MAX as u64).contains(&failed),
        "{ahead:?}"
    );
}

pub(crate) async fn what_waits_can_be_made_due_now(store: &dyn Store) {
    let dead = send(store, "dead", Due::NOW, 3).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    let retry = send_failing(store, 3, None).await;
    let backing_off = send_failing(store, 3, Some(LONG)).await;
    let in_flight = send(store, "in flight", Due::NOW, 3).await;
    assert_eq!(reserve(store, 1, LONG).await[0].claim.id, in_flight);
    let ready = send(store, "ready", Due::NOW, 3).await;
    let pending = send(store, "pending", Due::In(LONG), 3).await;
    let unknown = MessageId::new();
    let ids = [
        &pending,
        &backing_off,
        &ready,
        &retry,
        &in_flight,
        &dead,
        &unknown,
    ]
    .map(MessageId::clone);
    let mut told = Vec::new();
    // A time that has passed means now, and a repeat finds all of them in line.
    for due in [Due::NOW, Due::At(1000)] {
        let from = overview(store).await.now_ms;
        let answers = store.reschedule(&queue(), &ids, due).await.unwrap();
        let to = overview(store).await.now_ms;
        for answer in &answers[..4] {
            let Rescheduled::At(at_ms) = answer else {
                panic!("{answers:?}")
            };
            assert!((from..=to).contains(at_ms), "{from} {at_ms} {to}");
            told.push(*at_ms);
        }
        let others = [
            Rescheduled::InFlight,
            Rescheduled::Unknown,
            Rescheduled::Unknown,
        ];
        assert_eq!(answers[4..], others);
        assert_eq!(depths(store).await, [0, 2, 1, 2, 1]);
    }
    // Each is behind those that were in line before it, and is told when it became due.
    let mut deliveries = reserve(store, 10, LONG).await;
    let got: Vec<_> = deliveries.iter().map(|d| &d.claim.id).collect();
    assert_eq!(got, [&ready, &pending, &retry, &backing_off]);
    assert_eq!(
        (deliveries[1].due_at_ms, deliveries[3].due_at_ms),
        (Some(told[0]), Some(told[1]))
    );
    let last = deliveries.remove(3);
    assert_eq!((last.attempt, last.attempts_max), (2, 4));
}

pub(crate) async fn what_waits_can_be_put_off_and_brought_forward(store: &dyn Store) {
    let retry = send_failing(store, 3, None).await;
    let ready = send(store, "ready", Due::NOW, 3).await;
    let pending = send(store, "pending", Due::In(2 * LONG), 3).await;
    let ids = [retry.clone(), ready.clone(), pending.clone()];
    let before = overview(store).await;
    // Twice: a repeat does the same again.
    for _ in 0..2 {
        let answers = store.reschedule(&queue(), &ids, Due::In(LONG)).await;
        let answers = answers.unwrap();
        assert_eq!(depths(store).await, [3, 0, 0, 0, 0]);
        assert!(reserve(store, 1, LONG).await.is_empty());
        let mut dues = Vec::new();
        for (id, answer) in ids.iter().zip(answers) {
            dues.push(due_of(store, id).await);
            assert_eq!(answer, Rescheduled::At(*dues.last().unwrap()));
        }
        assert_eq!(overview(store).await.next_due_ms, dues.into_iter().min());
    }
    let at_ms = before.now_ms + 3_600_000;
    assert_eq!(
        store
            .reschedule(&queue(), &ids[..1], Due::At(at_ms))
            .await
            .unwrap(),
        [Rescheduled::At(at_ms)]
    );
    let record = store.get(&queue(), &retry).await.unwrap().unwrap();
    assert_eq!(
        (record.at_ms, record.attempts, record.retries_left),
        (Some(at_ms), 1, 2)
    );
    store
        .reschedule(&queue(), &ids, Due::In(SHORT))
        .await
        .unwrap();
    promote_all(store).await;
    for (id, state) in [
        (&retry, State::Retry),
        (&ready, State::Ready),
        (&pending, State::Ready),
    ] {
        assert_eq!(state_of(store, id).await, Some(state));
    }
    let deliveries = reserve(store, 10, LONG).await;
    assert_eq!(deliveries.len(), 3);
    assert!(
        deliveries
            .iter()
            .all(|d| d.due_at_ms >= Some(before.now_ms))
    );
}

pub(crate) async fn a_wait_ends_when_a_message_is_brought_forward(store: &dyn Store) {
    let ids = [send(store, "a", Due::In(LONG), 3).await];
    ends_a_wait(store, async || {
        for due in [Due::NOW, Due::In(LONG)] {
            store.reschedule(&queue(), &ids, due).await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn an_edited_redrive_is_a_new_message_and_keeps_the_dead_letter(
    store: &dyn Store,
) {
    let headers = vec![("k".to_owned(), "v".to_owned())];
    let message = NewMessage {
        retries: 3,
        headers: headers.clone(),
        ..NewMessage::new("wrong")
    };
    store.send(&queue(), &[message.clone()]).await.unwrap();
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, nack(None)).await;
    let claim = reserve_one(store, LONG).await.claim;
    settle(store, &claim, reject()).await;
    collect_garbage(store).await;
    let dead = store.get(&queue(), &message.id).await.unwrap();
    let id = &message.id;
    let totals = store.counts(&queue()).await.unwrap().totals;
    // The second time as well: another one is sent.
    for (payload, retries, attempts_max) in [("right", None, 4), ("", Some(0), 1)] {
        let answer = store
            .redrive_edited(&queue(), id, payload.as_bytes(), retries)
            .await
            .unwrap();
        let Redriven::As(new) = answer else {
            panic!("{answer:?}")
        };
        assert_ne!(new, *id);
        assert_eq!(depths(store).await, [0, 1, 0, 0, 1]);
        assert_eq!(store.get(&queue(), id).await.unwrap(), dead);
        let record = store.get(&queue(), &new).await.unwrap().unwrap();
        assert!(matches!(&record.history[..],
            [HistoryEntry::Redriven { redriven_from, .. }] if redriven_from == id.as_str()));
        let delivery = reserve_one(store, LONG).await;
        assert_eq!(
            (&delivery.claim.id, delivery.attempt, delivery.attempts_max),
            (&new, 1, attempts_max)
        );
        assert_eq!(delivery.payload.as_deref(), Some(payload.as_bytes()));
        assert_eq!(delivery.headers, headers);
        settle(store, &delivery.claim, Settlement::ACK).await;
    }
    let after = store.counts(&queue()).await.unwrap().totals;
    assert_eq!(
        (after.redriven, after.sent),
        (totals.redriven + 2, totals.sent)
    );
    let live = send(store, "live", Due::NOW, 3).await;
    for id in [&live, &MessageId::new()] {
        let answer = store.redrive_edited(&queue(), id, b"x", None).await;
        assert_eq!(answer.unwrap(), Redriven::Unknown);
    }
    let page = Page {
        offset: 0,
        limit: 10,
        payload_max: 10,
    };
    let listed = store.list(&queue(), State::Dead, page).await.unwrap();
    assert_eq!(listed.len(), 1);
}

pub(crate) async fn an_audit_of_what_is_right_finds_nothing_and_changes_nothing(store: &dyn Store) {
    let how = Audit {
        repair: true,
        settling: Duration::ZERO,
    };
    let nothing = AuditReport::default();
    assert_eq!(store.audit(&queue(), how).await.unwrap(), nothing);
    let filled = crate::audit::fill(store).await;
    let before = depths(store).await;
    assert_eq!(store.audit(&queue(), how).await.unwrap(), nothing);
    assert_eq!(store.audit_store(true).await.unwrap(), nothing);
    assert_eq!(depths(store).await, before);
    crate::audit::nothing_is_lost(store, &filled, &[]).await;
    assert_eq!(store.audit(&queue(), how).await.unwrap(), nothing);
}

pub(crate) async fn an_empty_payload_is_listed_as_empty(store: &dyn Store) {
    let id = send(store, "", Due::NOW, 3).await;
    for payload_max in [1, 60, usize::MAX >> 1] {
        let page = Page {
            offset: 0,
            limit: 10,
            payload_max,
        };
        let listed = store.list(&queue(), State::Ready, page).await.unwrap();
        assert_eq!(listed[0].payload, Some(Vec::new()), "{payload_max}");
    }
    let record = store.get(&queue(), &id).await.unwrap().unwrap();
    assert_eq!(record.payload, Some(Vec::new()));
}
