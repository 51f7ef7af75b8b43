//! Allocates without end.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let mut hoard = Vec::new();
        loop {
            hoard.push(vec![msg.attempt.to_le_bytes()[0]; 1 << 20]);
            std::hint::black_box(&hoard);
        }
    }
}

export!(Handler);
