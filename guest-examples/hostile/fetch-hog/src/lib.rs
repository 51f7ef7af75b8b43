//! Makes HTTP requests by records. The payload says how: `body` with a body of megabytes, `headers` with more and
//! more headers, and a URL asks that URL again and again. It rejects with what it was told last.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::http::{Request, RequestError, fetch};
use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;

/// More than a run may ask.
const TIMES: usize = 300;

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload).into_owned();
        let mut request = Request {
            method: "POST".to_owned(),
            url: "http://127.0.0.1:1/".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        match text.as_str() {
            "body" => request.body = vec![7; 4 << 20],
            "headers" => {}
            url => request.url = url.to_owned(),
        }
        let (mut answered, mut last) = (0, String::new());
        for _ in 0..TIMES {
            if text == "headers" {
                let more = (0..100).map(|n| (format!("x-{n}"), "v".repeat(40)));
                request.headers.extend(more);
            }
            match fetch(&request) {
                Ok(_) => answered += 1,
                Err(
                    RequestError::NotAllowed(words)
                    | RequestError::Invalid(words)
                    | RequestError::TooMuch(words)
                    | RequestError::Failed(words),
                ) => last = words,
            }
        }
        Verdict::Reject(format!("{answered} answered; {last}"))
    }
}

export!(Handler);
