//! A host that waits with its next reservation until enough of the last have begun.

use std::sync::Arc;
use std::time::Duration;

use dqhost::host::{Host, QueueSettings, Served, SlotCount, Stage};
use dqhost::message::{NewMessage, QueueName};
use dqhost::runtime::{Limits, Permissions, Runtime};
use dqhost::store::address::{self, StoreSettings};
use tokio::sync::watch;

use crate::support::{PATIENCE, guest, host_config, workers};

/// Messages that wait.
const MESSAGES: usize = 3_000;

#[tokio::test]
async fn a_backlog_ends_though_the_loop_waits_for_what_begins() {
    let queue: QueueName = "q".parse().unwrap();
    let runtime =
        Runtime::with_room((1, 300), Limits::default(), &Permissions::default(), None).unwrap();
    let file = runtime.read(&guest("noop")).unwrap();
    let handler = Arc::new(runtime.load(&file).unwrap());
    for slots in [1, 2, 7, 64, 256] {
        let store = address::open(&":memory:".parse().unwrap(), StoreSettings::default())
            .await
            .unwrap();
        assert!(store.reservation_worth() > 1);
        let messages: Vec<_> = (0..MESSAGES).map(|_| NewMessage::new("x")).collect();
        for some in messages.chunks(1_000) {
            store.send(&queue, some).await.unwrap();
        }
        let served = Served {
            queue: queue.clone(),
            handler: Arc::clone(&handler),
            settings: QueueSettings::default(),
        };
        let mut config = host_config(SlotCount::Fixed(slots), Duration::ZERO);
        // A loop that nobody wakes sleeps for longer than the test lasts.
        config.poll = Duration::from_hours(1);
        config.exit_when_empty = true;
        // All on this one thread, so that most of what is reserved has to wait for it.
        let host = Host::new(Arc::clone(&store), vec![served], config, workers());
        let (_stage, stages) = watch::channel(Stage::Run);
        let ended = tokio::time::timeout(PATIENCE, host.run(stages)).await;
        assert!(ended.is_ok(), "it sleeps with {slots} slots");
        let counts = store.overview(&queue).await.unwrap().counts;
        assert_eq!(counts.totals.acked, MESSAGES as u64, "{slots} slots");
    }
}
