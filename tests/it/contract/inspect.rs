//! What is seen of a queue and its messages.

use std::time::Duration;

use dqhost::message::{Due, HistoryEntry, NewMessage, State};
use dqhost::store::{
    BATCH_MAX, DUE_SPANS_MAX, DueAhead, FAILED_SAMPLE_MAX, FailedAt, FailedSample, Overview, Page,
    Settlement, Store,
};

use super::tools::*;

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
