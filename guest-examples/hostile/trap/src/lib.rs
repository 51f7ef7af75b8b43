//! Panics on every message, which is a trap for the host. What the payload holds it prints and puts
//! into the panic's message, as it is.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        println!("{text}");
        panic!("attempt {}: a bug in the handler{text}", msg.attempt);
    }
}

export!(Handler);
