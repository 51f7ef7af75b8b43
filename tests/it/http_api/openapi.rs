//! The OpenAPI document: checked in, and true.

use std::collections::BTreeSet;

use serde_json::Value;
use tempfile::TempDir;

use super::Api;
use crate::support::{guest, run};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");

#[test]
fn the_document_that_is_checked_in_is_that_of_the_code() {
    let made = dqhost::http_api::openapi();
    if std::env::var_os("DQHOST_UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &made).unwrap();
    }
    let kept = std::fs::read_to_string(PAGE).unwrap();
    assert!(
        kept == made,
        "run DQHOST_UPDATE_DOCS=1 cargo test --test it openapi"
    );
    let document: Value = serde_json::from_str(&made).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
}

/// The names of a schema's properties.
fn properties(document: &Value, schema: &str) -> BTreeSet<String> {
    let properties = &document["components"]["schemas"][schema]["properties"];
    properties.as_object().unwrap().keys().cloned().collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn every_path_of_the_document_is_there_and_answers_have_the_shape_that_it_says() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let api = Api::serve(&store, &[]);
    let document = api.get("/openapi.json").is(200).json();
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let asked = path.replace("{queue}", "none").replace("{id}", "none");
        for (method, operation) in methods.as_object().unwrap() {
            let answer = api.ask(&method.to_uppercase(), &asked, &[], b"");
            let known = keys(&operation["responses"]);
            assert!(
                known.contains(&answer.status.to_string()),
                "{method} {path}: {answer:?}"
            );
            assert!(
                !answer.body.contains("nothing at this path"),
                "{method} {path}"
            );
            operations += 1;
        }
    }
    assert_eq!(operations, 17);
    let sent = api.post("/queues/q/messages", &[], "x").json();
    assert_eq!(keys(&sent), properties(&document, "Sent"));
    let path = format!("/queues/q/messages/{}", sent["id"].as_str().unwrap());
    assert_eq!(
        keys(&api.get(&path).json()),
        properties(&document, "Message")
    );
    let page = api.get("/queues/q/messages?state=ready").json();
    assert_eq!(keys(&page), properties(&document, "Page"));
    assert_eq!(
        keys(&api.get("/queues/q/stats").json()),
        properties(&document, "QueueStats")
    );
    assert_eq!(
        keys(&api.get("/stats").json()),
        properties(&document, "AllStats")
    );
    let paused = api.post("/queues/q/pause", &[], "").json();
    assert_eq!(keys(&paused), properties(&document, "Paused"));
    api.post("/queues/q/resume", &[], "").is(200);
    let wrong = api.post_json("/queues/q/messages", "[1]").json();
    assert_eq!(keys(&wrong), properties(&document, "ProblemDocument"));
    let handler = guest("reject").display().to_string();
    run(
        Some(&store),
        &["--queue", "q", "--handler", &handler, "--exit-when-empty"],
        0,
    );
    let dead = format!("/queues/q/dead/{}/redrive", sent["id"].as_str().unwrap());
    let redriven = api.post(&dead, &[], "").is(201).json();
    assert_eq!(keys(&redriven), properties(&document, "Redriven"));
    assert_eq!(keys(&api.get(&path).json()), properties(&document, "Ended"));
}

#[test]
fn each_field_of_a_message_is_taken_one_at_a_time() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let api = Api::serve(&store, &[]);
    let document = api.get("/openapi.json").is(200).json();
    for field in properties(&document, "NewMessage") {
        let body = with_field(&field);
        api.post_json("/queues/fields/messages", &body).is(201);
    }
}

/// A message with this field.
fn with_field(field: &str) -> String {
    match field {
        "payload" => r#"{"payload":1}"#.to_owned(),
        "payload_base64" => r#"{"payload_base64":"AA=="}"#.to_owned(),
        "replace" | "extend" => {
            format!(r#"{{"payload":1,"{field}":true,"idempotency_key":"{field}"}}"#)
        }
        "max_wait" => {
            format!(r#"{{"payload":1,"replace":true,"{field}":"1s","idempotency_key":"{field}"}}"#)
        }
        "in" | "dedup_window" | "expires_in" => {
            format!(r#"{{"payload":1,"{field}":"1s","idempotency_key":"{field}"}}"#)
        }
        "at" => r#"{"payload":1,"at":"2050-01-01T00:00:00Z"}"#.to_owned(),
        "headers" => r#"{"payload":1,"headers":{"k":"v"}}"#.to_owned(),
        "idempotency_key" => r#"{"payload":1,"idempotency_key":"k"}"#.to_owned(),
        number => format!(r#"{{"payload":1,"{number}":1}}"#),
    }
}
