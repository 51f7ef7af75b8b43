//! What several subjects are made of: messages, clocks and a little statistics.

use std::time::{Duration, SystemTime};

use dqhost::message::{Due, NewMessage, QueueName};
use dqhost::store::{BATCH_MAX, Store};
use rustix::process::Pid;

/// What every message carries.
pub(crate) const PAYLOAD_BYTES: usize = 100;

/// The queue that a host serves when none is named.
pub(crate) const QUEUE: &str = "default";

pub(crate) fn queue(name: &str) -> QueueName {
    name.parse().unwrap()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    // One thread: more would wake each other for nothing.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// A count as a number to calculate with.
#[expect(
    clippy::cast_precision_loss,
    reason = "nothing is counted that comes near 2^52"
)]
pub(crate) fn float(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(u64::MAX) as f64
}

pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    float(count) / took.as_secs_f64()
}

/// The value below which so many percent of them are; sorts them.
pub(crate) fn quantile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

/// A message of the usual size.
pub(crate) fn message(due: Due) -> NewMessage {
    NewMessage {
        due,
        ..NewMessage::new(vec![b'x'; PAYLOAD_BYTES])
    }
}

pub(crate) fn messages(count: usize, due: Due) -> Vec<NewMessage> {
    (0..count).map(|_| message(due)).collect()
}

/// Sends so many messages in batches of this size.
pub(crate) async fn send_in_batches(
    store: &dyn Store,
    queue: &QueueName,
    (count, due): (usize, Due),
    batch: usize,
) {
    let mut left = count;
    while left > 0 {
        let some = left.min(batch);
        store.send(queue, &messages(some, due)).await.unwrap();
        left -= some;
    }
}

/// Sends so many messages in the largest batches.
pub(crate) async fn fill(store: &dyn Store, queue: &QueueName, count: usize, due: Due) {
    send_in_batches(store, queue, (count, due), BATCH_MAX).await;
}

/// Sends messages that wait in pending and are due when this returns.
pub(crate) async fn fill_due(store: &dyn Store, queue: &QueueName, count: usize) {
    fill(store, queue, count, Due::In(Duration::from_millis(1))).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Unix time by this machine's clock, in microseconds.
pub(crate) fn now_us() -> i128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_micros().cast_signed()
}

/// Seconds of some clocks of a process, by their places behind its name in `stat`.
fn clocks(process: &str, places: [usize; 2]) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = places
        .map(|at| fields[at].parse::<u64>().unwrap())
        .iter()
        .sum();
    float(ticks) / float(rustix::param::clock_ticks_per_second())
}

/// Seconds of processor time that a process has used.
pub(crate) fn processor_seconds(pid: Pid) -> f64 {
    clocks(&pid.as_raw_nonzero().to_string(), [11, 12])
}

/// Seconds of processor time that this process's children had used that have ended.
pub(crate) fn children_seconds() -> f64 {
    clocks("self", [13, 14])
}
