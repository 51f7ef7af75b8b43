//! One host and several on one queue, in turn: whether more hosts take away from the rate, and whether
//! any message is handled twice.

use clap::Args;

use crate::Common;
use crate::drain::{Load, drain};
use crate::place::{Place, StoreKind};
use crate::table::{Measure, Table};

#[derive(Debug, Args)]
pub(crate) struct HostsArgs {
    /// Messages of a backlog
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    messages: usize,
    /// Hosts, against one
    #[arg(long, value_name = "N", default_value_t = 8)]
    hosts: usize,
    /// Slots of all hosts together
    #[arg(long, value_name = "N", default_value_t = 256)]
    slots: usize,
}

pub(crate) fn measure(args: &HostsArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let stores = common.stores(&[StoreKind::Redis]);
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            let rates = [1, args.hosts].map(|hosts| {
                let load = Load {
                    messages: args.messages,
                    hosts,
                    slots: (args.slots / hosts).max(1),
                };
                drain(&Place::start(kind, common), load).per_second
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
