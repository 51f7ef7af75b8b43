//! Computes as many rounds as its payload names, then acks. The work is the same however busy the machine is.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use std::hint::black_box;

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        let Ok(rounds) = text.trim().parse::<u64>() else {
            return Verdict::Reject(format!("payload {text:?} is not a number of rounds"));
        };
        // Xorshift, which no compiler shortens.
        let mut number = 1_u64;
        for _ in 0..rounds {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            number = black_box(number);
        }
        black_box(number);
        Verdict::Ack
    }
}

export!(Handler);
