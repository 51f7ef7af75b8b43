//! Makes HTTP requests with as much of a body as is taken and a long method, keeps them, and sends
//! none: no permission is needed for that.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasip2::http::types::{Fields, Method, OutgoingRequest};

struct Handler;

impl Guest for Handler {
    fn handle(_msg: Message) -> Verdict {
        let mut hoard = Vec::new();
        loop {
            let request = OutgoingRequest::new(Fields::new());
            let _ = request.set_method(&Method::Other("M".repeat(400_000)));
            if let Ok(body) = request.body()
                && let Ok(stream) = body.write()
            {
                while let Ok(room @ 1..) = stream.check_write() {
                    let chunk = vec![7; usize::try_from(room).unwrap_or(1).min(400_000)];
                    if stream.write(&chunk).is_err() {
                        break;
                    }
                }
            }
            hoard.push(request);
        }
    }
}

export!(Handler);
