//! Asks for 1 GiB of random bytes in one call, and acks if it gets them.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasip2::random::random::get_random_bytes;

struct Handler;

impl Guest for Handler {
    fn handle(_msg: Message) -> Verdict {
        match get_random_bytes(1 << 30).len() {
            0x4000_0000 => Verdict::Ack,
            fewer => Verdict::Reject(format!("only {fewer} bytes")),
        }
    }
}

export!(Handler);
