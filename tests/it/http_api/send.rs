//! Messages on their way in.

use serde_json::{Value, json};

use super::{Api, with_each_store};
use crate::support::{Host, guest, run, stats, stdout};

const MESSAGES: &str = "/queues/q/messages";

fn record(store: &str, id: &str) -> Value {
    let output = run(Some(store), &["get", id, "--queue", "q", "--json"], 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_body_is_sent_as_it_is_with_what_its_headers_say() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let headers = [
            ("dqhost-in", "1h"),
            ("dqhost-retries", "7"),
            ("dqhost-header-tenant", "a"),
            ("ce-id", "17"),
            ("ce-specversion", "1.0"),
            (
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
            ("content-type", "application/json"),
        ];
        let answer = api.ask("POST", MESSAGES, &headers, b"\x00\xff").is(201);
        let sent = answer.json();
        assert!(
            answer
                .head
                .contains(&format!("location: {MESSAGES}/{}", answer.id()))
        );
        let record = record(store, &answer.id());
        assert_eq!(record["payload_base64"], "AP8=");
        assert_eq!(
            (&record["state"], &record["retries"]),
            (&json!("pending"), &json!(7))
        );
        assert_eq!(record["at_ms"], sent["due_at_ms"]);
        let names: Vec<&Value> = record["headers"].as_array().unwrap().iter().collect();
        assert_eq!(names[0], &json!(["ce-id", "17"]));
        assert!(names.contains(&&json!(["tenant", "a"])));
        assert!(names.contains(&&json!(["content-type", "application/json"])));
        assert!(names.iter().any(|pair| pair[0] == "traceparent"));
        // Without anything: a payload that is empty, due at once.
        let empty = api.post(MESSAGES, &[], "").is(201);
        assert_eq!(record_payload(store, &empty.id()), "");
        assert_eq!(stats(store, "q")["ready"], 1);
    });
}

fn record_payload(store: &str, id: &str) -> String {
    record(store, id)["payload"].as_str().unwrap().to_owned()
}

#[test]
fn json_has_the_shape_of_the_lines_that_the_command_takes() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let line = r#"{"payload":{"b":1.10},"in":"1h","retries":2,"headers":{"k":"v"}}"#;
        let sent = api.post_json(MESSAGES, line).is(201);
        let record = record(store, &sent.id());
        assert_eq!(record["payload"], r#"{"b":1.10}"#);
        assert_eq!(
            (&record["retries"], &record["headers"]),
            (&json!(2), &json!([["k", "v"]]))
        );
        // What is listed is sent again, here as there.
        let listed = api.get(&format!("{MESSAGES}/{}", sent.id())).is(200);
        let again = api.post_json(MESSAGES, &listed.body).is(201);
        assert_ne!(again.id(), sent.id());
        assert_eq!(stats(store, "q")["pending"], 2);
        api.post_json(MESSAGES, r#"{"order":1}"#)
            .is_problem(400, "goes into the field `payload`");
        api.post_json(MESSAGES, "7")
            .is_problem(400, "not a JSON object");
        api.post_json(MESSAGES, "")
            .is_problem(400, "not a JSON object");
    });
}

#[test]
fn a_batch_is_accepted_whole_or_not_at_all() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let lines = [
            ("content-type", "application/x-ndjson"),
            ("dqhost-in", "1h"),
        ];
        let sent = api.post(
            MESSAGES,
            &lines,
            "{\"payload\":1}\n\n{\"payload\":\"x\",\"in\":\"0s\"}\n",
        );
        assert_eq!(sent.is(201).json().as_array().unwrap().len(), 2);
        let array = r#"[{"payload":1,"idempotency_key":"a"},{"payload":2,"idempotency_key":"a"}]"#;
        let sent = api.post_json(MESSAGES, array).is(201).json();
        assert_eq!(sent[0]["id"], sent[1]["id"]);
        assert!(sent[0]["due_at_ms"].is_u64() && sent[1]["due_at_ms"].is_null());
        api.post_json(MESSAGES, array).is(200);
        let before = stats(store, "q");
        assert_eq!(
            (&before["pending"], &before["ready"]),
            (&json!(1), &json!(2))
        );
        let wrong = api.post_json(MESSAGES, r#"[{"payload":1},{"colour":1},{"payload":1}]"#);
        wrong.is_problem(400, "nothing is sent");
        assert_eq!(wrong.json()["errors"][0]["message"], 2);
        let many = format!("[{}]", ["{\"payload\":1}"; 1001].join(","));
        api.post_json(MESSAGES, &many)
            .is_problem(413, "at most 1000");
        api.post_json(MESSAGES, "[]").is_problem(400, "no message");
        api.post_json(MESSAGES, "[{\"payload\":1}")
            .is_problem(400, "not a JSON array");
        let key = [
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
        ];
        api.post(MESSAGES, &key, array)
            .is_problem(400, "is for one message");
        let many = format!("[{}]", ["{\"payload\":1}"; 1000].join(","));
        api.post_json(MESSAGES, &many).is(201);
        let after = stats(store, "q");
        assert_eq!(after["ready"], 1002);
    });
}

#[test]
fn a_repeat_under_a_key_answers_the_first_id_and_another_payload_is_refused() {
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let send = |payload: &str, key: &str| {
            api.post(
                MESSAGES,
                &[("idempotency-key", key), ("dqhost-in", "1h")],
                payload,
            )
        };
        let first = send("one", "order 17").is(201).id();
        assert_eq!(send("one", "\"order 17\"").is(200).id(), first);
        send("two", "order 17").is_problem(422, "another payload");
        assert_ne!(send("two", "order 18").is(201).id(), first);
        // The command line means the same by a key.
        let told = run(
            Some(store),
            &["send", "x", "--queue", "q", "--idempotency-key", "order 17"],
            0,
        );
        assert_eq!(stdout(&told).trim(), first);
        assert_eq!(stats(store, "q")["totals"]["sent"], 2);
        // Of a message that is gone only the key is known.
        let now = [("idempotency-key", "soon gone")];
        let gone = api.post(MESSAGES, &now, "one").is(201).id();
        let handler = guest("noop").display().to_string();
        let mut host = Host::start(store, &["--queue", "q", "--handler", &handler]);
        host.wait_for("acked", |line| line["id"] == gone);
        assert_eq!(api.post(MESSAGES, &now, "two").is(200).id(), gone);
    });
}

#[test]
fn what_is_too_large_or_of_a_wrong_kind_is_refused_before_anything_is_sent() {
    with_each_store(|store| {
        let api = Api::serve(store, &["--max-payload", "1000"]);
        let long = "x".repeat(1001);
        api.post(MESSAGES, &[], &long)
            .is_problem(413, "more than 1000 bytes");
        api.post_json(MESSAGES, &format!("{{\"payload\":\"{long}\"}}"))
            .is_problem(413, "1001 bytes and the limit is 1000");
        api.post(MESSAGES, &[], &"x".repeat(500_000))
            .is_problem(413, "1000");
        let header = "x".repeat(9000);
        api.post(MESSAGES, &[("dqhost-header-k", &header)], "x")
            .is_problem(413, "the headers take");
        for (name, value) in [
            ("content-encoding", "gzip"),
            ("content-type", "multipart/form-data; boundary=x"),
            ("content-type", "application/cloudevents+json"),
            ("content-type", "application/json; charset=utf-16"),
        ] {
            api.post(MESSAGES, &[(name, value)], "{}")
                .is_problem(415, "");
        }
        for (name, value) in [
            ("dqhost-in", "5"),
            ("dqhost-in", "300000d"),
            ("dqhost-retries", "-1"),
            ("dqhost-colour", "red"),
            ("idempotency-key", "\"\""),
        ] {
            api.post(MESSAGES, &[(name, value)], "x")
                .is_problem(400, "");
        }
        api.post("/queues/a%7Bb%7D/messages", &[], "x")
            .is_problem(400, "queue name");
        api.post("/queues/%ff/messages", &[], "x")
            .is_problem(400, "UTF-8");
        assert_eq!(stats(store, "q")["totals"]["sent"], 0);
        api.post(MESSAGES, &[], &long[1..]).is(201);
    });
}
