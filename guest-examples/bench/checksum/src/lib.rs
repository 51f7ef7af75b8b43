//! Acks a payload whose first 32 bytes are the SHA-256 of the rest; rejects any other. It shows that
//! payloads arrive as they were sent.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

use sha2::{Digest, Sha256};

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let Some((digest, rest)) = msg.payload.split_at_checked(32) else {
            return Verdict::Reject("shorter than a digest".to_owned());
        };
        if Sha256::digest(rest).as_slice() == digest {
            Verdict::Ack
        } else {
            Verdict::Reject("the payload is not the one that was sent".to_owned())
        }
    }
}

export!(Handler);
