//! Asks several services about an order at once. Each line of the payload is a URL that is fetched, or a number of
//! milliseconds that is waited for. It prints what came, in the order in which it came, acks if each service
//! answered 2xx, and is otherwise tried again. It returns how many answered.

wit_bindgen::generate!({ path: "../../wit", world: "consumer-async-with-result" });

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dqhost::queue::result;
use dqhost::queue::types::{Message, Nack, Verdict};
use exports::dqhost::queue::handler_async::Guest;
use wasip3::clocks::monotonic_clock;
use wasip3::http::client;
use wasip3::http::types::{ErrorCode, Fields, Method, Request, Response, Scheme};
use wasip3::wit_future;

struct Handler;

impl Guest for Handler {
    async fn handle(msg: Message) -> Verdict {
        let text = String::from_utf8_lossy(&msg.payload).into_owned();
        let failures = Rc::<RefCell<Vec<String>>>::default();
        let asked: Vec<_> = text
            .lines()
            .map(|line| {
                let (line, failures) = (line.to_owned(), Rc::clone(&failures));
                wit_bindgen::spawn_local(async move {
                    match ask(&line).await {
                        Ok(answer) => println!("{line}: {answer}"),
                        Err(reason) => failures.borrow_mut().push(format!("{line}: {reason}")),
                    }
                })
            })
            .collect();
        for one in asked {
            one.await;
        }
        let failures = failures.take();
        if failures.is_empty() {
            let count = text.lines().count().to_string();
            return match result::set(count.as_bytes()) {
                Ok(()) => Verdict::Ack,
                Err(error) => Verdict::Reject(error.to_string()),
            };
        }
        Verdict::Nack(Nack {
            delay_ms: None,
            reason: Some(failures.join("; ")),
        })
    }
}

async fn ask(line: &str) -> Result<String, String> {
    if let Ok(ms) = line.parse() {
        let wait = Duration::from_millis(ms);
        monotonic_clock::wait_for(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)).await;
        return Ok("waited".to_owned());
    }
    let (status, body) = fetch(line).await.map_err(|error| error.to_string())?;
    if (200..300).contains(&status) {
        Ok(body)
    } else {
        Err(format!("status {status}"))
    }
}

async fn fetch(url: &str) -> Result<(u16, String), ErrorCode> {
    let invalid = |()| ErrorCode::HttpRequestUriInvalid;
    let (scheme, rest) = url.split_once("://").ok_or(()).map_err(invalid)?;
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    };
    let (_, trailers) = wit_future::new(|| Ok(None));
    let (request, _) = Request::new(Fields::new(), None, trailers, None);
    request.set_method(&Method::Get).map_err(invalid)?;
    request.set_scheme(Some(&scheme)).map_err(invalid)?;
    request.set_authority(Some(authority)).map_err(invalid)?;
    request.set_path_with_query(Some(path)).map_err(invalid)?;
    let response = client::send(request).await?;
    let status = response.get_status_code();
    let (_, done) = wit_future::new(|| Ok(()));
    let (body, _) = Response::consume_body(response, done);
    let body = body.collect().await;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

export!(Handler);
