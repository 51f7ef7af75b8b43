//! `dqhost audit`, as people run it.

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{RedisServer, expect, run, stdout};

fn shown(store: &str, args: &[&str], code: i32) -> String {
    stdout(&run(Some(store), &[&["audit"], args].concat(), code))
}

#[test]
fn the_program_says_what_is_wrong_and_what_it_did() {
    let server = RedisServer::start();
    let url = server.url();
    run(Some(&url), &["send", "x", "--queue", "a"], 0);
    run(Some(&url), &["send", "x", "--queue", "b"], 0);
    let text = shown(&url, &[], 0);
    assert!(
        text.contains("a: nothing is wrong\nb: nothing is wrong\n"),
        "{text}"
    );

    let () = server.command(&["LPUSH", "{dp:b}:ready", "\x1b[2Jgone\u{202e}"]);
    let () = server.command(&["ZADD", "{dp:b}:pending", "1", "\x1b[2Jgone\u{202e}"]);
    // Without a retry count it would be what a delayqueue consumer's ack left.
    let () = server.command(&["HSET", "{dp:b}:retry:cnt", "\x1b[2Jgone\u{202e}", "3"]);
    let text = shown(&url, &[], 1);
    assert!(text.contains("payload-missing"), "{text}");
    assert!(text.contains("\\u{1b}[2Jgone\\u{202e}"), "{text}");
    assert!(text.contains("`dqhost audit --repair`"), "{text}");
    assert!(text.contains("a: nothing is wrong"), "{text}");
    let text = shown(&url, &["--queue", "a"], 0);
    assert!(!text.contains("payload-missing"), "{text}");

    let json: Value = serde_json::from_str(&shown(&url, &["--repair", "--json"], 0)).unwrap();
    assert_eq!(json["findings"], serde_json::json!([]));
    let findings = &json["queues"][1]["findings"][0];
    assert_eq!(json["queues"][1]["queue"], "b");
    assert_eq!(
        (
            &findings["kind"],
            &findings["found"],
            &findings["dead_lettered"],
            &findings["left"]
        ),
        (&"payload-missing".into(), &1.into(), &1.into(), &0.into())
    );
    shown(&url, &[], 0);
    let dead = stdout(&run(Some(&url), &["dead", "list", "--queue", "b"], 0));
    assert!(dead.contains("payload-missing: an audit found"), "{dead}");

    let () = server.command(&["SET", "{dp:a}:unack", "x"]);
    let text = shown(&url, &["--repair"], 1);
    assert!(text.contains("{dp:a}:unack"), "{text}");
    assert!(text.contains("b: nothing is wrong"), "{text}");
}

#[test]
fn a_file_is_audited_and_a_missing_one_is_not_made() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let db = path.to_str().unwrap();
    expect(run(Some(db), &["audit"], 3), 3);
    assert!(!path.exists());
    run(Some(db), &["send", "x"], 0);
    shown(db, &[], 0);
    let connection = rusqlite::Connection::open(db).unwrap();
    connection
        .execute_batch("UPDATE queues SET ready = 7")
        .unwrap();
    drop(connection);
    let text = shown(db, &[], 1);
    assert!(text.contains("ready: 7 noted, 1 there"), "{text}");
    let text = shown(db, &["--repair"], 0);
    assert!(text.contains("wrong-depth"), "{text}");
    shown(db, &[], 0);
}
