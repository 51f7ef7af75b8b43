//! A host whose future is dropped, as a program does that has `dqhost` as its library.

use std::sync::Arc;
use std::time::Duration;

use dqhost::host::{Host, QueueSettings, Served, SlotCount, Stage};
use dqhost::message::{Due, State};
use dqhost::runtime::{Limits, Permissions, Runtime};
use dqhost::store::Store;
use dqhost::verdict::{Backoff, Delays};
use tokio::sync::watch;

use crate::contract::tools::*;
use crate::contract::{Fixture, MemoryFixture, RedisFixture};
use crate::support::{guest, host_config, workers};

fn host(store: Arc<dyn Store>, slots: usize) -> Host {
    let runtime = Runtime::new(slots, Limits::default(), Permissions::default(), None).unwrap();
    let component = runtime.read(&guest("sleeper")).unwrap();
    let served = Served {
        queue: queue(),
        handler: Arc::new(runtime.load(&component).unwrap()),
        settings: QueueSettings {
            lease: Duration::from_secs(3),
            backoff: Backoff {
                delays: Delays::Fixed(Duration::from_secs(1)),
                max: Duration::from_secs(1),
                ..Backoff::default()
            },
            ..QueueSettings::default()
        },
    };
    let config = host_config(SlotCount::Fixed(slots), LONG);
    Host::new(store, vec![served], config, workers())
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + crate::support::PATIENCE;
    while !is_so().await {
        assert!(
            tokio::time::Instant::now() < end,
            "it never came to this: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Its loops end and let go of the store, its handlers are stopped, and its messages come back when
/// their leases expire, to whoever asks.
async fn a_dropped_host_reserves_nothing_more<F: Fixture>() {
    let fixture = F::new().await;
    let store = fixture.store();
    let owners = Arc::strong_count(&store);
    let running = send(&*store, "9999999", Due::NOW, 3).await;
    let host = host(Arc::clone(&store), 1);
    let monitor = host.monitor();
    let (_stage, stages) = watch::channel(Stage::Run);
    {
        let mut run = Box::pin(host.run(stages));
        until("the handler runs", async || {
            tokio::select! {
                _ = &mut run => panic!("nobody told it to stop"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            monitor.in_flight(1).len() == 1
        })
        .await;
    }
    assert!(monitor.in_flight(1).is_empty());
    until("the slot is free", async || monitor.busy() == 0).await;
    drop(monitor);
    until("its tasks are gone", async || {
        Arc::strong_count(&store) == owners
    })
    .await;
    let waiting = send(&*store, "0", Due::NOW, 3).await;
    until("the lease has expired", async || {
        let _ = store.advance(&queue()).await.unwrap();
        let record = store.get(&queue(), &running).await.unwrap().unwrap();
        record.state == State::Retry
    })
    .await;
    let record = store.get(&queue(), &waiting).await.unwrap().unwrap();
    assert_eq!(record.state, State::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_host_reserves_nothing_more_from_redis() {
    a_dropped_host_reserves_nothing_more::<RedisFixture>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_host_reserves_nothing_more_from_a_file() {
    a_dropped_host_reserves_nothing_more::<MemoryFixture>().await;
}
