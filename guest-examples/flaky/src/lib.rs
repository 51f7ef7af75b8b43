//! Nacks at once until the attempt that its payload names, then acks.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        match text.trim().parse::<u32>() {
            Err(_) => Verdict::Reject(format!("payload {text:?} is not the number of an attempt")),
            Ok(good) if msg.attempt >= good => Verdict::Ack,
            Ok(good) => Verdict::Nack(Nack {
                delay_ms: Some(0),
                reason: Some(format!("attempt {} of {good} that are needed", msg.attempt)),
            }),
        }
    }
}

export!(Handler);
