//! The classic use of a delayed queue: an order is sent with a delay when it is placed, and looked
//! at when its time to be paid is over.
//!
//! The payload is JSON:
//!
//! ```json
//! {"order": "A-1", "status": "paid", "amount": 12.5}
//! ```
//!
//! * `paid`: nothing to do, ack;
//! * `unpaid`: the order is cancelled here, ack;
//! * `processing`: the payment is under way, so nack, to look again after `check_again_ms`
//!   (default 1,000);
//! * anything else, or a payload that is no order: reject, since looking again cannot help.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler::Guest;
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    order: String,
    status: String,
    amount: f64,
    #[serde(default = "one_second")]
    check_again_ms: u64,
}

fn one_second() -> u64 {
    1000
}

fn decide(order: &Order) -> Verdict {
    match order.status.as_str() {
        "paid" => {
            println!("order {} is paid ({:.2})", order.order, order.amount);
            Verdict::Ack
        }
        "unpaid" => {
            println!("order {} was not paid in time: cancelled", order.order);
            Verdict::Ack
        }
        "processing" => Verdict::Nack(Nack {
            delay_ms: Some(order.check_again_ms),
            reason: Some(format!("the payment of order {} is under way", order.order)),
        }),
        other => Verdict::Reject(format!(
            "order {} has the unknown status {other:?}",
            order.order
        )),
    }
}

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        match serde_json::from_slice::<Order>(&msg.payload) {
            Ok(order) => decide(&order),
            Err(error) => Verdict::Reject(format!("not an order: {error}")),
        }
    }
}

export!(Handler);
