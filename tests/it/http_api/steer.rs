//! Looking at queues and messages, and changing them: the same as the command line says and does.

use serde_json::{Value, json};

use super::{Api, with_each_store};
use crate::support::{Host, RedisServer, guest, run, stats, stdout};

const MESSAGES: &str = "/queues/q/messages";

fn printed(store: &str, args: &[&str]) -> Value {
    let output = run(Some(store), args, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ids(page: &Value) -> Vec<String> {
    let messages = page["messages"].as_array().unwrap().iter();
    messages
        .map(|message| message["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_is_read_is_what_the_commands_print() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let id = api
            .post(
                MESSAGES,
                &[("dqhost-in", "1h"), ("dqhost-header-k", "v")],
                "x",
            )
            .id();
        let got = api.get(&format!("{MESSAGES}/{id}")).is(200).json();
        assert_eq!(got, printed(store, &["get", &id, "--queue", "q", "--json"]));
        let page = api.get(&format!("{MESSAGES}?state=pending")).is(200).json();
        assert_eq!(page["messages"], json!([got]));
        assert_eq!(page["next"], Value::Null);
        let all = printed(store, &["stats", "--json"]);
        let stats = api.get("/stats").is(200).json();
        assert_eq!(stats["queues"], all["queues"]);
        let one = api.get("/queues/q/stats").is(200).json();
        assert_eq!(one, all["queues"][0]);
        api.get(&format!("{MESSAGES}/unknown"))
            .is_problem(404, "has no message unknown");
        for path in ["stats", "messages?state=ready"] {
            api.get(&format!("/queues/other/{path}"))
                .is_problem(404, "there is no queue other");
        }
        api.get("/nothing").is_problem(404, "nothing at this path");
        let wrong = api.ask("PUT", MESSAGES, &[], b"");
        wrong.is_problem(405, "allow");
        assert!(wrong.head.contains("allow: "), "{wrong:?}");
    });
}

#[test]
fn a_list_is_read_page_by_page_and_by_a_filter() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let messages: Vec<Value> = (0..120)
            .map(|n| json!({"payload": format!("order {n}"), "in": format!("{}s", 3600 + n)}))
            .collect();
        let sent = api
            .post_json(MESSAGES, &json!(messages).to_string())
            .is(201)
            .json();
        let sent: Vec<String> = sent
            .as_array()
            .unwrap()
            .iter()
            .map(|sent| sent["id"].as_str().unwrap().to_owned())
            .collect();
        let read = |query: &str| {
            let (mut all, mut next) = (Vec::new(), String::new());
            loop {
                let page = api
                    .get(&format!("{MESSAGES}?state=pending{query}{next}"))
                    .is(200)
                    .json();
                all.extend(ids(&page));
                match page["next"].as_str() {
                    Some(cursor) => next = format!("&cursor={cursor}"),
                    None => return all,
                }
            }
        };
        assert_eq!(read(""), sent);
        assert_eq!(read("&limit=7"), sent);
        assert_eq!(read("&limit=1&filter=payload:order%20!order").len(), 0);
        assert_eq!(read("&limit=2&filter=payload:9").len(), 21);
        assert_eq!(
            ids(&api.get(&format!("{MESSAGES}?state=pending&limit=3")).json()),
            sent[..3]
        );
        for (query, says) in [
            ("", "state"),
            ("?state=gone", "state"),
            ("?state=moving", "state must be"),
            ("?state=dead&limit=0", "limit must be"),
            ("?state=dead&limit=1001", "limit must be"),
            ("?state=dead&cursor=x", "cursor"),
            ("?state=dead&filter=id:", "nothing to look for"),
            ("?state=dead&colour=red", "colour"),
        ] {
            api.get(&format!("{MESSAGES}{query}")).is_problem(400, says);
        }
    });
}

#[test]
fn waiting_messages_are_cancelled_and_rescheduled() {
    with_each_store(|store| {
        let mut api = Api::serve(store, &[]);
        let send = || api.post(MESSAGES, &[("dqhost-in", "1h")], "x").id();
        let (one, two) = (send(), send());
        let at = |id: &str, what: &str| format!("{MESSAGES}/{id}/{what}");
        assert_eq!(api.post(&at(&one, "cancel"), &[], "").is(204).body, "");
        api.post(&at(&one, "cancel"), &[], "")
            .is_problem(404, "no waiting message");
        let moved = api.post_json(&at(&two, "reschedule"), r#"{"at":"2050-01-01T00:00:00Z"}"#);
        assert_eq!(
            moved.is(200).json(),
            json!({
                "id": two, "due_at_ms": 2_524_608_000_000_u64, "due_at": "2050-01-01T00:00:00Z",
            })
        );
        for body in [
            r#"{"in":"5"}"#,
            r#"{"in":"5s","at":"14:00"}"#,
            r#"{"when":"5s"}"#,
            "[",
            "7",
        ] {
            api.post_json(&at(&two, "reschedule"), body)
                .is_problem(400, "");
        }
        api.post(&at(&two, "reschedule"), &[], r#"{"in":"5s"}"#)
            .is_problem(415, "application/json");
        assert_eq!(stats(store, "q")["pending"], 1);
        api.post(&at(&two, "reschedule"), &[], "").is(200);
        assert_eq!(stats(store, "q")["ready"], 1);
        // What a host is handling is neither here nor there.
        let handler = guest("sleeper").display().to_string();
        let busy = api.post("/queues/busy/messages", &[], "600000").id();
        let _host = Host::start(
            store,
            &["--queue", "busy", "--handler", &handler, "--timeout", "1h"],
        );
        crate::support::eventually("it is in flight", || {
            (stats(store, "busy")["unack"] == 1).then_some(())
        });
        for what in ["cancel", "reschedule"] {
            api.post(&format!("/queues/busy/messages/{busy}/{what}"), &[], "")
                .is_problem(409, "a host is handling");
        }
        api.host.wait_for("cancelled over HTTP", |line| {
            line["id"] == one && line["queue"] == "q"
        });
        api.host
            .wait_for("rescheduled over HTTP", |line| line["id"] == two);
    });
}

#[test]
fn queues_are_paused_and_resumed() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        api.post("/queues/q/pause", &[], "")
            .is_problem(404, "there is no queue q");
        api.post("/queues/q/pause?create=maybe", &[], "")
            .is_problem(400, "query");
        let paused = api
            .post("/queues/q/pause?create=true", &[], "")
            .is(200)
            .json();
        assert_eq!(paused, json!({"queue": "q", "paused": true}));
        assert_eq!(stats(store, "q")["paused"], true);
        let resumed = api.post("/queues/q/resume", &[], "").is(200).json();
        assert_eq!(resumed, json!({"queue": "q", "paused": false}));
        assert_eq!(stats(store, "q")["paused"], false);
    });
}

#[test]
fn dead_letters_are_redriven_and_deleted() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let handler = guest("reject").display().to_string();
        let batch = r#"[{"payload":"a"},{"payload":"b"},{"payload":"c"}]"#;
        api.post_json(MESSAGES, batch).is(201);
        let handle = ["--queue", "q", "--handler", &handler, "--exit-when-empty"];
        run(Some(store), &handle, 0);
        let dead = ids(&api
            .get(&format!("{MESSAGES}?state=dead&limit=3"))
            .is(200)
            .json());
        assert_eq!(dead.len(), 3);
        let at = |id: &str| format!("/queues/q/dead/{id}");
        let again = api
            .post(&format!("{}/redrive", at(&dead[0])), &[], "")
            .is(201)
            .json();
        assert_eq!(again["redriven_from"], dead[0].as_str());
        let new = again["id"].as_str().unwrap();
        assert_eq!(
            api.get(&format!("{MESSAGES}/{new}")).is(200).json()["state"],
            "ready"
        );
        let edited = api.post_json(
            &format!("{}/redrive", at(&dead[1])),
            r#"{"payload":"new","retries":9}"#,
        );
        let edited = api
            .get(&format!("{MESSAGES}/{}", edited.is(201).id()))
            .json();
        assert_eq!(
            (&edited["payload"], &edited["retries"]),
            (&json!("new"), &json!(9))
        );
        api.post(&format!("{}/redrive", at(&dead[0])), &[], "")
            .is_problem(404, "no dead letter");
        for body in [
            r#"{"retries":-1}"#,
            r#"{"retries":1000001}"#,
            r#"{"payload_base64":"?"}"#,
        ] {
            api.post_json(&format!("{}/redrive", at(&dead[1])), body)
                .is_problem(400, "");
        }
        api.ask("DELETE", &at(&dead[2]), &[], b"").is(204);
        api.ask("DELETE", &at(&dead[2]), &[], b"")
            .is_problem(404, "no dead letter");
        let counts = stats(store, "q");
        assert_eq!((&counts["dead"], &counts["ready"]), (&json!(1), &json!(2)));
    });
}

#[test]
fn a_store_that_is_away_is_told_and_found_again() {
    let mut server = RedisServer::start();
    let mut api = Api::serve(&server.url(), &[]);
    api.post(MESSAGES, &[], "x").is(201);
    server.kill();
    let answer = api.post(MESSAGES, &[], "x");
    answer.is_problem(503, "not reachable");
    assert!(answer.head.contains("retry-after: 1"), "{answer:?}");
    assert!(!answer.body.contains("redis.sock"), "{answer:?}");
    api.get("/stats").is_problem(503, "not reachable");
    api.host.wait_for_start("requests over HTTP fail: ");
    server.restart();
    crate::support::eventually("it is accepted again", || {
        (api.post(MESSAGES, &[], "x").status == 201).then_some(())
    });
    let listed = stdout(&run(
        Some(&server.url()),
        &["list", "ready", "--queue", "q"],
        0,
    ));
    assert!(listed.lines().count() >= 2, "{listed}");
}
