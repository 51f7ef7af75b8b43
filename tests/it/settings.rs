//! Settings that differ between the queues of one host.

use std::sync::Arc;
use std::time::Duration;

use dqhost::Queue;
use dqhost::host::{Host, Monitor, QueueSettings, Served, SlotCount, Stage};
use dqhost::message::{NewMessage, QueueName};
use dqhost::runtime::{Limits, Permissions, Runtime};
use dqhost::store::address::{self, StoreSettings};
use dqhost::store::{Retention, Store};
use dqhost::verdict::{Backoff, Delays};
use tokio::sync::watch;

use crate::contract::tools::LONG;
use crate::support::{guest, host_config, workers};

const SLOTS: usize = 16;

/// A host that serves each queue with its settings and the same handler.
fn host(store: Arc<dyn Store>, example: &str, queues: &[(&QueueName, QueueSettings)]) -> Host {
    let runtime = Runtime::new(SLOTS, Limits::default(), Permissions::default(), None).unwrap();
    let component = runtime.read(&guest(example)).unwrap();
    let handler = Arc::new(runtime.load(&component).unwrap());
    let served = queues.iter().map(|(queue, settings)| Served {
        queue: (*queue).clone(),
        handler: Arc::clone(&handler),
        settings: settings.clone(),
    });
    let config = host_config(SlotCount::Fixed(SLOTS), Duration::ZERO);
    Host::new(store, served.collect(), config, workers())
}

async fn store() -> Arc<dyn Store> {
    let memory = ":memory:".parse().unwrap();
    address::open(&memory, StoreSettings::default())
        .await
        .unwrap()
}

/// Runs the host until this is so.
async fn run_until(host: Host, what: &str, mut is_so: impl AsyncFnMut(&Monitor) -> bool) {
    let monitor = host.monitor();
    let (_stage, stages) = watch::channel(Stage::Run);
    let so = async {
        while !is_so(&monitor).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = host.run(stages) => panic!("nobody told it to stop"),
        so = tokio::time::timeout(crate::support::PATIENCE, so) => {
            so.unwrap_or_else(|_| panic!("it never came to this: {what}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_queue_of_a_host_has_its_own_lease_and_slots() {
    let store = store().await;
    let [narrow, wide] = ["narrow", "wide"].map(|name| name.parse::<QueueName>().unwrap());
    for queue in [&narrow, &wide] {
        let all: Vec<_> = (0..SLOTS).map(|_| NewMessage::new("9999999")).collect();
        store.send(queue, &all).await.unwrap();
    }
    let short = Duration::from_secs(40);
    let settings = QueueSettings {
        lease: short,
        slots: Some(2),
        ..QueueSettings::default()
    };
    let long = QueueSettings {
        lease: LONG,
        ..QueueSettings::default()
    };
    let host = host(store, "sleeper", &[(&narrow, settings), (&wide, long)]);
    run_until(host, "every slot is in use", async |monitor| {
        let in_flight = monitor.in_flight(SLOTS);
        for one in &in_flight {
            let lease = if one.queue == narrow { short } else { LONG };
            assert_eq!(one.lease_end - one.since, lease);
        }
        let narrow = in_flight.iter().filter(|one| one.queue == narrow).count();
        assert!(narrow <= 2, "{narrow} handlers of the narrow queue run");
        // All that the narrow queue may not use is the other's.
        in_flight.len() == SLOTS
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_queue_of_a_host_has_its_own_backoff_and_retention() {
    let store = store().await;
    let [slow, hasty] = ["slow", "hasty"].map(|name| name.parse::<QueueName>().unwrap());
    let mut bad_ids = Vec::new();
    for name in [&slow, &hasty] {
        let queue = Queue::new(Arc::clone(&store), name.clone());
        queue.send(NewMessage::new("bad")).await.unwrap();
        let bad = queue.receive(LONG).await.unwrap().unwrap();
        bad_ids.push(bad.id().clone());
        bad.reject("made for this test").await.unwrap();
        let _ = store.advance(name).await.unwrap();
        queue.send(NewMessage::new("")).await.unwrap();
    }
    let always = |delay| Backoff {
        delays: Delays::Fixed(delay),
        max: delay,
        ..Backoff::default()
    };
    let late = QueueSettings {
        backoff: always(LONG),
        ..QueueSettings::default()
    };
    let at_once = QueueSettings {
        backoff: always(Duration::ZERO),
        retention: Retention {
            age: None,
            number: Some(0),
        },
        ..QueueSettings::default()
    };
    let host = host(
        Arc::clone(&store),
        "trap",
        &[(&slow, late), (&hasty, at_once)],
    );
    run_until(host, "one retries at once and keeps nothing", async |_| {
        let counts = store.counts(&slow).await.unwrap();
        assert!(counts.dead == 1 && counts.totals.nacked <= 1, "{counts:?}");
        let waits = counts.pending == 1;
        let nacked = store.counts(&hasty).await.unwrap().totals.nacked;
        let bad = store.get(&hasty, &bad_ids[1]).await.unwrap();
        waits && nacked == 4 && bad.is_none()
    })
    .await;
}
