//! Hands over HTTP requests without a path, for which the library below the host logs a warning each: no
//! permission is needed for that. Tries as often as its payload says, or without end, and acks.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{Fields, OutgoingRequest};

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload);
        let count = text.parse().unwrap_or(u64::MAX);
        for _ in 0..count {
            let request = OutgoingRequest::new(Fields::new());
            // Without one there is an error and no warning.
            let _ = request.set_authority(Some("host"));
            let _ = handle(request, None);
        }
        Verdict::Ack
    }
}

export!(Handler);
