//! The queue for programs that handle messages themselves, over every store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dqhost::message::{Due, NewMessage, State};
use dqhost::store::{Page, Settled, Store};
use dqhost::{Queue, QueueError};

use crate::contract::{Fixture, MemoryFixture, RedisFixture, SqliteFixture};
use crate::support::{PATIENCE, RedisServer};

fn queue(store: Arc<dyn Store>) -> Queue {
    Queue::new(store, "q".parse().unwrap())
}

fn message(payload: &str, delay: Duration) -> NewMessage {
    NewMessage {
        due: Due::In(delay),
        ..NewMessage::new(payload)
    }
}

const NOW: Duration = Duration::ZERO;

async fn receive(queue: &Queue) -> dqhost::Received {
    queue
        .receive(PATIENCE)
        .await
        .unwrap()
        .expect("it never came")
}

async fn an_earlier_message_ends_the_wait_for_a_later_one(store: Arc<dyn Store>) {
    let queue = queue(store);
    queue
        .send(message("in an hour", Duration::from_hours(1)))
        .await
        .unwrap();
    let (received, ()) = tokio::join!(receive(&queue), async {
        queue
            .send(message("soon", Duration::from_millis(30)))
            .await
            .unwrap();
    });
    assert_eq!(received.payload(), b"soon");
    assert!(received.due_at_ms().is_some());
    assert_eq!(received.ack().await.unwrap(), Settled::Done);
    assert!(
        queue
            .receive(Duration::from_millis(20))
            .await
            .unwrap()
            .is_none()
    );
}

async fn a_limit_ends_the_wait(store: Arc<dyn Store>) {
    let queue = queue(store);
    let start = Instant::now();
    let limit = Duration::from_millis(30);
    assert!(queue.receive(limit).await.unwrap().is_none());
    assert!(start.elapsed() >= limit);
}

async fn what_was_not_handled_comes_again(store: Arc<dyn Store>) {
    let queue = queue(store);
    let briefly = queue.clone().with_lease(Duration::from_millis(1));
    let sent = NewMessage {
        retries: 2,
        headers: vec![("k".to_owned(), "v".to_owned())],
        ..NewMessage::new("again")
    };
    let id = queue.send(sent).await.unwrap().id;
    let first = receive(&queue).await;
    assert_eq!(
        (first.id(), first.attempt(), first.attempts_max()),
        (&id, 1, 3)
    );
    assert_eq!(first.headers()[0].1, "v");
    // Given back, it has cost nothing; its lease over, an attempt.
    first.release().await.unwrap();
    let dropped = receive(&briefly).await;
    assert_eq!(dropped.attempt(), 1);
    drop(dropped);
    let second = receive(&queue).await;
    assert_eq!(second.attempt(), 2);
    assert_eq!(second.extend().await.unwrap(), Settled::Done);
    assert_eq!(second.nack("not now", None).await.unwrap(), Settled::Done);
    let third = receive(&queue).await;
    assert_eq!(third.reject("never").await.unwrap(), Settled::Done);
    assert!(queue.receive(NOW).await.unwrap().is_none());
    let page = Page {
        offset: 0,
        limit: 9,
        payload_max: 9,
    };
    let name = queue.name().clone();
    while queue.store().counts(&name).await.unwrap().totals.dead == 0 {
        queue.receive(NOW).await.unwrap();
    }
    let dead = queue.store().list(&name, State::Dead, page).await.unwrap();
    assert_eq!(dead[0].last_attempt().unwrap().reason, "never");
}

async fn many_receivers_share_what_many_senders_send(store: Arc<dyn Store>) {
    let queue = queue(store);
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for n in 0..25 {
                    let delay = Duration::from_millis(n % 3 * 10);
                    queue
                        .send(message(&format!("{sender}/{n}"), delay))
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    let receivers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut payloads = Vec::new();
                for _ in 0..20 {
                    let received = receive(&queue).await;
                    payloads.push(String::from_utf8(received.payload().to_vec()).unwrap());
                    assert_eq!(received.ack().await.unwrap(), Settled::Done);
                }
                payloads
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    let mut payloads = Vec::new();
    for receiver in receivers {
        payloads.extend(receiver.await.unwrap());
    }
    payloads.sort();
    payloads.dedup();
    assert_eq!(payloads.len(), 100);
}

async fn a_full_queue_takes_no_more_until_there_is_room(store: Arc<dyn Store>) {
    let queue = queue(store).with_capacity(2);
    let batch = [message("a", NOW), message("b", Duration::from_hours(1))];
    queue.send_all(&batch, NOW).await.unwrap();
    let full = queue.send(message("c", NOW)).await.unwrap_err();
    assert!(matches!(full, QueueError::Full { capacity: 2 }), "{full}");
    let limit = Duration::from_millis(20);
    let full = queue
        .send_within(message("c", NOW), limit)
        .await
        .unwrap_err();
    assert!(matches!(full, QueueError::Full { .. }));
    let received = receive(&queue).await;
    let (sent, acked) = tokio::join!(
        queue.send_within(message("c", NOW), PATIENCE),
        received.ack(),
    );
    assert_eq!(acked.unwrap(), Settled::Done);
    assert!(sent.unwrap().due_at_ms.is_some());
    assert_eq!(receive(&queue).await.payload(), b"c");
}

async fn closing_ends_every_wait_and_keeps_what_is_there(store: Arc<dyn Store>) {
    let queue = queue(store).with_capacity(1);
    queue
        .send(message("kept", Duration::from_hours(1)))
        .await
        .unwrap();
    let waits = (0..3).map(|_| {
        let queue = queue.clone();
        tokio::spawn(async move { queue.receive(PATIENCE).await.map(|_| ()) })
    });
    let mut waits: Vec<_> = waits.collect();
    let sender = queue.clone();
    waits.push(tokio::spawn(async move {
        let sent = sender.send_within(message("no room", NOW), PATIENCE).await;
        sent.map(|_| ())
    }));
    tokio::task::yield_now().await;
    queue.close();
    for wait in waits {
        assert!(matches!(wait.await.unwrap(), Err(QueueError::Closed)));
    }
    assert!(matches!(queue.receive(NOW).await, Err(QueueError::Closed)));
    assert!(matches!(
        queue.send(message("x", NOW)).await,
        Err(QueueError::Closed)
    ));
    let again = Queue::new(Arc::clone(queue.store()), queue.name().clone());
    assert_eq!(again.store().counts(again.name()).await.unwrap().pending, 1);
}

async fn a_wait_without_end_is_one(store: Arc<dyn Store>) {
    let queue = queue(store).with_capacity(1);
    queue
        .send_within(message("x", NOW), Duration::MAX)
        .await
        .unwrap();
    let received = queue.receive(Duration::MAX).await.unwrap().unwrap();
    assert_eq!(received.payload(), b"x");
    received.ack().await.unwrap();
}

/// One sender is held up by its store, which is not to hold up those behind it.
async fn senders_behind_one_that_waits_end(queue: Queue) {
    let mut first = Box::pin(queue.send_within(message("first", NOW), PATIENCE));
    // From here on it has the turn.
    tokio::select! {
        biased;
        sent = &mut first => panic!("the store holds nothing up: {sent:?}"),
        () = std::future::ready(()) => {}
    }
    let limit = Duration::from_millis(20);
    let full = tokio::select! {
        biased;
        sent = &mut first => panic!("the limit waited for the store: {sent:?}"),
        full = queue.send_within(message("second", NOW), limit) => full,
    };
    assert!(
        matches!(full, Err(QueueError::Full { capacity: 1000 })),
        "{full:?}"
    );
    let waits = async {
        let third = queue.send_within(message("third", NOW), PATIENCE);
        tokio::join!(third, async { queue.close() }).0
    };
    let closed = tokio::select! {
        biased;
        sent = &mut first => panic!("close() waited for the store: {sent:?}"),
        closed = waits => closed,
    };
    assert!(matches!(closed, Err(QueueError::Closed)), "{closed:?}");
    let _ = first.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_and_close_end_the_wait_behind_a_send_that_a_silent_redis_holds_up() {
    let server = RedisServer::start();
    let queue = queue(server.store().await).with_capacity(1000);
    server.signal(rustix::process::Signal::STOP);
    senders_behind_one_that_waits_end(queue).await;
    server.signal(rustix::process::Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_and_close_end_the_wait_behind_a_send_that_a_locked_file_holds_up() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let options = dqhost::store::sqlite::SqliteOptions::file(&path);
    let store = dqhost::store::sqlite::SqliteStore::open(&options)
        .await
        .unwrap();
    let queue = queue(Arc::new(store)).with_capacity(1000);
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    senders_behind_one_that_waits_end(queue).await;
}

macro_rules! on_each_store {
    ($($case:ident,)*) => {
        on_each_store! { @on redis RedisFixture $($case,)* }
        on_each_store! { @on sqlite SqliteFixture $($case,)* }
        on_each_store! { @on memory MemoryFixture $($case,)* }
    };
    (@on $store:ident $fixture:ident $($case:ident,)*) => {
        mod $store {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let fixture = $fixture::new().await;
                super::$case(fixture.store()).await;
            })*
        }
    };
}

on_each_store! {
    an_earlier_message_ends_the_wait_for_a_later_one,
    a_limit_ends_the_wait,
    what_was_not_handled_comes_again,
    many_receivers_share_what_many_senders_send,
    a_full_queue_takes_no_more_until_there_is_room,
    closing_ends_every_wait_and_keeps_what_is_there,
    a_wait_without_end_is_one,
}
