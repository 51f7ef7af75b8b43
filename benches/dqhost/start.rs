//! From the start of the process to its first message, with a handler that was compiled before.

use clap::Args;
use dqhost::message::Due;

use crate::Common;
use crate::parts::{QUEUE, fill, float, now_us, quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::punctual::{run, runs_of};
use crate::support::{Host, guest};
use crate::table::{Measure, Table};

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Starts in each round
    #[arg(long, value_name = "N", default_value_t = 10)]
    starts: usize,
}

/// Milliseconds from before the start to the handler of a message that waits already.
fn start(place: &Place) -> f64 {
    runtime().block_on(async {
        let store = place.store().await;
        fill(&*store, &queue(QUEUE), 1, Due::NOW).await;
    });
    let handler = guest("punctual");
    let head = ["--handler", handler.to_str().unwrap()];
    let args = [head, place.host_args()].concat();
    let started_us = now_us();
    let mut host = Host::start_silently(place.address(), &args);
    let line = host.wait_for_start("at ");
    let took_us = run(&line).unwrap().at_us - started_us;
    assert_eq!(runs_of(host).len(), 1);
    float(took_us) / 1000.0
}

pub(crate) fn measure(args: &StartArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    // Compiled code is kept in this user's cache.
    start(&Place::start(stores[0], common));
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let place = Place::start(kind, common);
            let mut took: Vec<f64> = (0..args.starts).map(|_| start(&place)).collect();
            let unit = Measure::of("ms");
            let p50 = quantile(&mut took, 50);
            table.add(&format!("{kind}, p50"), unit.at_most(100.0), p50);
            table.add(&format!("{kind}, most"), unit, quantile(&mut took, 100));
        }
    }
}
