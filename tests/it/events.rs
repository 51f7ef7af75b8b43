//! What happens on queues, as those hear it who listen: `dqhost events`, the HTTP API, and the monitors of a
//! delayqueue.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http_api::{Answer, Api, request, with_each_store};
use crate::support::{
    Host, PATIENCE, RedisServer, dqhost, eventually, expect, feed, guest, run, stderr, stdout,
};

/// `dqhost events --follow` in the background; killed on drop.
struct Follower {
    child: Child,
    lines: Receiver<Value>,
    heard: Vec<Value>,
}

impl Follower {
    /// Returns when it listens.
    fn start(store: &str, args: &[&str]) -> Self {
        let mut command = dqhost(Some(store), &[&["events", "--follow"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let line = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        for queue in args.iter().filter(|arg| !arg.starts_with('-')) {
            eventually("somebody listens", || {
                is_listened(store, queue).then_some(())
            });
        }
        Self {
            child,
            lines,
            heard: Vec::new(),
        }
    }

    /// The first event of this kind about this message, and all before it are heard.
    fn wait_for(&mut self, event: &str, id: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut heard = self.heard.iter();
            if let Some(found) = heard.find(|one| one["event"] == event && one["id"] == id) {
                return found.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            self.heard
                .push(line.unwrap_or_else(|_| panic!("{event} {id}: {:#?}", self.heard)));
        }
    }

    /// What was heard about this message, in order.
    fn of(&self, id: &str) -> Vec<&str> {
        let of_it = self.heard.iter().filter(|one| one["id"] == id);
        of_it.map(|one| one["event"].as_str().unwrap()).collect()
    }

    /// The same for one attempt, or for what is told of none.
    fn of_attempt(&self, id: &str, attempt: Option<u64>) -> Vec<&str> {
        let of_it = self.heard.iter().filter(|one| one["id"] == id);
        let of_attempt = of_it.filter(|one| one["attempt"].as_u64() == attempt);
        of_attempt
            .map(|one| one["event"].as_str().unwrap())
            .collect()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether it is told to the hosts that somebody listens.
fn is_listened(store: &str, queue: &str) -> bool {
    if store.contains("://") {
        let client = redis::Client::open(store).unwrap();
        let mut connection = client.get_connection().unwrap();
        return redis::cmd("EXISTS")
            .arg(format!("{{dp:{queue}}}:listeners"))
            .query(&mut connection)
            .unwrap();
    }
    let file = rusqlite::Connection::open(store).unwrap();
    let count = file.query_row(
        "SELECT count(*) FROM listeners WHERE queue = ?1",
        [queue],
        |row| row.get::<_, i64>(0),
    );
    count.unwrap() > 0
}

fn ask(store: &str, args: &[&str]) -> String {
    let output = run(Some(store), &[args, &["--queue", "q"]].concat(), 0);
    stdout(&output).trim().to_owned()
}

/// Serves the queue until it is empty.
fn serve(store: &str, example: &str, more: &[&str]) {
    let handler = guest(example).display().to_string();
    let args = [
        "--handler",
        &handler,
        "--backoff",
        "1ms",
        "--exit-when-empty",
    ];
    ask(store, &[&args, more].concat());
}

#[test]
fn those_who_follow_hear_of_producers_hosts_and_operators() {
    with_each_store(|store| {
        // A file is made by the first who sends.
        let other = stdout(&run(Some(store), &["send", "x", "--queue", "other"], 0));
        let mut follower = Follower::start(store, &["q"]);
        let waits = ask(store, &["send", "x", "--in", "1h"]);
        ask(store, &["reschedule", &waits, "--in", "2h"]);
        ask(store, &["cancel", &waits]);
        let sent = follower.wait_for("sent", &waits);
        follower.wait_for("cancelled", &waits);
        assert_eq!(follower.of(&waits), ["sent", "rescheduled", "cancelled"]);
        assert!(
            sent["due_at_ms"].as_u64() > sent["at_ms"].as_u64(),
            "{sent}"
        );
        assert_eq!((&sent["queue"], &sent["host"]), (&json!("q"), &Value::Null));
        assert!(sent["at"].as_str().unwrap().ends_with('Z'), "{sent}");

        // Fails at first.
        let id = ask(store, &["send", "2", "--retries", "3"]);
        serve(store, "flaky", &[]);
        let acked = follower.wait_for("acked", &id);
        let retried = follower.wait_for("retried", &id);
        // The second attempt may begin while the failure of the first still waits for the disk.
        assert_eq!(follower.of_attempt(&id, None), ["sent"]);
        assert_eq!(follower.of_attempt(&id, Some(1)), ["started", "retried"]);
        assert_eq!(follower.of_attempt(&id, Some(2)), ["started", "acked"]);
        assert!(acked["duration_ms"].is_u64(), "{acked}");
        assert_eq!(
            (&retried["attempt"], &retried["class"]),
            (&json!(1), &json!("nacked"))
        );
        // It was due at once.
        assert!(
            retried["due_at_ms"].is_null() && retried["reason"].is_string(),
            "{retried}"
        );
        assert!(retried["host"].is_string() && retried["host"] == acked["host"]);

        let id = ask(store, &["send", "x"]);
        serve(store, "reject", &[]);
        assert_eq!(follower.wait_for("dead", &id)["class"], "rejected");
        ask(store, &["dead", "redrive", &id]);
        let redriven = follower.wait_for("redriven", &id);
        let new = redriven["new_id"].as_str().unwrap().to_owned();
        serve(store, "reject", &[]);
        ask(store, &["dead", "delete", &new]);
        follower.wait_for("deleted", &new);
        assert_eq!(follower.of(&id), ["sent", "started", "dead", "redriven"]);
        assert_eq!(follower.of(&new), ["started", "dead", "deleted"]);
        ask(store, &["pause"]);
        ask(store, &["resume"]);
        let end = ask(store, &["send", "end"]);
        follower.wait_for("sent", &end);
        let of_queue: Vec<&Value> = follower
            .heard
            .iter()
            .filter(|e| e["id"].is_null())
            .collect();
        let kinds: Vec<&str> = of_queue
            .iter()
            .map(|e| e["event"].as_str().unwrap())
            .collect();
        assert!(kinds.ends_with(&["paused", "resumed"]), "{kinds:?}");
        assert!(!kinds.contains(&"gap"), "{kinds:?}");
        assert!(kinds.contains(&"dead-lettered"), "{kinds:?}");
        // Of another queue it hears nothing.
        assert_eq!(follower.of(other.trim()), [""; 0]);
    });
}

#[test]
fn what_a_handler_sends_and_what_is_given_back_is_told() {
    with_each_store(|store| {
        let parent = ask(store, &["send", "children", "--header", "count=2"]);
        let mut follower = Follower::start(store, &["q", "children"]);
        serve(store, "fan-out", &["--allow-send", "children"]);
        follower.wait_for("acked", &parent);
        let failing = [
            "--header",
            "count=0",
            "--header",
            "then=nack",
            "--retries",
            "1",
        ];
        let id = ask(store, &[&["send", "children"], &failing[..]].concat());
        serve(store, "fan-out", &["--allow-send", "children"]);
        follower.wait_for("dead", &id);
        let retried = follower.wait_for("retried", &id);
        let due_at_ms = retried["due_at_ms"].as_u64();
        assert!(due_at_ms.unwrap() >= retried["at_ms"].as_u64().unwrap());
        let slow = guest("sleeper").display().to_string();
        let id = ask(store, &["send", "60000"]);
        let mut host = Host::start(
            store,
            &["--queue", "q", "--handler", &slow, "--drain", "0s"],
        );
        follower.wait_for("started", &id);
        host.signal(Signal::TERM);
        host.wait_for_start("1 messages given back");
        // Its last events are told before it ends.
        let (status, _) = host.end();
        assert!(status.success());
        follower.wait_for("released", &id);
        assert_eq!(follower.of(&id), ["sent", "started", "released"]);
        let of_children = follower.heard.iter().filter(|e| e["queue"] == "children");
        let kinds: Vec<_> = of_children.map(|event| &event["event"]).collect();
        assert_eq!(kinds, ["sent", "sent"]);
    });
}

#[test]
fn without_follow_it_prints_how_the_latest_messages_ended() {
    with_each_store(|store| {
        let acked = ask(store, &["send", "1"]);
        serve(store, "flaky", &[]);
        let dead = ask(store, &["send", "never"]);
        serve(store, "flaky", &[]);
        for args in [&["events", "q"][..], &["events"]] {
            let printed = stdout(&run(Some(store), args, 0));
            let events: Vec<Value> = printed
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let told: Vec<_> = events.iter().map(|e| (&e["event"], &e["id"])).collect();
            assert_eq!(
                told,
                [
                    (&json!("acked"), &json!(acked)),
                    (&json!("dead"), &json!(dead))
                ]
            );
            assert_eq!(events[1]["class"], "rejected");
            assert_eq!(events[0]["queue"], "q");
        }
    });
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("dqhost.db").display().to_string();
    let told = stderr(&run(Some(&empty), &["events"], 3));
    assert!(told.contains("there is no file"), "{told}");
    let server = RedisServer::start();
    let told = stderr(&run(Some(&server.url()), &["events"], 2));
    assert!(told.contains("the store has no queues yet"), "{told}");
}

/// What is published on any channel, from now on.
fn published(server: &RedisServer) -> impl FnMut() -> Option<(String, String)> + use<> {
    let mut connection = server.connection();
    let (sender, receiver) = channel();
    let (ready, is_ready) = channel();
    std::thread::spawn(move || {
        let mut subscription = connection.as_pubsub();
        subscription.psubscribe("*").unwrap();
        ready.send(()).unwrap();
        while let Ok(told) = subscription.get_message() {
            let payload: Vec<u8> = told.get_payload().unwrap();
            let payload = String::from_utf8_lossy(&payload).into_owned();
            if sender
                .send((told.get_channel_name().to_owned(), payload))
                .is_err()
            {
                break;
            }
        }
    });
    is_ready.recv_timeout(PATIENCE).unwrap();
    move || receiver.recv_timeout(PATIENCE).ok()
}

/// The same, until this is said.
fn until_end(
    server: &RedisServer,
    mut next: impl FnMut() -> Option<(String, String)>,
) -> Vec<(String, String)> {
    let () = server.command(&["PUBLISH", "end", ""]);
    let mut all = Vec::new();
    while let Some(one) = next().filter(|(channel, _)| channel != "end") {
        all.push(one);
    }
    all
}

/// Each time that a process asks whether somebody listens, from now on.
struct Questions {
    monitor: Child,
    count: std::thread::JoinHandle<usize>,
}

impl Questions {
    fn watch(server: &RedisServer) -> Self {
        let socket = server.url().replace("unix://", "");
        let mut monitor = std::process::Command::new("redis-cli")
            .args(["-s", &socket, "MONITOR"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(monitor.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert_eq!(first.trim(), "OK");
        let count = std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            let lines = lines.take_while(|line| !line.contains("\"GET\" \"end\""));
            lines.filter(|line| line.contains(":listeners")).count()
        });
        Self { monitor, count }
    }

    fn count(mut self, server: &RedisServer) -> usize {
        let _: Option<String> = server.command(&["GET", "end"]);
        let count = self.count.join().unwrap();
        self.monitor.kill().unwrap();
        self.monitor.wait().unwrap();
        count
    }
}

#[test]
fn as_long_as_nobody_listens_nothing_is_published_and_few_questions_are_asked() {
    let server = RedisServer::start();
    let store = server.url();
    let next = published(&server);
    let questions = Questions::watch(&server);
    let lines = "{\"payload\":\"x\"}\n".repeat(200);
    let began = Instant::now();
    let send = dqhost(Some(&store), &["send", "--ndjson", "-", "--queue", "q"]);
    expect(feed(send, lines.as_bytes()), 0);
    serve(&store, "noop", &[]);
    // Both ask at once, and then at most once a second.
    let most = 2 + usize::try_from(began.elapsed().as_secs()).unwrap();
    let count = questions.count(&server);
    assert!((2..=most).contains(&count), "{count}");
    let all = until_end(&server, next);
    assert!(!all.is_empty());
    assert!(
        all.iter().all(|(channel, _)| channel == "{dp:q}:wake"),
        "{all:?}"
    );
}

#[test]
fn a_host_reports_in_the_format_of_a_delayqueue() {
    let server = RedisServer::start();
    let store = server.url();
    for payload in ["1", "2", "never"] {
        ask(&store, &["send", payload]);
    }
    let next = published(&server);
    serve(&store, "flaky", &["--report-events"]);
    let mut counts = [0_u64; 8];
    for (channel, payload) in until_end(&server, next) {
        if channel != "dq:q:reportEvents" {
            continue;
        }
        let words: Vec<u64> = payload
            .split(' ')
            .map(|word| word.parse().unwrap())
            .collect();
        let [code, seconds, count] = words[..] else {
            panic!("{payload}")
        };
        assert!(seconds.abs_diff(unix_seconds()) < 60, "{payload}");
        counts[usize::try_from(code).unwrap()] += count;
    }
    // Delivered, acked, nacked, to be retried, dead: one of them fails once, and one is rejected.
    assert_eq!(counts[3..], [3, 2, 2, 1, 1], "{counts:?}");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    let handler = guest("noop").display().to_string();
    let told = stderr(&run(
        Some(&file),
        &["--handler", &handler, "--report-events"],
        2,
    ));
    assert!(
        told.contains("--report-events is for the monitors"),
        "{told}"
    );
}

/// Unix seconds.
fn unix_seconds() -> u64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn what_the_real_delayqueue_reports_is_heard() {
    let server = RedisServer::start();
    let store = server.url();
    let mut follower = Follower::start(&store, &["q", "--delayqueue"]);
    let trace = include_str!("replay/report-events.jsonl");
    for line in trace.lines() {
        let words: Vec<Value> = serde_json::from_str(line).unwrap();
        if words[2] == "publish" {
            let payload = words[4].as_str().unwrap().replace("@+", "179534185");
            let () = server.command(&["PUBLISH", words[3].as_str().unwrap(), &payload]);
        }
    }
    let () = server.command(&["PUBLISH", "dq:q:reportEvents", "nonsense"]);
    let hostile = "{\"event\":\"acked\",\"id\":\"a\\u001b[2J\",\"at_ms\":1}";
    let () = server.command(&["PUBLISH", "{dp:q}:events", "\u{1}"]);
    let () = server.command(&["PUBLISH", "{dp:q}:events", hostile]);
    follower.wait_for("acked", "a\u{1b}[2J");
    let of_go: Vec<_> = follower
        .heard
        .iter()
        .filter(|event| event["source"] == "delayqueue")
        .map(|event| (event["event"].as_str().unwrap(), &event["count"]))
        .collect();
    let one = &json!(1);
    let expected = [
        ("sent", one),
        ("promoted", one),
        ("started", one),
        ("acked", one),
    ];
    assert_eq!(of_go, expected);
    let at = follower.heard[0]["at"].as_str().unwrap();
    assert!(at.starts_with("2026-11-22T10:04:10"), "{at}");
}

/// The events of a stream as they come, until one is found.
fn read_until(stream: &mut impl Read, found: &str) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.contains(found) {
            return text;
        }
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "it has ended: {text}");
        bytes.extend_from_slice(&chunk[..count]);
    }
}

#[test]
fn clients_of_the_http_api_follow_a_queue_until_it_stops() {
    const PATH: &str = "/queues/q/events";
    with_each_store(|store| {
        let handler = guest("noop").display().to_string();
        let args = ["--queue", "q", "--handler", &handler];
        let api = Api::beside(store, &args);
        let mut stream = api.connect();
        stream.write_all(&request("GET", PATH, &[], b"")).unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        eventually("it listens", || is_listened(store, "q").then_some(()));
        // The host notices within a second that somebody listens, so messages come until it has.
        stream
            .set_read_timeout(Some(std::time::Duration::from_millis(50)))
            .unwrap();
        let text = eventually("an event", || {
            api.post("/queues/q/messages", &[], "x").is(201);
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).ok()?;
            let text = String::from_utf8_lossy(&chunk[..count]).into_owned();
            text.contains("event: acked\ndata: {").then_some(text)
        });
        let data = text.split("event: acked\ndata: ").nth(1).unwrap();
        let event: Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&event["event"], &event["queue"]),
            (&json!("acked"), &json!("q"))
        );
        assert_eq!(event["attempt"], 1);
        // So many of one client, and no more.
        let mut others: Vec<_> = (0..7).map(|_| api.connect()).collect();
        for other in &mut others {
            other.write_all(&request("GET", PATH, &[], b"")).unwrap();
            read_until(other, "\r\n\r\n");
        }
        api.get(PATH)
            .is_problem(429, "8 streams of events of this client");
        drop(others);
        eventually("those that have gone count no more", || {
            let mut again = api.connect();
            again.write_all(&request("GET", PATH, &[], b"")).unwrap();
            let answer = read_until(&mut again, "\r\n\r\n");
            answer.starts_with("HTTP/1.1 200 ").then_some(())
        });
        // It ends with a last chunk, not with a broken connection.
        api.host.signal(Signal::TERM);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
        let (status, _) = api.host.end();
        assert_eq!(status.code(), Some(0));
    });
}

#[test]
fn a_token_has_to_view_the_queue_to_follow_it() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let tokens = folder.path().join("tokens");
    let token = |args: &[&str]| {
        let printed = stdout(&run(None, &[&["token", "new"], args].concat(), 0));
        let mut lines = printed.lines().map(str::to_owned);
        (lines.next().unwrap(), lines.next().unwrap())
    };
    let (sends, first) = token(&["sends", "--role", "send"]);
    let (views, second) = token(&["views", "--role", "view", "--queue", "q"]);
    std::fs::write(&tokens, format!("{first}\n{second}\n")).unwrap();
    let api = Api::serve(&store, &["--tokens", tokens.to_str().unwrap()]);
    let ask = |token: &str, queue: &str| -> Answer {
        let header = format!("Bearer {token}");
        let path = format!("/queues/{queue}/events");
        api.ask("GET", &path, &[("authorization", &header)], b"")
    };
    ask(&sends, "q").is_problem(403, "has not the role view");
    ask(&views, "other").is_problem(403, "not for queue other");
    assert_eq!(ask(&views, "q").status, 200);
    api.get("/queues/q/events").is_problem(401, "give a token");
    // Its stream goes on while other lines change, and ends without another event once it may not view.
    let header = format!("Bearer {views}");
    let headers = [("authorization", header.as_str())];
    let mut stream = api.connect();
    let asked = request("GET", "/queues/q/events", &headers, b"");
    stream.write_all(&asked).unwrap();
    read_until(&mut stream, "\r\n\r\n");
    eventually("it listens", || is_listened(&store, "q").then_some(()));
    std::fs::write(&tokens, format!("{second}\n")).unwrap();
    eventually("the other is not known", || {
        (ask(&sends, "q").status == 401).then_some(())
    });
    let send = |payload: &str| run(Some(&store), &["send", payload, "--queue", "q"], 0);
    let early = stdout(&send("early"));
    read_until(&mut stream, early.trim());
    std::fs::write(&tokens, second.replace(" view ", " send ")).unwrap();
    eventually("it may not view", || {
        (ask(&views, "q").status == 403).then_some(())
    });
    let late = stdout(&send("late"));
    let rest = read_until(&mut stream, "\r\n0\r\n\r\n");
    assert!(rest.contains("the token does not allow this"), "{rest}");
    assert!(!rest.contains(late.trim()), "{rest}");
}
