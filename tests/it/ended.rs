//! How messages ended, as operators and clients of the HTTP API see it.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::contract::tools::now_ms;
use crate::http_api::{Answer, Api, request, with_each_store};
use crate::support::{Host, RedisServer, eventually, guest, run, stats, stderr, stdout};

fn send(store: &str, payload: &str) -> String {
    let args = ["send", payload, "--queue", "q"];
    stdout(&run(Some(store), &args, 0)).trim().to_owned()
}

/// What a command on the queue prints.
fn ask(store: &str, args: &[&str]) -> String {
    stdout(&run(Some(store), &[args, &["--queue", "q"]].concat(), 0))
}

fn get(store: &str, id: &str) -> Value {
    serde_json::from_str(&ask(store, &["get", id, "--json"])).unwrap()
}

/// Serves the queue until it is empty.
fn serve(store: &str, example: &str, more: &[&str]) {
    let handler = guest(example).display().to_string();
    let args = [
        "--handler",
        &handler,
        "--queue",
        "q",
        "--backoff",
        "1ms",
        "--exit-when-empty",
    ];
    run(Some(store), &[&args, more].concat(), 0);
}

#[test]
fn get_and_list_say_how_a_message_ended() {
    with_each_store(|store| {
        let before = now_ms();
        let once = send(store, "1");
        serve(store, "flaky", &[]);
        let (twice, never) = (send(store, "2"), send(store, "never"));
        serve(store, "flaky", &[]);

        let text = ask(store, &["get", &once]);
        assert!(text.contains("state         acked "), "{text}");
        assert!(text.contains(", attempt 1, by host "), "{text}");
        let ended = get(store, &twice);
        assert_eq!(
            (&ended["state"], &ended["attempts"]),
            (&json!("acked"), &json!(2))
        );
        let at = ended["at_ms"].as_u64().unwrap();
        assert!((before..=now_ms()).contains(&at), "{ended}");
        assert!(ended["duration_ms"].is_u64(), "{ended}");
        assert_eq!(ended["handler"].as_str().unwrap().len(), 64, "{ended}");
        assert_eq!(
            (&ended["class"], &ended["reason"]),
            (&Value::Null, &Value::Null)
        );
        // By its beginning, too.
        assert_eq!(get(store, &twice[..35]), ended);
        // What is there comes first.
        assert_eq!(get(store, &never)["state"], "dead");

        let listed = ask(store, &["list", "ended"]);
        let ids: Vec<&str> = listed
            .lines()
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        assert_eq!(ids.len(), 3, "{listed}");
        assert!(ids[..2].contains(&twice.as_str()) && ids[..2].contains(&never.as_str()));
        assert_eq!(ids[2], once);
        let failed = ask(store, &["list", "ended", "--match", "class:rejected"]);
        assert!(
            failed.starts_with(&never) && failed.contains("rejected: payload"),
            "{failed}"
        );
        let page = ask(
            store,
            &["list", "ended", "--offset", "2", "--limit", "5", "--json"],
        );
        assert_eq!(
            serde_json::from_str::<Value>(&page).unwrap(),
            get(store, &once)
        );
        let table = ask(store, &["list", "ended", "-o", "wide", "--limit", "1"]);
        assert!(
            table.starts_with("ID ") && table.lines().count() == 2,
            "{table}"
        );

        ask(store, &["dead", "delete", &never]);
        let ended = get(store, &never);
        assert_eq!(
            (&ended["state"], &ended["class"]),
            (&json!("died"), &json!("rejected"))
        );
        let text = ask(store, &["get", &never]);
        assert!(text.contains("since then    redriven or deleted"), "{text}");
    });
}

#[test]
fn it_is_told_when_the_last_attempt_was_due() {
    with_each_store(|store| {
        let before = now_ms();
        let args = ["send", "1", "--queue", "q", "--in", "10ms"];
        let late = stdout(&run(Some(store), &args, 0)).trim().to_owned();
        serve(store, "flaky", &[]);
        let ended = get(store, &late);
        let due = ended["due_at_ms"].as_u64().unwrap();
        let at = ended["at_ms"].as_u64().unwrap();
        assert!((before..=at).contains(&due), "{ended}");
    });
}

#[test]
fn as_many_are_kept_as_the_host_is_told() {
    with_each_store(|store| {
        let first = send(store, "x");
        serve(store, "noop", &["--keep-ended", "0"]);
        assert_eq!(ask(store, &["list", "ended"]), "");
        let output = run(Some(store), &["get", &first, "--queue", "q"], 1);
        assert!(stderr(&output).contains("has no message"), "{output:?}");
        for _ in 0..3 {
            send(store, "x");
            serve(store, "noop", &["--keep-ended", "2"]);
        }
        assert_eq!(ask(store, &["list", "ended"]).lines().count(), 2);
        let output = run(Some(store), &["--keep-ended", "100001"], 2);
        assert!(stderr(&output).contains("100000"), "{output:?}");
    });
}

/// A host that may not write what is only shown goes on, and says so once.
#[test]
fn a_host_goes_on_where_it_cannot_tell() {
    let server = RedisServer::start();
    let () = server.command(&["SET", "{dp:q}:ended", "not ours"]);
    let url = server.url();
    let handler = guest("noop").display().to_string();
    let mut host = Host::start(&url, &["--handler", &handler, "--queue", "q"]);
    for _ in 0..2 {
        let id = send(&url, "x");
        host.wait_for("acked", |line| line["id"] == id.as_str());
    }
    host.wait_for_start("how its messages ended is not kept: ");
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
}

fn path(id: &str, query: &str) -> String {
    format!("/queues/q/messages/{id}{query}")
}

#[test]
fn a_get_over_http_says_how_a_message_ended() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let id = send(store, "x");
        // Nobody handles it: it is told as it is.
        let waiting = api.get(&path(&id, "?wait=1ms")).is(200).json();
        assert_eq!(waiting["state"], "ready");
        serve(store, "noop", &[]);
        let ended = api.get(&path(&id, "")).is(200).json();
        assert_eq!(ended["state"], "acked");
        assert_eq!(ended, get(store, &id));
        assert_eq!(api.get(&path(&id, "?wait=60s")).is(200).json(), ended);
        let bad = send(store, "x");
        serve(store, "reject", &[]);
        let dead = api.get(&path(&bad, "?wait=60s")).is(200).json();
        assert_eq!(dead["state"], "dead");
        api.get(&path("unknown", "?wait=60s"))
            .is_problem(404, "has no message unknown");
        for (query, says) in [
            ("?wait=5", "not a duration"),
            ("?wait=", "not a duration"),
            ("?wait=61s", "at most 60s"),
            ("?wait=-1s", "negative"),
            ("?wait=1s&wait=2s", "query"),
            ("?until=1s", "until"),
        ] {
            api.get(&path(&id, query)).is_problem(400, says);
        }
    });
}

#[test]
fn a_request_waits_for_the_end_of_its_message() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        for (example, state) in [("noop", "acked"), ("reject", "dead")] {
            let id = send(store, "x");
            let (mut stream, began) = (api.connect(), Instant::now());
            let asked = request("GET", &path(&id, "?wait=60s"), &[], b"");
            stream.write_all(&asked).unwrap();
            serve(store, example, &[]);
            let answer = Answer::read(&mut stream).unwrap().is(200).json();
            assert_eq!(
                (&answer["id"], &answer["state"]),
                (&json!(id), &json!(state))
            );
            // Before the wait would have ended by itself.
            assert!(began.elapsed() < Duration::from_secs(55), "{answer}");
        }
    });
}

/// As many waits as a client may have under way. One more is refused.
fn fill(api: &Api, id: &str) -> Vec<TcpStream> {
    let asked = request("GET", &path(id, "?wait=60s"), &[], b"");
    let waiting = (0..129).map(|_| {
        let mut stream = api.connect();
        stream.write_all(&asked).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    });
    let mut waiting: Vec<_> = waiting.collect();
    let refused = eventually("one is refused", || {
        let is_answered = |stream: &TcpStream| stream.peek(&mut [0]).is_ok();
        waiting.iter().position(is_answered)
    });
    for stream in &waiting {
        stream.set_nonblocking(false).unwrap();
    }
    let answer = Answer::read(&mut waiting.remove(refused)).unwrap();
    answer.is_problem(429, "requests of this client are under way");
    waiting
}

#[test]
fn a_wait_counts_as_a_request_and_ends_with_its_client_and_with_the_program() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let id = send(store, "x");
        let began = Instant::now();
        drop(fill(&api, &id));
        eventually("they have ended", || {
            (api.get(&path(&id, "")).status == 200).then_some(())
        });
        // Before any of them would have ended by itself.
        assert!(began.elapsed() < Duration::from_secs(55));
        let api = Api::serve(store, &[]);
        let waiting = fill(&api, &id);
        api.host.signal(Signal::TERM);
        for mut stream in waiting {
            let answer = Answer::read(&mut stream).unwrap().is(200).json();
            assert_eq!(answer["state"], "ready");
        }
        assert!(api.host.end().0.success());
    });
}

/// Handles one message with these headers by an example that returns what they say; its id.
fn returns(store: &str, headers: &[&str], more: &[&str]) -> String {
    let headers = headers.iter().flat_map(|header| ["--header", header]);
    let args: Vec<&str> = ["send", "q", "--retries", "0", "--header", "count=0"]
        .into_iter()
        .chain(headers)
        .collect();
    let id = ask(store, &args).trim().to_owned();
    serve(store, "fan-out", more);
    id
}

#[test]
fn what_a_handler_returns_is_kept_with_its_ack() {
    const HOSTILE: &str = "result=\u{1b}[2Jdone";
    with_each_store(|store| {
        let id = returns(store, &[HOSTILE], &[]);
        assert_eq!(get(store, &id)["result"], "\u{1b}[2Jdone");
        let text = ask(store, &["get", &id]);
        assert!(text.contains("result        "), "{text}");
        assert!(text.contains("done") && !text.contains('\u{1b}'), "{text}");
        let json = ask(store, &["get", &id, "--json"]);
        assert!(!json.contains('\u{1b}'), "{json}");
        let bytes = returns(store, &["result-bytes=3"], &[]);
        let ended = get(store, &bytes);
        assert_eq!(
            (&ended["result"], &ended["result_base64"]),
            (&Value::Null, &json!("////"))
        );
        // Whoever waits over HTTP has it as soon as it is told how the message ended.
        let api = Api::serve(store, &[]);
        let path = format!("/queues/q/messages/{id}?wait=10s");
        assert_eq!(api.get(&path).is(200).json()["result"], "\u{1b}[2Jdone");

        // Only an ack keeps it, and nothing that is too long.
        for headers in [
            &["result=x", "then=reject"][..],
            &["result=x", "then=trap"],
            &["result-bytes=65537"],
        ] {
            let id = returns(store, headers, &[]);
            let dead = get(store, &id);
            assert_eq!(dead["state"], "dead", "{headers:?}");
            if headers.len() == 1 {
                let last = dead["history"][0].to_string();
                assert!(
                    last.contains("TooLarge") && last.contains("65536"),
                    "{last}"
                );
                assert!(last.contains("--limit result-bytes"), "{last}");
            }
            ask(store, &["dead", "delete", &id]);
            assert_eq!(get(store, &id)["result"], Value::Null);
        }
        let id = returns(
            store,
            &["result-bytes=65537"],
            &["--limit", "result-bytes=65537"],
        );
        assert!(get(store, &id)["result_base64"].is_string());
        let id = returns(store, &["result=x"], &["--keep-results", "0"]);
        assert_eq!(get(store, &id)["result"], Value::Null);
        // The latest take the place of the others.
        let id = returns(store, &["result=last"], &["--keep-results", "4"]);
        assert_eq!(get(store, &id)["result"], "last");
        assert_eq!(get(store, &bytes)["result_base64"], Value::Null);
    });
}

#[test]
fn a_result_that_is_longer_than_all_that_is_kept_is_told_of() {
    with_each_store(|store| {
        // Whoever wants none to be kept knows it.
        for (max, is_told) in [("4", true), ("0", false)] {
            ask(
                store,
                &[
                    "send",
                    "q",
                    "--header",
                    "count=0",
                    "--header",
                    "result=longer",
                ],
            );
            let handler = guest("fan-out").display().to_string();
            let args = ["--handler", &handler, "--queue", "q", "--exit-when-empty"];
            let log = run(
                Some(store),
                &[&args[..], &["--keep-results", max]].concat(),
                0,
            );
            let says = "the result has 6 bytes and is not kept: the queue keeps 4 (--keep-results)";
            assert_eq!(
                stderr(&log).matches(says).count(),
                usize::from(is_told),
                "{log:?}"
            );
        }
    });
}

#[test]
fn a_result_is_not_shown_for_a_later_message_with_the_same_id() {
    with_each_store(|store| {
        let handled = |more: &[&str]| {
            let key = ["--idempotency-key", "k", "--dedup-window", "0s"];
            let args = [&["send", "q", "--header", "count=0"], &key[..], more].concat();
            let id = ask(store, &args).trim().to_owned();
            serve(store, "fan-out", &[]);
            let acked = &stats(store, "q")["totals"]["acked"];
            (get(store, &id)["result"].clone(), acked.as_u64())
        };
        assert_eq!(
            handled(&["--header", "result=old"]),
            ("old".into(), Some(1))
        );
        assert_eq!(handled(&[]), (Value::Null, Some(2)));
    });
}
