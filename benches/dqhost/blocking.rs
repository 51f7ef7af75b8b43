//! How long Redis is kept from others while one host drains a backlog of due messages: the longest
//! script, and how long a PING every millisecond waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Common;
use crate::parts::{QUEUE, fill_due, float, per_second, quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{RedisServer, dqhost, expect, guest, stats};
use crate::table::{Measure, Table};

/// What nobody is to wait longer for, in microseconds.
const SCRIPT_US_MAX: f64 = 10_000.0;
const PING_US_MAX: f64 = 20_000.0;

#[derive(Debug, Args)]
pub(crate) struct BlockingArgs {
    /// Messages of the backlog
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    messages: usize,
    /// Slots of the host
    #[arg(long, value_name = "N", default_value_t = 64)]
    slots: usize,
    /// Exit with 1 when a script took over 10 ms or a PING over 20 ms
    #[arg(long)]
    check: bool,
    /// Say which scripts were the longest
    #[arg(long)]
    verbose: bool,
}

/// Sends a PING every millisecond until told to stop; returns how long each waited, in microseconds.
fn ping(server: &RedisServer, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<f64>> {
    let (mut connection, stop) = (server.connection(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut waits = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            let _: String = redis::cmd("PING").query(&mut connection).unwrap();
            waits.push(start.elapsed().as_secs_f64() * 1e6);
            std::thread::sleep(Duration::from_millis(1));
        }
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
            let what = words.into_iter().take(6).collect::<Vec<_>>().join(" ");
            (micros, what)
        })
        .collect();
    longest.sort_by(|a, b| b.cmp(a));
    longest
}

/// How long the drain took, and how long the PINGs beside it.
fn drain(place: &Place, server: &RedisServer, args: &BlockingArgs) -> (Duration, Vec<f64>) {
    let (handler, slots) = (guest("noop"), args.slots.to_string());
    let stop = Arc::new(AtomicBool::new(false));
    let pings = ping(server, &stop);
    let start = Instant::now();
    let host = [
        "--handler",
        handler.to_str().unwrap(),
        "--slots",
        &slots,
        "--log",
        "warn",
        "--exit-when-empty",
    ];
    expect(dqhost(Some(place.address()), &host).output().unwrap(), 0);
    let took = start.elapsed();
    stop.store(true, Ordering::Relaxed);
    let waits = pings.join().unwrap();
    let acked = &stats(place.address(), QUEUE)["totals"]["acked"];
    assert_eq!(*acked, args.messages);
    (took, waits)
}

fn once(kind: StoreKind, args: &BlockingArgs, common: &Common, table: &mut Table) {
    let place = Place::start(kind, common);
    let server = place.server().unwrap();
    runtime().block_on(async {
        let store = place.store().await;
        fill_due(&*store, &queue(QUEUE), args.messages).await;
    });
    let () = server.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    let () = server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]);
    let () = server.command(&["SLOWLOG", "RESET"]);
    let (took, mut waits) = drain(&place, server, args);
    let longest = longest(server);
    let script_us = longest.first().map_or(0.0, |(micros, _)| float(*micros));
    let ping_us = quantile(&mut waits, 100);
    let (rate, us) = (Measure::of("messages/s"), Measure::of("us"));
    for (what, unit, sample) in [
        ("drain", rate, per_second(args.messages, took)),
        ("longest script", us.at_most(SCRIPT_US_MAX), script_us),
        ("PING, p99", us, quantile(&mut waits, 99)),
        ("PING, most", us.at_most(PING_US_MAX), ping_us),
    ] {
        table.add(&format!("{kind}, {what}"), unit, sample);
    }
    let told = if args.verbose { 20 } else { 0 };
    for (micros, what) in longest.iter().take(told) {
        eprintln!("{micros} us: {what}");
    }
    if args.check && (script_us > SCRIPT_US_MAX || ping_us > PING_US_MAX) {
        table.refuse();
    }
}

pub(crate) fn measure(args: &BlockingArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(1);
    let mut stores = common.stores(&[StoreKind::Redis]);
    stores.retain(|kind| kind.is_redis());
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            once(kind, args, common, table);
        }
    }
}
