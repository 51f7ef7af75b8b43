//! Sleeps in a host call for the milliseconds that its payload names, then acks. With a header
//! `extend-ms` it asks for that much time first, and prints what it has.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use dqhost::queue::delivery;
use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let wanted = msg.headers.iter().find(|(key, _)| key == "extend-ms");
        if let Some(ms) = wanted.and_then(|(_, value)| value.parse().ok()) {
            println!("granted {} of {ms} ms", delivery::extend(ms));
            println!("{} ms are left", delivery::remaining_ms());
        }
        let text = String::from_utf8_lossy(&msg.payload);
        match text.trim().parse::<u64>() {
            Ok(ms) => {
                std::thread::sleep(std::time::Duration::from_millis(ms));
                Verdict::Ack
            }
            Err(_) => Verdict::Reject(format!("payload {text:?} is not a number of milliseconds")),
        }
    }
}

export!(Handler);
