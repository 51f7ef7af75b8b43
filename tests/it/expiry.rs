//! Messages that have to begin by a time, as producers, hosts and operators see them.

use std::time::Duration;

use dqhost::Queue;
use dqhost::message::NewMessage;
use dqhost::message::expiry::EXPIRES_AT;
use dqhost::store::address::{self, StoreSettings};
use serde_json::Value;

use crate::contract::tools::now_ms;
use crate::http_api::{Api, with_each_store};
use crate::support::{Host, dqhost, eventually, feed, guest, run, stats, stderr, stdout};

/// Long enough to be begun in, on any machine.
const LONG: &str = "1h";

fn path(name: &str) -> String {
    guest(name).to_str().unwrap().to_owned()
}

fn send(store: &str, payload: &str, more: &[&str]) -> String {
    let args = [&["send", payload, "--queue", "q"], more].concat();
    stdout(&run(Some(store), &args, 0)).trim().to_owned()
}

fn get(store: &str, id: &str) -> Value {
    let output = run(Some(store), &["get", id, "--queue", "q", "--json"], 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn host(store: &str, example: &str) -> Host {
    Host::start(store, &["--handler", &path(example), "--queue", "q"])
}

/// Serves the queue until it is empty.
fn serve(store: &str, example: &str) {
    let handler = path(example);
    let args = ["--handler", &handler, "--queue", "q", "--exit-when-empty"];
    run(Some(store), &args, 0);
}

/// Sends a message that is past its time when this returns.
fn send_expired(store: &str, payload: &str) -> String {
    let id = send(store, payload, &["--expires-in", "1ms"]);
    eventually("its time is over", || {
        let at: u64 = get(store, &id)["headers"][0][1].as_str()?.parse().ok()?;
        (now_ms() > at + 5).then_some(())
    });
    id
}

#[test]
fn a_message_that_was_not_begun_in_time_is_dead_with_all_that_it_had() {
    with_each_store(|store| {
        let late = send_expired(store, "late");
        let in_time = send(store, "in time", &["--expires-in", LONG, "--header", "k=v"]);
        let mut host = host(store, "echo");
        let dead = host.wait_for("dead", |line| line["id"] == late.as_str());
        assert_eq!(dead["class"], "message-expired");
        host.wait_for("acked", |line| line["id"] == in_time.as_str());
        let record = eventually("it is a dead letter", || {
            let record = get(store, &late);
            (record["state"] == "dead").then_some(record)
        });
        assert_eq!(
            (&record["payload"], &record["attempts"]),
            (&"late".into(), &1.into())
        );
        let last = &record["history"][0];
        assert_eq!(last["class"], "message-expired");
        assert_eq!(last["reason"], "it expired before this attempt began");
        let listed = stdout(&run(Some(store), &["dead", "list", "--queue", "q"], 0));
        assert!(listed.contains("message-expired"), "{listed}");
        let totals = &stats(store, "q")["totals"];
        let counts = ["acked", "rejected", "expired"].map(|name| totals[name].clone());
        assert_eq!(counts, [1, 1, 0].map(Value::from));
        // Sent again, it runs.
        run(Some(store), &["dead", "redrive", &late, "--queue", "q"], 0);
        host.wait_for("acked", |line| line["id"] != in_time.as_str());
        assert_eq!(stats(store, "q")["totals"]["acked"], 2);
    });
}

#[test]
fn an_attempt_that_has_begun_is_not_stopped_and_its_retry_does_not_begin() {
    with_each_store(|store| {
        let id = send(
            store,
            "4000000000",
            &["--expires-in", "2s", "--retries", "1000000"],
        );
        // It is tried again at once until its time is over.
        serve(store, "flaky");
        let record = get(store, &id);
        let history = record["history"].as_array().unwrap();
        let (last, before) = history.split_last().unwrap();
        assert_eq!(
            (&record["state"], &last["class"]),
            (&"dead".into(), &"message-expired".into())
        );
        assert!(
            before.iter().all(|attempt| attempt["class"] == "nacked"),
            "{record}"
        );
    });
}

#[test]
fn a_paused_queue_keeps_what_is_past_its_time_until_it_goes_on() {
    with_each_store(|store| {
        let ids: Vec<String> = (0..3).map(|_| send_expired(store, "x")).collect();
        run(Some(store), &["pause", "--queue", "q"], 0);
        serve_paused(store);
        assert_eq!(stats(store, "q")["ready"], 3);
        run(Some(store), &["resume", "--queue", "q"], 0);
        serve(store, "trap");
        for id in ids {
            assert_eq!(get(store, &id)["history"][0]["class"], "message-expired");
        }
    });
}

/// A host that has looked at the paused queue.
fn serve_paused(store: &str) {
    let mut host = host(store, "trap");
    host.signal(rustix::process::Signal::TERM);
    host.wait_for("stopped", |_| true);
}

#[test]
fn lines_and_requests_say_it_as_the_flag_does() {
    with_each_store(|store| {
        let lines = concat!(
            r#"{"payload":"a","expires_in":"1h"}"#,
            "\n",
            r#"{"payload":"b"}"#,
            "\n",
            r#"{"payload":"c","expires_in":"soon"}"#,
            "\n",
            r#"{"payload":"d","expires_in":"1h","in":"2h"}"#,
            "\n",
            r#"{"payload":"e","headers":{"dqhost-expires-at":"soon"}}"#,
            "\n",
        );
        let args = ["send", "--ndjson", "--queue", "q", "--expires-in", "2h"];
        let output = feed(dqhost(Some(store), &args), lines.as_bytes());
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        let wrong = stderr(&output);
        for says in [
            "line 3 is not sent: expires_in \"soon\": not a duration",
            "line 4 is not sent: the message would expire before it is due",
            "line 5 is not sent: the header dqhost-expires-at is \"soon\"",
        ] {
            assert!(wrong.contains(says), "{says}: {wrong}");
        }
        let listed = run(Some(store), &["list", "ready", "--queue", "q", "--json"], 0);
        let listed = stdout(&listed);
        let times: Vec<u64> = listed
            .lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                assert_eq!(record["headers"][0][0], EXPIRES_AT);
                record["headers"][0][1].as_str().unwrap().parse().unwrap()
            })
            .collect();
        assert_eq!(times.len(), 2);
        let apart = times[1] - times[0];
        assert!((3_600_000..3_700_000).contains(&apart), "{apart}");
        // What is listed keeps its time when it is sent again, and the default does not replace it.
        let output = feed(dqhost(Some(store), &args), listed.as_bytes());
        assert!(output.status.success(), "{output:?}");
        for id in stdout(&output).split_whitespace() {
            let at: u64 = get(store, id)["headers"][0][1]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            assert!(times.contains(&at));
        }
    });
}

#[test]
fn a_dead_letter_that_is_sent_again_as_a_line_need_not_begin_by_its_time() {
    with_each_store(|store| {
        send_expired(store, "x");
        serve(store, "echo");
        let args = ["dead", "list", "--queue", "q", "--json"];
        let listed = stdout(&run(Some(store), &args, 0));
        let args = ["send", "--ndjson", "--queue", "q"];
        feed(dqhost(Some(store), &args), listed.as_bytes());
        serve(store, "echo");
        assert_eq!(stats(store, "q")["totals"]["acked"], 1);
    });
}

#[test]
fn durations_that_cannot_be_are_refused_and_nothing_is_sent() {
    with_each_store(|store| {
        send(store, "x", &[]);
        for (flags, says) in [
            (&["--expires-in", "0s"][..], "more than zero"),
            (&["--expires-in", "-1s"], "negative"),
            (&["--expires-in", "10"], "not a duration"),
            (&["--expires-in", "101y"], "not a"),
            (
                &["--expires-in", "1h", "--in", "1h"],
                "expire before it is due",
            ),
            (
                &["--expires-in", "1h", "--at", "2099-01-01T00:00:00Z"],
                "expire before it is due",
            ),
            (&["--header", "dqhost-expires-at=1h"], "unix milliseconds"),
        ] {
            let args = [&["send", "x", "--queue", "refused"], flags].concat();
            let error = stderr(&run(Some(store), &args, 2));
            assert!(error.contains(says), "{flags:?}: {error}");
        }
        let listed = stdout(&run(Some(store), &["stats", "--json"], 0));
        assert!(!listed.contains("refused"), "{listed}");
    });
}

#[test]
fn a_request_has_a_header_for_it() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let messages = "/queues/q/messages";
        let id = api
            .post(messages, &[("dqhost-expires-in", "1h")], "x")
            .is(201)
            .id();
        assert_eq!(get(store, &id)["headers"][0][0], EXPIRES_AT);
        for headers in [
            &[("dqhost-expires-in", "0s")][..],
            &[("dqhost-expires-in", "1h"), ("dqhost-in", "2h")],
            &[("dqhost-header-dqhost-expires-at", "soon")],
        ] {
            api.post(messages, headers, "x").is(400);
        }
        api.post_json(messages, r#"{"payload":1,"expires_in":"1h","in":"2h"}"#)
            .is(400);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_receives_no_message_that_is_past_its_time() {
    let memory = ":memory:".parse().unwrap();
    let store = address::open(&memory, StoreSettings::default())
        .await
        .unwrap();
    let queue = Queue::new(store, "q".parse().unwrap());
    let past = NewMessage {
        headers: vec![(EXPIRES_AT.to_owned(), "1".to_owned())],
        ..NewMessage::new("late")
    };
    let late = queue.send(past).await.unwrap().id;
    let limit = Duration::from_hours(1);
    queue
        .send(NewMessage::new("in time").expiring_in(limit))
        .await
        .unwrap();
    let received = queue.receive(limit).await.unwrap().unwrap();
    assert_eq!(received.payload(), b"in time");
    let record = queue
        .store()
        .get(queue.name(), &late)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(record.last_attempt().unwrap().class, "message-expired");
}
