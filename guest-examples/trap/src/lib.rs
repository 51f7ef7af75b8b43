//! Panics on every message, which is a trap for the host.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        panic!("attempt {}: a bug in the handler", msg.attempt);
    }
}

export!(Handler);
