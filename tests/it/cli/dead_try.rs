//! `dqhost dead try`: another handler's answers for dead letters, and nothing else.

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{RedisServer, guest, run, stats, stderr, stdout};

/// An order that is paid, one that is not, and no order.
const ORDERS: [&str; 3] = [
    r#"{"order": "A-1", "status": "paid", "amount": 1}"#,
    r#"{"order": "A-2", "status": "processing", "amount": 2}"#,
    "no order",
];

/// Makes dead letters of the queue `q`.
fn bury(store: &str, payloads: &[&str]) -> Vec<String> {
    let send = |payload: &&str| {
        let args = ["send", payload, "--queue", "q", "--retries", "0"];
        stdout(&run(Some(store), &args, 0)).trim().to_owned()
    };
    let ids = payloads.iter().map(send).collect();
    let spec = format!("q={}", guest("reject").display());
    let up = ["--queue", &spec, "--exit-when-empty", "--no-tui"];
    run(Some(store), &up, 0);
    assert_eq!(stats(store, "q")["dead"], payloads.len());
    ids
}

fn with_each_store(test: impl Fn(&str)) {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    test(&server.url());
    test(&folder.path().join("dqhost.db").display().to_string());
}

#[test]
fn dead_letters_are_tried_and_stay_as_they_are() {
    with_each_store(|store| {
        let ids = bury(store, &ORDERS);
        let before = stats(store, "q");
        let listed = || {
            stdout(&run(
                Some(store),
                &["dead", "list", "--queue", "q", "--json"],
                0,
            ))
        };
        let as_listed = listed();
        let handler = guest("order-timeout").display().to_string();
        let args = [
            "dead",
            "try",
            "--all",
            "--queue",
            "q",
            "--handler",
            &handler,
        ];
        let partly = 5;
        let shown = stdout(&run(Some(store), &args, partly));
        for line in [
            format!("{} acked", ids[0]),
            format!("{} nacked: the payment of order A-2 is under way", ids[1]),
            format!("{} rejected: not an order", ids[2]),
            "1 of 3 acked".to_owned(),
        ] {
            assert!(
                shown.lines().any(|shown| shown.starts_with(&line)),
                "{line}: {shown}"
            );
        }
        assert_eq!((stats(store, "q"), listed()), (before, as_listed));
        // One by its id, in JSON.
        let one = [
            "dead",
            "try",
            &ids[2],
            "--queue",
            "q",
            "--handler",
            &handler,
            "--json",
        ];
        let shown = stdout(&run(Some(store), &one, 1));
        let line: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(
            (&line["id"], &line["verdict"]),
            (&ids[2].as_str().into(), &"rejected".into())
        );
        assert_eq!(line["redriven_as"], Value::Null);
        let reason = line["reason"].as_str().unwrap();
        assert!(reason.starts_with("not an order: "), "{line}");
    });
}

#[test]
fn what_the_handler_acks_is_redriven_if_asked_for() {
    with_each_store(|store| {
        let ids = bury(store, &ORDERS);
        let handler = guest("order-timeout").display().to_string();
        let args = [
            "dead",
            "try",
            "--all",
            "--redrive",
            "--queue",
            "q",
            "--handler",
            &handler,
        ];
        let shown = stdout(&run(Some(store), &args, 5));
        let new = shown
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{} acked -> ", ids[0])));
        let new = new.unwrap_or_else(|| panic!("{shown}"));
        let now = stats(store, "q");
        assert_eq!((&now["dead"], &now["ready"]), (&2.into(), &1.into()));
        let got = stdout(&run(Some(store), &["get", new, "--queue", "q"], 0));
        assert!(got.contains("A-1"), "{got}");
    });
}

#[test]
fn a_handler_that_is_tried_sends_nothing_and_reaches_nothing() {
    with_each_store(|store| {
        let ids = bury(store, &["elsewhere"]);
        let handler = guest("fan-out").display().to_string();
        let tried = [
            "dead",
            "try",
            &ids[0],
            "--queue",
            "q",
            "--handler",
            &handler,
        ];
        let tried = [&tried[..], &["--allow-send", "elsewhere", "--json"]].concat();
        let output = crate::support::dqhost(Some(store), &tried)
            .output()
            .unwrap();
        let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(line["verdict"], "acked", "{line}");
        let shown = stdout(&run(Some(store), &["stats", "--json"], 0));
        assert_eq!(shown.lines().count(), 1, "{shown}");
        assert_eq!(stats(store, "q")["totals"]["sent"], 1);
    });
}

#[test]
fn what_cannot_be_tried_is_told() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let handler = guest("noop").display().to_string();
    let of = |args: &[&str], code| {
        run(
            Some(&store),
            &[&["dead", "try", "--queue", "q"], args].concat(),
            code,
        )
    };
    of(&["--all", "--handler", &handler], 3);
    let ids = bury(&store, &ORDERS);
    of(&["--all"], 2);
    of(&["--handler", &handler], 2);
    let errors = stderr(&of(&["--all", "--handler", "/nowhere"], 4));
    assert!(errors.contains("/nowhere"), "{errors}");
    let shown = stdout(&of(&["x\u{1b}", &ids[0], "--handler", &handler], 5));
    assert!(
        shown.contains("x\\u{1b} not run: it is no dead letter of q"),
        "{shown}"
    );
    assert!(shown.contains(&format!("{} acked", ids[0])), "{shown}");
}
