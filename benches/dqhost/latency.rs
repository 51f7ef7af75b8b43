//! From the send to the handler, one message at a time on a host that is otherwise idle.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use dqhost::message::Due;

use crate::Common;
use crate::parts::{QUEUE, float, message, now_us, quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::punctual::runs_of;
use crate::table::{Measure, Table};

/// Messages that only fill caches.
const WARM_UP: usize = 10;

/// The longest pause between two messages.
const PAUSE_MS_MAX: u64 = 20;

/// Before each PING that tells what a round trip takes here when everybody sleeps.
const REST: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    /// Messages, each sent when the one before it was handled
    #[arg(long, value_name = "N", default_value_t = 300)]
    messages: usize,
}

/// How long each message took from before its send to its handler, in milliseconds.
fn latency(place: &Place, args: &LatencyArgs) -> Vec<f64> {
    let mut host = place.host("punctual");
    let (runtime, queue) = (runtime(), queue(QUEUE));
    let store = runtime.block_on(place.store());
    let mut sent = HashMap::new();
    for number in 0..WARM_UP + args.messages {
        let message = message(Due::NOW);
        let id = message.id.to_string();
        let sent_us = now_us();
        runtime.block_on(store.send(&queue, &[message])).unwrap();
        host.wait_for("acked", |line| line["id"] == id.as_str());
        if number >= WARM_UP {
            sent.insert(id, sent_us);
        }
        std::thread::sleep(Duration::from_millis(fastrand::u64(..=PAUSE_MS_MAX)));
    }
    let runs = runs_of(host);
    let took = runs.iter().filter_map(|run| {
        let took_us = run.at_us - sent.get(&run.id)?;
        Some(float(took_us) / 1000.0)
    });
    let took: Vec<f64> = took.collect();
    assert_eq!(took.len(), args.messages);
    took
}

pub(crate) fn measure(args: &LatencyArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[StoreKind::Redis, StoreKind::File]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let place = Place::start(kind, common);
            if let Some(times) = place.pings(args.messages, REST) {
                let mut took: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1000.0).collect();
                let name = format!("{kind}, PING after a rest, p50");
                table.add(&name, Measure::of("ms"), quantile(&mut took, 50));
            }
            let mut took = latency(&place, args);
            let unit = Measure::of("ms");
            for (what, unit, percent) in [
                ("p50", unit.at_most(1.0), 50),
                ("p99", unit, 99),
                ("most", unit, 100),
            ] {
                let sample = quantile(&mut took, percent);
                table.add(&format!("{kind}, {what}"), unit, sample);
            }
        }
    }
}
