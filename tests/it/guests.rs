//! Every example handler, run in the sandbox: what it does, and what is done to it.

use std::time::Duration;

use dqhost::runtime::{Call, Handler, Limits, Report, Runtime};
use dqhost::verdict::Outcome;
use sha2::{Digest, Sha256};

use crate::support::{guest, guest_names};

/// The example handlers that have a test below.
const TESTED: [&str; 10] = [
    "checksum",
    "echo",
    "flaky",
    "hog",
    "noop",
    "order-timeout",
    "reject",
    "sleeper",
    "spin",
    "trap",
];

#[test]
fn every_example_is_tested_and_there() {
    assert_eq!(
        guest_names(),
        TESTED,
        "add a test for each handler in guest-examples"
    );
    for name in TESTED {
        assert!(guest(name).exists(), "{name} was not built");
    }
}

fn limits() -> Limits {
    Limits {
        time: Duration::from_secs(30),
        time_max: Duration::from_secs(30),
        memory: 8 << 20,
    }
}

fn load(name: &str, limits: Limits) -> (Runtime, Handler) {
    let runtime = Runtime::new(4, limits, None).unwrap();
    let handler = runtime.load(&guest(name)).unwrap();
    (runtime, handler)
}

fn call(payload: &[u8], attempt: u32) -> Call {
    Call {
        id: "id".to_owned(),
        queue: "q".to_owned(),
        payload: payload.to_vec(),
        headers: vec![("k".to_owned(), "v".to_owned())],
        attempt,
        attempts_max: 4,
        sent_at_ms: None,
        due_at_ms: Some(5),
    }
}

async fn run(name: &str, payload: &[u8], attempt: u32) -> Report {
    let (_runtime, handler) = load(name, limits());
    handler.run(call(payload, attempt)).await
}

#[tokio::test]
async fn echo_prints_and_acks() {
    let report = run("echo", b"hello", 2).await;
    assert_eq!(report.outcome, Outcome::Acked);
    assert_eq!(report.log, "attempt 2 of 4\nhello\n");
    assert!(report.memory > 0 && report.memory <= 8 << 20);
}

#[tokio::test]
async fn noop_acks_and_prints_nothing() {
    let report = run("noop", b"anything", 1).await;
    assert_eq!((report.outcome, report.log.as_str()), (Outcome::Acked, ""));
}

#[tokio::test]
async fn order_timeout_decides_by_the_status() {
    let order = |status: &str| {
        format!(r#"{{"order":"A-1","status":"{status}","amount":2,"check_again_ms":70}}"#)
    };
    for status in ["paid", "unpaid"] {
        assert_eq!(
            run("order-timeout", order(status).as_bytes(), 1)
                .await
                .outcome,
            Outcome::Acked
        );
    }
    assert_eq!(
        run("order-timeout", order("processing").as_bytes(), 1)
            .await
            .outcome,
        Outcome::Nacked {
            delay: Some(Duration::from_millis(70)),
            reason: "the payment of order A-1 is under way".to_owned(),
        }
    );
    for bad in [order("lost").as_bytes(), b"{}", b"\xff"] {
        let outcome = run("order-timeout", bad, 1).await.outcome;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn flaky_acks_from_the_attempt_that_it_is_told() {
    let outcome = run("flaky", b"3", 2).await.outcome;
    let Outcome::Nacked { delay, reason } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (delay, reason.as_str()),
        (Some(Duration::ZERO), "attempt 2 of 3 that are needed")
    );
    assert_eq!(run("flaky", b"3", 3).await.outcome, Outcome::Acked);
}

#[tokio::test]
async fn reject_rejects() {
    let reason = "attempt 1: not wanted".to_owned();
    assert_eq!(
        run("reject", b"", 1).await.outcome,
        Outcome::Rejected { reason }
    );
}

#[tokio::test]
async fn checksum_tells_a_whole_payload_from_a_damaged_one() {
    let body = vec![9; 64 * 1024];
    let mut payload = Sha256::digest(&body).to_vec();
    payload.extend(body);
    assert_eq!(run("checksum", &payload, 1).await.outcome, Outcome::Acked);
    payload[40] ^= 1;
    let outcome = run("checksum", &payload, 1).await.outcome;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
}

#[tokio::test]
async fn trap_is_an_outcome_with_the_panic_message() {
    let outcome = run("trap", b"", 3).await.outcome;
    let Outcome::Trapped { reason } = &outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        reason.contains("attempt 3: a bug in the handler"),
        "{reason}"
    );
    assert_eq!(outcome.class(), "trapped");
}

#[tokio::test]
async fn spin_is_stopped_at_its_limit() {
    let limit = Duration::from_millis(50);
    let limits = Limits {
        time: limit,
        time_max: limit,
        ..limits()
    };
    let (_runtime, handler) = load("spin", limits);
    let report = handler.run(call(b"", 1)).await;
    assert_eq!(report.outcome, Outcome::TimedOut { limit });
    assert!(report.duration >= limit);
}

#[tokio::test]
async fn sleeper_is_stopped_within_its_host_call() {
    let limit = Duration::from_millis(50);
    let limits = Limits {
        time: limit,
        time_max: limit,
        ..limits()
    };
    let (_runtime, handler) = load("sleeper", limits);
    assert_eq!(
        handler.run(call(b"600000", 1)).await.outcome,
        Outcome::TimedOut { limit }
    );
}

#[tokio::test]
async fn sleeper_acks_when_it_has_slept() {
    assert_eq!(run("sleeper", b"1", 1).await.outcome, Outcome::Acked);
}

#[tokio::test]
async fn a_guest_moves_its_limit_as_far_as_it_may() {
    let (time, time_max) = (Duration::from_secs(2), Duration::from_mins(10));
    let (_runtime, handler) = load(
        "sleeper",
        Limits {
            time,
            time_max,
            ..limits()
        },
    );
    let extend = |ms: &str| Call {
        headers: vec![("extend-ms".to_owned(), ms.to_owned())],
        ..call(b"2500", 1)
    };
    let report = handler.run(extend("60000")).await;
    assert_eq!(report.outcome, Outcome::Acked);
    assert!(report.duration > time);
    let numbers: Vec<u64> = report
        .log
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    let [granted, wanted, left] = numbers[..] else {
        panic!("{}", report.log)
    };
    assert!(wanted == 60_000 && granted <= wanted && left <= granted && left > 0);
    // Beyond the maximum it gets the maximum; without any it is stopped.
    let report = handler.run(extend("99999999999")).await;
    let granted: u64 = report.log.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(granted > 500_000 && granted <= 600_000, "{granted}");
    assert_eq!(
        handler.run(call(b"600000", 1)).await.outcome,
        Outcome::TimedOut { limit: time }
    );
}

#[tokio::test]
async fn hog_hits_its_ceiling() {
    let report = run("hog", b"", 1).await;
    assert_eq!(report.outcome, Outcome::OutOfMemory { limit: 8 << 20 });
    assert!(report.memory <= 8 << 20);
    assert_eq!(report.outcome.reason(), "more than 8 MiB of memory wanted");
}

#[tokio::test]
async fn a_dropped_run_stops_the_guest_and_frees_its_place() {
    let (_runtime, handler) = load("spin", limits());
    // More than the pool has room for, one after the other.
    for _ in 0..20 {
        let run = handler.run(call(b"", 1));
        assert!(
            tokio::time::timeout(Duration::from_millis(15), run)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn no_state_crosses_from_one_message_to_the_next() {
    let (_runtime, handler) = load("echo", limits());
    for n in 0..50 {
        let payload = n.to_string();
        let report = handler.run(call(payload.as_bytes(), 1)).await;
        assert_eq!(report.log, format!("attempt 1 of 4\n{payload}\n"));
    }
}

#[test]
fn the_digest_is_that_of_the_file() {
    let (_runtime, handler) = load("echo", limits());
    let bytes = std::fs::read(guest("echo")).unwrap();
    let digest = dqhost::text::hex(&Sha256::digest(&bytes));
    assert_eq!(handler.digest(), digest);
}
