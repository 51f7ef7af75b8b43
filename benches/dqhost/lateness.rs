//! How long after their due times messages are handled, by the handler's own look at the clock. Several
//! hosts share the queue; each message has to come once.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::Due;
use dqhost::store::BATCH_MAX;

use crate::Common;
use crate::parts::{QUEUE, float, message, now_us, quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::punctual::{Run, runs_of};
use crate::support::{Host, PATIENCE};
use crate::table::{Measure, Table};

/// Time to send everything before the first is due.
const LEAD: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct LatenessArgs {
    /// Messages, all sent beforehand
    #[arg(long, value_name = "N", default_value_t = 2000)]
    messages: usize,
    /// How long a time their due times are spread over
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    seconds: u64,
    /// Hosts on the queue
    #[arg(long, value_name = "N", default_value_t = 2)]
    hosts: usize,
}

/// Sends messages with exact due times and waits until all are handled.
async fn pass(place: &Place, args: &LatenessArgs, seed: u64) {
    let (store, queue) = (place.store().await, queue(QUEUE));
    let start = Instant::now();
    let first_ms = u64::try_from(now_us() / 1000).unwrap() + whole_ms(LEAD);
    let mut random = fastrand::Rng::with_seed(seed);
    let all: Vec<_> = (0..args.messages)
        .map(|_| message(Due::At(first_ms + random.u64(..args.seconds * 1000))))
        .collect();
    for batch in all.chunks(BATCH_MAX) {
        store.send(&queue, batch).await.unwrap();
    }
    assert!(start.elapsed() < LEAD, "the sends took too long");
    // Nobody asks the store for anything before the last is due.
    let last = start + LEAD + Duration::from_secs(args.seconds);
    tokio::time::sleep_until(last.into()).await;
    let acked = u64::try_from(args.messages).unwrap();
    while store.counts(&queue).await.unwrap().totals.acked < acked {
        assert!(last.elapsed() < PATIENCE, "messages are missing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

/// How late each message was, in milliseconds.
fn lateness(place: &Place, args: &LatenessArgs, seed: u64) -> Vec<f64> {
    let hosts: Vec<Host> = (0..args.hosts).map(|_| place.host("punctual")).collect();
    runtime().block_on(pass(place, args, seed));
    let runs: Vec<Run> = hosts.into_iter().flat_map(runs_of).collect();
    let ids: HashSet<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    let counted = (runs.len(), ids.len());
    assert_eq!(counted, (args.messages, args.messages), "runs, messages");
    runs.iter().map(|run| ms(run.late_us.unwrap())).collect()
}

fn ms(micros: i128) -> f64 {
    let size = float(micros.unsigned_abs()) / 1000.0;
    if micros < 0 { -size } else { size }
}

pub(crate) fn measure(args: &LatenessArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let place = Place::start(kind, common);
            let mut late = lateness(&place, args, u64::from(round));
            let early = late.iter().filter(|late| **late < 0.0).count();
            let unit = Measure::of("ms");
            for (what, unit, sample) in [
                ("p50", unit.at_most(1.0), quantile(&mut late, 50)),
                ("p99", unit.at_most(3.0), quantile(&mut late, 99)),
                ("most", unit, quantile(&mut late, 100)),
                ("least", unit.at_least(0.0), quantile(&mut late, 0)),
                ("early", Measure::of("messages").at_most(0.0), float(early)),
            ] {
                table.add(&format!("{kind}, {what}"), unit, sample);
            }
        }
    }
}
