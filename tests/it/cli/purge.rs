//! `dqhost purge`.

use serde_json::{Value, json};

use super::matching::send;
use crate::dashboard::tty::Tty;
use crate::http_api::with_each_store;
use crate::support::{RedisServer, dqhost, expect, feed, guest, run, stats, stderr, stdout};

/// Two that are due, one that is due later, and a dead letter.
fn fill(store: &str) {
    run(Some(store), &["send", "bad"], 0);
    let handler = guest("flaky").display().to_string();
    let host = ["--handler", &handler, "--exit-when-empty"];
    run(Some(store), &host, 0);
    send(
        store,
        "{\"payload\":1}\n{\"payload\":2}\n{\"payload\":3,\"in\":\"1h\"}\n",
    );
}

/// Pending, ready and dead.
fn depths(store: &str) -> [u64; 3] {
    let stats = stats(store, "default");
    ["pending", "ready", "dead"].map(|state| stats[state].as_u64().unwrap())
}

#[test]
fn a_purge_takes_the_number_that_is_there_and_nothing_else() {
    with_each_store(|store| {
        fill(store);
        let purge = |args: &[&str], code| run(Some(store), &[&["purge"], args].concat(), code);
        let asked = stderr(&purge(&["default"], 2));
        let says = "default has 3 such messages (1 pending, 2 ready); say --count 3";
        assert!(asked.contains(says), "{asked}");
        for (args, there) in [
            (
                &["default", "--count", "4"][..],
                "3 such messages (1 pending, 2 ready), not 4",
            ),
            (
                &["-q", "default", "--count", "0"],
                "3 such messages (1 pending, 2 ready), not 0",
            ),
            (
                &["default", "--dead", "--count", "3"],
                "4 such messages (1 pending, 2 ready, 1 dead), not 3",
            ),
        ] {
            let told = stderr(&purge(args, 1));
            assert!(
                told.contains(there) && told.contains("nothing is removed"),
                "{told}"
            );
        }
        let dry = purge(&["default", "--dead", "--dry-run"], 0);
        assert_eq!(stdout(&dry).lines().count(), 4);
        let says = "4 of default (1 pending, 2 ready, 1 dead) would be removed; this is a dry run";
        assert!(stderr(&dry).starts_with(says), "{}", stderr(&dry));
        let dry = stdout(&purge(&["default", "--dry-run", "--json"], 0));
        let dry: Value = serde_json::from_str(&dry).unwrap();
        assert_eq!(
            (dry["ids"].as_array().unwrap().len(), &dry["deleted"]),
            (3, &0.into())
        );
        assert_eq!(depths(store), [1, 2, 1]);

        let done = purge(&["default", "--count", "3"], 0);
        assert_eq!(stdout(&done), "default: 3 cancelled, 0 deleted\n");
        assert_eq!(depths(store), [0, 0, 1]);
        send(store, "{\"payload\":1}\n");
        let done = stdout(&purge(&["default", "--dead", "--count", "2", "--json"], 0));
        let expected =
            json!({"queue": "default", "cancelled": 1, "deleted": 1, "taken": 0, "gone": 0});
        assert_eq!(serde_json::from_str::<Value>(&done).unwrap(), expected);
        let totals = &stats(store, "default")["totals"];
        assert_eq!(
            (&totals["cancelled"], &totals["deleted"]),
            (&4.into(), &1.into())
        );
        assert_eq!(
            stdout(&purge(&["default"], 0)),
            "default: 0 cancelled, 0 deleted\n"
        );
        let unknown = stderr(&purge(&["nosuch", "--count", "0"], 1));
        assert!(unknown.contains("there is no queue nosuch"), "{unknown}");
    });
    run(Some("unused"), &["purge"], 2);
}

#[test]
fn on_a_terminal_a_purge_asks_for_the_number_and_takes_what_was_there_then() {
    with_each_store(|store| {
        fill(store);
        let question = "Type 4 to remove them for good: ";
        for wrong in ["y\r", "\r", "5\r"] {
            let mut tty = Tty::start(store, &["purge", "default", "--dead"], (100, 30));
            tty.wait_for(question.trim());
            tty.keys(wrong);
            assert!(tty.end(1).contains("nothing is removed"));
        }
        assert_eq!(depths(store), [1, 2, 1]);
        let mut tty = Tty::start(store, &["purge", "default", "--dead"], (100, 30));
        tty.wait_for(question.trim());
        // What comes while the question is open stays; what goes meanwhile is told.
        let new = send(store, "{\"payload\":4}\n");
        let pending = stdout(&run(Some(store), &["list", "pending"], 0));
        run(
            Some(store),
            &["cancel", pending.split(' ').next().unwrap()],
            0,
        );
        tty.keys("4\r");
        let text = tty.end(5);
        assert!(text.contains("default: 2 cancelled, 1 deleted"), "{text}");
        assert!(
            text.contains("meanwhile a host has taken 0, and 1 were gone"),
            "{text}"
        );
        assert_eq!(depths(store), [0, 1, 0]);
        let left = stdout(&run(Some(store), &["list", "ready"], 0));
        assert!(left.starts_with(&new[0]), "{left}");
    });
}

#[test]
fn what_is_in_flight_stays_and_is_named() {
    let server = RedisServer::start();
    let url = server.url();
    run(Some(&url), &["send", "x"], 0);
    let script = "redis.call('SET', '{dp:default}:msg:held', 'x')
        redis.call('ZADD', '{dp:default}:unack', 9999999999, 'held')";
    let () = server.command(&["EVAL", script, "0"]);
    let done = run(Some(&url), &["purge", "default", "--count", "1"], 0);
    assert_eq!(stderr(&done), "1 in flight stay: held\n");
    let counts = stats(&url, "default");
    assert_eq!((&counts["unack"], &counts["ready"]), (&1.into(), &0.into()));
}

/// The second step fails, and the first is done.
#[test]
fn what_was_done_before_a_store_failed_is_told() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let lines = "{\"payload\":1}\n".repeat(1001);
    for (args, says) in [
        (
            &["purge", "default", "--count", "1001"][..],
            "1,000 messages of default were cancelled and 0 dead letters deleted before; of the next 1, \
             some may have been",
        ),
        (
            &["cancel", "--match", "payload:1", "--yes"],
            "1,000 waiting messages of default were cancelled before; of the next 1, some may have been",
        ),
    ] {
        let sent = feed(
            dqhost(Some(&store), &["send", "--ndjson"]),
            lines.as_bytes(),
        );
        let sent = stdout(&expect(sent, 0));
        let last = sent.lines().last().unwrap().split(' ').next().unwrap();
        let file = rusqlite::Connection::open(&store).unwrap();
        file.execute_batch(&format!(
            "CREATE TRIGGER fails BEFORE DELETE ON messages WHEN old.id = '{last}'
             BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END"
        ))
        .unwrap();
        let errors = stderr(&dqhost(Some(&store), args).output().unwrap());
        assert!(errors.contains(says), "{errors}");
        assert_eq!(stats(&store, "default")["ready"], 1);
        file.execute_batch("DROP TRIGGER fails").unwrap();
        drop(file);
        run(Some(&store), &["cancel", last], 0);
    }
}
