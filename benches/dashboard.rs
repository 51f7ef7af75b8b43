//! What the dashboard costs: the processor time of a host with it and without it, in turn, while a
//! million messages wait and others pass; and the commands that Redis gets for it.
//!
//!     cargo bench --bench dashboard [-- --pending 1000000 --rate 5000 --seconds 20 --rounds 3]
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made ends in a panic"
)]

#[path = "../tests/it/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;
#[path = "../tests/it/dashboard/tty.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod tty;

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dqhost::message::{Due, NewMessage, QueueName};
use dqhost::store::{BATCH_MAX, Store};
use rustix::process::Pid;

use support::{RedisServer, dqhost, guest, stats};
use tty::Tty;

/// Messages that are sent at once while they pass.
const STEP: usize = 100;

struct Settings {
    pending: usize,
    rate: usize,
    seconds: usize,
    rounds: usize,
}

fn number(name: &str, default: usize) -> usize {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == name);
    at.map_or(default, |at| args[at + 1].parse().unwrap())
}

fn messages(count: usize, due: Due) -> Vec<NewMessage> {
    let one = |_| NewMessage {
        due,
        ..NewMessage::new(vec![b'x'; 100])
    };
    (0..count).map(one).collect()
}

/// Seconds of processor time that a process has used.
fn used(pid: Pid) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u32 = [11, 12]
        .map(|at: usize| fields[at].parse::<u32>().unwrap())
        .iter()
        .sum();
    f64::from(ticks) / f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap())
}

/// Sends at the rate for so long; returns the processor time of the host meanwhile, in percent of
/// one core.
async fn pass(store: &Arc<dyn Store>, queue: &QueueName, pid: Pid, settings: &Settings) -> f64 {
    let steps = settings.rate * settings.seconds / STEP;
    let every = Duration::from_secs(1) / u32::try_from(settings.rate / STEP).unwrap();
    let mut clock = tokio::time::interval(every);
    let (start, before) = (Instant::now(), used(pid));
    for _ in 0..steps {
        clock.tick().await;
        store.send(queue, &messages(STEP, Due::NOW)).await.unwrap();
    }
    (used(pid) - before) / start.elapsed().as_secs_f64() * 100.0
}

fn commands(server: &RedisServer) -> u64 {
    let info: String = server.command(&["INFO", "stats"]);
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.unwrap().trim().parse().unwrap()
}

async fn measure(settings: &Settings) {
    let server = RedisServer::start();
    let queue: QueueName = "default".parse().unwrap();
    let store = server.store().await;
    for _ in 0..settings.pending.div_ceil(BATCH_MAX) {
        let due = Due::In(Duration::from_hours(24));
        store.send(&queue, &messages(BATCH_MAX, due)).await.unwrap();
    }
    println!(
        "{} pending, {} a second pass",
        settings.pending, settings.rate
    );
    let handler = guest("noop");
    let args = ["--handler", handler.to_str().unwrap()];
    for round in 1..=settings.rounds {
        let mut tty = Tty::start(&server.url(), &args, (120, 40));
        tty.wait_for("> default");
        let with = pass(&store, &queue, tty.pid(), settings).await;
        drop(tty);
        let log = tempfile::tempfile().unwrap();
        let mut host = dqhost(Some(&server.url()), &args)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let without = pass(&store, &queue, Pid::from_child(&host), settings).await;
        host.kill().unwrap();
        host.wait().unwrap();
        println!(
            "round {round}: {with:.1} % of a core with the dashboard, {without:.1} % with log lines: \
             {:+.1} %",
            with - without
        );
    }
    let passed = stats(&server.url(), "default")["totals"]["acked"].to_string();
    println!("{passed} messages have passed");
    let mut tty = Tty::start(&server.url(), &["top"], (120, 40));
    tty.wait_for("> default");
    let (start, before) = (Instant::now(), commands(&server));
    let used_before = used(tty.pid());
    tokio::time::sleep(Duration::from_secs(settings.seconds as u64)).await;
    let seconds = start.elapsed().as_secs_f64();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is shown in three digits"
    )]
    let commands = (commands(&server) - before) as f64 / seconds;
    let used = (used(tty.pid()) - used_before) / seconds * 100.0;
    println!("the dashboard alone: {commands:.1} Redis commands a second, {used:.1} % of a core");
    tty.keys("q");
    tty.end(0);
}

fn main() {
    let settings = Settings {
        pending: number("--pending", 1_000_000),
        rate: number("--rate", 5_000),
        seconds: number("--seconds", 20),
        rounds: number("--rounds", 3),
    };
    tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(measure(&settings));
}
