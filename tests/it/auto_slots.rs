//! Slots that a host finds out by itself, with real handlers. How good the number is, is measured by `benches/dqhost`.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use dqhost::control::SlotsReason;
use dqhost::host::{Host, Monitor, QueueSettings, Served, SlotCount, Stage};
use dqhost::message::{NewMessage, QueueName};
use dqhost::runtime::{Limits, Permissions, Runtime};
use dqhost::store::Store;
use dqhost::store::address::{self, StoreSettings};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::support::{PATIENCE, guest, host_config, run, stderr, workers};

/// A host whose handlers may have so much memory together, with a backlog of messages for `sleeper`.
async fn host(memory: usize, ms: &str) -> (Arc<dyn Store>, Host) {
    let store = address::open(&":memory:".parse().unwrap(), StoreSettings::default())
        .await
        .unwrap();
    let queue: QueueName = "q".parse().unwrap();
    for _ in 0..5 {
        let some: Vec<_> = (0..1000).map(|_| NewMessage::new(ms)).collect();
        store.send(&queue, &some).await.unwrap();
    }
    let runtime =
        Runtime::with_room((16, 256), Limits::default(), &Permissions::default(), None).unwrap();
    let handler = runtime.load(&runtime.read(&guest("sleeper")).unwrap());
    let served = Served {
        queue,
        handler: Arc::new(handler.unwrap()),
        settings: QueueSettings::default(),
    };
    let slots = SlotCount::Auto {
        most: runtime.slots(),
        memory,
    };
    let config = host_config(slots, Duration::ZERO);
    (
        Arc::clone(&store),
        Host::new(store, vec![served], config, workers()),
    )
}

/// Runs the host until this is so of its slots and of the reason for them.
async fn run_until(host: Host, is_so: impl Fn(&Monitor, SlotsReason) -> bool) {
    let monitor = host.monitor();
    let (_stage, stages) = watch::channel(Stage::Run);
    let so = async {
        loop {
            let reports = monitor.queue_reports();
            let (slots, reason) = reports[0].slots.unwrap();
            assert_eq!(slots, monitor.slots());
            if is_so(&monitor, reason) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = host.run(stages) => panic!("nobody told it to stop"),
        so = tokio::time::timeout(PATIENCE, so) => so.expect("it never came to this"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_wait_get_more_slots_than_the_first() {
    let (_store, host) = host(1 << 32, "100").await;
    assert_eq!(host.monitor().slots(), 16);
    run_until(host, |monitor, _| {
        monitor.slots() >= 64 && monitor.busy() >= 64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_get_no_more_slots_than_they_have_memory() {
    // Each has 1 MiB and a little.
    let (_store, host) = host(4 << 20, "50").await;
    run_until(host, |monitor, reason| {
        assert!(monitor.slots() <= 16);
        reason == SlotsReason::Memory && monitor.slots() <= 4
    })
    .await;
}

#[test]
fn memory_of_all_handlers_is_for_slots_that_the_host_finds() {
    let handler = guest("echo").display().to_string();
    let args = [
        "--handler",
        &handler,
        "--slots",
        "4",
        "--memory-total",
        "100",
    ];
    let refusal = stderr(&run(Some("unused"), &args, 2));
    assert!(
        refusal.contains("--memory-total is for --slots auto"),
        "{refusal}"
    );
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.toml");
    fs::write(&file, "slots = 4\nmemory-total = 100\n").unwrap();
    let args = ["config", "check", "--config", file.to_str().unwrap()];
    let refusal = stderr(&run(None, &args, 2));
    assert!(refusal.contains("--memory-total is for"), "{refusal}");
}
