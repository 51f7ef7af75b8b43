//! Rejects every message.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        Verdict::Reject(format!("attempt {}: not wanted", msg.attempt))
    }
}

export!(Handler);
