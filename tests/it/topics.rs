//! Topics as producers and operators use them.

use dqhost::message::NewMessage;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::contract::settle::outbox::other;
use crate::http_api::{Api, with_each_store};
use crate::support::{RedisServer, dqhost, expect, feed, run, stats, stderr, stdout};

/// Subscribes these queues to `orders`.
fn subscribe(store: &str, queues: &[&str]) {
    for queue in queues {
        run(Some(store), &["topic", "subscribe", "orders", queue], 0);
    }
}

#[test]
fn the_command_subscribes_queues_and_sends_them_copies() {
    with_each_store(|store| {
        subscribe(store, &["emails", "ledger"]);
        let again = run(Some(store), &["topic", "subscribe", "orders", "emails"], 0);
        assert!(stderr(&again).contains("has subscribed to orders before"));
        run(Some(store), &["topic", "subscribe", "refunds", "ledger"], 0);
        let list = stdout(&run(Some(store), &["topic", "list"], 0));
        assert_eq!(list, "orders  emails\norders  ledger\nrefunds  ledger\n");
        let list = stdout(&run(
            Some(store),
            &["topic", "list", "refunds", "--json"],
            0,
        ));
        assert_eq!(list, "{\"queue\":\"ledger\",\"topic\":\"refunds\"}\n");
        let args = [
            "send", "x", "--topic", "orders", "--in", "1h", "--header", "k=v",
        ];
        let id = stdout(&run(Some(store), &args, 0));
        let id = id.trim();
        for queue in ["emails", "ledger"] {
            let record = run(Some(store), &["get", id, "--queue", queue, "--json"], 0);
            let record: Value = serde_json::from_slice(&record.stdout).unwrap();
            assert_eq!(
                (&record["state"], &record["payload"]),
                (&json!("pending"), &json!("x"))
            );
            let headers = json!([["k", "v"], ["dqhost-topic", "orders"]]);
            assert_eq!(record["headers"], headers);
        }
        // In lines, with keys, and what is told of repeats.
        let lines = "{\"payload\":1,\"idempotency_key\":\"a\"}\n{\"payload\":2}\n";
        for expected in [
            ["sent", "sent", "sent", "sent"],
            ["repeat", "repeat", "sent", "sent"],
        ] {
            let command = dqhost(
                Some(store),
                &["send", "--topic", "orders", "--ndjson", "--json"],
            );
            let output = stdout(&expect(feed(command, lines.as_bytes()), 0));
            let answers: Vec<Value> = output
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let outcomes: Vec<&str> = answers
                .iter()
                .map(|answer| answer["outcome"].as_str().unwrap())
                .collect();
            assert_eq!(outcomes, expected);
            let queues: Vec<&str> = answers
                .iter()
                .map(|answer| answer["queue"].as_str().unwrap())
                .collect();
            assert_eq!(queues, ["emails", "ledger", "emails", "ledger"]);
            assert_eq!(answers[0]["id"], answers[1]["id"]);
        }
        assert_eq!(stats(store, "emails")["ready"], 3);
        let args = ["send", "1", "--topic", "orders", "--idempotency-key", "a"];
        let told = run(Some(store), &args, 0);
        assert!(stderr(&told).contains("nothing was sent now (ledger)"));
        assert_eq!(stdout(&told).lines().count(), 1);
        run(
            Some(store),
            &["topic", "unsubscribe", "orders", "emails"],
            0,
        );
        run(Some(store), &["send", "y", "--topic", "orders"], 0);
        assert_eq!(stats(store, "emails")["ready"], 3);
        assert_eq!(stats(store, "ledger")["ready"], 4);
    });
}

#[test]
fn what_cannot_go_to_a_topic_is_refused() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let told = stderr(&run(Some(&store), &["send", "x", "--topic", "orders"], 1));
    assert!(
        told.contains("no queue has subscribed to topic orders"),
        "{told}"
    );
    let args = ["topic", "unsubscribe", "orders", "emails"];
    let told = stderr(&run(Some(&store), &args, 1));
    assert!(
        told.contains("emails has not subscribed to orders"),
        "{told}"
    );
    subscribe(&store, &["emails"]);
    for (args, says) in [
        (&["send", "x", "--topic", "a b"][..], "topic name"),
        (
            &["send", "x", "--topic", "orders", "--queue", "q"],
            "cannot be used with",
        ),
        (&["topic", "subscribe", "orders", "a:b"], "queue name"),
        (
            &[
                "send",
                "x",
                "--topic",
                "orders",
                "--idempotency-key",
                "k",
                "--replace",
            ],
            "are for one queue",
        ),
    ] {
        let told = stderr(&run(Some(&store), args, 2));
        assert!(told.contains(says), "{args:?}: {told}");
    }
    assert_eq!(stats(&store, "emails")["ready"], 0);
    // Of several lines only the wrong one is left out.
    let command = dqhost(Some(&store), &["send", "--topic", "orders", "--ndjson"]);
    let lines = b"{\"payload\":1,\"idempotency_key\":\"k\",\"replace\":true}\n{\"payload\":2}\n";
    let told = stderr(&expect(feed(command, lines), 5));
    assert!(told.contains("line 1 is not sent"), "{told}");
    assert_eq!(stats(&store, "emails")["ready"], 1);
}

#[test]
fn messages_go_to_topics_over_http() {
    const MESSAGES: &str = "/topics/orders/messages";
    with_each_store(|store| {
        let api = Api::serve(store, &[]);
        let text = [("content-type", "text/plain"), ("idempotency-key", "k")];
        api.post(MESSAGES, &text, "x")
            .is_problem(404, "no queue has subscribed to topic orders");
        subscribe(store, &["emails", "ledger"]);
        let sent = api.post(MESSAGES, &text, "x").is(201).json();
        assert_eq!(sent["topic"], "orders");
        let copies = sent["copies"].as_array().unwrap();
        let queues: Vec<&Value> = copies.iter().map(|copy| &copy["queue"]).collect();
        assert_eq!(queues, ["emails", "ledger"]);
        assert_eq!(copies[0]["id"], copies[1]["id"]);
        let again = api.post(MESSAGES, &text, "x").is(200).json();
        assert_eq!(again["copies"][1]["outcome"], "repeat");
        let batch = r#"[{"payload":1,"in":"1h"},{"payload":2}]"#;
        let sent = api.post_json(MESSAGES, batch).is(201).json();
        assert_eq!(sent["copies"].as_array().unwrap().len(), 4);
        assert_eq!(stats(store, "ledger")["pending"], 1);
        let replace = r#"{"payload":1,"idempotency_key":"k","replace":true}"#;
        api.post_json(MESSAGES, replace)
            .is_problem(400, "are for one queue");
        api.post("/topics/a%20b/messages", &[], "x")
            .is_problem(400, "topic name");
        assert_eq!(stats(store, "emails")["ready"], 2);
    });
}

/// A key of the wrong type in one queue keeps the copy out of all of them.
#[tokio::test]
async fn a_queue_that_cannot_take_its_copy_keeps_it_from_the_others() {
    let server = RedisServer::start();
    let store = server.store().await;
    let topic = "orders".parse().unwrap();
    for queue in ["a", "b"] {
        let done = store.subscribe_queue(&topic, &other(queue)).await;
        assert!(done.unwrap());
    }
    let () = server.command(&["SET", "{dp:b}:ready", "spoilt"]);
    let sent = store.send_to_topic(&topic, &[NewMessage::new("x")]).await;
    let error = sent.unwrap_err().to_string();
    assert!(error.contains("{dp:b}:ready"), "{error}");
    assert_eq!(store.counts(&other("a")).await.unwrap().ready, 0);
    let () = server.command(&["DEL", "{dp:b}:ready"]);
    let sent = store.send_to_topic(&topic, &[NewMessage::new("x")]).await;
    assert_eq!(sent.unwrap().len(), 2);
}
