//! Sends messages to the queue that its payload names, and acks: all of them are accepted with the
//! ack, or none. Their payloads are `1` to `10`, and their header `parent` is its own id.
//!
//! Its headers change that:
//!
//! * `count`: so many instead of ten;
//! * `delay-ms`: they are due that much after the ack;
//! * `result`: it returns this text, or with `result-bytes` so many bytes that are no text;
//! * `then`: it ends with `nack`, `reject`, `trap` or `spin` after the sends, and so they never were.

wit_bindgen::generate!({ path: "../../wit", world: "consumer-with-result" });

use dqhost::queue::outbox::SendError::{Invalid, NotAllowed, TooMuch};
use dqhost::queue::outbox::{self, NewMessage};
use dqhost::queue::result;
use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler::Guest;

fn header<'a>(msg: &'a Message, name: &str) -> Option<&'a str> {
    let mut all = msg.headers.iter();
    all.find(|(key, _)| key == name).map(|(_, value)| &**value)
}

fn number(msg: &Message, name: &str, otherwise: u64) -> Result<u64, String> {
    let Some(text) = header(msg, name) else {
        return Ok(otherwise);
    };
    let number = text.parse();
    number.map_err(|_| format!("header {name:?} is {text:?}, not a number"))
}

fn send_all(msg: &Message) -> Result<(), String> {
    let queue = String::from_utf8_lossy(&msg.payload).trim().to_owned();
    if queue.is_empty() {
        return Err("the payload names no queue to send to".to_owned());
    }
    let delay_ms = number(msg, "delay-ms", 0)?;
    for n in 1..=number(msg, "count", 10)? {
        let child = NewMessage {
            queue: Some(queue.clone()),
            payload: n.to_string().into_bytes(),
            headers: vec![("parent".to_owned(), msg.id.clone())],
            delay_ms,
            retries: None,
        };
        if let Err(NotAllowed(why) | Invalid(why) | TooMuch(why)) = outbox::send(&child) {
            return Err(why);
        }
    }
    Ok(())
}

fn set_result(msg: &Message) -> Result<(), String> {
    let bytes = match header(msg, "result-bytes") {
        Some(_) => vec![0xff; number(msg, "result-bytes", 0)?.try_into().unwrap_or(0)],
        None => match header(msg, "result") {
            Some(text) => text.as_bytes().to_vec(),
            None => return Ok(()),
        },
    };
    result::set(&bytes).map_err(|error| error.to_string())
}

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        if let Err(reason) = send_all(&msg).and_then(|()| set_result(&msg)) {
            return Verdict::Reject(reason);
        }
        match header(&msg, "then") {
            None => Verdict::Ack,
            Some("nack") => Verdict::Nack(Nack {
                delay_ms: None,
                reason: Some("asked to nack".to_owned()),
            }),
            Some("reject") => Verdict::Reject("asked to reject".to_owned()),
            Some("trap") => panic!("asked to trap"),
            Some("spin") => loop {
                std::hint::spin_loop();
            },
            Some(other) => Verdict::Reject(format!("header \"then\" is {other:?}")),
        }
    }
}

export!(Handler);
