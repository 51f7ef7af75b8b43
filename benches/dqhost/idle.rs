//! What a host costs while many messages wait and none is due.

use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::Due;
use rustix::process::Signal;

use crate::Common;
use crate::parts::{QUEUE, fill, processor_seconds, queue, runtime};
use crate::place::{Gauge, Place, StoreKind};
use crate::table::{Measure, Table};

/// A host that has just begun does what it does once.
const SETTLES: Duration = Duration::from_secs(3);

/// What a host sends, of the commands that no script calls while nothing fails.
const SENT: [&str; 9] = [
    "client|setinfo",
    "evalsha",
    "hello",
    "hgetall",
    "mget",
    "ping",
    "sadd",
    "script|load",
    "subscribe",
];

#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// Messages that wait
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pending: usize,
    /// How long is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
}

/// Watches a host that has nothing to do.
fn watch(place: &Place, seconds: u64, table: &mut Table) {
    let host = place.host("noop");
    std::thread::sleep(SETTLES);
    let mut gauge = place.gauge();
    let redis_before = gauge.as_mut().map(|gauge| {
        let used = gauge.processor_us();
        gauge.reset();
        used
    });
    let (start, used_before) = (Instant::now(), processor_seconds(host.pid()));
    std::thread::sleep(Duration::from_secs(seconds));
    let used = processor_seconds(host.pid()) - used_before;
    let took = start.elapsed().as_secs_f64();
    let redis = gauge.as_mut().map(|gauge: &mut Gauge| {
        let commands = gauge.commands().calls(&SENT);
        (commands, gauge.processor_us())
    });
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
    let (kind, percent) = (place.kind, Measure::of("% of a core"));
    if let Some(((commands, redis_used), before)) = redis.zip(redis_before) {
        let unit = Measure::of("Redis commands/s").at_most(2.0);
        table.add(&format!("{kind}, commands"), unit, commands / took);
        let redis_used = (redis_used - before) / 1e6;
        table.add(
            &format!("{kind}, Redis"),
            percent,
            redis_used / took * 100.0,
        );
    }
    table.add(&format!("{kind}, host"), percent, used / took * 100.0);
}

pub(crate) fn measure(args: &IdleArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    let filled = stores.into_iter().map(|kind| {
        let place = Place::start(kind, common);
        runtime().block_on(async {
            let store = place.store().await;
            let due = Due::In(Duration::from_hours(24));
            fill(&*store, &queue(QUEUE), args.pending, due).await;
        });
        place
    });
    let places: Vec<Place> = filled.collect();
    for round in 1..=rounds {
        table.round(round, rounds);
        for place in &places {
            watch(place, args.seconds, table);
        }
    }
}
