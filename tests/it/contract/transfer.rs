//! The four steps of a move, in one store. Moves from store to store are in `it/transfer.rs`.

use std::time::Duration;

use dqhost::message::{Due, MessageId, QueueName, Record, State};
use dqhost::store::{Peer, Store};

use super::tools::*;

const RUN: &str = "run";

async fn begin(store: &dyn Store, queue: &QueueName) {
    let peer = Peer {
        name: "another store".to_owned(),
        renamed: false,
        run: RUN.to_owned(),
    };
    store.begin_transfer(queue, &peer).await.unwrap();
}

/// Sends one message that is due and one that is not, and takes them out of reach.
async fn export_two(store: &dyn Store) -> Vec<Record> {
    send(store, "now", Due::NOW, 3).await;
    send(store, "later", Due::In(Duration::from_hours(1)), 3).await;
    begin(store, &queue()).await;
    let mut records = store.export(&queue(), RUN, 10).await.unwrap();
    records.sort_by_key(|record| record.state != State::Ready);
    let states: Vec<State> = records.iter().map(|record| record.state).collect();
    assert_eq!(states, [State::Ready, State::Pending]);
    records
}

fn ids(records: &[Record]) -> Vec<MessageId> {
    records.iter().map(|record| record.id.clone()).collect()
}

async fn moving(store: &dyn Store, queue: &QueueName) -> u64 {
    store.counts(queue).await.unwrap().moving
}

pub(crate) async fn what_leaves_is_out_of_reach_until_it_has_gone(store: &dyn Store) {
    let records = export_two(store).await;
    assert_eq!(moving(store, &queue()).await, 2);
    assert!(reserve(store, 2, LONG).await.is_empty());
    // After a crash it is told again, and nothing is taken twice.
    let again = store.export(&queue(), RUN, 10).await.unwrap();
    assert_eq!(again.len(), 2);
    let removed = ids(&records);
    for _ in 0..2 {
        let done = store.remove_exported(&queue(), RUN, &removed).await;
        done.unwrap();
        assert_eq!(moving(store, &queue()).await, 0);
        assert_eq!(depths(store).await, [0; 5]);
    }
}

pub(crate) async fn what_arrives_is_out_of_reach_until_it_has_come(store: &dyn Store) {
    let records = export_two(store).await;
    let other: QueueName = "other".parse().unwrap();
    begin(store, &other).await;
    for _ in 0..2 {
        store.import(&other, RUN, &records).await.unwrap();
        assert_eq!(moving(store, &other).await, 2);
    }
    let get = async |id| store.get(&other, id).await.unwrap().unwrap();
    assert_eq!(get(&records[0].id).await.state, State::Moving);
    for _ in 0..2 {
        let done = store.commit_import(&other, RUN, &ids(&records)).await;
        done.unwrap();
        let counts = store.counts(&other).await.unwrap();
        assert_eq!((counts.ready, counts.pending, counts.moving), (1, 1, 0));
    }
    for record in &records {
        let arrived = get(&record.id).await;
        assert_eq!(arrived.state, record.state);
        assert_eq!(arrived.payload, record.payload);
    }
}
