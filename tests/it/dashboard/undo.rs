//! What was done by mistake is taken back, on both stores.

use std::sync::Arc;
use std::time::Duration;

use dqhost::control::controller::Controller;
use dqhost::control::{Channels, Command, LogRing, Notice, UNDO_MAX};
use dqhost::message::{Due, MessageId, NewMessage, QueueName, Record, State};
use dqhost::store::Store;
use dqhost::store::redis::{RedisOptions, RedisStore};
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};

use crate::contract::tools::reserve_one;
use crate::support::RedisServer;

fn queue() -> QueueName {
    "q".parse().unwrap()
}

/// Asks for it and waits for the answer.
async fn ask(channels: &mut Channels, command: Command) -> Notice {
    channels.commands.send(command).unwrap();
    channels.notices.recv().await.unwrap()
}

async fn record(store: &dyn Store, id: &MessageId) -> Option<Record> {
    store.get(&queue(), id).await.unwrap()
}

async fn undo(store: Arc<dyn Store>) {
    let queue = queue();
    let message = NewMessage {
        due: Due::In(Duration::from_hours(1)),
        retries: 7,
        headers: vec![("tenant".to_owned(), "acme".to_owned())],
        ..NewMessage::new("x")
    };
    let id = message.id.clone();
    store.send(&queue, &[message]).await.unwrap();
    let before = record(&*store, &id).await.unwrap();
    let controller = Controller {
        store: Arc::clone(&store),
        queues: vec![queue.clone()],
        host: None,
        read_only: false,
        handlers: None,
    };
    let (mut channels, _desk) = controller.open(Arc::new(LogRing::default()));

    let ids = vec![id.clone()];
    let cancelled = ask(&mut channels, Command::Cancel(queue.clone(), ids.clone())).await;
    assert!(cancelled.can_undo && !cancelled.failed, "{cancelled:?}");
    assert_eq!(record(&*store, &id).await, None);
    let undone = ask(&mut channels, Command::Undo).await;
    assert!(
        !undone.failed && undone.text.contains("1 of 1 back in q"),
        "{undone:?}"
    );
    assert_eq!(record(&*store, &id).await.unwrap(), before);
    // Once only.
    let again = ask(&mut channels, Command::Undo).await;
    assert!(
        again.failed && again.text.contains("nothing to undo"),
        "{again:?}"
    );

    let moved = Command::Reschedule(queue.clone(), ids, Due::NOW);
    let moved = ask(&mut channels, moved).await;
    assert!(moved.can_undo, "{moved:?}");
    assert_ne!(record(&*store, &id).await.unwrap().state, State::Pending);
    let undone = ask(&mut channels, Command::Undo).await;
    assert!(!undone.failed, "{undone:?}");
    assert_eq!(record(&*store, &id).await.unwrap(), before);

    // What is not there is not brought back, and too many are not kept.
    let nobody = vec!["nobody".into()];
    let cancelled = ask(&mut channels, Command::Cancel(queue.clone(), nobody)).await;
    assert!(cancelled.failed && !cancelled.can_undo, "{cancelled:?}");
    let many: Vec<NewMessage> = (0..=UNDO_MAX)
        .map(|_| NewMessage {
            due: Due::In(Duration::from_hours(1)),
            ..NewMessage::new("x")
        })
        .collect();
    store.send(&queue, &many).await.unwrap();
    let ids = many.into_iter().map(|message| message.id).collect();
    let cancelled = ask(&mut channels, Command::Cancel(queue.clone(), ids)).await;
    assert!(!cancelled.failed && !cancelled.can_undo, "{cancelled:?}");

    // What runs is cancelled too, and not brought back.
    let running = NewMessage::new("runs");
    let ids = vec![running.id.clone(), MessageId::new()];
    store.send(&queue, &[running]).await.unwrap();
    reserve_one(&*store, Duration::from_mins(1)).await;
    let killed = ask(&mut channels, Command::Kill(queue.clone(), ids.clone())).await;
    assert!(killed.failed && !killed.can_undo, "{killed:?}");
    assert!(killed.text.starts_with("1 of 2 cancelled"), "{killed:?}");
    assert_eq!(record(&*store, &ids[0]).await, None);
    assert!(ask(&mut channels, Command::Undo).await.failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_another_time_are_taken_back_on_a_file() {
    let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
    undo(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_and_another_time_are_taken_back_on_redis() {
    let server = RedisServer::start();
    let options = RedisOptions::new(server.url());
    undo(Arc::new(RedisStore::open(&options).await.unwrap())).await;
}
