//! What a queue feels of others on the same host that take all they can get: connections, name look-ups,
//! slots and processor time. Its messages ask a quick server on this machine by its name, so they need
//! some of each. They are measured alone, beside each of the others, and beside all of them at once.
//!
//! Names are held up only by a name server that does not answer. With one that does, run the program in a
//! network of its own:
//!
//!     unshare -rnm sh -c 'ip link set lo up; ip addr add 10.1.1.1/32 dev lo; \
//!         ip route add 10.9.9.0/24 dev lo; echo nameserver 10.9.9.9 > /tmp/silent; \
//!         mount --bind /tmp/silent /etc/resolv.conf; exec target/release/deps/dqhost-... shares'

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::NewMessage;
use dqhost::store::Store;

use crate::Common;
use crate::neighbours::acks;
use crate::parts::{float, quantile, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{Host, guest};
use crate::table::{Measure, Table};
use crate::web::Web;

/// Between two messages to the queue that is measured.
const EVERY: Duration = Duration::from_millis(5);

/// Those that take all: what they are called, their handler, and how many messages they get.
const OTHERS: [(&str, &str, usize); 4] = [
    ("connections", "slow-loris-http", 4),
    ("look-ups", "slow-loris-http", 1),
    ("spinning", "spin", 20),
    ("informational", "webhook", 4),
];

#[derive(Debug, Args)]
pub(crate) struct SharesArgs {
    /// Messages to the queue that is measured, each time
    #[arg(long, value_name = "N", default_value_t = 400)]
    messages: usize,
}

/// A host of some queues, and what tells of the acks of one of them.
struct Bed {
    _host: Host,
    _place: Place,
    runtime: tokio::runtime::Runtime,
    store: Arc<dyn Store>,
    acks: Receiver<(String, Instant)>,
    web: Web,
}

impl Bed {
    fn start(others: &[(&str, &str, usize)], common: &Common) -> Self {
        let place = Place::start(StoreKind::RedisAof, common);
        let web = Web::start();
        let mut args: Vec<String> = ["--slots", "16", "--timeout", "3s", "--backoff", "100ms"]
            .map(str::to_owned)
            .into();
        let here = web.url("").split_off("http://".len());
        let port = here.rsplit(':').next().unwrap();
        let allowed = format!("{here},localhost:{port},[::1]:{port},nowhere.example:9");
        args.extend(["--log", "error", "--allow-http", &allowed].map(str::to_owned));
        let queues = others.iter().map(|(name, handler, _)| (*name, *handler));
        for (name, handler) in queues.chain([("echo", "webhook")]) {
            let handler = guest(handler);
            args.push(format!("--queue={name}={}", handler.display()));
        }
        let runtime = runtime();
        Self {
            store: runtime.block_on(place.store()),
            acks: acks(place.server().unwrap()),
            _host: Host::start_silently(place.address(), &args),
            _place: place,
            runtime,
            web,
        }
    }

    fn asking(&self, path: &str) -> NewMessage {
        let port = self.web.port;
        let url = format!("http://localhost:{port}{path}");
        NewMessage {
            headers: vec![("url".to_owned(), url)],
            retries: 1000,
            ..NewMessage::new("x")
        }
    }

    /// Milliseconds from the send to the ack of each message.
    fn measure(&self, messages: usize) -> Vec<f64> {
        let queue = queue("echo");
        let sent = self.runtime.block_on(async {
            let mut sent = std::collections::HashMap::new();
            let mut clock = tokio::time::interval(EVERY);
            for _ in 0..messages {
                clock.tick().await;
                let message = self.asking("/200");
                sent.insert(message.id.to_string(), Instant::now());
                self.store.send(&queue, &[message]).await.unwrap();
            }
            sent
        });
        let mut took = Vec::new();
        while took.len() < messages {
            let (id, at) = self.acks.recv_timeout(Duration::from_mins(2)).unwrap();
            took.push((at - sent[&id]).as_secs_f64() * 1e3);
        }
        took
    }

    /// Sends the others what makes them take all, and waits until they run.
    fn disturb(&self, others: &[(&str, &str, usize)]) {
        for &(name, _, count) in others {
            let message = || match name {
                "informational" => self.asking("/103"),
                "connections" => NewMessage::new(format!("many {}", self.web.url("/keep"))),
                "look-ups" => NewMessage::new("many http://nowhere.example:9/"),
                _ => NewMessage::new("x"),
            };
            let again = |message| NewMessage {
                retries: 1000,
                ..message
            };
            let all: Vec<_> = (0..count).map(|_| again(message())).collect();
            let queue = queue(name);
            let sent = self.store.send(&queue, &all);
            self.runtime.block_on(sent).unwrap();
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

pub(crate) fn measure(args: &SharesArgs, common: &Common, table: &mut Table) {
    for round in 1..=common.rounds(3) {
        let each = OTHERS
            .iter()
            .map(|other| (other.0, std::slice::from_ref(other)));
        for (name, others) in each.chain([("all at once", &OTHERS[..])]) {
            eprintln!("shares: round {round}: {name}");
            let bed = Bed::start(others, common);
            // The first messages fill the caches.
            bed.measure(args.messages / 4);
            let mut alone = bed.measure(args.messages);
            bed.disturb(others);
            let mut beside = bed.measure(args.messages);
            for percent in [50, 99] {
                let [alone, beside] = [&mut alone, &mut beside].map(|all| quantile(all, percent));
                let ms = Measure::of("ms");
                table.add(&format!("{name}, p{percent} alone"), ms, alone);
                table.add(&format!("{name}, p{percent} beside"), ms, beside);
                let times =
                    Measure::of("times").at_most(Some(float(3_u64)).filter(|_| percent == 99));
                table.add(&format!("{name}, p{percent}, ratio"), times, beside / alone);
            }
        }
    }
}
