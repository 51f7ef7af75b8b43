//! What a sandbox costs: a fresh one for each message, from the call to the verdict.
//!
//! Each run makes a store and an instance, gives it a payload of 100 bytes, takes its verdict and
//! throws both away, with all limits on. One thread, then two, in turn.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use clap::Args;
use dqhost::runtime::{Call, Handler, Limits, Permissions, Runtime};
use dqhost::verdict::Outcome;

use crate::Common;
use crate::parts::{PAYLOAD_BYTES, per_second, quantile};
use crate::support::guest;
use crate::table::{Measure, Table};

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Messages of each thread in each round
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    messages: usize,
}

fn call() -> Call {
    Call {
        id: "019a2b3c-0000-7000-8000-000000000099".to_owned(),
        queue: "default".to_owned(),
        payload: vec![b'x'; PAYLOAD_BYTES],
        headers: Vec::new(),
        attempt: 1,
        attempts_max: 4,
        sent_at_ms: Some(1_795_000_000_000),
        due_at_ms: None,
    }
}

/// The times of some runs, and how long all of them took.
fn run(handler: &Handler, messages: usize) -> (Vec<Duration>, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut times = Vec::with_capacity(messages);
        let began = Instant::now();
        for _ in 0..messages {
            let call = call();
            let started = Instant::now();
            let report = handler.run(call).await;
            times.push(started.elapsed());
            assert_eq!(report.outcome, Outcome::Acked);
        }
        (times, began.elapsed())
    })
}

/// Half and 99 in a hundred, in microseconds, and messages a second of all threads together.
struct Round {
    p50: f64,
    p99: f64,
    rate: f64,
}

fn round(handler: &Arc<Handler>, threads: usize, messages: usize) -> Round {
    let barrier = Arc::new(Barrier::new(threads));
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let (handler, barrier) = (Arc::clone(handler), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                run(&handler, messages)
            })
        })
        .collect();
    let (mut times, mut rate) = (Vec::new(), 0.0);
    for thread in running {
        let (of_one, took) = thread.join().unwrap();
        times.extend(of_one.into_iter().map(|time| time.as_secs_f64() * 1e6));
        rate += per_second(messages, took);
    }
    Round {
        p50: quantile(&mut times, 50),
        p99: quantile(&mut times, 99),
        rate,
    }
}

fn note(table: &mut Table, (handler, threads): (&str, usize), round: &Round) {
    let is_noop = handler == "noop";
    let p50_goal = (is_noop && threads == 1).then_some(10.0);
    let rate_goal = (is_noop && threads == 2).then_some(150_000.0);
    let (us, rate) = (Measure::of("us"), Measure::of("messages/s"));
    for (what, measure, sample) in [
        ("p50", us.at_most(p50_goal), round.p50),
        ("p99", us, round.p99),
        ("rate", rate.at_least(rate_goal), round.rate),
    ] {
        let name = format!("{handler}, threads: {threads}, {what}");
        table.add(&name, measure, sample);
    }
}

pub(crate) fn measure(args: &SandboxArgs, common: &Common, table: &mut Table) {
    let rounds = common.rounds(5);
    let runtime = Runtime::new(16, Limits::default(), Permissions::default(), None).unwrap();
    let handlers = ["noop", "echo"].map(|name| {
        let file = runtime.read(&guest(name)).unwrap();
        let handler = Arc::new(runtime.load(&file).unwrap());
        // The first runs fill caches and the pool.
        self::round(&handler, 2, args.messages.div_ceil(10));
        (name, handler)
    });
    for number in 1..=rounds {
        table.round(number, rounds);
        for (name, handler) in &handlers {
            for threads in [1, 2] {
                let round = self::round(handler, threads, args.messages);
                note(table, (name, threads), &round);
            }
        }
    }
}
