//! Makes handles that the host has to keep, and gives none back, without end.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasip2::clocks::monotonic_clock::subscribe_duration;

const HOUR: u64 = 3_600_000_000_000;

struct Handler;

impl Guest for Handler {
    fn handle(_msg: Message) -> Verdict {
        loop {
            std::mem::forget(subscribe_duration(HOUR));
        }
    }
}

export!(Handler);
