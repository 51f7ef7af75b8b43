//! Everything that a store can be asked for.

use std::time::Duration;

use dqhost::message::{Due, MessageId, NewMessage, OnRepeat, QueueName, State};
use dqhost::store::{
    End, First, HOST_SILENCE, HostInfo, Limits, Page, Peer, Reservation, Retention, Settled,
    Settlement, Store, StoreError, StoreResult,
};

use crate::contract::settle::outbox::{ack_with, other, to};
use crate::contract::tools::{LONG, SHORT, ended, nack, reject};

/// Bytes that an answer about a few messages takes at most, as it is printed here.
const ANSWER_MAX: usize = 1 << 20;

/// Answers are of a bounded size, and errors are no panics that were caught.
fn check<T: std::fmt::Debug>(what: &str, result: StoreResult<T>) -> Option<T> {
    match result {
        Ok(answer) => {
            let size = format!("{answer:?}").len();
            assert!(size < ANSWER_MAX, "{what} answers with {size} bytes");
            Some(answer)
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains("a bug in dqhost"), "{what}: {text}");
            assert!(text.len() < 4000, "{what}: {text}");
            None
        }
    }
}

fn wanted(first: First) -> Reservation {
    Reservation {
        max: 20,
        lease: LONG,
        first,
        retries_default: 3,
    }
}

/// What only looks.
pub(super) async fn look(store: &dyn Store, queue: &QueueName, ids: &[MessageId]) {
    check("counts", store.counts(queue).await);
    if let Some(overview) = check("overview", store.overview(queue).await) {
        let _ = (overview.counts.is_drained(), overview.counts.alive());
    }
    for (span, spans) in [(SHORT, 5), (Duration::ZERO, 1), (Duration::MAX, usize::MAX)] {
        check("due ahead", store.due_ahead(queue, span, spans).await);
    }
    for (age, number) in [(None, Some(0)), (Some(Duration::ZERO), None)] {
        let retention = Retention { age, number };
        check("retention", store.past_retention(queue, retention).await);
    }
    check("hosts", store.hosts(queue, HOST_SILENCE).await);
    check("queues", store.queues().await);
    for (offset, limit) in [(0, 10), (1, usize::MAX), (usize::MAX, 0)] {
        check("ended", store.ended(queue, offset, limit).await);
    }
    for id in ids {
        check("get", store.get(queue, id).await);
    }
    for state in State::ALL {
        for (offset, payload_max) in [(0, 0), (0, 10), (1, usize::MAX >> 1), (usize::MAX, 1)] {
            let page = Page {
                offset,
                limit: 50,
                payload_max,
            };
            check("list", store.list(queue, state, page).await);
        }
    }
}

/// What a host does, until nothing more comes or it was often enough: a message whose lease expires at
/// once comes again and again.
pub(super) async fn handle(store: &dyn Store, queue: &QueueName) {
    for turn in 0..6 {
        check("advance", store.advance(queue).await);
        let first = First::in_turn(turn);
        let mut deliveries = Vec::new();
        if let Some((_, some)) = check(
            "advance and reserve",
            store.advance_and_reserve(queue, wanted(first)).await,
        ) {
            deliveries.extend(some);
        }
        if let Some(some) = check("reserve", store.reserve(queue, wanted(first)).await) {
            deliveries.extend(some);
        }
        let limits = Limits {
            rate: "100000/s".parse().ok(),
            max_running: std::num::NonZeroU32::new(1000),
            by: (turn % 3 == 0).then(|| "header:k".parse().unwrap()),
            fair_by: (turn % 3 == 1).then(|| "header:k".parse().unwrap()),
            fair_weights: dqhost::store::FairWeights::EQUAL,
        };
        let limited = store.reserve_limited(queue, wanted(first), &limits).await;
        if let Some(some) = check("reserve within limits", limited) {
            deliveries.extend(some.deliveries);
        }
        let claims: Vec<_> = deliveries.into_iter().map(|d| d.claim).collect();
        check("extend", store.extend(queue, &claims, LONG).await);
        let all = claims.iter().cloned().enumerate();
        let settlements: Vec<_> = all
            .map(|(at, claim)| {
                let how = match at % 5 {
                    0 => Settlement::ACK,
                    1 => nack(None),
                    2 => nack(Some(Duration::ZERO)),
                    3 => reject(),
                    _ => ack_with(&[to("fine", NewMessage::new("sent along"))]),
                };
                (claim, how)
            })
            .collect();
        let half = settlements.len() / 2;
        check("settle", store.settle(queue, &settlements[..half]).await);
        check("release", store.release(queue, &claims[half..]).await);
    }
}

/// What people do.
pub(super) async fn steer(store: &dyn Store, queue: &QueueName, ids: &[MessageId]) {
    check("send", store.send(queue, &[NewMessage::new("new")]).await);
    check(
        "reschedule",
        store.reschedule(queue, ids, Due::In(SHORT)).await,
    );
    check("reschedule", store.reschedule(queue, ids, Due::NOW).await);
    check(
        "redrive",
        store
            .redrive(queue, ids, dqhost::store::Redrive::default())
            .await,
    );
    for id in ids.iter().take(3) {
        let edited = store.redrive_edited(queue, id, b"edited", None).await;
        check("redrive edited", edited);
    }
    check(
        "delete",
        store.delete_dead(queue, &ids[..ids.len() / 2]).await,
    );
    check("cancel", store.cancel(queue, ids).await);
    schedule(store, queue).await;
    check("kill", store.kill(queue, ids).await);
    let told = (ended("a", End::Died), SHORT);
    check("keep ended", store.keep_ended(queue, &[told], 3).await);
    let results = [("a".into(), b"x".to_vec())];
    check("results", store.keep_results(queue, &results, 10).await);
    check("result", store.result(queue, &"a".into()).await);
    for paused in [true, false] {
        check("pause", store.set_paused(queue, paused).await);
    }
    let host = HostInfo {
        id: "host".to_owned(),
        version: String::new(),
        handler: String::new(),
        slots: 1,
        in_flight: 0,
    };
    check(
        "heartbeat",
        store.heartbeat(queue, &host, HOST_SILENCE).await,
    );
    check("leave", store.leave(queue, "host").await);
    transfer(store, queue, ids).await;
    // Last, since it gives each a payload.
    for id in ids {
        repeat(store, queue, id).await;
    }
}

async fn schedule(store: &dyn Store, queue: &QueueName) {
    let tick = dqhost::store::Tick {
        schedule: "s".to_owned(),
        message: NewMessage::new("x"),
        may_overlap: false,
    };
    check("send_ticks", store.send_ticks(queue, &[tick]).await);
    check(
        "set_schedule_paused",
        store.set_schedule_paused(queue, "s", true).await,
    );
    check("schedules", store.schedules(queue).await);
}

async fn transfer(store: &dyn Store, queue: &QueueName, ids: &[MessageId]) {
    let run = "run";
    let peer = Peer {
        name: "elsewhere".to_owned(),
        renamed: true,
        run: run.to_owned(),
    };
    check("begin_transfer", store.begin_transfer(queue, &peer).await);
    let taken = check("export", store.export(queue, run, 20).await);
    for record in taken.into_iter().flatten() {
        let id = [record.id.clone()];
        let copy = dqhost::message::Record {
            id: MessageId::new(),
            ..record
        };
        check("import", store.import(queue, run, &[copy]).await);
        check("commit_import", store.commit_import(queue, run, &id).await);
    }
    check(
        "remove_exported",
        store.remove_exported(queue, run, ids).await,
    );
}

async fn repeat(store: &dyn Store, queue: &QueueName, id: &MessageId) {
    let once = NewMessage {
        id: id.clone(),
        dedup_window: SHORT,
        ..NewMessage::new("once")
    };
    check("send once", store.send(queue, &[once.clone()]).await);
    for on_repeat in [
        OnRepeat::Replace {
            max_wait: Some(SHORT),
        },
        OnRepeat::Extend { max_wait: None },
    ] {
        let again = NewMessage {
            on_repeat,
            ..once.clone()
        };
        check("send or change", store.send(queue, &[again]).await);
    }
}

/// A message goes the whole way in the queue beside.
pub(super) async fn neighbour_works(store: &dyn Store) -> Result<(), StoreError> {
    let queue = other("fine");
    let message = NewMessage::new("x");
    store.send(&queue, &[message.clone()]).await?;
    store.advance(&queue).await?;
    let mut settled = Vec::new();
    while !settled.contains(&message.id) {
        let deliveries = store.reserve(&queue, wanted(First::Ready)).await?;
        assert!(!deliveries.is_empty(), "{} is not given out", message.id);
        let claims = deliveries.into_iter().map(|d| d.claim);
        let acks: Vec<_> = claims.map(|claim| (claim, Settlement::ACK)).collect();
        let answers = store.settle(&queue, &acks).await?;
        assert!(answers.iter().all(|answer| *answer == Settled::Done));
        settled.extend(acks.into_iter().map(|(claim, _)| claim.id));
    }
    Ok(())
}
