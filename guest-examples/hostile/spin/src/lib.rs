//! Never returns, and calls nothing that the host could wait for.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let mut n = msg.attempt;
        loop {
            n = std::hint::black_box(n).wrapping_add(1);
        }
    }
}

export!(Handler);
