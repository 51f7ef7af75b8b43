//! Fairness between tenants: how late a tenant with few messages is beside one with very many, on several
//! hosts; and what the large one loses, drained beside the small one with fairness and without in turns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::NewMessage;
use dqhost::store::{BATCH_MAX, Store};

use crate::Common;
use crate::neighbours::acks;
use crate::parts::{PAYLOAD_BYTES, float, per_second, quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{Host, dqhost, expect, guest};
use crate::table::{Measure, Table};

/// Between two messages of the small tenant.
const EVERY: Duration = Duration::from_millis(100);

/// Between two looks whether all is done.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The queue of whose messages [`acks`] tells.
const QUEUE: &str = "echo";

const BY: [&str; 2] = ["--fair-by", "header:tenant"];

#[derive(Debug, Args)]
pub(crate) struct FairArgs {
    /// Messages of the large tenant
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    messages: usize,
    /// Messages of the small tenant whose lateness is measured; 0 measures none
    #[arg(long, value_name = "N", default_value_t = 200)]
    small: usize,
    /// Milliseconds that a message of the large tenant runs while the small one is measured
    #[arg(long, value_name = "MS", default_value_t = 10)]
    runs: u64,
    /// Hosts
    #[arg(long, value_name = "N", default_value_t = 3)]
    hosts: usize,
}

fn of(tenant: &str, payload: &[u8]) -> NewMessage {
    NewMessage {
        headers: vec![("tenant".to_owned(), tenant.to_owned())],
        retries: 1000,
        ..NewMessage::new(payload)
    }
}

/// Sends so many messages of the large tenant.
async fn fill(store: &dyn Store, count: usize, payload: &[u8]) {
    let mut left = count;
    while left > 0 {
        let some = left.min(BATCH_MAX);
        let batch: Vec<NewMessage> = (0..some).map(|_| of("large", payload)).collect();
        store.send(&queue(QUEUE), &batch).await.unwrap();
        left -= some;
    }
}

/// Messages of the large tenant that hosts drain in a second, beside those of the small one.
///
/// The time ends when nothing waits any more. A host that finds another one at work looks again after a
/// second, so the end of the hosts would tell less.
fn drain(args: &FairArgs, kind: StoreKind, common: &Common, more: &[&str]) -> f64 {
    let place = Place::start(kind, common);
    let runtime = runtime();
    let store: Arc<dyn Store> = runtime.block_on(place.store());
    runtime.block_on(fill(&*store, args.messages, &[b'x'; PAYLOAD_BYTES]));
    let handler = guest("noop");
    let hosts = |queue: &str| -> Vec<_> {
        let host = || {
            let mut command = dqhost(Some(place.address()), &["up", "--queue", queue]);
            command
                .args(["--slots", "64", "--log", "warn", "--exit-when-empty"])
                .args(place.host_args())
                .args(more)
                .arg("--handler")
                .arg(&handler);
            std::thread::spawn(move || expect(command.output().unwrap(), 0))
        };
        (0..args.hosts).map(|_| host()).collect()
    };
    let join = |hosts: Vec<std::thread::JoinHandle<_>>| {
        for host in hosts {
            host.join().unwrap();
        }
    };
    let start = Instant::now();
    join(hosts("empty"));
    let empty = start.elapsed();
    let start = Instant::now();
    let hosts = hosts(QUEUE);
    runtime.block_on(until_drained(&*store));
    let took = start.elapsed();
    join(hosts);
    per_second(args.messages, took.saturating_sub(empty))
}

/// Sends messages of the small tenant until no other waits or is in flight.
async fn until_drained(store: &dyn Store) {
    let queue = queue(QUEUE);
    let mut clock = tokio::time::interval(LOOK_EVERY);
    let mut next = Instant::now();
    loop {
        clock.tick().await;
        if store.counts(&queue).await.unwrap().is_drained() {
            return;
        }
        if next.elapsed() >= EVERY {
            next += EVERY;
            store.send(&queue, &[of("small", b"x")]).await.unwrap();
        }
    }
}

/// Milliseconds from the send to the ack of each message of the small tenant. The first are those sent
/// while the backlog of the other is still sorted.
fn lateness(args: &FairArgs, kind: StoreKind, common: &Common) -> Vec<f64> {
    let place = Place::start(kind, common);
    let runtime = runtime();
    let store: Arc<dyn Store> = runtime.block_on(place.store());
    let handler = guest("sleeper");
    let head = ["--slots", "16", "--log", "error", "--queue", QUEUE];
    let handler = ["--handler", handler.to_str().unwrap()];
    runtime.block_on(fill(
        &*store,
        args.messages,
        args.runs.to_string().as_bytes(),
    ));
    let acks = acks(place.server().unwrap());
    let all = [&head[..], &handler, &BY].concat();
    let _hosts: Vec<Host> = (0..args.hosts)
        .map(|_| Host::start_silently(place.address(), &all))
        .collect();
    // Started, compiled, and at work.
    acks.recv_timeout(Duration::from_mins(1)).unwrap();
    let sent = runtime.block_on(async {
        let mut sent = HashMap::new();
        let mut clock = tokio::time::interval(EVERY);
        for _ in 0..args.small {
            clock.tick().await;
            let message = of("small", b"0");
            sent.insert(message.id.to_string(), Instant::now());
            store.send(&queue(QUEUE), &[message]).await.unwrap();
        }
        sent
    });
    let mut took = Vec::new();
    while took.len() < args.small {
        let (id, at) = acks.recv_timeout(Duration::from_mins(2)).unwrap();
        if let Some(sent) = sent.get(&id) {
            took.push((at - *sent).as_secs_f64() * 1e3);
        }
    }
    let counts = runtime.block_on(store.counts(&queue(QUEUE))).unwrap();
    assert!(
        counts.pending + counts.ready > 0,
        "the large tenant was done before: give it more --messages, or --runs"
    );
    took
}

pub(crate) fn measure(args: &FairArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(3);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let without = || drain(args, kind, common, &[]);
            let with = || drain(args, kind, common, &BY);
            // A machine that has rested may be faster for seconds. So each of them is the first in turns.
            let (without, with) = if round.is_multiple_of(2) {
                let with = with();
                (without(), with)
            } else {
                (without(), with())
            };
            for (what, sample) in [("without", without), ("with", with)] {
                let name = format!("{kind}: large tenant {what} fairness");
                table.add(&name, Measure::of("messages/s"), sample);
            }
            let ratio = Measure::of("times").at_least(Some(0.95));
            table.add(&format!("{kind}: ratio"), ratio, with / without);
            if !kind.is_redis() || args.small == 0 {
                continue;
            }
            let mut took = lateness(args, kind, common);
            for percent in [50, 99] {
                let goal = Some(float(50_u64)).filter(|_| percent == 99);
                let name = format!("{kind}: small tenant, p{percent}");
                let sample = quantile(&mut took, percent);
                table.add(&name, Measure::of("ms").at_most(goal), sample);
            }
        }
    }
}
