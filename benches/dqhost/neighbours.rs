//! What a queue that works feels of hostile ones on the same host: how long its messages take from
//! the send to the ack, alone, beside a handler that does its worst for 100 messages in a row, and in
//! a flood of such messages, in turns; and what of the host's memory stays.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::{MessageId, NewMessage, State};
use dqhost::store::{Page, Store};

use crate::Common;
use crate::parts::{quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{Host, RedisServer, guest};
use crate::table::{Measure, Table};

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

#[derive(Debug, Args)]
pub(crate) struct NeighboursArgs {
    /// Messages to the queue that works, each time
    #[arg(long, value_name = "N", default_value_t = 100)]
    messages: usize,
    /// Rows for each hostile handler, too
    #[arg(long)]
    each: bool,
}

/// Tells of each message of the queue `echo` that is gone.
pub(crate) fn acks(server: &RedisServer) -> Receiver<(String, Instant)> {
    server.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", "Kg"]);
    let (sender, receiver) = channel();
    let mut connection = server.connection();
    std::thread::spawn(move || {
        let mut events = connection.as_pubsub();
        events.psubscribe("__keyspace@0__:{dp:echo}:msg:*").unwrap();
        while let Ok(event) = events.get_message() {
            let now = Instant::now();
            let channel = event.get_channel_name();
            let id = channel.rsplit(':').next().unwrap().to_owned();
            if sender.send((id, now)).is_err() {
                return;
            }
        }
    });
    receiver
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
    let queue = queue(name);
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

fn resident_mib(host: &Host) -> f64 {
    let path = format!("/proc/{}/status", host.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}

/// One server, and what tells of its acks.
struct Bed {
    place: Place,
    runtime: tokio::runtime::Runtime,
    store: Arc<dyn Store>,
    acks: Receiver<(String, Instant)>,
    messages: usize,
}

impl Bed {
    /// Sends to echo and waits for the acks; returns how long each took, in milliseconds.
    async fn echo(&self) -> Vec<f64> {
        let queue = queue("echo");
        let mut sent = HashMap::new();
        let mut clock = tokio::time::interval(EVERY);
        for _ in 0..self.messages {
            clock.tick().await;
            let message = NewMessage::new("hello");
            sent.insert(message.id.to_string(), Instant::now());
            self.store.send(&queue, &[message]).await.unwrap();
        }
        let mut took = Vec::new();
        while took.len() < self.messages {
            let (id, at) = self.acks.recv_timeout(Duration::from_mins(1)).unwrap();
            took.push((at - sent[&id]).as_secs_f64() * 1e3);
        }
        took
    }

    /// How long echo takes beside one hostile handler.
    fn phase(&self, name: &'static str, what: Beside) -> Vec<f64> {
        let stop = Arc::new(AtomicBool::new(false));
        let feeding = feed(Arc::clone(&self.store), name, what, Arc::clone(&stop));
        let feeding = self.runtime.spawn(feeding);
        let mut took = Vec::new();
        // At least so many, and for as long as the hostile ones run.
        while took.is_empty() || (matches!(what, Beside::Some(_)) && !feeding.is_finished()) {
            took.extend(self.runtime.block_on(self.echo()));
        }
        stop.store(true, Ordering::Relaxed);
        self.runtime.block_on(feeding).unwrap();
        took
    }

    fn host(&self, name: &str) -> Host {
        let queues = [name, "echo"].map(|name| format!("{name}={}", guest(name).display()));
        let [hostile, echo] = &queues;
        let args = [
            "--slots",
            "8",
            "--timeout",
            "100ms",
            "--log",
            "error",
            "--queue",
            hostile,
            "--queue",
            echo,
        ];
        Host::start_silently(self.place.address(), &args)
    }
}

/// The kinds of neighbours, in turn.
const KINDS: [(Beside, &str); 3] = [
    (Beside::Nothing, "alone"),
    (Beside::Some(100), "beside 100"),
    (Beside::Flood, "in a flood"),
];

fn note(table: &mut Table, head: &str, took: &mut [f64]) {
    for percent in [50, 99] {
        let sample = quantile(took, percent);
        table.add(&format!("{head}, p{percent}"), Measure::of("ms"), sample);
    }
}

pub(crate) fn measure(args: &NeighboursArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(3);
    let mut stores = common.stores(&[StoreKind::RedisAof]);
    stores.retain(|kind| kind.is_redis());
    let place = Place::start(stores[0], common);
    let runtime = runtime();
    let bed = Bed {
        store: runtime.block_on(place.store()),
        acks: acks(place.server().unwrap()),
        messages: args.messages,
        place,
        runtime,
    };
    let mut all = vec![[const { Vec::<f64>::new() }; 3]; rounds as usize];
    for (number, name) in (1..).zip(HOSTILE) {
        eprintln!("neighbours: {number} of {}: {name}", HOSTILE.len());
        let host = bed.host(name);
        // The first messages fill the caches.
        bed.phase(name, Beside::Nothing);
        let before = resident_mib(&host);
        for of_round in &mut all {
            for ((kind, what), of_kind) in KINDS.into_iter().zip(of_round) {
                let mut took = bed.phase(name, kind);
                if args.each {
                    note(table, &format!("{name}: {what}"), &mut took);
                }
                of_kind.extend(took);
            }
        }
        let more = resident_mib(&host) - before;
        let name = format!("{name}: memory that stays");
        table.add(&name, Measure::of("MiB"), more);
    }
    for of_round in &mut all {
        for ((_, what), of_kind) in KINDS.into_iter().zip(of_round) {
            note(table, &format!("all: {what}"), of_kind);
        }
    }
}
