//! Drains: a backlog of due messages, handled by the real host with a fresh sandbox for each. The time
//! is that of the whole process less that of one on an empty queue just before.

use std::path::PathBuf;
use std::process::{Command, Stdio};
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

/// A backlog, and who drains it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) messages: usize,
    pub(crate) hosts: usize,
    /// Of each host.
    pub(crate) slots: usize,
}

/// What a drain took, but for the start of the hosts.
pub(crate) struct Drained {
    pub(crate) per_second: f64,
    /// Processor time of the hosts for each message, in microseconds.
    host_us: f64,
    redis: Option<RedisShare>,
}

/// What Redis had to do for each message.
struct RedisShare {
    processor_us: f64,
    commands: f64,
    scripts: f64,
}

/// The command of one host that ends when the queue is empty.
fn host(place: &Place, queue: &str, slots: usize) -> Command {
    let (handler, slots) = (guest("noop"), slots.to_string());
    let mut command = dqhost(Some(place.address()), &["up", "--queue", queue]);
    command
        .args(["--slots", &slots, "--log", "warn", "--exit-when-empty"])
        .args(place.host_args())
        .arg("--handler")
        .arg(handler)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Runs hosts to their ends: how long that took, and the processor time they used, in seconds.
fn run_hosts(place: &Place, queue: &str, load: Load) -> (Duration, f64) {
    let mut commands: Vec<Command> = (0..load.hosts)
        .map(|_| host(place, queue, load.slots))
        .collect();
    let used_before = children_seconds();
    let start = Instant::now();
    let running: Vec<_> = commands
        .iter_mut()
        .map(|command| command.spawn().unwrap())
        .collect();
    for child in running {
        expect(child.wait_with_output().unwrap(), 0);
    }
    (start.elapsed(), children_seconds() - used_before)
}

/// Every message was acked, and none was handled twice as far as the store knows.
fn check_totals(place: &Place, messages: usize) {
    let totals: Value = stats(place.address(), QUEUE)["totals"].clone();
    assert_eq!(totals["acked"], messages, "{totals}");
    for none in ["nacked", "rejected", "expired", "dead"] {
        assert_eq!(totals[none], 0, "{none}: {totals}");
    }
}

/// Fills the default queue of a new store and drains it.
pub(crate) fn drain(place: &Place, load: Load) -> Drained {
    runtime().block_on(async {
        let store = place.store().await;
        fill_due(&*store, &queue(QUEUE), load.messages).await;
    });
    let (empty, used_empty) = run_hosts(place, "empty", load);
    let mut gauge = place.gauge();
    let redis_before = gauge.as_mut().map(|gauge| {
        gauge.reset();
        gauge.processor_us()
    });
    let (all, used) = run_hosts(place, QUEUE, load);
    let messages = float(load.messages);
    let redis = gauge.zip(redis_before).map(|(mut gauge, before)| {
        let (used, commands) = (gauge.processor_us(), gauge.commands());
        RedisShare {
            processor_us: (used - before) / messages,
            commands: commands.calls(&COMMANDS) / messages,
            scripts: commands.calls(&["evalsha"]) / messages,
        }
    });
    check_totals(place, load.messages);
    Drained {
        per_second: per_second(load.messages, all.saturating_sub(empty)),
        host_us: (used - used_empty) * 1e6 / messages,
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
                let load = Load {
                    messages: args.messages,
                    hosts: 1,
                    slots,
                };
                let drained = drain(&Place::start(kind, common), load);
                note(table, (kind, slots), &drained);
            }
        }
        if let Some(program) = &args.effectum {
            effectum(program, args.messages, table);
        }
    }
}
