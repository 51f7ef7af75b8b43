//! A handler, run as its author's tests would run it.

use std::io;
use std::time::Duration;

use dqhost_handler::http::{self, Request, Response};
use dqhost_handler::testing::{self, Verdict};
use dqhost_handler::{Error, Message, Outgoing, Result, ResultExt, result};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    id: String,
}

fn handle(message: &Message) -> Result {
    let order: Order = message.json()?;
    Outgoing::new(order.id.clone()).to("receipts").send()?;
    let paid = Request::get(format!("https://pay.example/{}", order.id)).send()?;
    paid.ok()?;
    Ok(())
}

// It builds for the machine that the tests run on as well.
dqhost_handler::handler!(handle);

fn nack(delay: Option<Duration>, reason: &str) -> Verdict {
    Verdict::Nack {
        delay,
        reason: reason.to_owned(),
    }
}

fn order() -> Message {
    Message::new(r#"{"id": "A-1"}"#)
}

#[test]
fn what_a_handler_sends_and_requests_is_seen() {
    let run = testing::run(handle, &order());
    assert_eq!(run.verdict, Verdict::Ack);
    assert_eq!(run.sent, [Outgoing::new("A-1").to("receipts")]);
    assert_eq!(run.requests, [Request::get("https://pay.example/A-1")]);
}

#[test]
fn what_a_handler_returns_is_seen_if_it_acks() {
    let returns = |bytes: usize, acks: bool| {
        let handle = move |_: &Message| {
            result::set("first")?;
            result::set(vec![0; bytes])?;
            if acks {
                Ok(())
            } else {
                Err(Error::reject("never"))
            }
        };
        testing::run(handle, &order())
    };
    assert_eq!(returns(3, true).result, Some(vec![0; 3]));
    assert_eq!(returns(3, false).result, None);
    let over = returns(64 * 1024 + 1, true);
    let reason = "a result may have 65536 bytes (--limit result-bytes)";
    assert_eq!((over.verdict, over.result), (nack(None, reason), None));
}

#[test]
fn nothing_is_sent_without_an_ack() {
    let run = testing::run_with_http(handle, &order(), |_| Ok(Response::new(500)));
    assert_eq!(run.verdict, nack(None, "HTTP 500"));
    assert!(run.sent.is_empty());
    assert_eq!(run.requests.len(), 1);
}

#[test]
fn a_payload_that_does_not_fit_is_rejected() {
    for payload in ["", "hello", "{}", "[1]"] {
        let run = testing::run(handle, &Message::new(payload));
        let Verdict::Reject(reason) = run.verdict else {
            panic!("{payload}: {:?}", run.verdict);
        };
        assert!(
            reason.starts_with("the payload is not as expected: "),
            "{reason}"
        );
    }
    let bytes = Message::new(b"\xff");
    let run = testing::run(|message| message.text().map(|_| ()), &bytes);
    assert!(matches!(run.verdict, Verdict::Reject(_)));
}

#[test]
fn each_status_ends_as_it_should() {
    let minute = Some(Duration::from_mins(1));
    for (response, verdict) in [
        (Response::new(204), Verdict::Ack),
        (Response::new(302), Verdict::Reject("HTTP 302".to_owned())),
        (
            Response::new(404).with_body(" no such order\n"),
            Verdict::Reject("HTTP 404: no such order".to_owned()),
        ),
        (Response::new(408), nack(None, "HTTP 408")),
        (
            Response::new(429).with_header("Retry-After", " 60 "),
            nack(minute, "HTTP 429"),
        ),
        (
            Response::new(503).with_header("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"),
            nack(None, "HTTP 503"),
        ),
        (
            Response::new(500).with_body("x".repeat(500)),
            nack(None, &format!("HTTP 500: {}", "x".repeat(200))),
        ),
    ] {
        let answer = response.clone();
        let run = testing::run_with_http(handle, &order(), move |_| Ok(answer.clone()));
        assert_eq!(run.verdict, verdict, "{response:?}");
    }
    let away = |_: &Request| Err(http::Error::new("the host is away"));
    let run = testing::run_with_http(handle, &order(), away);
    assert_eq!(run.verdict, nack(None, "the host is away"));
}

#[derive(Debug)]
struct Outer(io::Error);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot pay")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn an_error_is_retried_unless_it_is_said_otherwise() {
    let fails = || Err::<(), _>(Outer(io::Error::other("the bank is away")));
    let verdict = |handle: fn() -> Result| testing::run(|_| handle(), &order()).verdict;
    let reason = "cannot pay: the bank is away";
    let second = Duration::from_secs(1);
    assert_eq!(
        testing::run(|_| Ok(fails()?), &order()).verdict,
        nack(None, reason)
    );
    let run = testing::run(|_| fails().or_reject(), &order());
    assert_eq!(run.verdict, Verdict::Reject(reason.to_owned()));
    let run = testing::run(|_| fails().or_retry_in(second), &order());
    assert_eq!(run.verdict, nack(Some(second), reason));
    assert_eq!(verdict(|| Err(Error::retry("later"))), nack(None, "later"));
    let in_a_second = verdict(|| Err(Error::retry_in(Duration::from_secs(1), "later")));
    assert_eq!(in_a_second, nack(Some(second), "later"));
    assert_eq!(
        verdict(|| Err(Error::reject("never"))),
        Verdict::Reject("never".to_owned())
    );
    // What was rejected stays so when it is passed on.
    let passed_on = |message: &Message| -> Result {
        message.json::<Order>()?;
        Ok(())
    };
    let run = testing::run(passed_on, &Message::new("x"));
    assert!(matches!(run.verdict, Verdict::Reject(_)));
}

#[test]
fn a_message_tells_its_headers_and_its_last_attempt() {
    let message = order().with_header("k", "1").with_header("k", "2");
    assert_eq!(
        (message.header("k"), message.header("K")),
        (Some("1"), None)
    );
    assert!(!message.is_last_attempt());
    let last = message.attempt(4);
    assert!(last.is_last_attempt());
    assert_eq!(last.attempt(9).max_attempts, 9);
}

#[test]
fn a_handler_that_panics_leaves_nothing_for_the_next_run() {
    let panics = |_: &Message| -> Result {
        Outgoing::new("lost").send()?;
        panic!("a bug");
    };
    let ended = std::panic::catch_unwind(|| testing::run(panics, &order()));
    assert!(ended.is_err());
    let run = testing::run(handle, &order());
    assert_eq!(run.sent, [Outgoing::new("A-1").to("receipts")]);
}

#[test]
fn a_send_outside_of_a_run_says_what_to_use() {
    let ended = std::panic::catch_unwind(|| Outgoing::new("x").send());
    let words = ended.unwrap_err();
    let words = words.downcast_ref::<String>().map_or_else(
        || (*words.downcast_ref::<&str>().unwrap()).to_owned(),
        Clone::clone,
    );
    assert!(
        words.contains("use dqhost_handler::testing::run"),
        "{words}"
    );
}
