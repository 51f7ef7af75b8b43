//! Gets the URL that its payload names and reads the response to its end, with no time limit of its
//! own. Acks then; rejects with what went wrong. With `hold ` before the URL it never reads the body, and
//! keeps the response. With `many ` before the URL it makes 64 requests at once, and waits for none of them.

wit_bindgen::generate!({ path: "../../../wit", world: "consumer" });

use std::io;
use std::time::Duration;

use dqhost::queue::delivery;
use dqhost::queue::types::{Message, Verdict};
use exports::dqhost::queue::handler::Guest;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{Fields, OutgoingRequest, Scheme};

fn request(url: &str) -> Option<OutgoingRequest> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let request = OutgoingRequest::new(Fields::new());
    request.set_scheme(Some(&scheme)).ok()?;
    request.set_authority(Some(authority)).ok()?;
    request
        .set_path_with_query(Some(&format!("/{path}")))
        .ok()?;
    Some(request)
}

/// Requests that are made at once.
const MANY: usize = 64;

/// Never ends by itself.
fn wait() {
    std::thread::sleep(Duration::from_secs(3600));
}

/// How many bytes the response has.
fn read(payload: &str) -> Result<u64, String> {
    if let Some(url) = payload.strip_prefix("many ") {
        let requests = (0..MANY).filter_map(|_| request(url));
        let _answers: Vec<_> = requests
            .map(|request| outgoing_handler::handle(request, None))
            .collect();
        wait();
    }
    let held = payload.strip_prefix("hold ");
    if held.is_some() {
        // As much time as it can get.
        delivery::extend(u64::MAX);
    }
    let url = held.unwrap_or(payload);
    let request = request(url).ok_or_else(|| format!("{url:?} is not a URL"))?;
    let answer = outgoing_handler::handle(request, None).map_err(|error| error.to_string())?;
    answer.subscribe().block();
    let Some(Ok(response)) = answer.get() else {
        return Err("no response".to_owned());
    };
    let response = response.map_err(|error| error.to_string())?;
    if held.is_some() {
        wait();
    }
    let body = response.consume().map_err(|()| "no body")?;
    let mut stream = body.stream().map_err(|()| "no stream")?;
    io::copy(&mut stream, &mut io::sink()).map_err(|error| error.to_string())
}

struct Handler;

impl Guest for Handler {
    fn handle(msg: Message) -> Verdict {
        match read(String::from_utf8_lossy(&msg.payload).trim()) {
            Ok(bytes) => {
                println!("{bytes} bytes");
                Verdict::Ack
            }
            Err(reason) => Verdict::Reject(reason),
        }
    }
}

export!(Handler);
