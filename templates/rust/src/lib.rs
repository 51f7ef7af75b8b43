//! Looks at an order when its time to be paid is over.

wit_bindgen::generate!({ path: "wit", world: "consumer" });

use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler::Guest;
use serde::Deserialize;

/// The payload: `{"order": "A-1", "status": "paid"}`.
#[derive(Deserialize)]
struct Order {
    order: String,
    status: String,
}

struct Handler;

impl Guest for Handler {
    fn handle(message: Message) -> Verdict {
        let Order { order, status } = match serde_json::from_slice(&message.payload) {
            Ok(order) => order,
            // A retry cannot help: it becomes a dead letter.
            Err(error) => return Verdict::Reject(format!("not an order: {error}")),
        };
        match status.as_str() {
            "paid" => {
                println!("order {order} is paid");
                Verdict::Ack
            }
            "unpaid" if message.attempt == 1 => Verdict::Nack(Nack {
                delay_ms: Some(1_000),
                reason: Some(format!("order {order} is not paid yet")),
            }),
            "unpaid" => {
                println!("order {order} is cancelled");
                Verdict::Ack
            }
            other => Verdict::Reject(format!("order {order} has the unknown status {other:?}")),
        }
    }
}

export!(Handler);
