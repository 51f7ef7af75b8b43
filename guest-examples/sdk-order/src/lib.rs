//! Pays for an order by a web service, and sends a receipt. It is written with `dqhost-handler`.
//!
//! The payload is JSON: `{"order": "A-1", "amount": 12.5, "pay": "http://127.0.0.1:8080/"}`.
//!
//! * The service answers 2xx: the receipt goes to the queue `receipts`, ack.
//! * It answers 408, 429 or 5xx, or nothing: nack.
//! * It answers anything else, or the payload is no order: reject.
//! * There is no `pay`: nothing is paid, ack. The order is returned.

use std::time::Duration;

use dqhost_handler::http::Request;
use dqhost_handler::{Error, Message, Outgoing, Result, ResultExt, result};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Order {
    order: String,
    amount: f64,
    pay: Option<String>,
}

fn handle(message: &Message) -> Result {
    let order: Order = message.json()?;
    if order.amount <= 0.0 {
        return Err(Error::reject(format!(
            "order {} has no amount",
            order.order
        )));
    }
    let Some(url) = &order.pay else {
        println!("order {} is free", order.order);
        return result::set_json(&order);
    };
    let paid = Request::post_json(url, &order)?
        .header("idempotency-key", &message.id)
        .send()
        .or_retry_in(Duration::from_millis(1_500))?
        .ok()?;
    println!("order {} is paid: HTTP {}", order.order, paid.status);
    Outgoing::json(&order)?
        .to("receipts")
        .header("attempt", message.attempt.to_string())
        .delay(Duration::from_mins(1))
        .retries(2)
        .send()?;
    Ok(())
}

dqhost_handler::handler!(handle);
