//! Messages that are cancelled while their handlers run.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http_api::{Api, with_each_store};
use crate::support::{Host, eventually, guest, run, stats, stderr, stdout};

fn ask(store: &str, args: &[&str], code: i32) -> String {
    let args = [args, &["--queue", "q"]].concat();
    stdout(&run(Some(store), &args, code)).trim().to_owned()
}

/// A message whose handler sleeps for so many milliseconds.
fn send(store: &str, ms: &str) -> String {
    ask(store, &["send", ms], 0)
}

/// A host whose leases are renewed once an hour, so nothing but a hint makes it look.
fn start(store: &str, more: &[&str]) -> Host {
    let handler = guest("sleeper").display().to_string();
    let args = ["--queue", "q", "--handler", &handler];
    let times = ["--timeout", "3h", "--lease", "3h"];
    Host::start(store, &[&args[..], &times, more].concat())
}

fn until_in_flight(store: &str, number: u64) {
    eventually("they are in flight", || {
        (stats(store, "q")["unack"] == number).then_some(())
    });
}

#[test]
fn a_handler_is_stopped_and_what_its_limit_held_back_goes_on() {
    with_each_store(|store| {
        let (long, next) = (send(store, "3600000"), send(store, "0"));
        let mut host = start(store, &["--max-running", "1"]);
        until_in_flight(store, 1);
        assert_eq!(ask(store, &["cancel", &long], 1), "");
        let dry = ask(
            store,
            &["cancel", &long, "--kill", "--dry-run", "--json"],
            0,
        );
        let dry: Value = serde_json::from_str(&dry).unwrap();
        assert_eq!(
            dry,
            json!({"id": long, "outcome": "cancelled", "dry_run": true})
        );
        assert_eq!(
            ask(store, &["cancel", &long, "--kill"], 0),
            format!("{long}  its handler is stopped")
        );
        host.wait_for("stopped: an operator cancelled its message", |line| {
            line["id"] == long
        });
        host.wait_for("acked", |line| line["id"] == next);
        let counts = stats(store, "q");
        assert_eq!(
            (
                &counts["unack"],
                &counts["dead"],
                &counts["totals"]["cancelled"]
            ),
            (&json!(0), &json!(0), &json!(1))
        );
        // It is told how it ended, by the host that ran it.
        let ended = eventually("it is told", || {
            let output = run(Some(store), &["list", "ended", "--queue", "q", "--json"], 0);
            let lines = stdout(&output);
            let of_it = lines.lines().find(|line| line.contains(&long))?;
            serde_json::from_str::<Value>(of_it).ok()
        });
        assert_eq!(
            (&ended["state"], &ended["attempts"]),
            (&json!("cancelled"), &json!(1))
        );
        assert_eq!(ended["handler"].as_str().unwrap().len(), 64, "{ended}");
        let text = ask(store, &["get", &long], 0);
        assert!(text.contains("state         cancelled "), "{text}");
        host.signal(Signal::TERM);
        let (status, lines) = host.end();
        assert!(status.success());
        let summary = lines.iter().find(|line| line["lost"].is_u64()).unwrap();
        assert_eq!(
            (&summary["lost"], &summary["acked"]),
            (&json!(0), &json!(1))
        );
        let again = run(Some(store), &["cancel", &long, "--kill", "--queue", "q"], 1);
        assert!(
            stderr(&again).contains("it neither waits nor is in flight in this queue"),
            "{again:?}"
        );
    });
}

#[test]
fn those_that_match_are_killed_on_all_hosts_when_that_is_confirmed() {
    with_each_store(|store| {
        for _ in 0..3 {
            ask(store, &["send", "3600000", "--header", "tenant=a"], 0);
        }
        let spared = ask(store, &["send", "3600000", "--header", "tenant=b"], 0);
        let mut hosts = [(); 2].map(|()| start(store, &["--slots", "2"]));
        until_in_flight(store, 4);
        ask(
            store,
            &["send", "x", "--header", "tenant=a", "--in", "1h"],
            0,
        );
        let which = ["cancel", "--kill", "--match", "header:tenant=a"];
        let asked = run(Some(store), &[&which[..], &["--queue", "q"]].concat(), 2);
        assert!(
            stderr(&asked).contains("4 messages of q would be cancelled for good; say --yes"),
            "{asked:?}"
        );
        let done = ask(store, &[&which[..], &["--yes"]].concat(), 0);
        assert_eq!(done.lines().count(), 4, "{done}");
        let counts = stats(store, "q");
        assert_eq!(
            (&counts["unack"], &counts["pending"]),
            (&json!(1), &json!(0))
        );
        // Three slots are free again, so what is sent now is handled.
        let quick = [(); 2].map(|()| send(store, "0"));
        eventually("they are acked", || {
            (stats(store, "q")["totals"]["acked"] == 2).then_some(())
        });
        for host in &mut hosts {
            assert!(!host.has("stopped: an operator cancelled its message", &spared));
        }
        assert_eq!(stats(store, "q")["unack"], 1, "{quick:?}");
    });
}

#[test]
fn the_http_api_kills_what_is_in_flight() {
    with_each_store(|store| {
        let handler = guest("sleeper").display().to_string();
        let mut api = Api::serve(store, &[]);
        let id = api.post("/queues/busy/messages", &[], "3600000").id();
        let mut host = Host::start(
            store,
            &[
                "--queue",
                "busy",
                "--handler",
                &handler,
                "--timeout",
                "3h",
                "--lease",
                "3h",
            ],
        );
        eventually("it is in flight", || {
            (stats(store, "busy")["unack"] == 1).then_some(())
        });
        let at = |query: &str| format!("/queues/busy/messages/{id}/cancel{query}");
        api.post(&at("?kill=false"), &[], "")
            .is_problem(409, "a host is handling");
        api.post(&at("?kill=1x"), &[], "").is_problem(400, "query");
        assert_eq!(api.post(&at("?kill=true"), &[], "").is(204).body, "");
        host.wait_for("stopped: an operator cancelled its message", |line| {
            line["id"] == id
        });
        api.host
            .wait_for("cancelled in flight over HTTP", |line| line["id"] == id);
        api.post(&at("?kill=true"), &[], "")
            .is_problem(404, "no message that waits or is in flight");
    });
}
