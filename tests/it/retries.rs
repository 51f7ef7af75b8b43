//! When a failed message is tried again, and when it is given up.

use std::time::Duration;

use dqhost::message::{Attempt, Due, MessageId};
use dqhost::store::address::{self, StoreSettings};
use dqhost::store::{Settlement, Store};
use serde_json::Value;

use crate::contract::tools::{LONG, attempt, now_ms, queue, reserve_one, send, settle};
use crate::http_api::with_each_store;
use crate::support::{Host, eventually, guest, run, stdout};

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_hours(24);

fn path(name: &str) -> String {
    guest(name).to_str().unwrap().to_owned()
}

fn send_line(store: &str, payload: &str, retries: &str) -> String {
    let args = ["send", payload, "--queue", "q", "--retries", retries];
    stdout(&run(Some(store), &args, 0)).trim().to_owned()
}

fn get(store: &str, id: &str) -> Value {
    let output = run(Some(store), &["get", id, "--queue", "q", "--json"], 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A host of the queue with these flags.
fn host(store: &str, example: &str, more: &[&str]) -> Host {
    let handler = path(example);
    let args = ["--handler", &handler, "--queue", "q"];
    Host::start(store, &[&args, more].concat())
}

/// The delay after this attempt of a message.
fn delay(host: &mut Host, id: &str, attempt: u64) -> Duration {
    let line = host.wait_for("to be retried", |line| {
        line["id"] == id && line["attempt"] == attempt
    });
    Duration::from_secs_f64(line["delay"].as_f64().unwrap())
}

#[test]
fn a_list_of_delays_is_followed_and_its_last_one_repeats() {
    with_each_store(|store| {
        let id = send_line(store, "x", "9");
        let flags = ["--backoff", "0s, 1ms, 1d", "--backoff-max", "2d"];
        let exact = ["--backoff-jitter", "0"];
        let mut host = host(store, "trap", &flags);
        assert_eq!(delay(&mut host, &id, 1), Duration::ZERO);
        let second = delay(&mut host, &id, 2);
        // Spread by a fifth, as any delay is by default.
        assert!(
            MS.mul_f64(0.8) <= second && second <= MS.mul_f64(1.2),
            "{second:?}"
        );
        let third = delay(&mut host, &id, 3);
        assert!(
            DAY.mul_f64(0.8) <= third && third <= DAY.mul_f64(1.2),
            "{third:?}"
        );
        drop(host);
        let mut host = self::host(store, "trap", &[&flags[..], &exact].concat());
        for attempt in [4, 5] {
            run(
                Some(store),
                &["reschedule", &id, "--queue", "q", "--in", "0s"],
                0,
            );
            assert_eq!(delay(&mut host, &id, attempt), DAY);
        }
    });
}

#[test]
fn delays_grow_by_the_word_before_them() {
    with_each_store(|store| {
        for (backoff, third) in [("fixed:1ms", 1), ("linear:1ms", 3), ("1ms", 4)] {
            let id = send_line(store, "x", "9");
            let flags = ["--backoff", backoff, "--backoff-jitter", "0"];
            let mut host = host(store, "trap", &flags);
            assert_eq!(delay(&mut host, &id, 3), MS * third, "{backoff}");
        }
    });
}

#[test]
fn the_maximum_bounds_a_delay_that_the_handler_names() {
    with_each_store(|store| {
        let order = r#"{"order":"A-1","status":"processing","amount":1,"check_again_ms":7200000}"#;
        let id = send_line(store, order, "9");
        // Neither the list nor jitter changes what the handler names.
        let flags = [
            "--backoff",
            "1ms,2ms",
            "--backoff-jitter",
            "100",
            "--backoff-max",
            "1h",
        ];
        let mut host = host(store, "order-timeout", &flags);
        assert_eq!(delay(&mut host, &id, 1), Duration::from_hours(1));
        run(
            Some(store),
            &["reschedule", &id, "--queue", "q", "--in", "0s"],
            0,
        );
        assert_eq!(delay(&mut host, &id, 2), Duration::from_hours(1));
    });
}

#[test]
fn a_message_is_given_up_before_a_retry_that_comes_too_late() {
    with_each_store(|store| {
        let id = send_line(store, "x", "9");
        let flags = [
            "--backoff",
            "0s,3d",
            "--backoff-max",
            "3d",
            "--give-up-after",
            "1d",
        ];
        let mut host = host(store, "trap", &flags);
        let line = host.wait_for("dead", |line| line["id"] == id.as_str());
        assert_eq!(
            (&line["attempt"], &line["class"]),
            (&2.into(), &"gave-up".into())
        );
        let record = eventually("it is a dead letter", || {
            let record = get(store, &id);
            (record["state"] == "dead").then_some(record)
        });
        let [first, last] = [0, 1].map(|n| &record["history"][n]);
        assert_eq!(
            (&first["class"], &last["class"]),
            (&"trapped".into(), &"gave-up".into())
        );
        let reason = last["reason"].as_str().unwrap();
        let says = "no retry within 1d 0h of the first attempt; the last was trapped: ";
        assert!(reason.starts_with(says), "{reason}");
        assert_eq!(
            (&record["retries_left"], &record["payload"]),
            (&8.into(), &"x".into())
        );
        let listed = stdout(&run(Some(store), &["dead", "list", "--queue", "q"], 0));
        assert!(listed.contains("gave-up"), "{listed}");
        // Sent again, it has the whole time once more.
        let again = run(Some(store), &["dead", "redrive", &id, "--queue", "q"], 0);
        let again = stdout(&again);
        host.wait_for("to be retried", |line| {
            line["attempt"] == 1 && again.contains(line["id"].as_str().unwrap())
        });
    });
}

/// Sends a message whose first attempt ended so long ago.
async fn failed_before(store: &dyn Store, ago: Duration) -> MessageId {
    let id = send(store, "x", Due::NOW, 9).await;
    let ago_ms = u64::try_from(ago.as_millis()).unwrap();
    let attempt = Attempt {
        at_ms: now_ms() - ago_ms,
        ..attempt("long ago")
    };
    let claim = reserve_one(store, LONG).await.claim;
    let how = Settlement::Nack {
        delay: None,
        attempt,
    };
    settle(store, &claim, how).await;
    id
}

#[test]
fn the_time_counts_from_the_first_attempt_on_whatever_host() {
    with_each_store(|address| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (old, new) = runtime.block_on(async {
            let settings = StoreSettings::default();
            let store = address::open(&address.parse().unwrap(), settings)
                .await
                .unwrap();
            let old = failed_before(&*store, Duration::from_secs(3700)).await;
            assert_eq!(store.counts(&queue()).await.unwrap().retry, 1);
            // One at a time, since the first in line is reserved.
            let claim = reserve_one(&*store, LONG).await.claim;
            let new = failed_before(&*store, Duration::from_mins(30)).await;
            store.release(&queue(), &[claim]).await.unwrap();
            (old, new)
        });
        let flags = ["--backoff", "fixed:1m", "--give-up-after", "1h"];
        let mut host = host(address, "trap", &flags);
        let dead = host.wait_for("dead", |line| line["id"] == old.as_str());
        assert_eq!(dead["class"], "gave-up");
        host.wait_for("to be retried", |line| line["id"] == new.as_str());
    });
}

#[test]
fn delays_that_cannot_be_are_refused_with_what_to_do() {
    let handler = path("echo");
    for (flags, says) in [
        (
            &["--backoff", "fast:1s"][..],
            "fixed, linear or exponential",
        ),
        (&["--backoff", "1s,,2s"], "a delay is missing"),
        (&["--backoff", "10s,1d"], "raise --backoff-max"),
        (&["--backoff", "fixed:2h"], "raise --backoff-max"),
        (&["--backoff-jitter", "101"], "from 0 to 100"),
        (&["--give-up-after", "0s"], "more than zero"),
    ] {
        let args = [&["--handler", &handler][..], flags].concat();
        let output = run(Some(":memory:"), &args, 2);
        let error = crate::support::stderr(&output);
        assert!(error.contains(says), "{flags:?}: {error}");
    }
}
