//! Prints its message and acks.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        println!("attempt {} of {}", msg.attempt, msg.max_attempts);
        println!("{}", String::from_utf8_lossy(&msg.payload));
        Verdict::Ack
    }
}

export!(Handler);
