//! What Redis could do with these scripts if nothing else took time: no handler, one task that calls the
//! store in a loop. The processor time of Redis's main thread is taken around each call.

use std::time::Duration;

use clap::Args;
use dqhost::message::QueueName;
use dqhost::store::{First, Reservation, Settled, Settlement, Store};

use crate::Common;
use crate::parts::{QUEUE, fill_due, float, queue, runtime};
use crate::place::{Gauge, Place, StoreKind};
use crate::table::{Measure, Table};

/// What the calls send.
const COMMANDS: [&str; 2] = ["evalsha", "mget"];

#[derive(Debug, Args)]
pub(crate) struct CeilingArgs {
    /// Messages
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    messages: usize,
    /// Messages that are reserved and acked at a time; each number has rows
    #[arg(
        long,
        value_name = "N",
        default_value = "16,64,256,1000",
        value_delimiter = ','
    )]
    batch: Vec<usize>,
}

/// Time of Redis, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    /// Of its main thread, all that it does.
    processor: f64,
    /// In commands, as it counts them itself.
    commands: f64,
}

/// Takes the time of Redis between two moments. What Redis still does when its answer is here already
/// may be counted with the next moment's.
struct Meter {
    gauge: Gauge,
    schedstat: String,
    before: Spent,
}

impl Meter {
    fn new(mut gauge: Gauge) -> Self {
        let pid = gauge.number("server", "process_id");
        Self {
            gauge,
            schedstat: format!("/proc/{pid}/schedstat"),
            before: Spent::default(),
        }
    }

    /// The main thread's time, to the nanosecond: `stat` counts in ticks of 10 ms.
    fn processor(&self) -> f64 {
        let text = std::fs::read_to_string(&self.schedstat).unwrap();
        let nanos: f64 = text.split(' ').next().unwrap().parse().unwrap();
        nanos / 1000.0
    }

    fn commands(&mut self) -> f64 {
        self.gauge.commands().micros(&COMMANDS)
    }

    /// From here. The question to Redis comes first, so that it is not counted.
    fn begin(&mut self) {
        self.before.commands = self.commands();
        self.before.processor = self.processor();
    }

    /// To here. The question to Redis comes last.
    fn end(&mut self, spent: &mut Spent) {
        spent.processor += self.processor() - self.before.processor;
        spent.commands += self.commands() - self.before.commands;
    }
}

/// What each part of a message's way took, over all messages.
#[derive(Debug, Default)]
struct Parts {
    send: Spent,
    promote: Spent,
    reserve: Spent,
    ack: Spent,
}

async fn promote(store: &dyn Store, queue: &QueueName, messages: usize) {
    let mut promoted = 0;
    while promoted < messages {
        let advanced = store.advance(queue).await.unwrap();
        assert!(advanced.promoted > 0, "{promoted} of {messages}");
        promoted += advanced.promoted;
    }
}

/// Reserves and acks until nothing is left; how many that were.
async fn hand_over(
    store: &dyn Store,
    queue: &QueueName,
    batch: usize,
    (meter, parts): (&mut Meter, &mut Parts),
) -> usize {
    let wanted = Reservation {
        max: batch,
        lease: Duration::from_mins(10),
        first: First::Ready,
        retries_default: 3,
    };
    let mut done = 0;
    loop {
        meter.begin();
        let deliveries = store.reserve(queue, wanted).await.unwrap();
        meter.end(&mut parts.reserve);
        if deliveries.is_empty() {
            return done;
        }
        assert!(deliveries.iter().all(|one| one.payload.is_some()));
        let acks: Vec<_> = deliveries
            .into_iter()
            .map(|delivery| (delivery.claim, Settlement::ACK))
            .collect();
        meter.begin();
        let answers = store.settle(queue, &acks).await.unwrap();
        meter.end(&mut parts.ack);
        assert!(answers.iter().all(|answer| *answer == Settled::Done));
        done += acks.len();
    }
}

async fn all(place: &Place, messages: usize, batch: usize) -> Parts {
    let (store, queue) = (place.store().await, queue(QUEUE));
    // The scripts are loaded by the first message.
    let warm = self::queue("warm");
    fill_due(&*store, &warm, 1).await;
    let mut parts = Parts::default();
    let mut meter = Meter::new(place.gauge().unwrap());
    meter.begin();
    fill_due(&*store, &queue, messages).await;
    meter.end(&mut parts.send);
    meter.begin();
    promote(&*store, &queue, messages).await;
    meter.end(&mut parts.promote);
    let done = hand_over(&*store, &queue, batch, (&mut meter, &mut parts)).await;
    assert_eq!(done, messages);
    parts
}

fn note(table: &mut Table, (kind, batch): (StoreKind, usize), messages: usize, parts: &Parts) {
    let (us, in_commands) = (
        Measure::of("us of Redis a message"),
        Measure::of("us in commands a message"),
    );
    let of_batch = format!("{kind}, batches of {batch}");
    let (reserve, ack) = (format!("{of_batch}, reserve"), format!("{of_batch}, ack"));
    for (name, spent) in [
        (format!("{kind}, send"), parts.send),
        (format!("{kind}, promote"), parts.promote),
        (reserve, parts.reserve),
        (ack, parts.ack),
    ] {
        table.add(&name, us, spent.processor / float(messages));
        let commands = spent.commands / float(messages);
        table.add(&format!("{name}, commands"), in_commands, commands);
    }
    let used = [parts.promote, parts.reserve, parts.ack];
    let used_us: f64 = used.iter().map(|spent| spent.processor).sum();
    table.add(
        &format!("{of_batch}, Redis alone"),
        Measure::of("messages/s"),
        float(messages) / used_us * 1e6,
    );
}

pub(crate) fn measure(args: &CeilingArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let mut stores = common.stores(&[StoreKind::Redis]);
    stores.retain(|kind| kind.is_redis());
    for round in 1..=rounds {
        table.round(round, rounds);
        for &kind in &stores {
            for &batch in &args.batch {
                let place = Place::start(kind, common);
                let parts = runtime().block_on(all(&place, args.messages, batch));
                note(table, (kind, batch), args.messages, &parts);
            }
        }
    }
}
