//! What a queue that works feels of hostile ones on the same host: how long its messages take from
//! the send to the ack, alone, beside a handler that does its worst for 100 messages in a row, and in
//! a flood of such messages, in turns; and what of the host's memory stays.
//!
//!     cargo bench --bench neighbours [-- --rounds 3 --messages 100]
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

/// What the hostile queue gets while echo is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// This many, once.
    Some(usize),
    /// More and more.
    Flood,
}

/// Sends to the hostile queue until told to stop, then waits until what was sent is done.
async fn feed(store: Arc<dyn Store>, name: &'static str, what: Beside, stop: Arc<AtomicBool>) {
    let queue: QueueName = name.parse().unwrap();
    let batch = |count| {
        let message = |_| NewMessage {
            retries: 0,
            ..NewMessage::new("600000")
        };
        (0..count).map(message).collect::<Vec<_>>()
    };
    if let Beside::Some(count) = what {
        store.send(&queue, &batch(count)).await.unwrap();
    }
    while what == Beside::Flood && !stop.load(Ordering::Relaxed) {
        if store.counts(&queue).await.unwrap().ready < 50 {
            store.send(&queue, &batch(50)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if what == Beside::Flood {
        let rest = Page {
            offset: 0,
            limit: 1000,
            payload_max: 0,
        };
        let waiting = store.list(&queue, State::Ready, rest).await.unwrap();
        let ids: Vec<MessageId> = waiting.into_iter().map(|record| record.id).collect();
        store.cancel(&queue, &ids).await.unwrap();
    }
    while !store.counts(&queue).await.unwrap().is_drained() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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

/// How long echo takes beside one hostile handler: half, and 99 in a hundred, in milliseconds.
fn phase(
    (runtime, store): (&tokio::runtime::Runtime, &Arc<dyn Store>),
    acks: &Receiver<(String, Instant)>,
    (name, what): (&'static str, Beside),
    messages: usize,
) -> Vec<Duration> {
    let stop = Arc::new(AtomicBool::new(false));
    let feeding = feed(Arc::clone(store), name, what, Arc::clone(&stop));
    let feeding = runtime.spawn(feeding);
    let mut took = Vec::new();
    // At least so many, and for as long as the hostile ones run.
    while took.is_empty() || (matches!(what, Beside::Some(_)) && !feeding.is_finished()) {
        took.extend(runtime.block_on(measure(&**store, acks, messages)));
    }
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(feeding).unwrap();
    took
}

fn quantile(took: &mut [Duration], percent: usize) -> f64 {
    took.sort_unstable();
    took[(took.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

fn main() {
    let (rounds, messages) = (number("--rounds", 3), number("--messages", 100));
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = runtime.block_on(server.store());
    let acks = acks(&server);
    println!(
        "| beside | p50 alone, ms | p99 alone | p50 beside 100 | p99 beside 100 | p50 in a flood | p99 in a flood | MiB |\n\
         |---|---|---|---|---|---|---|---|"
    );
    let mut all: [Vec<Duration>; 3] = Default::default();
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
        let stores = (&runtime, &store);
        // The first messages fill the caches.
        phase(stores, &acks, (name, Beside::Nothing), 100);
        let before = resident_mib(&host);
        let mut took: [Vec<Duration>; 3] = Default::default();
        for _ in 0..rounds {
            let kinds = [Beside::Nothing, Beside::Some(100), Beside::Flood];
            for (of_kind, kind) in took.iter_mut().zip(kinds) {
                of_kind.extend(phase(stores, &acks, (name, kind), messages));
            }
        }
        print!("| {name} |");
        for (of_kind, of_all) in took.iter_mut().zip(&mut all) {
            print!(
                " {:.2} | {:.2} |",
                quantile(of_kind, 50),
                quantile(of_kind, 99)
            );
            of_all.extend(&*of_kind);
        }
        println!(" {before} -> {} |", resident_mib(&host));
    }
    print!("| all |");
    for of_all in &mut all {
        print!(
            " {:.2} | {:.2} |",
            quantile(of_all, 50),
            quantile(of_all, 99)
        );
    }
    println!();
}
