//! What is listed as JSON can be sent again.

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{RedisServer, dqhost, expect, feed, guest, run, stats, stderr, stdout};

/// What a list prints, by payload.
fn listed(store: &str, args: &[&str]) -> Vec<Value> {
    let output = run(Some(store), &[args, &["--json"]].concat(), 0);
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let mut records: Vec<Value> = stdout(&output).lines().map(parse).collect();
    records.sort_by_key(|record| {
        record["payload"].to_string() + &record["payload_base64"].to_string()
    });
    records
}

/// What has to be the same in a message that is sent again.
fn content(record: &Value) -> Vec<&Value> {
    [
        "payload",
        "payload_base64",
        "headers",
        "at_ms",
        "retries",
        "state",
    ]
    .iter()
    .map(|name| &record[name])
    .collect()
}

fn send_again(store: &str, list: &[&str], queue: &str, code: i32) -> String {
    let printed = run(Some(store), &[list, &["--json"]].concat(), 0);
    let command = dqhost(Some(store), &["send", "--ndjson", "--queue", queue]);
    stderr(&expect(feed(command, &printed.stdout), code))
}

fn check(store: &str, folder: &TempDir) {
    let bytes = folder.path().join("bytes");
    std::fs::write(&bytes, b"\x00\xff\n").unwrap();
    let bytes = format!("@{}", bytes.display());
    for payload in [
        &bytes,
        "",
        r#"{"b": 1.10, "a": 12345678901234567890}"#,
        "\u{1b}[2J é",
    ] {
        let headers = [
            "--header",
            "z=1",
            "--header",
            "a=\"2\" =",
            "--header",
            "z=3",
        ];
        let args = [
            "send",
            payload,
            "--at",
            "2050-01-01T00:00:00.123Z",
            "--retries",
            "7",
        ];
        run(Some(store), &[&args[..], &headers].concat(), 0);
    }
    assert_eq!(send_again(store, &["list", "pending"], "copy", 0), "");
    let before = listed(store, &["list", "pending"]);
    let after = listed(store, &["list", "pending", "--queue", "copy"]);
    assert_eq!((before.len(), after.len()), (4, 4));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(content(before), content(after));
        assert_eq!(
            before["headers"],
            serde_json::json!([["z", "1"], ["a", "\"2\" ="], ["z", "3"]])
        );
        assert_eq!(
            (&before["retries"], &before["at_ms"]),
            (&7.into(), &2_524_608_000_123_u64.into())
        );
        assert_ne!(before["id"], after["id"]);
    }
    // A dead letter is sent again at once, with the retries that it began with.
    run(
        Some(store),
        &["send", "9", "--retries", "2", "-q", "die"],
        0,
    );
    let handler = format!("die={}", guest("flaky").display());
    run(
        Some(store),
        &["up", "--queue", &handler, "--exit-when-empty"],
        0,
    );
    let dead = listed(store, &["dead", "list", "-q", "die"]).remove(0);
    assert_eq!(
        (&dead["attempts"], &dead["retries"]),
        (&3.into(), &2.into()),
        "{dead}"
    );
    assert_eq!(
        send_again(store, &["dead", "list", "-q", "die"], "die", 0),
        ""
    );
    let again = listed(store, &["list", "ready", "-q", "die"]).remove(0);
    assert_eq!(
        (&again["payload"], &again["retries"]),
        (&dead["payload"], &2.into())
    );
    assert_eq!(stats(store, "die")["dead"], 1);
}

#[test]
fn what_is_listed_as_json_is_sent_again_as_it_was() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    for store in [server.url(), file] {
        check(&store, &folder);
    }
}

#[test]
fn an_id_in_a_line_is_not_taken_for_the_id_of_a_new_message() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let command = dqhost(Some(&store), &["send", "--ndjson"]);
    let output = expect(feed(command, b"{\"payload\":1,\"id\":\"mine\"}\n"), 1);
    let errors = stderr(&output);
    assert!(
        errors.contains("the field `id` and no `state`") && errors.contains("idempotency_key"),
        "{errors}"
    );
}
