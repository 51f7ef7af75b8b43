//! Sends: one by one of messages that are due, each answered before the next, and in batches of
//! messages that are not.

use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::{Due, QueueName};
use dqhost::store::{BATCH_MAX, Store};

use crate::Common;
use crate::parts::{fill, float, message, per_second, queue, runtime, send_in_batches};
use crate::place::{Gauge, Place, StoreKind};
use crate::table::{Measure, Table};

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Messages that are sent one by one
    #[arg(long, value_name = "N", default_value_t = 5000)]
    singles: usize,
    /// Messages that are sent in batches
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    messages: usize,
    /// Messages of a batch
    #[arg(long, value_name = "N", default_value_t = BATCH_MAX)]
    batch: usize,
}

/// What the sends of one kind took.
struct Took {
    messages: usize,
    time: Duration,
    redis_us: Option<f64>,
}

/// Sends in one way, after one message that loads the scripts and makes the queue known.
async fn take(
    store: &dyn Store,
    gauge: &mut Option<Gauge>,
    (name, due): (&str, Due),
    (messages, batch): (usize, usize),
) -> Took {
    let queue: QueueName = queue(name);
    fill(store, &queue, 1, due).await;
    let used_before = gauge.as_mut().map(Gauge::processor_us);
    let start = Instant::now();
    if batch == 1 {
        for _ in 0..messages {
            store.send(&queue, &[message(due)]).await.unwrap();
        }
    } else {
        send_in_batches(store, &queue, (messages, due), batch).await;
    }
    let time = start.elapsed();
    let used = gauge.as_mut().map(Gauge::processor_us);
    let redis_us = used.zip(used_before).map(|(used, before)| used - before);
    Took {
        messages,
        time,
        redis_us,
    }
}

fn note(table: &mut Table, name: &str, took: &Took, goal: Option<f64>) {
    let rate = per_second(took.messages, took.time);
    table.add(name, Measure::of("messages/s").at_least(goal), rate);
    if let Some(us) = took.redis_us {
        let unit = Measure::of("us of Redis a message");
        table.add(&format!("{name}, Redis"), unit, us / float(took.messages));
    }
}

pub(crate) fn measure(args: &SendArgs, common: &Common, table: &mut Table) {
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
        for &kind in &stores {
            let place = Place::start(kind, common);
            let (singles, batches) = runtime().block_on(async {
                let store = place.store().await;
                let mut gauge = place.gauge();
                let now = ("single", Due::NOW);
                let later = ("batch", Due::In(Duration::from_hours(1)));
                (
                    take(&*store, &mut gauge, now, (args.singles, 1)).await,
                    take(&*store, &mut gauge, later, (args.messages, args.batch)).await,
                )
            });
            let ping = place.pings(args.singles, Duration::ZERO);
            let (one_goal, batch_goal) = match kind {
                StoreKind::Redis => (Some(14_000.0), Some(130_000.0)),
                StoreKind::File => (None, Some(150_000.0)),
                _ => (None, None),
            };
            note(table, &format!("{kind}, one by one"), &singles, one_goal);
            if let Some(times) = ping {
                let name = format!("{kind}, one by one, PING");
                let took: Duration = times.iter().sum();
                let rate = per_second(args.singles, took);
                table.add(&name, Measure::of("commands/s"), rate);
            }
            let name = format!("{kind}, batches of {}", args.batch);
            note(table, &name, &batches, batch_goal);
        }
    }
}
