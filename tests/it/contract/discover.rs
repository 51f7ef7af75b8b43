//! Which queues there are.

use dqhost::message::Due;
use dqhost::store::Store;

use super::tools::*;

pub(crate) async fn the_queue_is_listed_once_it_was_used(store: &dyn Store) {
    assert!(store.queues().await.unwrap().is_empty());
    send(store, "a", Due::NOW, 3).await;
    send(store, "b", Due::NOW, 3).await;
    assert_eq!(store.queues().await.unwrap(), [queue()]);
}
