//! How the keys of a queue are named: prefixes, hash tags, and queues that only others have used.

use std::time::Duration;

use dqhost::message::{Due, State};
use dqhost::store::move_queue::move_queue;
use dqhost::store::{Audit, AuditReport, FindingKind, Page, Settlement, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::contract::tools::*;
use crate::support::{Host, RedisServer, dqhost, expect, guest, run, stats, stderr, stdout};

const ALL: Page = Page {
    offset: 0,
    limit: 100,
    payload_max: 100,
};

/// What the keys of queue `q` start with, but for payloads, and what payloads start with.
fn bases(prefix: &str, hash_tag: bool) -> (String, String) {
    let base = |prefix: &str| {
        if hash_tag {
            format!("{{{prefix}:q}}")
        } else {
            format!("{prefix}:q")
        }
    };
    (base(prefix), base("dp"))
}

/// What `SendDelayMsg` of a delayqueue does, with `UseCustomPrefix`.
fn go_send(server: &RedisServer, (base, payloads): &(String, String), id: &str) {
    let () = server.command(&["SET", &format!("{payloads}:msg:{id}"), id, "EX", "3600"]);
    let () = server.command(&["HSET", &format!("{base}:retry:cnt"), id, "3"]);
    let () = server.command(&["ZADD", &format!("{base}:pending"), "1", id]);
}

/// Puts one into another place, as a Go consumer does.
fn go_move(server: &RedisServer, base: &str, id: &str, to: &str) {
    let key = format!("{base}:{to}");
    let () = server.command(&["ZREM", &format!("{base}:pending"), id]);
    if to == "garbage" {
        let () = server.command(&["HDEL", &format!("{base}:retry:cnt"), id]);
    }
    let () = server.command(&match to {
        "ready" | "retry" => vec!["LPUSH", &key, id],
        "garbage" => vec!["SADD", &key, id],
        _ => vec!["ZADD", &key, "9000000000", id],
    });
}

async fn repaired(store: &dyn Store) -> AuditReport {
    let how = Audit {
        repair: true,
        settling: Duration::from_millis(1),
    };
    store.audit(&queue(), how).await.unwrap()
}

#[tokio::test]
async fn an_audit_that_repairs_leaves_the_live_messages_of_another_prefix() {
    for (ours, theirs) in [("dp", "shop"), ("shop", "dp"), ("shop", "a:b")] {
        for hash_tag in [true, false] {
            let server = RedisServer::start();
            let others = bases(theirs, hash_tag);
            let ids: Vec<String> = (0..10).map(|n| format!("live-{n}")).collect();
            for id in &ids {
                go_send(&server, &others, id);
            }
            let places = [
                "ready", "ready", "unack", "unack", "retry", "retry", "garbage",
            ];
            for (id, to) in ids.iter().zip(places) {
                go_move(&server, &others.0, id, to);
            }
            // Keys of yet another program, that look like those of a prefix.
            let () = server.command(&["SET", &others.0.replace(theirs, "cache"), "x"]);
            let cache = others.0.replace(theirs, "cache");
            let () = server.command(&["SET", &format!("{cache}:ready"), "x"]);
            let payload = |id: &str| format!("{}:msg:{id}", others.1);
            let () = server.command(&["SET", &payload("orphan"), "of nobody"]);
            let before = server.dump();

            let store = server.store_named(hash_tag, ours).await;
            let report = repaired(&*store).await;
            let found: Vec<_> = (report.0.iter())
                .map(|of| (of.kind, of.found, of.dead_lettered))
                .collect();
            assert_eq!(
                found,
                [(FindingKind::OrphanPayload, 1, 1)],
                "{ours} {theirs}"
            );
            let dead = store.list(&queue(), State::Dead, ALL).await.unwrap();
            assert_eq!(dead.len(), 1);
            assert_eq!(dead[0].id.as_str(), "orphan");
            let base = bases(ours, hash_tag).0;
            // All but what the dead letter is made of.
            let stays =
                |line: &&str| !line.starts_with(&format!("{base}:")) || line.contains(":msg:");
            let after = server.dump();
            let after: Vec<&str> = after.lines().filter(stays).collect();
            assert_eq!(after, before.lines().collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_audit_buries_nothing_that_may_be_of_a_prefix_it_may_not_look_at() {
    let server = RedisServer::start();
    let others = bases("shop", true);
    go_send(&server, &others, "live");
    // The rule for operators in `docs/stores.md`.
    let rule =
        "~{dp:*}:* ~dqhost:queues &{dp:*}:wake &{dp:*}:events +@all -@admin -@dangerous +info";
    let words = format!("ACL SETUSER operator reset on >operator {rule}");
    let () = server.command(&words.split(' ').collect::<Vec<_>>());
    let url = format!("{}?user=operator&pass=operator", server.url());
    let told = run(Some(&url), &["audit", "--repair", "--queue", "q"], 1);
    assert!(
        stderr(&told).contains("may not look at {shop:q}"),
        "{told:?}"
    );
    assert!(stdout(&told).contains("orphan-payload"), "{told:?}");
    assert_eq!(stats(&server.url(), "q")["dead"], 0);
    run(
        Some(&server.url()),
        &["audit", "--repair", "--queue", "q"],
        0,
    );
    assert_eq!(stats(&server.url(), "q")["dead"], 0);
}

#[tokio::test]
async fn a_queue_with_a_custom_prefix_is_shared_with_delayqueue() {
    for hash_tag in [true, false] {
        let server = RedisServer::start();
        let shop = bases("shop", hash_tag);
        go_send(&server, &shop, "from-go");
        let store = server.store_named(hash_tag, "shop").await;
        advance_until(&*store, |advanced| advanced.promoted == 1).await;
        let delivery = reserve_one(&*store, LONG).await;
        assert_eq!(delivery.payload.as_deref(), Some(b"from-go".as_slice()));
        settle(&*store, &delivery.claim, Settlement::ACK).await;
        let id = send(&*store, "to go", Due::NOW, 3).await;
        let dead = reserve_one(&*store, LONG).await;
        settle(&*store, &dead.claim, reject()).await;
        collect_garbage(&*store).await;
        // What a Go consumer reads, and all else of ours, is where the prefix says.
        let (base, payloads) = &shop;
        let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with(&format!("{base}:")));
        keys.sort();
        let mut expected = [
            format!("{payloads}:msg:{id}"),
            "dqhost:queues:shop".to_owned(),
        ];
        expected.sort();
        assert_eq!(keys, expected);
        let usual = server.store_with(hash_tag).await;
        assert!(usual.queues().await.unwrap().is_empty());
        assert_eq!(usual.counts(&queue()).await.unwrap().dead, 0);
        assert_eq!(store.queues().await.unwrap(), [queue()]);
        assert_eq!(repaired(&*store).await.0, []);
        assert_ne!(usual.describe(), store.describe());
    }
}

#[test]
fn the_program_takes_a_prefix_and_is_woken_under_it() {
    let server = RedisServer::start();
    let url = server.url();
    let echo = guest("echo").display().to_string();
    go_send(&server, &bases("shop", true), "from-go");
    let args = ["--handler", &echo, "--queue", "q", "--prefix", "shop"];
    let mut host = Host::start(&url, &args);
    host.wait_for("acked", |line| line["id"] == "from-go");
    let mut command = dqhost(Some(&url), &["send", "x", "--queue", "q"]);
    let sent = expect(command.env("DQHOST_PREFIX", "shop").output().unwrap(), 0);
    let id = stdout(&sent).trim().to_owned();
    host.wait_for("acked", |line| line["id"] == id.as_str());
    let channels: Vec<String> = server.command(&["PUBSUB", "CHANNELS"]);
    assert_eq!(channels, ["{shop:q}:wake"]);
    let shown = run(Some(&url), &["stats", "--json", "--prefix", "shop"], 0);
    let shown: Value = serde_json::from_str(&stdout(&shown)).unwrap();
    assert_eq!(shown["queues"][0]["totals"]["acked"], 2);
    let told = stderr(&run(Some(&url), &["stats", "--prefix", "a*b"], 2));
    assert!(told.contains("a prefix has 1 to 64 letters"), "{told}");
}

/// Three queues that only Go has used, and keys that are none of a queue's.
fn of_go(server: &RedisServer, hash_tag: bool) {
    for name in ["a", "b", "c"] {
        let base = bases("dp", hash_tag).0.replace(":q", &format!(":{name}"));
        go_send(server, &(base.clone(), base), "from-go");
    }
    let base = bases("dp", hash_tag).0;
    let () = server.command(&["SET", &format!("{base}:msg:x:pending"), "a payload"]);
    let () = server.command(&["SET", &format!("{}:pending", base.replace('q', "w")), "x"]);
    let () = server.command(&[
        "ZADD",
        &format!("{}:pending", base.replace('q', "a b")),
        "1",
        "x",
    ]);
    go_send(server, &bases("shop", hash_tag), "of another prefix");
}

fn listed(url: &str, args: &[&str]) -> Vec<String> {
    let output = run(Some(url), &[&["stats", "--json"], args].concat(), 0);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let queues = json["queues"].as_array().unwrap().iter();
    queues
        .map(|queue| queue["queue"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn queues_that_only_go_has_used_are_found_when_they_are_looked_for() {
    for (hash_tag, naming) in [(true, &[][..]), (false, &["--no-hash-tag"])] {
        let server = RedisServer::start();
        let url = server.url();
        of_go(&server, hash_tag);
        let with = |args: &[&'static str]| [args, naming].concat();
        assert!(listed(&url, &with(&[])).is_empty());
        let told = stderr(&run(Some(&url), &with(&["stats"]), 0));
        assert!(
            told.contains("dqhost has used no queue there; --discover"),
            "{told}"
        );
        assert_eq!(listed(&url, &with(&["--discover"])), ["a", "b", "c"]);
        let shop = ["--discover", "--prefix", "shop"];
        assert_eq!(listed(&url, &with(&shop)), ["q"]);
        let frame = run(Some(&url), &with(&["top", "--snapshot", "--discover"]), 0);
        assert!(stdout(&frame).contains('b'), "{frame:?}");

        let told = run(Some(&url), &with(&["audit"]), 0);
        assert!(stderr(&told).contains("--discover looks for those of others"));
        let told = run(Some(&url), &with(&["audit", "--discover"]), 0);
        assert_eq!(stderr(&told), "");
        for queue in ["a", "b", "c"] {
            let fine = format!("{queue}: nothing is wrong");
            assert!(stdout(&told).contains(&fine), "{told:?}");
        }
        // One that dqhost has used as well is listed once.
        run(Some(&url), &with(&["send", "x", "--queue", "b"]), 0);
        assert_eq!(listed(&url, &with(&[])), ["b"]);
        assert_eq!(listed(&url, &with(&["--discover"])), ["a", "b", "c"]);
        run(
            Some(&url),
            &with(&["stats", "--discover", "--queue", "a"]),
            2,
        );
        run(Some(&url), &with(&["stats", "--discover=0"]), 2);
    }
}

#[test]
fn a_search_that_ends_at_its_limit_says_so() {
    let server = RedisServer::start();
    let url = server.url();
    of_go(&server, true);
    let script = "for i = 1, 30000 do redis.call('SET', 'other:' .. i, 'x') end";
    let () = server.command(&["EVAL", script, "0"]);
    let told = run(Some(&url), &["stats", "--discover=1000"], 0);
    assert!(stderr(&told).contains("1000 keys of"), "{told:?}");
    assert!(stderr(&told).contains("--discover=KEYS looks at more"));
    run(Some(&url), &["audit", "--discover=1000"], 5);
    let told = run(Some(&url), &["stats", "--discover=100000"], 0);
    assert_eq!(stderr(&told), "");
    run(Some(&url), &["audit", "--discover"], 0);
}

#[test]
fn a_copy_moves_the_queues_of_others_or_says_that_it_has_not_looked() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("to.db").display().to_string();
    let (url, base) = (server.url(), bases("dp", true).0);
    for n in 0..1000 {
        go_send(&server, &(base.clone(), base.clone()), &format!("go-{n}"));
    }
    let copy = |args: &[&str], code| {
        let args = [&["move", "--from", &url, "--to", &file], args].concat();
        run(None, &args, code)
    };
    let told = stderr(&copy(&[], 1));
    assert!(told.contains("nothing was moved from"), "{told}");
    assert!(
        told.contains("--discover looks for those of others"),
        "{told}"
    );
    run(Some(&url), &["send", "x", "--queue", "ours"], 0);
    let told = copy(&[], 0);
    assert!(stdout(&told).starts_with("ours: 1 messages"), "{told:?}");
    assert!(stderr(&told).contains("every queue that dqhost has used; --discover"));
    let told = copy(&["--discover"], 0);
    assert!(stdout(&told).contains("q: 1000 messages"), "{told:?}");
    assert_eq!(stderr(&told), "");
    assert_eq!(stats(&file, "q")["pending"], 1000);
    assert_eq!(stats(&url, "q")["pending"], 0);
    // A file has no queues of others.
    let empty = folder.path().join("empty.db").display().to_string();
    run(Some(&empty), &["stats"], 3);
    run(Some(&empty), &["send", "x", "--queue", "a"], 0);
    let told = run(
        None,
        &["move", "--from", &empty, "--to", &file, "--discover"],
        0,
    );
    assert_eq!(stderr(&told), "");
}

#[test]
fn a_host_says_that_the_messages_are_under_names_of_another_hash_tag_setting() {
    let echo = guest("echo").display().to_string();
    for (hash_tag, wrong, mend) in [
        (true, &["--no-hash-tag"][..], "leave out --no-hash-tag"),
        (false, &[], "give --no-hash-tag"),
    ] {
        let server = RedisServer::start();
        let url = server.url();
        let go = bases("dp", hash_tag);
        go_send(&server, &go, "waits");
        let serve = ["--handler", &echo, "--queue", "q", "--exit-when-empty"];
        let warned = format!("some under {}:pending", go.0);
        for _ in 0..2 {
            // Also when a host was started so before.
            let told = stderr(&run(Some(&url), &[&serve, wrong].concat(), 0));
            assert!(told.contains(&warned) && told.contains(mend), "{told}");
        }
        let told = stderr(&run(Some(&url), &[&["stats"], wrong].concat(), 0));
        assert!(told.contains(&warned) && told.contains(mend), "{told}");
        // Not when there are messages here, too, nor with what is right.
        run(
            Some(&url),
            &[&["send", "x", "--queue", "q"], wrong].concat(),
            0,
        );
        let told = stderr(&run(Some(&url), &[&serve, wrong].concat(), 0));
        assert!(!told.contains("hash-tag"), "{told}");
        let right: &[&str] = if hash_tag { &[] } else { &["--no-hash-tag"] };
        let told = stderr(&run(Some(&url), &[&serve, right].concat(), 0));
        assert!(!told.contains("hash-tag"), "{told}");
        assert!(told.contains("waits"), "{told}");
    }
}

#[test]
fn a_user_who_may_not_look_at_the_other_names_is_not_held_up() {
    let server = RedisServer::start();
    go_send(&server, &bases("dp", false), "waits");
    let rule =
        "~{dp:*}:* ~dqhost:queues &{dp:*}:wake &{dp:*}:events +@all -@admin -@dangerous +info";
    let words = format!("ACL SETUSER host reset on >host {rule}");
    let () = server.command(&words.split(' ').collect::<Vec<_>>());
    let url = format!("{}?user=host&pass=host", server.url());
    let echo = guest("echo").display().to_string();
    let serve = ["--handler", &echo, "--queue", "q", "--exit-when-empty"];
    let told = stderr(&run(Some(&url), &serve, 0));
    assert!(
        !told.contains("hash-tag") && !told.contains("NOPERM"),
        "{told}"
    );
    let shown = stats(&url, "q");
    assert_eq!(shown["pending"], json!(0));
}

#[tokio::test]
async fn a_copy_between_two_prefixes_of_one_server_is_refused_and_loses_nothing() {
    for hash_tag in [true, false] {
        let server = RedisServer::start();
        let from = server.store_named(hash_tag, "dp").await;
        let to = server.store_named(hash_tag, "shop").await;
        for _ in 0..3 {
            send(&*from, "x", Due::NOW, 3).await;
        }
        let before = server.dump();
        let copied = move_queue(&*from, &*to, &queue(), false, |_| ()).await;
        let error = copied.unwrap_err().to_string();
        assert!(error.contains("messages are in already"), "{error}");
        assert_eq!(server.dump(), before);
    }
}

/// An orphan is left as it is, and what is said of that.
fn left_alone(server: &RedisServer) -> String {
    let () = server.command(&["SET", "{dp:q}:msg:live", "of another prefix"]);
    let told = run(
        Some(&server.url()),
        &["audit", "--repair", "--queue", "q"],
        1,
    );
    assert_eq!(stats(&server.url(), "q")["dead"], 0);
    stderr(&told)
}

#[test]
fn an_audit_buries_nothing_that_may_be_of_a_prefix_that_is_no_text() {
    let server = RedisServer::start();
    let script = "redis.call('ZADD', '{shop\\255:q}:pending', '1', 'live')";
    let () = server.command(&["EVAL", script, "0"]);
    let told = left_alone(&server);
    assert!(told.contains("names that are no text"), "{told}");
}

#[test]
fn an_audit_that_cannot_look_at_all_keys_buries_nothing_that_may_be_of_another_prefix() {
    let server = RedisServer::start();
    let script = "for i = 1, 100000 do redis.call('SET', ARGV[1] .. i, '') end";
    for n in 0..11 {
        let () = server.command(&["EVAL", script, "0", &format!("{n}:")]);
    }
    let told = left_alone(&server);
    assert!(told.contains("too many keys to look at all"), "{told}");
}
