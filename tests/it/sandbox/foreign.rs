//! Components that were made for other hosts, run as they are.

use std::time::Duration;

use dqhost::runtime::{Limits, Permissions, Report};
use dqhost::verdict::Outcome;

use crate::guests::{call, load_with};
use crate::support::{RedisServer, feed, guest, run, stats, stdout};

async fn report(name: &str, payload: &str) -> Report {
    let limits = Limits {
        time: Duration::from_secs(1),
        time_max: Duration::from_secs(1),
        memory: 8 << 20,
        ..Limits::default()
    };
    let permissions = Permissions {
        env: vec![("DQHOST_HEADER_HIDDEN".to_owned(), "the host's".to_owned())],
        ..Permissions::default()
    };
    let (_runtime, handler) = load_with(&guest(name), limits, permissions);
    let mut call = call(payload.as_bytes(), 2);
    let hidden = ("hidden".to_owned(), "the message's".to_owned());
    call.headers.push(hidden);
    handler.run(call).await
}

async fn outcome(name: &str, payload: &str) -> Outcome {
    report(name, payload).await.outcome
}

fn nacked(reason: &str) -> Outcome {
    Outcome::Nacked {
        delay: None,
        reason: reason.to_owned(),
    }
}

fn exited(last_words: &str) -> Outcome {
    Outcome::Exited {
        ok: false,
        last_words: last_words.to_owned(),
    }
}

#[tokio::test]
async fn a_program_reads_the_payload_and_answers_by_its_exit_code() {
    let printed = report("command", "an order").await;
    assert_eq!(printed.outcome, Outcome::Acked);
    assert_eq!(printed.log_text().trim(), "an order");
    assert_eq!(outcome("command", "exit 0").await, Outcome::Acked);
    assert_eq!(outcome("command", "exit 75").await, nacked("exit with 75"));
    let rejected = Outcome::Rejected {
        reason: "exit with 65".to_owned(),
    };
    assert_eq!(outcome("command", "exit 65").await, rejected);
    assert_eq!(outcome("command", "exit 3").await, exited("exit with 3"));
}

#[tokio::test]
async fn a_program_has_what_is_known_of_the_message_in_its_environment() {
    let wanted = [
        ("DQHOST_ID", "id"),
        ("DQHOST_QUEUE", "q"),
        ("DQHOST_ATTEMPT", "2"),
        ("DQHOST_MAX_ATTEMPTS", "4"),
        ("DQHOST_DUE_AT_MS", "5"),
        ("DQHOST_HEADER_K", "v"),
        // A message takes the place of nothing that the host gives.
        ("DQHOST_HEADER_HIDDEN", "the host's"),
    ];
    for (name, value) in wanted {
        let report = report("command", &format!("env {name}")).await;
        assert_eq!(report.outcome, Outcome::Acked, "{name}");
        assert_eq!(report.log_text().trim(), value);
    }
    for absent in ["DQHOST_SENT_AT_MS", "HOME"] {
        let outcome = outcome("command", &format!("env {absent}")).await;
        assert_eq!(
            outcome,
            exited(&format!("{absent}: environment variable not found"))
        );
    }
}

#[tokio::test]
async fn an_http_handler_is_posted_the_message_and_answers_by_its_status() {
    let Outcome::Nacked { delay, reason } = outcome("incoming", "status 503 7").await else {
        panic!("503 is a nack");
    };
    assert_eq!(delay, Some(Duration::from_secs(7)));
    assert_eq!(
        reason,
        "status 503 Service Unavailable: Method::Post Some(\"/\")\nk: v\nhidden: the message's\n\
         idempotency-key: id\ndqhost-queue: q\nx-attempt: 2\nx-max-attempts: 4"
    );
    assert_eq!(outcome("incoming", "status 204").await, Outcome::Acked);
    // Its response has ended, and it has not.
    assert_eq!(outcome("incoming", "linger").await, Outcome::Acked);
    let Outcome::Rejected { reason } = outcome("incoming", "status 404").await else {
        panic!("404 is a reject");
    };
    assert!(reason.starts_with("status 404 Not Found: "), "{reason}");
    assert_eq!(
        outcome("incoming", "silent").await,
        nacked("it returned without a response")
    );
    // A long body is cut, and is read to its end meanwhile: the handler waits for that.
    let Outcome::Nacked { reason, .. } = outcome("incoming", "large 3000000").await else {
        panic!("500 is a nack");
    };
    let shown = "y".repeat(200);
    assert_eq!(reason, format!("status 500 Internal Server Error: {shown}"));
}

#[tokio::test]
async fn an_http_handler_of_wasi_0_3_is_posted_the_same_and_answers_the_same() {
    let both = |payload: &'static str| async move {
        let old = outcome("incoming", payload).await;
        assert_eq!(outcome("service", payload).await, old, "{payload}");
        old
    };
    let limited = both("status 503 7").await;
    assert!(
        matches!(limited, Outcome::Nacked { delay: Some(_), .. }),
        "{limited:?}"
    );
    assert_eq!(both("status 204").await, Outcome::Acked);
    assert_eq!(both("linger").await, Outcome::Acked);
    assert_eq!(both("status 404").await.class(), "rejected");
    assert_eq!(both("large 3000000").await.class(), "nacked");
    assert_eq!(
        outcome("service", "error").await,
        nacked("it responded with the error ErrorCode::LoopDetected")
    );
    // The status was 200, and what came after it failed.
    assert_eq!(outcome("service", "broken").await.class(), "nacked");
}

#[tokio::test]
async fn what_wasmcloud_and_spin_run_is_run() {
    let printed = report("messaging", "hello").await;
    assert_eq!(printed.outcome, Outcome::Acked);
    assert_eq!(printed.log_text().trim(), "q: hello");
    assert_eq!(outcome("messaging", "fail now").await, nacked("now"));
    let printed = report("inbound", "hello").await;
    assert_eq!(printed.outcome, Outcome::Acked);
    assert_eq!(printed.log_text().trim(), "hello");
    assert_eq!(
        outcome("inbound", "fail").await,
        nacked("the component answered an error, which has no text")
    );
}

#[tokio::test]
async fn those_that_misbehave_are_stopped_as_handlers_are() {
    let limit = Duration::from_secs(1);
    for (name, payload) in [
        ("command", "spin"),
        ("command", "flood"),
        ("incoming", "flood"),
        ("service", "flood"),
    ] {
        let outcome = outcome(name, payload).await;
        assert_eq!(outcome, Outcome::TimedOut { limit }, "{name} {payload}");
    }
    let limit = 8 << 20;
    let hog = outcome("command", "hog").await;
    assert_eq!(hog, Outcome::OutOfMemory { limit });
    // A response is no ack when the handler panics after it.
    for (name, payload) in [
        ("command", "panic"),
        ("incoming", "late"),
        ("service", "late"),
    ] {
        let outcome = outcome(name, payload).await;
        assert!(matches!(outcome, Outcome::Trapped { .. }), "{outcome:?}");
    }
}

#[test]
fn check_says_what_a_component_was_made_for() {
    let kinds = [
        ("echo", "a handler for dqhost"),
        ("command", "a program: "),
        ("incoming", "an HTTP handler: "),
        ("service", "an HTTP handler: "),
        ("messaging", "a wasmCloud messaging handler: "),
        ("inbound", "a Spin component for Redis: "),
    ];
    for (name, kind) in kinds {
        let file = guest(name);
        let text = stdout(&run(None, &["check", file.to_str().unwrap()], 0));
        assert!(text.contains(&format!("\nkind     {kind}")), "{text}");
        assert!(text.ends_with("it can run\n"), "{text}");
    }
}

#[test]
fn a_host_serves_a_program_and_retries_and_buries_by_its_codes() {
    let server = RedisServer::start();
    let url = server.url();
    let lines = ["fine", "exit 75", "exit 65", "exit 9"]
        .map(|payload| format!("{{\"payload\": \"{payload}\", \"retries\": 1}}\n"))
        .concat();
    let sender = crate::support::dqhost(Some(&url), &["send", "--ndjson"]);
    assert!(feed(sender, lines.as_bytes()).status.success());
    let file = guest("command");
    let args = [
        "--handler",
        file.to_str().unwrap(),
        "--backoff",
        "1ms",
        "--exit-when-empty",
    ];
    run(Some(&url), &args, 0);
    let totals = &stats(&url, "default")["totals"];
    assert_eq!((&totals["acked"], &totals["dead"]), (&1.into(), &3.into()));
    let dead = stdout(&run(Some(&url), &["dead", "list"], 0));
    for reason in ["exit with 75", "exit with 65", "exit with 9"] {
        assert!(dead.contains(reason), "{dead}");
    }
}
