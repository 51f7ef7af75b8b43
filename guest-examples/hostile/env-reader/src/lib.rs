//! Rejects with all that it sees of its environment. With the name of a variable as its payload it
//! prints that one's value and acks, if it is set.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasip2::cli::environment::{get_arguments, get_environment, initial_cwd};

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let all = get_environment();
        let name = String::from_utf8_lossy(&msg.payload);
        if name.is_empty() {
            let all = all.iter().map(|(name, value)| format!("{name}={value}"));
            return Verdict::Reject(format!(
                "env: {}; args: {}; cwd: {}",
                list(&all.collect::<Vec<_>>()),
                list(&get_arguments()),
                list(&initial_cwd().into_iter().collect::<Vec<_>>())
            ));
        }
        match all.iter().find(|(key, _)| *key == name) {
            Some((_, value)) => {
                println!("{value}");
                Verdict::Ack
            }
            None => Verdict::Reject(format!("{name} is not set")),
        }
    }
}

fn list(all: &[String]) -> String {
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}

export!(Handler);
