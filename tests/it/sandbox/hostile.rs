//! Handlers that do their worst, side by side with one that works.

use std::collections::HashMap;

use serde_json::Value;

use super::web::Web;
use crate::guests;
use crate::support::{Host, RedisServer, dqhost, eventually, feed, guest, run, stats, stdout};

/// Messages for each of them.
const EACH: usize = 100;

/// Messages for the one that works.
const GOOD: usize = 500;

/// The name of a hostile handler, what it is sent, and how each run of it ends.
pub(super) type Hostile = (&'static str, &'static str, &'static str);

/// Those that never end by themselves.
pub(super) const ENDLESS: [Hostile; 6] = [
    ("log-flood", "", "timed-out"),
    ("sleeper", "600000", "timed-out"),
    ("slow-loris-http", "URL", "timed-out"),
    ("spin", "", "timed-out"),
    ("stdout-flood", "", "timed-out"),
    ("warn-flood", "", "timed-out"),
];

/// Those that end at another limit, or are refused what they want.
pub(super) const OTHERS: [Hostile; 13] = [
    ("env-reader", "", "rejected"),
    ("exit", "1", "exited"),
    ("fetch-hog", "body", "over-limit"),
    ("file-reader", "", "rejected"),
    ("hog", "", "out-of-memory"),
    ("huge-result", "", "over-limit"),
    ("random-hog", "", "over-limit"),
    ("request-hog", "", "over-limit"),
    ("resource-leak", "", "over-limit"),
    ("socket-opener", "1", "rejected"),
    ("stack", "", "out-of-stack"),
    ("table", "", "over-limit"),
    ("trap", "", "trapped"),
];

pub(super) fn send(url: &str, queue: &str, payload: &str, count: usize) {
    send_with(url, queue, payload, (count, "0"));
}

pub(super) fn send_with(url: &str, queue: &str, payload: &str, (count, retries): (usize, &str)) {
    let line = format!("{{\"payload\": \"{payload}\"}}\n");
    let args = ["send", "--ndjson", "--retries", retries, "--queue", queue];
    let mut command = dqhost(Some(url), &args);
    command.stdout(std::process::Stdio::null());
    assert!(
        feed(command, line.repeat(count).as_bytes())
            .status
            .success()
    );
}

#[test]
fn those_without_end_are_stopped_a_hundred_times_and_harm_nobody() {
    each_ends_with_its_class(&ENDLESS, "100ms", Engine::OfItsOwn);
}

#[test]
fn each_limit_is_kept_a_hundred_times_and_nobody_is_harmed() {
    each_ends_with_its_class(&OTHERS, "1h", Engine::OfItsOwn);
}

/// Which engine runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    OfItsOwn,
    Async,
}

pub(super) fn each_ends_with_its_class(hostile: &[Hostile], timeout: &str, engine: Engine) {
    let server = RedisServer::start();
    let url = server.url();
    let web = Web::start();
    let drip = web.url("/drip");
    let table = guests::table();
    let queues: Vec<String> = hostile
        .iter()
        .map(|(name, ..)| match *name {
            "table" => format!("table={}", table.display()),
            name => format!("{name}={}", guest(name).display()),
        })
        .chain([format!("echo={}", guest("echo").display())])
        .collect();
    let allowed = format!("127.0.0.1:{}", web.port);
    let mut args = vec!["--slots", "8", "--timeout", timeout, "--memory", "8"];
    args.extend(["--log", "error", "--allow-http", &allowed]);
    for queue in &queues {
        args.extend(["--queue", queue]);
    }
    let mut command = dqhost(Some(&url), &args);
    if engine == Engine::Async {
        command.env("FAILPOINTS", "always async=return");
    }
    let _host = Host::start_command(command);
    let all = |count: usize| {
        for &(name, payload, _) in hostile {
            send(
                &url,
                name,
                if payload == "URL" { &drip } else { payload },
                count,
            );
        }
    };
    let wait = |count: usize| {
        for &(name, ..) in hostile {
            eventually(name, || (stats(&url, name)["dead"] == count).then_some(()));
        }
    };
    all(EACH);
    // A good one may meet the time limit as well, on a machine that is busy.
    send_with(&url, "echo", "hello", (GOOD, "1000"));
    wait(EACH);
    eventually("echo", || {
        (stats(&url, "echo")["totals"]["acked"] == GOOD).then_some(())
    });
    for &(name, _, class) in hostile {
        let list = ["dead", "list", "--json", "--limit", "1000", "--queue", name];
        let listed = stdout(&run(Some(&url), &list, 0));
        let mut classes: HashMap<String, usize> = HashMap::new();
        for line in listed.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let class = record["history"][0]["class"].as_str().unwrap();
            *classes.entry(class.to_owned()).or_default() += 1;
        }
        assert_eq!(classes, HashMap::from([(class.to_owned(), EACH)]), "{name}");
    }
}
