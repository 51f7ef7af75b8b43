//! What messages feel of handlers that are replaced: how late they are acked with swaps among them, and without.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::Due;
use dqhost::store::BATCH_MAX;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::Common;
use crate::parts::{QUEUE, float, message, now_us, quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{Host, PATIENCE, dqhost, guest, with_hangups, with_message};
use crate::table::{Measure, Table};

/// Time to send everything before the first is due.
const LEAD: Duration = Duration::from_secs(5);

/// No message waits longer for a swap.
const WAIT_MAX_MS: f64 = 50.0;

#[derive(Debug, Args)]
pub(crate) struct SwapsArgs {
    /// Messages in a second
    #[arg(long, value_name = "N", default_value_t = 2000)]
    rate: u64,
    /// How long messages are due
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
    /// Swaps in that time; one file in ten is no handler
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    swaps: u32,
}

/// A build of the handler of its own, in one step.
fn put(folder: &Path, number: u32) -> PathBuf {
    let (new, path) = (folder.join("new"), folder.join("handler.wasm"));
    let mut component = fs::read(guest("noop")).unwrap();
    // A custom section: its number, its length, the length of its name, its name, what it holds.
    component.extend([0, 9, 4]);
    component.extend(b"swap");
    component.extend(number.to_le_bytes());
    fs::write(&new, component).unwrap();
    fs::rename(new, &path).unwrap();
    path
}

/// Swaps until so many are done, spread over the time, or until it is over.
fn swap(folder: &Path, host: &mut Host, args: &SwapsArgs, is_over: &AtomicBool) -> usize {
    let every = Duration::from_secs(args.seconds) / args.swaps;
    let (start, mut refused) = (Instant::now(), 0);
    let mut done = 0;
    for number in 1..=args.swaps {
        std::thread::sleep((every * number).saturating_sub(start.elapsed()));
        if is_over.load(SeqCst) {
            break;
        }
        if number.is_multiple_of(10) {
            fs::write(folder.join("handler.wasm"), "not a component").unwrap();
            host.signal(Signal::HUP);
            refused += 1;
            host.wait_for_count("the old handler goes on", refused);
        }
        put(folder, number);
        host.signal(Signal::HUP);
        done += 1;
        host.wait_for_count("the handler was replaced", done);
    }
    done
}

/// Sends messages with due times at an even rate, and waits until all are handled. When each was due, unix ms.
async fn pass(place: &Place, args: &SwapsArgs) -> HashMap<String, u64> {
    let (store, queue) = (place.store().await, queue(QUEUE));
    let start = Instant::now();
    let count = args.rate * args.seconds;
    let lead_ms = u64::try_from(LEAD.as_millis()).unwrap();
    let first_ms = u64::try_from(now_us() / 1000).unwrap() + lead_ms;
    let due_ms = (0..count).map(|n| first_ms + n * 1000 / args.rate);
    let all: Vec<_> = due_ms.clone().map(|at| message(Due::At(at))).collect();
    for batch in all.chunks(BATCH_MAX) {
        store.send(&queue, batch).await.unwrap();
    }
    assert!(start.elapsed() < LEAD, "the sends took too long");
    let last = start + LEAD + Duration::from_secs(args.seconds);
    tokio::time::sleep_until(last.into()).await;
    while store.counts(&queue).await.unwrap().totals.acked < count {
        assert!(last.elapsed() < PATIENCE, "messages are missing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ids = all.iter().map(|message| message.id.to_string());
    ids.zip(due_ms).collect()
}

/// How late each message was acked, in milliseconds, and how many swaps there were.
fn lateness(place: &Place, args: &SwapsArgs, swaps: bool) -> (Vec<f64>, usize) {
    let folder = TempDir::new().unwrap();
    let handler = put(folder.path(), 0).display().to_string();
    let head = ["--handler", &handler, "--slots", "64"];
    let command = dqhost(
        Some(place.address()),
        &[&head[..], &place.host_args()].concat(),
    );
    let mut host = Host::start_command(with_hangups(&command));
    host.wait_for("serving", |_| true);
    let is_over = AtomicBool::new(false);
    let (due_ms, done) = std::thread::scope(|threads| {
        let swapping = threads.spawn(|| {
            if swaps {
                std::thread::sleep(LEAD);
                swap(folder.path(), &mut host, args, &is_over)
            } else {
                0
            }
        });
        let due_ms = runtime().block_on(pass(place, args));
        is_over.store(true, SeqCst);
        (due_ms, swapping.join().unwrap())
    });
    host.signal(Signal::TERM);
    let (status, lines) = host.end();
    assert!(status.success(), "{status}");
    // A handler may not print so much.
    let mut late = HashMap::new();
    for line in with_message(&lines, "acked") {
        let (id, at) = (line["id"].as_str().unwrap(), line["timestamp"].as_str());
        let at: jiff::Timestamp = at.unwrap().parse().unwrap();
        let due_ms = i64::try_from(due_ms[id]).unwrap();
        let waited = at.duration_since(jiff::Timestamp::from_millisecond(due_ms).unwrap());
        let twice = late.insert(id, waited.as_secs_f64() * 1e3);
        assert_eq!(twice, None, "{id} is acked twice");
    }
    assert_eq!(late.len(), due_ms.len(), "messages");
    (late.into_values().collect(), done)
}

pub(crate) fn measure(args: &SwapsArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(3);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            for swaps in [false, true] {
                let place = Place::start(kind, common);
                let (mut late, done) = lateness(&place, args, swaps);
                let words = if swaps { "with swaps" } else { "without" };
                let goal = Some(WAIT_MAX_MS).filter(|_| swaps);
                for (what, percent, goal) in
                    [("p50", 50, None), ("p99", 99, None), ("most", 100, goal)]
                {
                    let name = format!("{kind}, {words}, {what}");
                    let sample = quantile(&mut late, percent);
                    table.add(&name, Measure::of("ms").at_most(goal), sample);
                }
                if swaps {
                    let name = format!("{kind}, handlers replaced");
                    table.add(&name, Measure::of("swaps"), float(done));
                }
            }
        }
    }
}
