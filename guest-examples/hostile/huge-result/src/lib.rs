//! Rejects with a reason of as many bytes as its payload names, or of 5,000,000.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        Verdict::Reject("x".repeat(text.trim().parse().unwrap_or(5_000_000)))
    }
}

export!(Handler);
