//! What a sandbox costs: a fresh one for each message, from the call to the verdict.
//!
//! Each run makes a store and an instance, gives it a payload of 100 bytes, takes its verdict and
//! throws both away, with all limits on. One thread, then two, alternating, several rounds; the
//! median of the rounds is printed with the least and the most.
//!
//! `--rounds N` (5), `--messages N` for each round and thread (100,000).

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use dqhost::runtime::{Call, Handler, Limits, Permissions, Runtime};
use dqhost::verdict::Outcome;

fn number(name: &str, default: usize) -> usize {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.nth(1)
        .map_or(default, |n| n.parse().expect("a number"))
}

fn call() -> Call {
    Call {
        id: "019a2b3c-0000-7000-8000-000000000099".to_owned(),
        queue: "default".to_owned(),
        payload: vec![b'x'; 100],
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
        .expect("a thread's runtime");
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

/// Half, 99 in a hundred, and messages a second of all threads together.
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
        let (of_one, took) = thread.join().expect("no run panics");
        times.extend(of_one);
        rate += per_second(messages, took);
    }
    times.sort_unstable();
    let us = |quantile: usize| times[times.len() * quantile / 100].as_secs_f64() * 1e6;
    Round {
        p50: us(50),
        p99: us(99),
        rate,
    }
}

/// Messages a second.
fn per_second(messages: usize, took: Duration) -> f64 {
    f64::from(u32::try_from(messages).unwrap_or(u32::MAX)) / took.as_secs_f64()
}

fn show(name: &str, threads: usize, rounds: &[Round]) {
    let spread = |of: fn(&Round) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        (all[all.len() / 2], all[0], all[all.len() - 1])
    };
    let (p50, p50_least, p50_most) = spread(|round| round.p50);
    let (p99, p99_least, p99_most) = spread(|round| round.p99);
    let (rate, least, most) = spread(|round| round.rate);
    println!(
        "| {name} | {threads} | {p50:.1} ({p50_least:.1} to {p50_most:.1}) | {p99:.1} ({p99_least:.1} to {p99_most:.1}) | {rate:.0} ({least:.0} to {most:.0}) |"
    );
}

fn main() {
    let (rounds, messages) = (number("--rounds", 5), number("--messages", 100_000));
    let guests = PathBuf::from(env!("CARGO_BIN_EXE_dqhost"))
        .parent()
        .and_then(|profile| profile.parent())
        .expect("the program is two folders deep in the target folder")
        .join("wasm32-wasip2/guest");
    println!("| handler | threads | p50, us | p99, us | messages/s |\n|---|---|---|---|---|");
    for name in ["noop", "echo"] {
        let runtime =
            Runtime::new(16, Limits::default(), Permissions::default(), None).expect("a runtime");
        let file = runtime
            .read(&guests.join(format!("{name}.wasm")))
            .expect("`make guests` builds it");
        let handler = Arc::new(runtime.load(&file).expect("a handler"));
        let (mut one, mut two) = (Vec::new(), Vec::new());
        // The first runs fill caches and the pool.
        round(&handler, 2, messages / 10);
        for _ in 0..rounds {
            one.push(round(&handler, 1, messages));
            two.push(round(&handler, 2, messages));
        }
        show(name, 1, &one);
        show(name, 2, &two);
    }
}
