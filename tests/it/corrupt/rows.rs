//! The rows of a file hold anything: it may come from anywhere.

use dqhost::message::{Due, MessageId, NewMessage, OnRepeat};
use dqhost::store::End;
use dqhost::store::prelude::*;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::Value;
use tempfile::TempDir;

use super::any::{IDS, VALUES, bytes, cases};
use super::methods::{handle, look, neighbour_works, steer};
use crate::contract::settle::outbox::other;
use crate::contract::tools::*;

/// Numbers at the borders of what is counted, coded and compared.
const NUMBERS: [i64; 16] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    -1,
    i64::MIN,
    i64::MAX,
    i64::MAX - 1,
    4_294_967_295,
    4_294_967_296,
    1_099_511_627_776,
    4_102_444_800_000,
];

const NUMBERS_OF_MESSAGES: [&str; 7] = [
    "state",
    "place",
    "token",
    "was",
    "due_ms",
    "failed",
    "retries_left",
];
const TEXTS_OF_MESSAGES: [&str; 3] = ["id", "headers", "history"];
const NUMBERS_OF_QUEUES: [&str; 21] = [
    "head",
    "tail",
    "delivery",
    "pending",
    "ready",
    "unack",
    "retry",
    "garbage",
    "dead",
    "moving",
    "paused",
    "sent",
    "acked",
    "nacked",
    "rejected",
    "expired",
    "released",
    "died",
    "redriven",
    "cancelled",
    "deleted",
];

/// A change of one column of one row.
#[derive(Debug, Clone)]
struct Spoilt {
    table: &'static str,
    column: &'static str,
    row: i64,
    value: Value,
    /// Bytes that SQLite is told to take for text.
    text: bool,
}

impl Spoilt {
    /// A change that the schema itself forbids is left out.
    fn write(&self, connection: &Connection) {
        let Self {
            table, column, row, ..
        } = self;
        let value = if self.text { "CAST(?1 AS TEXT)" } else { "?1" };
        let sql = match *table {
            "messages" => {
                format!("UPDATE messages SET {column} = {value} WHERE seq = ?2 AND queue = 1")
            }
            "queues" => {
                format!("UPDATE queues SET {column} = {value} WHERE ?2 >= 0 AND name = 'q'")
            }
            _ => format!("UPDATE {table} SET {column} = {value} WHERE ?2 >= 0"),
        };
        let _ = connection.execute(&sql, rusqlite::params![self.value, row]);
    }
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        9 => prop::sample::select(&NUMBERS[..]).prop_map(Value::Integer),
        1 => Just(Value::Null),
    ]
}

fn blob(known: &'static [&'static [u8]]) -> impl Strategy<Value = Value> {
    bytes(known).prop_map(Value::Blob)
}

fn spoilt() -> impl Strategy<Value = Spoilt> {
    let change = |table, columns: &'static [&'static str], values: BoxedStrategy<Value>, text| {
        (prop::sample::select(columns), 1_i64..9, values).prop_map(move |(column, row, value)| {
            Spoilt {
                table,
                column,
                row,
                value,
                text,
            }
        })
    };
    prop_oneof![
        6 => change("messages", &NUMBERS_OF_MESSAGES, number().boxed(), false),
        2 => change("messages", &TEXTS_OF_MESSAGES, blob(&VALUES).boxed(), true),
        1 => change("messages", &["id"], blob(&IDS).boxed(), true),
        1 => change("messages", &["payload"], prop_oneof![Just(Value::Null), blob(&VALUES)].boxed(), false),
        3 => change("queues", &NUMBERS_OF_QUEUES, number().boxed(), false),
        1 => change("queues", &["peer", "run"], blob(&VALUES).boxed(), true),
        1 => change("hosts", &["info", "host"], blob(&VALUES).boxed(), true),
        1 => change("hosts", &["beat_ms"], number().boxed(), false),
        1 => change("dedup", &["until_ms"], number().boxed(), false),
        1 => change("dedup", &["id"], blob(&IDS).boxed(), true),
        1 => change("repeats", &["due_ms", "max_wait_ms", "first_ms", "retries"], number().boxed(), false),
        1 => change("repeats", &["headers"], blob(&VALUES).boxed(), true),
        1 => change("repeats", &["payload"], blob(&VALUES).boxed(), false),
        1 => change("repeats", &["id"], blob(&IDS).boxed(), true),
        1 => change("ended", &["last"], number().boxed(), false),
        1 => change("ended", &["lines"], blob(&VALUES).boxed(), true),
    ]
}

/// A file with a message in each state.
async fn make(path: &std::path::Path) -> Vec<MessageId> {
    let store = SqliteStore::open(&SqliteOptions::file(path)).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(send(&store, "x", Due::NOW, 3).await);
    }
    let [a, b, c, d] = reserve(&store, 4, LONG).await.try_into().unwrap();
    settle(&store, &a.claim, reject()).await;
    collect_garbage(&store).await;
    settle(&store, &b.claim, reject()).await;
    settle(&store, &c.claim, nack(None)).await;
    let later = NewMessage {
        due: Due::In(LONG),
        dedup_window: LONG,
        ..NewMessage::new("x")
    };
    let again = NewMessage {
        id: d.claim.id,
        on_repeat: OnRepeat::Replace { max_wait: None },
        ..NewMessage::new("again")
    };
    store.send(&queue(), &[again]).await.unwrap();
    ids.push(later.id.clone());
    store.send(&queue(), &[later]).await.unwrap();
    ids.push(send(&store, "x", Due::NOW, 3).await);
    store
        .send(&other("fine"), &[NewMessage::new("x")])
        .await
        .unwrap();
    let told = (ended("a", End::Acked), LONG);
    store.keep_ended(&queue(), &[told], 10).await.unwrap();
    let host = dqhost::store::HostInfo {
        id: "h".to_owned(),
        version: String::new(),
        handler: String::new(),
        slots: 1,
        in_flight: 0,
    };
    store
        .heartbeat(&queue(), &host, dqhost::store::HOST_SILENCE)
        .await
        .unwrap();
    ids
}

#[test]
fn rows_that_hold_anything_are_survived() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = TempDir::new().unwrap();
    let whole = folder.path().join("whole.db");
    let mut ids = runtime.block_on(make(&whole));
    ids.push(MessageId::from("\u{1b}[2J"));
    let path = folder.path().join("spoilt.db");
    proptest!(cases(40), |(spoilt in prop::collection::vec(spoilt(), 1..8))| {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
        std::fs::copy(&whole, &path).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "ignore_check_constraints", true).unwrap();
        for change in &spoilt {
            change.write(&connection);
        }
        connection.close().unwrap();
        runtime.block_on(async {
            let mut options = SqliteOptions::file(&path);
            options.durability = dqhost::store::sqlite::Durability::Normal;
            let store = SqliteStore::open(&options).await.unwrap();
            look(&store, &queue(), &ids).await;
            handle(&store, &queue()).await;
            look(&store, &queue(), &ids).await;
            steer(&store, &queue(), &ids).await;
            neighbour_works(&store).await.unwrap();
        });
    });
}
