//! What the dashboard costs: the processor time of a host with it and without it, in turn, while a
//! million messages wait and others pass; and the commands that Redis gets for it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::{Due, QueueName};
use dqhost::store::Store;
use rustix::process::Pid;

use crate::Common;
use crate::parts::{QUEUE, fill, messages, processor_seconds, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{dqhost, guest, stats};
use crate::table::{Measure, Table};
use crate::tty::Tty;

/// Messages that are sent at once while they pass.
const STEP: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct DashboardArgs {
    /// Messages that wait
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pending: usize,
    /// Messages a second that pass
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    rate: usize,
    /// How long is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: usize,
}

/// Sends at the rate for so long; returns the processor time of the host meanwhile, in percent of
/// one core.
async fn pass(store: &Arc<dyn Store>, queue: &QueueName, pid: Pid, args: &DashboardArgs) -> f64 {
    let steps = args.rate * args.seconds / STEP;
    let every = Duration::from_secs(1) / u32::try_from((args.rate / STEP).max(1)).unwrap();
    let mut clock = tokio::time::interval(every);
    let (start, before) = (Instant::now(), processor_seconds(pid));
    for _ in 0..steps {
        clock.tick().await;
        store.send(queue, &messages(STEP, Due::NOW)).await.unwrap();
    }
    (processor_seconds(pid) - before) / start.elapsed().as_secs_f64() * 100.0
}

/// A host with the dashboard, then one with log lines.
async fn compare(place: &Place, store: &Arc<dyn Store>, args: &DashboardArgs, table: &mut Table) {
    let (queue, handler) = (queue(QUEUE), guest("noop"));
    let host = ["--handler", handler.to_str().unwrap()];
    let mut tty = Tty::start(place.address(), &host, (120, 40));
    tty.wait_for("> default");
    let with = pass(store, &queue, tty.pid(), args).await;
    drop(tty);
    let log = tempfile::tempfile().unwrap();
    let mut host = dqhost(Some(place.address()), &host)
        .stderr(log)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let without = pass(store, &queue, Pid::from_child(&host), args).await;
    host.kill().unwrap();
    host.wait().unwrap();
    let percent = Measure::of("% of a core");
    table.add("host with the dashboard", percent, with);
    table.add("host with log lines", percent, without);
    table.add("difference", percent, with - without);
}

/// The dashboard without a host, while nothing passes.
async fn alone(place: &Place, args: &DashboardArgs, table: &mut Table) {
    let mut gauge = place.gauge().unwrap();
    let mut tty = Tty::start(place.address(), &["top"], (120, 40));
    tty.wait_for("> default");
    let (section, name) = ("stats", "total_commands_processed");
    let (start, before) = (Instant::now(), gauge.number(section, name));
    let used_before = processor_seconds(tty.pid());
    tokio::time::sleep(Duration::from_secs(args.seconds as u64)).await;
    let seconds = start.elapsed().as_secs_f64();
    let commands = (gauge.number(section, name) - before) / seconds;
    let used = (processor_seconds(tty.pid()) - used_before) / seconds * 100.0;
    table.add("alone, commands", Measure::of("Redis commands/s"), commands);
    table.add("alone", Measure::of("% of a core"), used);
    tty.keys("q");
    tty.end(0);
}

pub(crate) fn measure(args: &DashboardArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(3);
    let mut stores = common.stores(&[StoreKind::RedisAof]);
    stores.retain(|kind| kind.is_redis());
    let place = Place::start(stores[0], common);
    runtime().block_on(async {
        let store = place.store().await;
        let due = Due::In(Duration::from_hours(24));
        fill(&*store, &queue(QUEUE), args.pending, due).await;
        for round in 1..=rounds {
            table.round(round, rounds);
            compare(&place, &store, args, table).await;
            alone(&place, args, table).await;
        }
    });
    let passed = stats(place.address(), QUEUE)["totals"]["acked"].as_u64();
    assert!(passed > Some(0), "no message has passed");
}
