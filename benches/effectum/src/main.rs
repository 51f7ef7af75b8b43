//! The same work on effectum, an embedded queue on SQLite without a sandbox: sends one by one and in
//! batches of 100, and drains with a handler that does nothing.
//!
//!     effectum-bench FOLDER SINGLES MESSAGES CONCURRENCY PAYLOAD
//!
//! Prints one JSON line with messages a second for each.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use effectum::{Error, Job, JobRunner, Queue, RunningJob, Worker};

#[derive(Debug)]
struct Nothing;

async fn handle(_job: RunningJob, _context: Arc<Nothing>) -> Result<(), Error> {
    Ok(())
}

fn job(payload: u32) -> Job {
    Job::builder("noop")
        .payload(vec![b'x'; payload as usize])
        .build()
}

async fn queue(folder: &str, name: &str) -> Queue {
    Queue::new(&Path::new(folder).join(name)).await.unwrap()
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |place: usize| args[place].parse::<u32>().unwrap();
    let (folder, singles, messages, concurrency) = (&args[1], number(2), number(3), number(4));
    let payload = number(5);
    let rate = |count: u32, start: Instant| f64::from(count) / start.elapsed().as_secs_f64();

    let single = queue(folder, "single.db").await;
    let start = Instant::now();
    for _ in 0..singles {
        single.add_job(job(payload)).await.unwrap();
    }
    let single = rate(singles, start);

    let queue = queue(folder, "batch.db").await;
    let start = Instant::now();
    for _ in 0..messages / 100 {
        queue
            .add_jobs((0..100).map(|_| job(payload)).collect())
            .await
            .unwrap();
    }
    let batch = rate(messages / 100 * 100, start);

    let start = Instant::now();
    let slots = u16::try_from(concurrency).unwrap();
    let worker = Worker::builder(&queue, Arc::new(Nothing))
        .jobs([JobRunner::builder("noop", handle).build()])
        .max_concurrency(slots)
        .min_concurrency(slots / 2)
        .build()
        .await
        .unwrap();
    while worker.counts().finished < u64::from(messages / 100 * 100) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let drain = rate(messages / 100 * 100, start);
    println!(
        "{}",
        serde_json::json!({"single": single, "batch": batch, "drain": drain})
    );
}
