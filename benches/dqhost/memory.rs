//! What a message takes that waits for its time: memory of Redis, or room in the file.

use std::time::Duration;

use clap::Args;
use dqhost::message::Due;

use crate::Common;
use crate::parts::{QUEUE, fill, float, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::table::{Measure, Table};

/// What a connection leaves in Redis goes in this time.
const SETTLES: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Messages that wait
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    messages: usize,
}

/// Sends, and gives up every connection of the sender: its buffers are not the messages'.
fn send(place: &Place, count: usize) {
    let runtime = runtime();
    runtime.block_on(async {
        let store = place.store().await;
        let due = Due::In(Duration::from_hours(1));
        fill(&*store, &queue(QUEUE), count, due).await;
    });
    drop(runtime);
    std::thread::sleep(SETTLES);
}

/// Bytes that the store takes.
fn taken(place: &Place) -> f64 {
    match place.gauge() {
        Some(mut gauge) => gauge.number("memory", "used_memory"),
        // Nobody has it open, so nothing is beside it any more.
        None => float(std::fs::metadata(place.address()).unwrap().len()),
    }
}

pub(crate) fn measure(args: &MemoryArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let place = Place::start(kind, common);
            // The scripts, and whatever else is there once.
            send(&place, 1);
            let before = taken(&place);
            send(&place, args.messages);
            let each = (taken(&place) - before) / float(args.messages);
            let goal = (kind == StoreKind::Redis).then_some(522.0);
            let unit = Measure::of("bytes a message").at_most(goal);
            table.add(&format!("{kind}, pending"), unit, each);
        }
    }
}
