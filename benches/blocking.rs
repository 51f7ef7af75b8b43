//! How long Redis is kept from others while one host drains a backlog of due messages: the longest
//! script, and how long a PING every millisecond waits.
//!
//!     cargo bench --bench blocking -- --messages 1000000 [--check] [--json] [--verbose]
//!
//! `--check` exits with 1 when a script took over 10 ms or a PING over 20 ms.
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made ends in a panic"
)]

#[path = "../tests/it/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dqhost::message::{Due, NewMessage, QueueName};
use dqhost::store::{BATCH_MAX, Store};

use support::{RedisServer, dqhost, expect, guest, stats};

/// What the issue of a blocked server is about, in microseconds.
const SCRIPT_US_MAX: u64 = 10_000;
const PING_US_MAX: u64 = 20_000;

fn number(args: &[String], name: &str, default: usize) -> usize {
    let at = args.iter().position(|arg| arg == name);
    at.map_or(default, |at| args[at + 1].parse().unwrap())
}

/// Fills pending with messages that are due when the host comes.
async fn fill(store: &dyn Store, queue: &QueueName, messages: usize) {
    let mut left = messages;
    while left > 0 {
        let some = left.min(BATCH_MAX);
        let due = Due::In(Duration::from_millis(1));
        let batch: Vec<NewMessage> = (0..some)
            .map(|_| NewMessage {
                due,
                ..NewMessage::new(vec![b'x'; 100])
            })
            .collect();
        store.send(queue, &batch).await.unwrap();
        left -= some;
    }
}

/// Sends a PING every millisecond until told to stop; returns how long each waited, in order of
/// size, in microseconds.
fn ping(server: &RedisServer, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<u64>> {
    let (mut connection, stop) = (server.connection(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut waits = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            let _: String = redis::cmd("PING").query(&mut connection).unwrap();
            waits.push(u64::try_from(start.elapsed().as_micros()).unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
        waits.sort_unstable();
        waits
    })
}

/// The longest commands in the slow log, longest first: microseconds, and what it was. A script
/// is told by the keys that it was called with.
fn longest(server: &RedisServer) -> Vec<(u64, String)> {
    type Entry = (i64, i64, u64, Vec<String>, String, String);
    let entries: Vec<Entry> = server.command(&["SLOWLOG", "GET", "100000"]);
    let mut longest: Vec<(u64, String)> = entries
        .into_iter()
        .map(|(_, _, micros, words, _, _)| {
            (
                micros,
                words.into_iter().take(6).collect::<Vec<_>>().join(" "),
            )
        })
        .collect();
    longest.sort_by(|a, b| b.cmp(a));
    longest
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let messages = number(&args, "--messages", 20_000);
    let slots = number(&args, "--slots", 64);
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let server = RedisServer::start_with(&["--appendonly", "no"]);
    let queue: QueueName = "default".parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { fill(&*server.store().await, &queue, messages).await });
    let () = server.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    let () = server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]);
    let () = server.command(&["SLOWLOG", "RESET"]);

    let handler = guest("noop");
    let stop = Arc::new(AtomicBool::new(false));
    let pings = ping(&server, &stop);
    let start = Instant::now();
    let host = [
        "--handler",
        handler.to_str().unwrap(),
        "--slots",
        &slots.to_string(),
        "--log",
        "warn",
        "--exit-when-empty",
    ]
    .map(str::to_owned);
    expect(dqhost(Some(&server.url()), &host).output().unwrap(), 0);
    let seconds = start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let waits = pings.join().unwrap();
    assert_eq!(stats(&server.url(), "default")["totals"]["acked"], messages);

    let longest = longest(&server);
    let script_us = longest.first().map_or(0, |(micros, _)| *micros);
    let (p99, max) = (waits[waits.len() * 99 / 100], waits[waits.len() - 1]);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
    let rate = messages as f64 / seconds;
    if has("--json") {
        println!(
            "{}",
            serde_json::json!({"messages": messages, "slots": slots, "seconds": seconds,
                "per_second": rate, "longest_script_us": script_us, "pings": waits.len(),
                "ping_p99_us": p99, "ping_max_us": max})
        );
    } else {
        println!(
            "drained          {messages} messages, {slots} slots, {seconds:.1} s, {rate:.0}/s"
        );
        println!("longest script   {script_us} us (goal: {SCRIPT_US_MAX})");
        let shown = if has("--verbose") { 20 } else { 0 };
        for (micros, what) in longest.iter().take(shown) {
            println!("                 {micros} us: {what}");
        }
        println!(
            "PING every 1 ms  p99 {p99} us, max {max} us of {} (goal: {PING_US_MAX})",
            waits.len()
        );
    }
    if has("--check") && (script_us > SCRIPT_US_MAX || max > PING_US_MAX) {
        std::process::exit(1);
    }
}
