//! Tries to read and to write files. Rejects with the errors if nothing worked; else it prints what
//! did, and acks.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use std::fs;

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(_msg: Message) -> Verdict {
        let tries = [
            ("read /etc/passwd", fs::read("/etc/passwd").err()),
            ("list /", fs::read_dir("/").err()),
            ("list .", fs::read_dir(".").err()),
            ("write /tmp/x", fs::write("/tmp/x", "x").err()),
        ];
        let mut errors = Vec::new();
        for (what, error) in &tries {
            match error {
                Some(error) => errors.push(format!("{what}: {error}")),
                None => println!("{what}: it worked"),
            }
        }
        if errors.len() == tries.len() {
            Verdict::Reject(errors.join("; "))
        } else {
            Verdict::Ack
        }
    }
}

export!(Handler);
