//! Logs a line of each level and one with control characters, prints one to stdout and one to stderr,
//! and then nacks with its payload as the reason, or acks when that is empty.

wit_bindgen::generate!({ path: "../../wit", world: "consumer-with-logging", generate_all });

use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasi::logging::logging::{Level, log};

const LEVELS: [(Level, &str); 6] = [
    (Level::Trace, "trace"),
    (Level::Debug, "debug"),
    (Level::Info, "info"),
    (Level::Warn, "warn"),
    (Level::Error, "error"),
    (Level::Critical, "critical"),
];

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        for (level, name) in LEVELS {
            log(level, "orders", &format!("a line of level {name}"));
        }
        println!("a line on stdout");
        eprintln!("a line on stderr");
        log(Level::Info, "orders", "a line with \u{1b}[31mred\u{1b}[0m");
        if msg.payload.is_empty() {
            return Verdict::Ack;
        }
        Verdict::Nack(Nack {
            delay_ms: None,
            reason: Some(String::from_utf8_lossy(&msg.payload).into_owned()),
        })
    }
}

export!(Handler);
