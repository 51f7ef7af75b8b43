//! Ids that are named by their first characters.

use super::matching::send;
use crate::http_api::with_each_store;
use crate::support::{RedisServer, guest, run, stats, stderr, stdout};

/// The least of an id that no other of these has.
fn prefix<'a>(id: &'a str, others: &[String]) -> &'a str {
    let is_unique = |length: &usize| {
        let mut others = others.iter().filter(|other| *other != id);
        !others.any(|other| other.starts_with(&id[..*length]))
    };
    let length = (8..id.len()).find(is_unique).unwrap();
    &id[..length]
}

#[test]
fn a_message_is_named_by_what_no_other_id_begins_with() {
    with_each_store(|store| {
        let lines = "{\"payload\":1}\n{\"payload\":2}\n{\"payload\":3,\"in\":\"1h\"}\n";
        let ids = send(store, lines);
        let at = |number: usize| prefix(&ids[number], &ids);
        let shown = stdout(&run(Some(store), &["get", &at(0).to_uppercase()], 0));
        assert!(shown.contains(&ids[0]), "{shown}");
        // Made in one moment, they begin alike.
        for args in [&["get"][..], &["cancel"], &["reschedule"]] {
            let output = run(Some(store), &[args, &[&ids[0][..8]]].concat(), 1);
            let errors = stderr(&output);
            assert!(
                errors.contains("is the beginning of several ids: give more of it"),
                "{errors}"
            );
            assert!(ids.iter().all(|id| errors.contains(id)), "{errors}");
        }
        assert_eq!(stats(store, "default")["totals"]["cancelled"], 0);
        let moved = stdout(&run(Some(store), &["reschedule", at(2)], 0));
        assert!(moved.starts_with(&ids[2]), "{moved}");
        let dry = stdout(&run(Some(store), &["cancel", at(1), "--dry-run"], 0));
        assert_eq!(dry.trim(), ids[1]);
        let done = stdout(&run(Some(store), &["cancel", at(1), at(2)], 0));
        assert_eq!(done, format!("{}\n{}\n", ids[1], ids[2]));
        // No id begins so.
        let errors = stderr(&run(Some(store), &["cancel", "ffffffff"], 1));
        assert_eq!(
            errors,
            "ffffffff is not cancelled: it does not wait in this queue\n"
        );

        run(Some(store), &["send", "bad"], 0);
        let handler = guest("reject").display().to_string();
        run(
            Some(store),
            &["--handler", &handler, "--exit-when-empty"],
            0,
        );
        let dead = stdout(&run(Some(store), &["dead", "list"], 0));
        let dead: Vec<String> = dead
            .lines()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect();
        let of_dead = |number: usize| prefix(&dead[number], &dead);
        let again = stdout(&run(Some(store), &["dead", "redrive", of_dead(0)], 0));
        assert!(again.starts_with(&format!("{} -> ", dead[0])), "{again}");
        let gone = stdout(&run(Some(store), &["dead", "delete", of_dead(1)], 0));
        assert_eq!(gone.trim(), dead[1]);
    });
}

#[test]
fn ids_of_another_form_are_not_guessed() {
    let server = RedisServer::start();
    let url = server.url();
    let put = |id: &str| {
        let script = "redis.call('SET', '{dp:default}:msg:' .. ARGV[1], 'x')
            redis.call('LPUSH', '{dp:default}:ready', ARGV[1])";
        let () = server.command(&["EVAL", script, "0", id]);
    };
    for id in ["order-10", "cafe10", "cafe"] {
        put(id);
    }
    for gone in ["order-1", "cafe1"] {
        run(Some(&url), &["cancel", gone], 1);
    }
    // One that is there as it was given is meant, whatever begins so.
    put("cafe0000-bbbb-4ccc-8ddd-eeeeeeeeeeee");
    assert_eq!(stdout(&run(Some(&url), &["cancel", "cafe"], 0)), "cafe\n");
    let left = stdout(&run(Some(&url), &["list", "ready"], 0));
    assert!(
        left.contains("order-10") && left.contains("cafe10"),
        "{left}"
    );
}

#[test]
fn of_many_messages_not_all_are_looked_at_and_that_is_said() {
    let server = RedisServer::start();
    let url = server.url();
    let script = "for i = 1, 101000 do
            local id = string.format('%08x-aaaa-4bbb-8ccc-dddddddddddd', i)
            redis.call('RPUSH', '{dp:default}:ready', id)
        end";
    let () = server.command(&["EVAL", script, "0"]);
    // The next out is the last that was pushed.
    let seen = "00018a88";
    let errors = stderr(&run(Some(&url), &["cancel", seen], 1));
    assert!(
        errors.contains("00018a88 is the beginning of 00018a88-aaaa")
            && errors.contains("only 100,000 messages were looked at"),
        "{errors}"
    );
    let errors = stderr(&run(Some(&url), &["cancel", "ffffffff"], 1));
    assert!(
        errors.contains("no id begins with ffffffff among the 100,000 messages"),
        "{errors}"
    );
    assert_eq!(stats(&url, "default")["ready"], 101_000);
}
