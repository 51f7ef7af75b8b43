//! What a queue that works feels of hostile ones on the same host: how long its messages take from
//! the send to the ack, alone and beside a handler that does its worst, in turns; and what of the
//! host's memory stays. Medians of the rounds.
//!
//!     cargo bench --bench neighbours [-- --rounds 3 --messages 400]
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made ends in a panic"
)]

#[path = "../tests/it/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dqhost::message::{MessageId, NewMessage, QueueName, State};
use dqhost::store::{Page, Store};

use support::{Host, RedisServer, guest};

/// Between two messages to the queue that works.
const EVERY: Duration = Duration::from_millis(5);

/// The hostile handlers that need nothing else.
const HOSTILE: [&str; 13] = [
    "exit",
    "file-reader",
    "hog",
    "huge-result",
    "log-flood",
    "random-hog",
    "resource-leak",
    "sleeper",
    "socket-opener",
    "spin",
    "stack",
    "stdout-flood",
    "trap",
];

fn number(name: &str, default: usize) -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.nth(1).map_or(default, |n| n.parse().unwrap())
}

/// Tells of each message of the queue `echo` that is gone.
fn acks(server: &RedisServer) -> Receiver<(String, Instant)> {
    server.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", "Kg"]);
    let (sender, receiver) = channel();
    let mut connection = server.connection();
    std::thread::spawn(move || {
        let mut events = connection.as_pubsub();
        events.psubscribe("__keyspace@0__:{dp:echo}:msg:*").unwrap();
        while let Ok(event) = events.get_message() {
            let now = Instant::now();
            let id = event
                .get_channel_name()
                .rsplit(':')
                .next()
                .unwrap()
                .to_owned();
            if sender.send((id, now)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Sends to echo and waits for the acks; returns how long each took, sorted.
async fn measure(
    store: &dyn Store,
    acks: &Receiver<(String, Instant)>,
    messages: usize,
) -> Vec<Duration> {
    let queue: QueueName = "echo".parse().unwrap();
    let mut sent = HashMap::new();
    let mut clock = tokio::time::interval(EVERY);
    for _ in 0..messages {
        clock.tick().await;
        let message = NewMessage::new("hello");
        sent.insert(message.id.to_string(), Instant::now());
        store.send(&queue, &[message]).await.unwrap();
    }
    let mut took = Vec::new();
    while took.len() < messages {
        let (id, at) = acks.recv_timeout(Duration::from_mins(1)).unwrap();
        took.push(at - sent[&id]);
    }
    took.sort_unstable();
    took
}

/// Keeps messages waiting in the queue of one hostile handler, if any, until told to stop.
async fn feed(store: Arc<dyn Store>, hostile: Option<&'static str>, stop: Arc<AtomicBool>) {
    let Some(name) = hostile else { return };
    let queue: QueueName = name.parse().unwrap();
    let batch = || {
        let message = |_| NewMessage {
            retries: 0,
            ..NewMessage::new("600000")
        };
        (0..50).map(message).collect::<Vec<_>>()
    };
    while !stop.load(Ordering::Relaxed) {
        if store.counts(&queue).await.unwrap().ready < 50 {
            store.send(&queue, &batch()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rest = Page {
        offset: 0,
        limit: 1000,
        payload_max: 0,
    };
    let waiting = store.list(&queue, State::Ready, rest).await.unwrap();
    let ids: Vec<MessageId> = waiting.into_iter().map(|record| record.id).collect();
    store.cancel(&queue, &ids).await.unwrap();
}

fn resident_mib(host: &Host) -> u64 {
    let path = format!("/proc/{}/status", host.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

/// What echo feels beside one hostile handler, or none.
fn phase(
    runtime: &tokio::runtime::Runtime,
    store: &Arc<dyn Store>,
    acks: &Receiver<(String, Instant)>,
    hostile: Option<&'static str>,
    messages: usize,
) -> (f64, f64) {
    let stop = Arc::new(AtomicBool::new(false));
    let feeding = runtime.spawn(feed(Arc::clone(store), hostile, Arc::clone(&stop)));
    let took = runtime.block_on(measure(&**store, acks, messages));
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(feeding).unwrap();
    let ms = |quantile: usize| took[(took.len() - 1) * quantile / 100].as_secs_f64() * 1e3;
    (ms(50), ms(99))
}

fn main() {
    let (rounds, messages) = (number("--rounds", 3), number("--messages", 400));
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(server.store());
    let acks = acks(&server);
    println!(
        "| beside | p50 alone, ms | p50 beside | p99 alone | p99 beside | ratio | runs | MiB |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for name in HOSTILE {
        let queues = [name, "echo"].map(|name| format!("{name}={}", guest(name).display()));
        let host = Host::start_silently(
            &server.url(),
            &[
                "--slots",
                "8",
                "--timeout",
                "100ms",
                "--log",
                "error",
                "--queue",
                &queues[0],
                "--queue",
                &queues[1],
            ],
        );
        // The first messages fill the caches.
        phase(&runtime, &store, &acks, None, 100);
        let before = resident_mib(&host);
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(phase(&runtime, &store, &acks, None, messages));
            beside.push(phase(&runtime, &store, &acks, Some(name), messages));
        }
        let median = |of: &[(f64, f64)], which: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<f64> = of.iter().map(which).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (a50, b50) = (median(&alone, |p| p.0), median(&beside, |p| p.0));
        let (a99, b99) = (median(&alone, |p| p.1), median(&beside, |p| p.1));
        let counts = runtime
            .block_on(store.counts(&name.parse().unwrap()))
            .unwrap();
        println!(
            "| {name} | {a50:.2} | {b50:.2} | {a99:.2} | {b99:.2} | {:.2} | {} | {before} -> {} |",
            b99 / a99,
            counts.totals.dead + counts.totals.acked,
            resident_mib(&host)
        );
    }
}
