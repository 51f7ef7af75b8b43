//! Slots that a host finds out by itself beside each fixed number: what handlers get done that compute, wait, or
//! do nothing, and three queues of one host. The backlog is never empty, and the first seconds do not count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::message::{NewMessage, QueueName};
use dqhost::runtime::{Call, Limits, Permissions, Runtime};
use dqhost::store::{BATCH_MAX, Store};

use crate::Common;
use crate::parts::{float, per_second, queue, runtime};
use crate::place::{Place, StoreKind};
use crate::support::{Host, guest};
use crate::table::{Measure, Table};

/// The handlers that are measured, each as `--works` takes it.
const WORKS: &str = "noop,1ms,20ms,wait-5ms,wait-100ms,wait-2s,mix";

/// The queues of a mix.
const MIX: [&str; 3] = ["noop", "1ms", "wait-100ms"];

/// What this program takes as faster than any machine, in messages a second.
const FASTEST: f64 = 120_000.0;

/// Rounds by which it is found out how long a round takes.
const TRIED: u64 = 20_000_000;

#[derive(Debug, Args)]
pub(crate) struct SlotsArgs {
    /// Fixed numbers of slots
    #[arg(
        long,
        value_name = "N",
        default_value = "1,4,16,64,256,1024",
        value_delimiter = ','
    )]
    slots: Vec<usize>,
    /// What handlers do: noop, a time that they compute, wait-TIME, or mix
    #[arg(long, value_name = "WORK", default_value = WORKS, value_delimiter = ',')]
    works: Vec<String>,
    /// Seconds before anything counts, or more: until the first messages have left all slots
    #[arg(long, value_name = "S", default_value_t = 6)]
    before: u64,
    /// Seconds that count
    #[arg(long, value_name = "S", default_value_t = 8)]
    seconds: u64,
}

/// What the handler of a queue does with each message.
struct Work {
    queue: QueueName,
    handler: &'static str,
    payload: String,
    /// Seconds in which all cores together handle one.
    computes: f64,
    /// More messages a second cannot be handled with so many slots.
    fastest: f64,
}

/// `5ms` or `2s`.
fn time(text: &str) -> Duration {
    let of = |name: &str, unit: Duration| {
        let number: u32 = text.strip_suffix(name)?.parse().ok()?;
        Some(unit * number)
    };
    of("ms", Duration::from_millis(1))
        .or_else(|| of("s", Duration::from_secs(1)))
        .unwrap_or_else(|| panic!("{text} is no time as in wait-5ms"))
}

/// How many rounds of `rounds` take a second.
fn rounds_a_second() -> f64 {
    let engine = Runtime::new(1, Limits::default(), Permissions::default(), None).unwrap();
    let file = engine.read(&guest("rounds")).unwrap();
    let handler = engine.load(&file).unwrap();
    let call = || Call {
        id: "an-id".to_owned(),
        queue: "q".to_owned(),
        payload: TRIED.to_string().into_bytes(),
        headers: Vec::new(),
        attempt: 1,
        attempts_max: 1,
        sent_at_ms: None,
        due_at_ms: None,
    };
    let took = (0..5).map(|_| runtime().block_on(handler.run(call())).duration);
    float(TRIED) / took.min().unwrap().as_secs_f64()
}

impl Work {
    fn of(name: &str, most_slots: usize) -> Self {
        let cores = std::thread::available_parallelism().unwrap().get();
        let (handler, payload, computes, fastest) = if name == "noop" {
            ("noop", "x".to_owned(), 0.0, FASTEST)
        } else if let Some(waits) = name.strip_prefix("wait-") {
            let waits = time(waits);
            let fastest = float(most_slots) / waits.as_secs_f64();
            ("sleeper", waits.as_millis().to_string(), 0.0, fastest)
        } else {
            let seconds = time(name).as_secs_f64();
            let rounds = format!("{:.0}", rounds_a_second() * seconds);
            // The machine may be quicker while it is measured than it was when a round was.
            let fastest = 1.5 * float(cores) / seconds;
            ("rounds", rounds, seconds / float(cores), fastest)
        };
        Self {
            queue: queue(name),
            handler,
            payload,
            computes,
            fastest: fastest.min(FASTEST),
        }
    }

    /// Seconds in which so many slots are emptied once. What many have computed by the time at which it counts
    /// would be counted with what they compute then: more than the cores can do.
    fn emptied_in(&self, slots: usize) -> u64 {
        Duration::from_secs_f64(1.5 * self.computes * float(slots)).as_secs()
    }

    async fn fill(&self, store: &dyn Store, seconds: u64) {
        let all = self.fastest * float(seconds) + float(BATCH_MAX);
        let mut sent = 0.0;
        while sent < all {
            let some: Vec<_> = (0..BATCH_MAX)
                .map(|_| NewMessage::new(self.payload.as_bytes()))
                .collect();
            store.send(&self.queue, &some).await.unwrap();
            sent += float(some.len());
        }
    }
}

/// Messages that the queues have acked, and when.
async fn acked(store: &dyn Store, works: &[Work]) -> Vec<(u64, Instant)> {
    let mut all = Vec::new();
    for work in works {
        let counts = store.counts(&work.queue).await.unwrap();
        assert!(
            counts.ready + counts.pending > 0,
            "the backlog of {} is gone: this machine is faster than was thought",
            work.queue
        );
        all.push((counts.totals.acked, Instant::now()));
    }
    all
}

/// Messages a second of each queue.
fn rates(args: &SlotsArgs, place: &Place, works: &[Work], slots: &str) -> Vec<f64> {
    let runtime = runtime();
    let store: Arc<dyn Store> = runtime.block_on(place.store());
    // A number that the host finds is bounded by what waits for the cores.
    let fixed = slots.parse().unwrap_or(0);
    let emptied_in = works.iter().map(|work| work.emptied_in(fixed)).max();
    let before = args.before.max(emptied_in.unwrap_or(0));
    runtime.block_on(async {
        for work in works {
            work.fill(&*store, before + args.seconds).await;
        }
    });
    let mut flags = vec!["--slots".to_owned(), slots.to_owned()];
    flags.extend(["--log", "error", "--drain", "0s", "--keep-ended", "0"].map(str::to_owned));
    flags.extend(place.host_args().map(str::to_owned));
    for work in works {
        let handler = guest(work.handler);
        flags.push(format!("--queue={}={}", work.queue, handler.display()));
    }
    let _host = Host::start_silently(place.address(), &flags);
    std::thread::sleep(Duration::from_secs(before));
    let before = runtime.block_on(acked(&*store, works));
    std::thread::sleep(Duration::from_secs(args.seconds));
    let after = runtime.block_on(acked(&*store, works));
    let both = before.into_iter().zip(after);
    both.map(|((before, began), (after, ended))| {
        let number = usize::try_from(after - before).unwrap();
        per_second(number, ended - began)
    })
    .collect()
}

/// One number for several queues: their geometric mean, in which none makes up for another.
fn mean(rates: &[f64]) -> f64 {
    let product: f64 = rates.iter().product();
    product.powf(1.0 / float(rates.len()))
}

fn sweep(args: &SlotsArgs, kind: StoreKind, name: &str, common: &Common, table: &mut Table) {
    let most = args.slots.iter().max().copied().unwrap_or(1).max(1024);
    let one = [name];
    let names: &[&str] = if name == "mix" { &MIX } else { &one };
    let works: Vec<Work> = names.iter().map(|name| Work::of(name, most)).collect();
    let fixed = args.slots.iter().map(ToString::to_string);
    let mut best: f64 = 0.0;
    for slots in fixed.chain(["auto".to_owned()]) {
        let rates = rates(args, &Place::start(kind, common), &works, &slots);
        let head = format!("{kind}, {name}, {slots} slots");
        for (work, rate) in works.iter().zip(&rates).filter(|_| works.len() > 1) {
            let row = format!("{head}, {}", work.queue);
            table.add(&row, Measure::of("messages/s"), *rate);
        }
        let all = mean(&rates);
        table.add(&head, Measure::of("messages/s"), all);
        if slots == "auto" {
            let row = format!("{kind}, {name}, auto to the best number");
            table.add(&row, Measure::of("times").at_least(0.9), all / best);
        }
        best = best.max(all);
    }
}

pub(crate) fn measure(args: &SlotsArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(1);
    for round in 1..=rounds {
        table.round(round, rounds);
        for kind in common.stores(&[StoreKind::Redis]) {
            for name in &args.works {
                sweep(args, kind, name, common, table);
            }
        }
    }
}
