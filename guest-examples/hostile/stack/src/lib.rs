//! Recurses without end, and keeps nothing in memory: what runs out is the call stack.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use std::hint::black_box;

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

/// What is done with the result of the call makes a loop of it impossible.
fn deep(n: u64) -> u64 {
    if n == 0 {
        return 1;
    }
    deep(n - 1).wrapping_mul(31).rotate_left(7) ^ n
}

struct Handler;

impl Guest for Handler {
    fn handle(_msg: Message) -> Verdict {
        let end = deep(black_box(u64::MAX));
        Verdict::Reject(format!("came back with {end}"))
    }
}

export!(Handler);
