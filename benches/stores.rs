//! Messages a second on each store: sends one by one and in batches of 100, and a drain of due
//! messages by the real host through a no-op guest, a fresh instance each.
//!
//!     cargo bench --bench stores -- [--messages 50000] [--singles 2000] [--rounds 3] [--slots 64]
//!         [--payload 100] [--effectum PROGRAM] [--json]
//!
//! Each round measures every store once, one after the other, so that what disturbs the machine
//! disturbs all; the table has the median and the range. A drain's time is that of the whole
//! process less that of one on an empty queue.
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made ends in a panic"
)]

#[path = "../tests/it/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use dqhost::message::NewMessage;
use dqhost::store::Store;
use dqhost::store::address::{self, StoreAddress, StoreSettings};
use dqhost::store::sqlite::Durability;
use tempfile::TempDir;

use support::{RedisServer, dqhost, expect, guest, stats};

struct Settings {
    messages: usize,
    singles: usize,
    rounds: usize,
    slots: usize,
    payload: usize,
}

/// Messages a second: one by one, in batches, drained.
type Rates = [f64; 3];

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 messages")]
fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

async fn send(store: &dyn Store, settings: &Settings) -> [f64; 2] {
    let message = || NewMessage::new(vec![b'x'; settings.payload]);
    let (single, queue) = ("single".parse().unwrap(), "default".parse().unwrap());
    let start = Instant::now();
    for _ in 0..settings.singles {
        store.send(&single, &[message()]).await.unwrap();
    }
    let one_by_one = rate(settings.singles, start.elapsed());
    let start = Instant::now();
    for _ in 0..settings.messages / 100 {
        let batch: Vec<NewMessage> = (0..100).map(|_| message()).collect();
        store.send(&queue, &batch).await.unwrap();
    }
    [one_by_one, rate(settings.messages, start.elapsed())]
}

/// How long a host takes from its start to its end on an empty queue.
fn drain(place: &str, settings: &Settings, durability: &str, queue: &str) -> Duration {
    let (handler, slots) = (guest("noop"), settings.slots.to_string());
    let args = [
        "--handler",
        handler.to_str().unwrap(),
        "--queue",
        queue,
        "--slots",
        &slots,
        "--durability",
        durability,
        "--log",
        "warn",
        "--exit-when-empty",
    ];
    let start = Instant::now();
    expect(dqhost(Some(place), &args).output().unwrap(), 0);
    start.elapsed()
}

fn measure(place: &str, settings: &Settings, durability: Durability) -> Rates {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let [single, batch] = runtime.block_on(async {
        let address: StoreAddress = place.parse().unwrap();
        let with = StoreSettings {
            durability,
            ..StoreSettings::default()
        };
        let store = address::open(&address, with).await.unwrap();
        send(&*store, settings).await
    });
    let durability = match durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    };
    let empty = drain(place, settings, durability, "empty");
    let all = drain(place, settings, durability, "default");
    assert_eq!(
        stats(place, "default")["totals"]["acked"],
        settings.messages
    );
    [
        single,
        batch,
        rate(settings.messages, all.saturating_sub(empty)),
    ]
}

fn file(settings: &Settings, durability: Durability) -> Rates {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("dqhost.db");
    measure(db.to_str().unwrap(), settings, durability)
}

fn redis(settings: &Settings, appendfsync: &str) -> Rates {
    let server = RedisServer::start_with(&["--appendfsync", appendfsync]);
    measure(&server.url(), settings, Durability::Full)
}

fn effectum(program: &str, settings: &Settings) -> Rates {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(program);
    command.arg(folder.path());
    let numbers = [settings.singles, settings.messages, 1024, settings.payload];
    command.args(numbers.map(|n| n.to_string()));
    let output = expect(command.output().unwrap(), 0);
    let rates: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    ["single", "batch", "drain"].map(|name| rates[name].as_f64().unwrap())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)
    };
    let number = |name: &str, default: usize| value(name).map_or(default, |n| n.parse().unwrap());
    let settings = Settings {
        messages: number("--messages", 50_000),
        singles: number("--singles", 2000),
        rounds: number("--rounds", 3),
        slots: number("--slots", 64),
        payload: number("--payload", 100),
    };
    let mut measured: BTreeMap<&str, Vec<Rates>> = BTreeMap::new();
    for _ in 0..settings.rounds {
        let mut note = |name, rates| measured.entry(name).or_default().push(rates);
        note("file, full", file(&settings, Durability::Full));
        note("file, normal", file(&settings, Durability::Normal));
        note("redis, fsync always", redis(&settings, "always"));
        note("redis, fsync everysec", redis(&settings, "everysec"));
        if let Some(program) = value("--effectum") {
            note("effectum 0.7, normal", effectum(program, &settings));
        }
    }
    if args.iter().any(|arg| arg == "--json") {
        println!("{}", serde_json::json!(measured));
        return;
    }
    println!(
        "{} messages of {} bytes, {} slots, {} rounds: median (least to most) messages/s",
        settings.messages, settings.payload, settings.slots, settings.rounds
    );
    println!(
        "{:<22} {:>24} {:>26} {:>24}",
        "store", "send one by one", "send in batches of 100", "drain"
    );
    for (name, rounds) in measured {
        let columns = [0, 1, 2].map(|column| {
            let mut rates: Vec<f64> = rounds.iter().map(|rates| rates[column]).collect();
            rates.sort_by(f64::total_cmp);
            let (least, most) = (rates[0], rates[rates.len() - 1]);
            format!("{:.0} ({least:.0} to {most:.0})", rates[rates.len() / 2])
        });
        println!(
            "{name:<22} {:>24} {:>26} {:>24}",
            columns[0], columns[1], columns[2]
        );
    }
}
