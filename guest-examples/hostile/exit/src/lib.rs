//! Exits with the code that its payload names, or with 1, instead of answering.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        std::process::exit(text.trim().parse().unwrap_or(1))
    }
}

export!(Handler);
