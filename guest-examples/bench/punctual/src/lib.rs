//! Prints when it runs, in unix microseconds, and how long after the message was due that is; less
//! than zero when it is early. Then acks.

use std::time::SystemTime;

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = now.unwrap_or_default().as_micros();
        match msg.due_at_ms {
            Some(due) => {
                let late = at.cast_signed() - i128::from(due) * 1000;
                println!("at {at} late {late}");
            }
            None => println!("at {at} late unknown"),
        }
        Verdict::Ack
    }
}

export!(Handler);
