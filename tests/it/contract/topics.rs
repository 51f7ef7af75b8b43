//! Topics: copies in all queues that subscribe, or in none.

use dqhost::message::{
    Due, MessageId, NewMessage, OnRepeat, QueueName, SendOutcome, TopicName, topic,
};
use dqhost::store::{Settlement, Store};

use super::settle::outbox::other;
use super::tools::*;

fn topic() -> TopicName {
    "orders".parse().unwrap()
}

async fn subscribe(store: &dyn Store, names: &[&str]) {
    for name in names {
        let done = store.subscribe_queue(&topic(), &other(name)).await;
        assert!(done.unwrap());
    }
}

/// The depths of pending and ready.
async fn waiting(store: &dyn Store, queue: &QueueName) -> (u64, u64) {
    let counts = store.counts(queue).await.unwrap();
    (counts.pending, counts.ready)
}

pub(crate) async fn a_queue_subscribes_once_and_until_it_ends_that(store: &dyn Store) {
    assert_eq!(store.subscriptions().await.unwrap(), []);
    subscribe(store, &["b", "a"]).await;
    let refunds: TopicName = "refunds".parse().unwrap();
    assert!(store.subscribe_queue(&refunds, &other("a")).await.unwrap());
    assert!(!store.subscribe_queue(&topic(), &other("a")).await.unwrap());
    let expected = [
        (topic(), other("a")),
        (topic(), other("b")),
        (refunds.clone(), other("a")),
    ];
    assert_eq!(store.subscriptions().await.unwrap(), expected);
    assert_eq!(store.queues().await.unwrap(), [other("a"), other("b")]);
    assert!(
        store
            .unsubscribe_queue(&topic(), &other("a"))
            .await
            .unwrap()
    );
    assert!(
        !store
            .unsubscribe_queue(&topic(), &other("a"))
            .await
            .unwrap()
    );
    assert!(
        !store
            .unsubscribe_queue(&refunds, &other("b"))
            .await
            .unwrap()
    );
    let left = [(topic(), other("b")), (refunds, other("a"))];
    assert_eq!(store.subscriptions().await.unwrap(), left);
}

pub(crate) async fn each_queue_of_a_topic_has_a_copy_and_no_other_queue(store: &dyn Store) {
    subscribe(store, &["a", "q"]).await;
    let messages = [
        NewMessage {
            headers: vec![("k".to_owned(), "v".to_owned())],
            ..NewMessage::new("now")
        },
        NewMessage {
            due: Due::In(LONG),
            ..NewMessage::new("later")
        },
    ];
    let sent = store.send_to_topic(&topic(), &messages).await.unwrap();
    let queues: Vec<&QueueName> = sent.iter().map(|(queue, _)| queue).collect();
    assert_eq!(queues, [&other("a"), &queue()]);
    for (of, sent) in &sent {
        for (message, sent) in messages.iter().zip(sent) {
            assert_eq!(sent.outcome, SendOutcome::Sent);
            assert_eq!(sent.id, message.id);
            let record = store.get(of, &message.id).await.unwrap().unwrap();
            assert_eq!(record.payload.as_deref(), Some(&message.payload[..]));
            let named = (topic::TOPIC.to_owned(), "orders".to_owned());
            assert!(record.headers.contains(&named));
            assert_eq!(record.headers.len(), message.headers.len() + 1);
        }
        assert_eq!(waiting(store, of).await, (1, 1));
        assert_eq!(store.counts(of).await.unwrap().totals.sent, 2);
    }
    assert_eq!(store.queues().await.unwrap().len(), 2);
    // Each is handled by itself.
    let delivery = reserve_one(store, LONG).await;
    settle(store, &delivery.claim, Settlement::ACK).await;
    assert_eq!(waiting(store, &queue()).await, (1, 0));
    assert_eq!(waiting(store, &other("a")).await, (1, 1));
}

pub(crate) async fn a_topic_without_queues_takes_nothing(store: &dyn Store) {
    let message = [NewMessage::new("x")];
    let sent = store.send_to_topic(&topic(), &message).await.unwrap();
    assert_eq!(sent, []);
    assert_eq!(store.queues().await.unwrap(), []);
}

pub(crate) async fn a_repeat_to_a_topic_goes_where_it_is_missing(store: &dyn Store) {
    subscribe(store, &["a"]).await;
    let once = [NewMessage {
        id: MessageId::of_key("key"),
        dedup_window: LONG,
        ..NewMessage::new("x")
    }];
    store.send_to_topic(&topic(), &once).await.unwrap();
    subscribe(store, &["q"]).await;
    let sent = store.send_to_topic(&topic(), &once).await.unwrap();
    let outcomes: Vec<SendOutcome> = sent.iter().map(|(_, sent)| sent[0].outcome).collect();
    assert_eq!(outcomes, [SendOutcome::Repeat, SendOutcome::Sent]);
    assert_eq!(waiting(store, &other("a")).await, (0, 1));
    assert_eq!(waiting(store, &queue()).await, (0, 1));
}

pub(crate) async fn many_messages_to_many_queues_are_accepted_in_order(store: &dyn Store) {
    let names: Vec<String> = (0..20).map(|n| format!("q{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    subscribe(store, &names).await;
    let batch: Vec<NewMessage> = (0..120).map(|n| NewMessage::new(n.to_string())).collect();
    let sent = store.send_to_topic(&topic(), &batch).await.unwrap();
    assert_eq!(sent.len(), 20);
    for (of, sent) in &sent {
        let ids: Vec<&MessageId> = sent.iter().map(|sent| &sent.id).collect();
        let expected: Vec<&MessageId> = batch.iter().map(|message| &message.id).collect();
        assert_eq!(ids, expected);
        assert_eq!(waiting(store, of).await, (0, 120));
    }
}

pub(crate) async fn a_topic_has_so_many_queues_and_no_more(store: &dyn Store) {
    for n in 0..topic::TOPIC_QUEUES_MAX {
        subscribe(store, &[&format!("q{n}")]).await;
    }
    let refused = store.subscribe_queue(&topic(), &other("one-more")).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("topic orders has 100 queues"), "{error}");
    let sent = store
        .send_to_topic(&topic(), &[NewMessage::new("x")])
        .await
        .unwrap();
    assert_eq!(sent.len(), topic::TOPIC_QUEUES_MAX);
}

pub(crate) async fn a_message_to_a_topic_changes_no_other(store: &dyn Store) {
    subscribe(store, &["q"]).await;
    let changes = NewMessage {
        on_repeat: OnRepeat::Replace { max_wait: None },
        ..NewMessage::new("x")
    };
    let refused = store
        .send_to_topic(&topic(), &[NewMessage::new("y"), changes])
        .await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("cannot replace or extend"), "{error}");
    assert_eq!(waiting(store, &queue()).await, (0, 0));
}
