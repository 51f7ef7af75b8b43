//! Logs lines of 100 bytes without end, or as many as its payload names, and then acks.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer-with-logging", generate_all });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasi::logging::logging::{Level, log};

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        let lines = match text.trim() {
            "" => u64::MAX,
            number => match number.parse() {
                Ok(lines) => lines,
                Err(_) => return Verdict::Reject(format!("payload {text:?} is not a number")),
            },
        };
        for n in 0..lines {
            log(Level::Info, "", &format!("{n:0>100}"));
        }
        Verdict::Ack
    }
}

export!(Handler);
