//! Makes the HTTP request that its payload describes, by `dqhost:queue/http`. The payload is like one of HTTP/1.1:
//! the method and the URL, a line for each header, an empty line, and the body. It prints the response, and acks.

wit_bindgen::generate!({ path: "../../wit", world: "consumer" });

use dqhost::queue::http::{Request, RequestError, fetch};
use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler::Guest;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload).into_owned();
        let Some(request) = request(&text) else {
            return Verdict::Reject("the payload is no request".to_owned());
        };
        match fetch(&request) {
            Ok(response) => {
                println!("{}", response.status);
                for (name, value) in response.headers {
                    println!("{name}: {value}");
                }
                println!("{}", String::from_utf8_lossy(&response.body));
                Verdict::Ack
            }
            Err(RequestError::Failed(reason)) => Verdict::Nack(Nack {
                delay_ms: None,
                reason: Some(reason),
            }),
            Err(
                RequestError::NotAllowed(reason)
                | RequestError::Invalid(reason)
                | RequestError::TooMuch(reason),
            ) => Verdict::Reject(reason),
        }
    }
}

fn request(text: &str) -> Option<Request> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, url) = lines.next()?.split_once(' ')?;
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.to_owned()))
    };
    Some(Request {
        method: method.to_owned(),
        url: url.to_owned(),
        headers: lines.map(header).collect::<Option<_>>()?,
        body: body.as_bytes().to_vec(),
    })
}

export!(Handler);
