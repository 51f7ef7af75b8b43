//! Acks every message and does nothing else: what is measured with it is the host.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(_msg: Message) -> Verdict {
        Verdict::Ack
    }
}

export!(Handler);
