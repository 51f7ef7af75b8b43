//! Drains: a backlog of due messages, handled by the real host with a fresh sandbox for each. The time
//! is that of the whole process less that of one on an empty queue just before.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use tempfile::TempDir;

use crate::Common;
use crate::parts::{
    PAYLOAD_BYTES, QUEUE, children_seconds, fill_due, float, per_second, queue, runtime,
};
use crate::place::{Place, StoreKind};
use crate::support::{dqhost, expect, guest, stats};
use crate::table::{Measure, Table};

/// What a host asks of Redis for a message: its scripts, and the payloads.
const COMMANDS: [&str; 2] = ["evalsha", "mget"];

/// The peer's sends, for its table of its own: one by one.
const PEER_SINGLES: usize = 2000;
/// Jobs that the peer runs at a time.
const PEER_SLOTS: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Messages of a backlog
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    messages: usize,
    /// Slots of the host; each number is a row
    #[arg(
        long,
        value_name = "N",
        default_value = "256,16",
        value_delimiter = ','
    )]
    slots: Vec<usize>,
    /// The program of `benches/effectum`, to be measured as well
    #[arg(long, value_name = "PROGRAM")]
    effectum: Option<PathBuf>,
}

/// What a drain took, but for the start of the host.
struct Drained {
    per_second: f64,
    /// Processor time of the host for each message, in microseconds.
    host_us: f64,
    redis: Option<RedisShare>,
}

/// What Redis had to do for each message.
struct RedisShare {
    processor_us: f64,
    commands: f64,
    scripts: f64,
}

/// Runs a host until the queue is empty: how long that took, and the processor time that it used, in
/// seconds.
fn run_host(place: &Place, queue: &str, slots: usize) -> (Duration, f64) {
    let (handler, slots) = (guest("noop"), slots.to_string());
    let mut command = dqhost(Some(place.address()), &["up", "--queue", queue]);
    command
        .args(["--slots", &slots, "--log", "warn", "--exit-when-empty"])
        .args(place.host_args())
        .arg("--handler")
        .arg(handler);
    let used_before = children_seconds();
    let start = Instant::now();
    expect(command.output().unwrap(), 0);
    (start.elapsed(), children_seconds() - used_before)
}

/// Every message was acked, and none was handled twice as far as the store knows.
pub(crate) fn check_totals(place: &Place, messages: usize) {
    let totals: Value = stats(place.address(), QUEUE)["totals"].clone();
    assert_eq!(totals["acked"], messages, "{totals}");
    for none in ["nacked", "rejected", "expired", "dead"] {
        assert_eq!(totals[none], 0, "{none}: {totals}");
    }
}

/// Fills the default queue of a new store and drains it.
fn drain(place: &Place, messages: usize, slots: usize) -> Drained {
    runtime().block_on(async {
        let store = place.store().await;
        fill_due(&*store, &queue(QUEUE), messages).await;
    });
    let (empty, used_empty) = run_host(place, "empty", slots);
    let mut gauge = place.gauge();
    let redis_before = gauge.as_mut().map(|gauge| {
        gauge.reset();
        gauge.processor_us()
    });
    let (all, used) = run_host(place, QUEUE, slots);
    let count = float(messages);
    let redis = gauge.zip(redis_before).map(|(mut gauge, before)| {
        let (used, commands) = (gauge.processor_us(), gauge.commands());
        RedisShare {
            processor_us: (used - before) / count,
            commands: commands.calls(&COMMANDS) / count,
            scripts: commands.calls(&["evalsha"]) / count,
        }
    });
    check_totals(place, messages);
    Drained {
        per_second: per_second(messages, all.saturating_sub(empty)),
        host_us: (used - used_empty) * 1e6 / count,
        redis,
    }
}

fn note(table: &mut Table, (kind, slots): (StoreKind, usize), drained: &Drained) {
    let name = format!("{kind}, {slots} slots");
    let (goal, redis_goal) = match (kind, slots) {
        (StoreKind::Redis, 256) => (Some(50_000.0), Some(10.0)),
        (StoreKind::RedisAof, 256) => (Some(40_000.0), None),
        (StoreKind::File, 256) => (Some(27_000.0), None),
        _ => (None, None),
    };
    let unit = Measure::of("messages/s").at_least(goal);
    table.add(&name, unit, drained.per_second);
    if let Some(redis) = &drained.redis {
        for (what, unit, sample) in [
            (
                "Redis",
                Measure::of("us of Redis a message").at_most(redis_goal),
                redis.processor_us,
            ),
            (
                "commands",
                Measure::of("Redis commands a message"),
                redis.commands,
            ),
            (
                "scripts",
                Measure::of("script calls a message"),
                redis.scripts,
            ),
        ] {
            table.add(&format!("{name}, {what}"), unit, sample);
        }
    }
    let unit = Measure::of("us of the host a message");
    table.add(&format!("{name}, host"), unit, drained.host_us);
}

/// The same work on a queue without a sandbox.
fn effectum(program: &PathBuf, messages: usize, table: &mut Table) {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(program);
    command.arg(folder.path());
    let numbers = [PEER_SINGLES, messages, PEER_SLOTS, PAYLOAD_BYTES];
    command.args(numbers.map(|number| number.to_string()));
    let output = expect(command.output().unwrap(), 0);
    let rates: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, what) in [
        ("single", "sends one by one"),
        ("batch", "sends in batches of 100"),
        ("drain", "drain"),
    ] {
        table.add(
            &format!("effectum 0.7, {what}"),
            Measure::of("messages/s"),
            rates[name].as_f64().unwrap(),
        );
    }
}

pub(crate) fn measure(args: &DrainArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[
        StoreKind::Redis,
        StoreKind::RedisAof,
        StoreKind::RedisAlways,
        StoreKind::File,
        StoreKind::FileNormal,
    ]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &slots in &args.slots {
            for &kind in &stores {
                let drained = drain(&Place::start(kind, common), args.messages, slots);
                note(table, (kind, slots), &drained);
            }
        }
        if let Some(program) = &args.effectum {
            effectum(program, args.messages, table);
        }
    }
}
