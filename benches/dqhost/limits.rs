//! How much of a rate hosts use that are killed at random: the others have to take over what the killed ones would
//! have begun. That they never exceed it is tested in `tests/it/limits.rs`.

use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::{Due, NewMessage};
use dqhost::store::{BATCH_MAX, Store};

use crate::Common;
use crate::parts::{QUEUE, float, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{Host, guest};
use crate::table::{Measure, Table};

/// The share of the rate that is used while there is demand.
const USED_PERCENT: f64 = 97.0;

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    /// Messages in a second by the rate
    #[arg(long, value_name = "N", default_value_t = 500)]
    rate: u32,
    /// How long the hosts are watched
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Hosts
    #[arg(long, value_name = "N", default_value_t = 3)]
    hosts: usize,
    /// Hosts that are killed in that time, each replaced at once
    #[arg(long, value_name = "N", default_value_t = 12)]
    kills: u32,
}

fn host(place: &Place, args: &LimitsArgs) -> Host {
    let (handler, rate) = (guest("noop"), format!("{}/s", args.rate));
    let head = ["--handler", handler.to_str().unwrap(), "--rate", &rate];
    let lease = ["--lease", "2s", "--log", "error"];
    let all = [&head[..], &lease, &place.host_args()].concat();
    Host::start_silently(place.address(), &all)
}

/// Sends more than the rate lets go.
async fn fill(store: &dyn Store, args: &LimitsArgs) {
    let mut left = usize::try_from(u64::from(args.rate) * (args.seconds + 20)).unwrap();
    while left > 0 {
        let some = left.min(BATCH_MAX);
        let batch: Vec<NewMessage> = (0..some)
            .map(|_| NewMessage {
                due: Due::NOW,
                retries: 1000,
                ..NewMessage::new("x")
            })
            .collect();
        store.send(&queue(QUEUE), &batch).await.unwrap();
        left -= some;
    }
}

/// What is acked or was begun in vain.
async fn begun(store: &dyn Store) -> u64 {
    let counts = store.counts(&queue(QUEUE)).await.unwrap();
    assert!(counts.ready + counts.retry > 0, "there is no demand");
    counts.totals.acked + counts.totals.expired + counts.unack
}

/// The percentage of the rate that was used.
fn used(place: &Place, args: &LimitsArgs, seed: u64) -> f64 {
    let runtime = runtime();
    let store = runtime.block_on(place.store());
    runtime.block_on(fill(&*store, args));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut hosts: Vec<Host> = (0..args.hosts).map(|_| host(place, args)).collect();
    // The burst is over when so many are begun.
    while runtime.block_on(begun(&*store)) < u64::from(args.rate) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (start, before) = (Instant::now(), runtime.block_on(begun(&*store)));
    let lasts = Duration::from_secs(args.seconds);
    let mut kills: Vec<Duration> = (0..args.kills)
        .map(|_| lasts.mul_f64(random.f64()))
        .collect();
    kills.sort_unstable();
    for at in kills {
        std::thread::sleep(at.saturating_sub(start.elapsed()));
        // kill -9
        hosts.swap_remove(random.usize(0..args.hosts));
        hosts.push(host(place, args));
    }
    std::thread::sleep(lasts.saturating_sub(start.elapsed()));
    let number = runtime.block_on(begun(&*store)) - before;
    float(number) / start.elapsed().as_secs_f64() / f64::from(args.rate) * 100.0
}

pub(crate) fn measure(args: &LimitsArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(3);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let place = Place::start(kind, common);
            let name = format!("{kind}: used of a rate of {}/s", args.rate);
            let measure = Measure::of("%").at_least(USED_PERCENT);
            table.add(&name, measure, used(&place, args, u64::from(round)));
        }
    }
}
