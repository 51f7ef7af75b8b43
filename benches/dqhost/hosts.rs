//! One host and several on one queue, in turn: whether more hosts take away from the rate, and whether
//! any message is handled twice.
//!
//! All hosts serve already when the backlog becomes due, all of it at one moment; the time is from that
//! moment to the last ack. The ends of the processes would tell less: of several hosts one that finds
//! others at work looks again a second later.

use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::Due;
use dqhost::store::HOST_SILENCE;
use rustix::process::Signal;

use crate::Common;
use crate::drain::check_totals;
use crate::parts::{QUEUE, fill, now_us, per_second, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{Host, PATIENCE, guest};
use crate::table::{Measure, Table};

/// Time to send the backlog before it is due.
const LEAD: Duration = Duration::from_secs(3);

/// Between two looks at whether everything is done.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Args)]
pub(crate) struct HostsArgs {
    /// Messages of a backlog
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    messages: usize,
    /// Hosts, against one
    #[arg(long, value_name = "N", default_value_t = 8)]
    hosts: usize,
    /// Slots of each host
    #[arg(long, value_name = "N", default_value_t = 16)]
    slots: usize,
}

fn start(place: &Place, slots: usize) -> Host {
    let (handler, slots) = (guest("noop"), slots.to_string());
    let head = ["--handler", handler.to_str().unwrap(), "--slots", &slots];
    let args = [&head[..], &["--log", "warn"], &place.host_args()].concat();
    Host::start_silently(place.address(), &args)
}

/// Sends a backlog to hosts that serve already; how long it took from its due time to the last ack.
async fn pass(place: &Place, messages: usize, hosts: usize) -> Duration {
    let (store, queue) = (place.store().await, queue(QUEUE));
    let began = Instant::now();
    while store.hosts(&queue, HOST_SILENCE).await.unwrap().len() < hosts {
        assert!(began.elapsed() < PATIENCE, "hosts are missing");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let due = Instant::now() + LEAD;
    let due_ms = u64::try_from(now_us().div_euclid(1000)).unwrap() + LEAD.as_secs() * 1000;
    fill(&*store, &queue, messages, Due::At(due_ms)).await;
    assert!(Instant::now() < due, "the sends took too long");
    tokio::time::sleep_until(due.into()).await;
    let acked = u64::try_from(messages).unwrap();
    while store.counts(&queue).await.unwrap().totals.acked < acked {
        assert!(due.elapsed() < PATIENCE, "messages are missing");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    due.elapsed()
}

/// Messages a second.
fn rate(place: &Place, args: &HostsArgs, hosts: usize) -> f64 {
    let running: Vec<Host> = (0..hosts).map(|_| start(place, args.slots)).collect();
    let took = runtime().block_on(pass(place, args.messages, hosts));
    for host in running {
        host.signal(Signal::TERM);
        assert!(host.end().0.success());
    }
    check_totals(place, args.messages);
    per_second(args.messages, took)
}

pub(crate) fn measure(args: &HostsArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[StoreKind::Redis]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let rates = [1, args.hosts].map(|hosts| {
                let place = Place::start(kind, common);
                rate(&place, args, hosts)
            });
            for (hosts, rate) in [1, args.hosts].into_iter().zip(rates) {
                let name = format!("{kind}, hosts: {hosts}");
                table.add(&name, Measure::of("messages/s"), rate);
            }
            table.add(
                &format!("{kind}, {} hosts to one", args.hosts),
                Measure::of("times the rate").at_least(1.0),
                rates[1] / rates[0],
            );
        }
    }
}
