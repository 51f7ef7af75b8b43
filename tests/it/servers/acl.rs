//! Users of Redis with the rights that `docs/stores.md` gives them: each can do its work, and no other's.

use std::collections::BTreeSet;

use dqhost::message::MessageId;
use rustix::process::Signal;
use serde_json::Value;

use super::tools::Server;
use crate::support::{Host, dqhost, eventually, expect, feed, guest, run, stats, stderr, stdout};

const PAGE: &str = include_str!("../../../docs/stores.md");

/// The rules on the page, in words.
fn rules() -> Vec<Vec<String>> {
    let lines = PAGE.lines().filter(|line| line.starts_with("ACL SETUSER "));
    lines
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect()
}

/// A server with those users, each with its own name for a password.
fn server() -> Server {
    let server = Server::start(&[]);
    add_users(&server, &[]);
    server
}

/// Adds those users, with more rights.
pub(super) fn add_users(server: &Server, more: &[&str]) {
    let rules = rules();
    assert_eq!(rules.len(), 3);
    for rule in rules {
        let name = format!(">{}", rule[2]);
        let words = rule.iter().map(|word| match word.as_str() {
            ">PASSWORD" => &name,
            word => word,
        });
        let words: Vec<&str> = words.chain(more.iter().copied()).collect();
        let () = server.command(&words);
    }
}

pub(super) fn as_user(server: &Server, name: &str) -> String {
    server
        .url()
        .replace("redis://", &format!("redis://{name}:{name}@"))
}

/// Commands that were called since the last time.
fn called(server: &Server) -> BTreeSet<String> {
    let info: String = server.command(&["INFO", "commandstats"]);
    let lines = info
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"));
    let names = lines.filter_map(|line| line.split_once(":calls="));
    names
        .filter(|(_, rest)| !rest.starts_with("0,"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// All that a user is allowed is needed: its work has called each of these commands, while nobody else
/// was at work.
fn nothing_is_left_over(server: &Server, user: &str) {
    let rules = rules();
    let rule = rules.iter().find(|rule| rule[2] == user).unwrap();
    let called = called(server);
    let allowed = rule.iter().filter_map(|word| word.strip_prefix('+'));
    let idle: Vec<&str> = allowed.filter(|name| !called.contains(*name)).collect();
    assert_eq!(idle, [""; 0], "{user} is allowed what it does not use");
    let log: Vec<redis::Value> = server.command(&["ACL", "LOG"]);
    assert!(log.is_empty(), "{user} was refused: {log:?}");
}

fn forget(server: &Server) {
    let () = server.command(&["CONFIG", "RESETSTAT"]);
    let () = server.command(&["ACL", "LOG", "RESET"]);
    let () = server.command(&["SCRIPT", "FLUSH"]);
}

fn sent(url: &str, args: &[&str]) -> String {
    let output = run(Some(url), &[&["send"], args].concat(), 0);
    stdout(&output).trim().to_owned()
}

#[test]
fn a_producer_sends_and_does_nothing_else() {
    let server = server();
    let producer = as_user(&server, "dq-producer");
    forget(&server);
    sent(&producer, &["x", "--header", "k=v"]);
    sent(&producer, &["later", "--in", "1h"]);
    // The first is over, and forgotten, when the second comes.
    for key in ["a", "b"] {
        let window = ["--idempotency-key", key, "--dedup-window", "1ms"];
        sent(&producer, &[&["z"][..], &window].concat());
    }
    // One that others have half removed is looked for, and what is left of it forgotten.
    let key = ["w", "--idempotency-key", "c"];
    let id = sent(&producer, &key);
    let () = server.command(&["DEL", &format!("{{dp:default}}:msg:{id}")]);
    let () = server.command(&["LREM", "{dp:default}:ready", "0", &id]);
    let () = server.command(&["HSET", "{dp:default}:attempts", &id, "1:0"]);
    let () = server.command(&["DEL", "{dp:default}:dedup"]);
    assert_eq!(sent(&producer, &key), id);
    nothing_is_left_over(&server, "dq-producer");
    let id = sent(&producer, &["y"]);
    for args in [
        &["get", &id][..],
        &["list", "ready"],
        &["stats"],
        &["cancel", &id],
        &["reschedule", &id, "--in", "1s"],
        &["pause"],
        &["dead", "redrive", "--all"],
    ] {
        let told = stderr(&run(Some(&producer), args, 3));
        assert!(told.contains("its rights"), "{args:?}: {told}");
    }
    let handler = guest("echo");
    let mut host = Host::start(&producer, &["--handler", handler.to_str().unwrap()]);
    host.wait_for_start("trying again until the store answers");
    let before = stats(&server.url(), "default");
    assert_eq!((&before["ready"], &before["unack"]), (&5.into(), &0.into()));
    // Nor by hand: no payload can be read, and no key of another program.
    for words in [
        &["GET", &format!("{{dp:default}}:msg:{id}")][..],
        &["SET", "other", "x"],
        &["LRANGE", "{dp:default}:ready", "0", "-1"],
        &["ZADD", "{dp:default}:unack", "1", &id],
        &["EVAL", "return 1", "0"],
        &["KEYS", "*"],
        &["FLUSHALL"],
    ] {
        refused(&producer, words);
    }
}

fn refused(url: &str, words: &[&str]) {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut command = redis::cmd(words[0]);
    let answer = command
        .arg(&words[1..])
        .query::<redis::Value>(&mut connection);
    let code = answer.unwrap_err();
    assert_eq!(code.code(), Some("NOPERM"), "{words:?}");
}

/// Everything that can happen to a message on a host: acks, with and without sends, nacks with and
/// without a delay, rejects, leases that are renewed, that end, and that are given back.
fn all_work(server: &Server, host: &str) {
    let url = server.url();
    let path = |name: &str| guest(name).display().to_string();
    // As a delayqueue producer sends.
    let foreign = "0f8fad5b-d9cb-469f-a165-70867728950e";
    let payload = format!("{{dp:default}}:msg:{foreign}");
    let () = server.command(&["SET", &payload, "children", "EX", "3600"]);
    let () = server.command(&["ZADD", "{dp:default}:pending", "1", foreign]);
    // As one leaves it that gave up.
    let () = server.command(&["SET", "{dp:default}:msg:garbage", "x", "EX", "3600"]);
    let () = server.command(&["SADD", "{dp:default}:garbage", "garbage"]);
    let parent = sent(&url, &["children"]);
    // The first id that it sends was there before.
    for call in 0..2 {
        let child = MessageId::derived("default", &parent, call);
        let () = server.command(&["HSET", "{dp:children}:retry:cnt", child.as_str(), "3"]);
    }
    sent(
        &url,
        &["children", "--header", "then=nack", "--retries", "1"],
    );
    sent(&url, &["10", "--queue", "slow"]);
    sent(&url, &["x", "--queue", "slow", "--header", "k=v"]);
    forget(server);
    let (fan_out, sleeper) = (path("fan-out"), format!("slow={}", path("sleeper")));
    let both = [
        "--handler",
        &fan_out,
        "--queue",
        "default",
        "--queue",
        &sleeper,
    ];
    let quick = [
        "--allow-send",
        "children",
        "--backoff",
        "1ms",
        "--lease",
        "1s",
    ];
    let more = ["--exit-when-empty", "--log-format", "json"];
    let output = run(Some(host), &[&both[..], &quick, &more].concat(), 0);
    let log = stderr(&output);
    assert!(!log.contains("trying again"), "{log}");
    // Many at a time are leased in another way.
    let many = dqhost(Some(&url), &["send", "--ndjson", "--queue", "slow"]);
    expect(
        feed(many, "{\"payload\": \"1\"}\n".repeat(40).as_bytes()),
        0,
    );
    let args = ["--queue", &sleeper, "--slots", "64", "--exit-when-empty"];
    run(Some(host), &args, 0);
    one_that_dies_and_one_that_stops(server, host, &sleeper);
}

/// A host is killed with a message in flight, and another gives it back.
fn one_that_dies_and_one_that_stops(server: &Server, host: &str, sleeper: &str) {
    let url = server.url();
    sent(&url, &["600000", "--queue", "slow"]);
    let slow = [
        "--queue",
        sleeper,
        "--lease",
        "1s",
        "--timeout",
        "1h",
        "--drain",
        "0s",
    ];
    let first = Host::start(host, &slow);
    in_flight(&url);
    drop(first);
    let second = Host::start(host, &[&slow[..], &["--dead-max", "0"]].concat());
    eventually("dead letters are not kept", || {
        let counts = stats(&url, "slow");
        (counts["dead"] == 0 && counts["totals"]["deleted"] != 0).then_some(())
    });
    eventually("the lease has expired", || {
        let counts = stats(&url, "slow");
        (counts["totals"]["expired"] == 1 && counts["unack"] == 1).then_some(())
    });
    eventually("a silent subscription is asked whether it lives", || {
        called(server).contains("ping").then_some(())
    });
    eventually("a wake-up names the message that is read with it", || {
        sent(&url, &["1", "--queue", "slow"]);
        called(server).contains("get").then_some(())
    });
    second.signal(Signal::TERM);
    let (status, lines) = second.end();
    assert!(status.success(), "{lines:#?}");
    // It may have begun with one of the others as well.
    assert_ne!(stats(&url, "slow")["totals"]["released"], 0);
}

fn in_flight(url: &str) {
    eventually("it is in flight", || {
        (stats(url, "slow")["unack"] == 1).then_some(())
    });
}

#[test]
fn a_host_handles_and_reaches_no_other_keys() {
    let server = server();
    let host = as_user(&server, "dq-host");
    all_work(&server, &host);
    nothing_is_left_over(&server, "dq-host");
    for words in [
        &["SET", "other", "x"][..],
        &["SMEMBERS", "dqhost:queues"],
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
        &["KEYS", "*"],
        &["SCRIPT", "FLUSH"],
        &["EVAL", "return 1", "0"],
    ] {
        refused(&host, words);
    }
}

/// What the page says of a prefix, and of `--discover`.
#[test]
fn users_with_few_rights_do_their_work_under_a_prefix() {
    let server = Server::start(&[]);
    for rule in rules() {
        let name = format!(">{}", rule[2]);
        let payloads = match rule[2].as_str() {
            "dq-viewer" => "%R~{dp:*}:msg:*",
            _ => "~{dp:*}:msg:*",
        };
        let words = rule.iter().map(|word| match word.as_str() {
            ">PASSWORD" => name.clone(),
            word => word
                .replace("{dp:*}", "{shop:*}")
                .replace("dqhost:queues", "dqhost:queues:shop"),
        });
        let more = [payloads, "+scan", "+type"].map(str::to_owned);
        let words: Vec<String> = words.chain(more).collect();
        let () = server.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let as_user = |name| as_user(&server, name);
    let prefix = ["--prefix", "shop"];
    sent(&as_user("dq-producer"), &[&["x"], &prefix[..]].concat());
    // Of a queue that dqhost has not used.
    let () = server.command(&["ZADD", "{shop:other}:pending", "9000000000", "x"]);
    let viewer = as_user("dq-viewer");
    let shown = run(
        Some(&viewer),
        &[&["stats", "--discover"], &prefix[..]].concat(),
        0,
    );
    assert!(stdout(&shown).contains("default") && stdout(&shown).contains("other"));
    let echo = guest("echo").display().to_string();
    let serve = ["--handler", &echo, "--exit-when-empty"];
    run(
        Some(&as_user("dq-host")),
        &[&serve, &prefix[..]].concat(),
        0,
    );
    let shown = run(
        Some(&viewer),
        &[&["stats", "--json"], &prefix[..]].concat(),
        0,
    );
    let shown: Value = serde_json::from_str(&stdout(&shown)).unwrap();
    assert_eq!(shown["queues"][0]["totals"]["acked"], 1);
    let log: Vec<redis::Value> = server.command(&["ACL", "LOG"]);
    assert!(log.is_empty(), "{log:?}");
}

/// The rule that the page gives in a sentence.
#[test]
fn who_steers_can_do_all_that_people_do() {
    let server = Server::start(&[]);
    let rule =
        "~{dp:*}:* ~dqhost:queues &{dp:*}:wake &{dp:*}:events +@all -@admin -@dangerous +info";
    assert!(PAGE.contains(rule));
    let start = "ACL SETUSER dq-operator reset on >dq-operator ";
    let words = format!("{start}{rule}");
    let () = server.command(&words.split(' ').collect::<Vec<_>>());
    let url = as_user(&server, "dq-operator");
    let reject = guest("reject").display().to_string();
    let dead = [sent(&url, &["a"]), sent(&url, &["b"]), sent(&url, &["c"])];
    run(Some(&url), &["--handler", &reject, "--exit-when-empty"], 0);
    let waits = sent(&url, &["x", "--in", "1h"]);
    for args in [
        &["pause"][..],
        &["resume"],
        &["reschedule", &waits],
        &["cancel", &waits],
        &["get", &dead[0]],
        &["dead", "list"],
        &["dead", "redrive", &dead[0]],
        &["dead", "redrive", &dead[1], "--payload", "y"],
        &["dead", "delete", &dead[2]],
        &["top", "--snapshot"],
        &["stats"],
    ] {
        run(Some(&url), args, 0);
    }
    refused(&url, &["CONFIG", "GET", "*"]);
    refused(&url, &["GET", "other"]);
}

#[test]
fn a_viewer_sees_everything_and_changes_nothing() {
    let server = server();
    let url = server.url();
    let viewer = as_user(&server, "dq-viewer");
    let reject = guest("reject").display().to_string();
    let nack = guest("trap").display().to_string();
    let dead = sent(&url, &["dead"]);
    run(Some(&url), &["--handler", &reject, "--exit-when-empty"], 0);
    sent(&url, &["fails"]);
    let mut host = Host::start(&url, &["--handler", &nack, "--backoff", "1h"]);
    host.wait_for("to be retried", |_| true);
    drop(host);
    let id = sent(&url, &["ready"]);
    let later = sent(&url, &["later", "--in", "1h"]);
    forget(&server);
    for id in [&dead, &id, &later] {
        let shown = stdout(&run(Some(&viewer), &["get", id, "--json"], 0));
        assert!(shown.contains(id.as_str()), "{shown}");
    }
    for state in ["pending", "ready", "unack", "retry", "dead"] {
        run(Some(&viewer), &["list", state], 0);
    }
    let shown = stdout(&run(Some(&viewer), &["stats", "--json"], 0));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["queues"][0]["dead"], 1);
    let frame = stdout(&run(Some(&viewer), &["top", "--snapshot"], 0));
    assert!(frame.contains("default"), "{frame}");
    nothing_is_left_over(&server, "dq-viewer");

    let figures = || {
        let all = stats(&url, "default");
        (
            all["totals"].clone(),
            all["ready"].clone(),
            all["paused"].clone(),
        )
    };
    let before = figures();
    for args in [
        &["send", "x"][..],
        &["cancel", &id],
        &["reschedule", &id],
        &["pause"],
        &["dead", "redrive", &dead],
        &["dead", "delete", &dead],
    ] {
        let told = stderr(&run(Some(&viewer), args, 3));
        assert!(told.contains("its rights"), "{args:?}: {told}");
    }
    for words in [
        &["SET", "{dp:default}:paused", "1"][..],
        &["GET", "other"],
        &["PUBLISH", "{dp:default}:wake", ""],
        &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
        &["DEL", "{dp:default}:ready"],
    ] {
        refused(&viewer, words);
    }
    assert_eq!(figures(), before);
}

/// Reading a message takes more rights than handling it.
#[test]
fn a_host_gives_messages_up_if_it_may_read_their_history() {
    assert!(PAGE.contains("| `--give-up-after` | Add `+evalsha_ro +hget` to `dq-host` |"));
    for (more, ends) in [
        (&[][..], "to be retried"),
        (&["+evalsha_ro", "+hget"], "dead"),
    ] {
        let server = server();
        let () = server.command(&[&["ACL", "SETUSER", "dq-host"], more].concat());
        let trap = guest("trap").display().to_string();
        let delays = ["--backoff", "0s,0s,2d", "--backoff-max", "2d"];
        let flags = ["--handler", &trap, "--give-up-after", "1d"];
        let mut host = Host::start(
            &as_user(&server, "dq-host"),
            &[&flags[..], &delays].concat(),
        );
        sent(&server.url(), &["x", "--retries", "9"]);
        let line = host.wait_for(ends, |line| line["attempt"] == 3);
        assert_eq!(line["class"] == "gave-up", ends == "dead");
        if ends != "dead" {
            let warning = "no message is given up after its time";
            host.wait_for_start(warning);
        }
    }
}

/// An older rule has no +pexpiretime and no +smismember.
#[test]
fn messages_of_others_do_not_stop_a_host_with_fewer_rights() {
    for fewer in [&["-pexpiretime"][..], &["-pexpiretime", "-smismember"]] {
        let server = server();
        let () = server.command(&[&["ACL", "SETUSER", "dq-host"], fewer].concat());
        let payload = |id: &str| format!("{{dp:default}}:msg:{id}");
        let () = server.command(&["SET", &payload("due"), "x", "EX", "3600"]);
        let () = server.command(&["ZADD", "{dp:default}:pending", "1", "due"]);
        let () = server.command(&["SET", &payload("ready"), "x"]);
        let () = server.command(&["LPUSH", "{dp:default}:ready", "ready"]);
        let () = server.command(&["SET", &payload("waits"), "x", "EX", "3600"]);
        let () = server.command(&["ZADD", "{dp:default}:unack", "9000000000", "waits"]);
        if fewer.len() > 1 {
            let () = server.command(&["SET", &payload("buried"), "x", "EX", "3600"]);
            let () = server.command(&["SADD", "{dp:default}:garbage", "buried"]);
        }
        for _ in 0..5 {
            sent(&server.url(), &["x"]);
        }
        let noop = guest("noop").display().to_string();
        let host = Host::start(&as_user(&server, "dq-host"), &["--handler", &noop]);
        eventually("all are handled", || {
            let counts = stats(&server.url(), "default");
            assert_eq!(counts["totals"]["released"], 0);
            (counts["totals"]["acked"] == 7).then_some(())
        });
        eventually("no payload expires", || {
            let ttl: i64 = server.command(&["TTL", &payload("waits")]);
            (ttl == -1).then_some(())
        });
        drop(host);
    }
}

/// The rule of a user with what the page adds for some case.
fn with_more(server: &Server, user: &str, more: &str) -> String {
    assert!(PAGE.contains(more), "{more}");
    let () = server.command(
        &["ACL", "SETUSER", user]
            .into_iter()
            .chain(more.split(' '))
            .collect::<Vec<_>>(),
    );
    as_user(server, user)
}

fn nobody_was_refused(server: &Server) {
    let log: Vec<redis::Value> = server.command(&["ACL", "LOG"]);
    assert!(log.is_empty(), "{log:?}");
}

/// What the page says of repeats that change what is there.
#[test]
fn with_a_few_rights_more_repeats_change_what_is_there() {
    let server = server();
    with_more(&server, "dq-producer", "+zcard +scard +persist +lrem +srem");
    let producer = with_more(&server, "dq-producer", "~{dp:*}:*");
    let host = with_more(&server, "dq-host", "+hrandfield +lrem");
    let key = ["x", "--idempotency-key", "k", "--replace"];
    let later = [&key[..], &["--in", "1h"]].concat();
    let path = |name: &str| guest(name).display().to_string();
    for args in [&later[..], &key, &later, &later, &key] {
        sent(&producer, args);
    }
    let reject = path("reject");
    run(Some(&host), &["--handler", &reject, "--exit-when-empty"], 0);
    assert_eq!(stats(&server.url(), "default")["dead"], 1);
    let id = sent(&producer, &key);
    // A repeat of a run that a delayqueue consumer has ended.
    let () = server.command(&["HSET", "{dp:default}:repeats", "gone", "replace 1  3 1 0 x"]);
    let () = server.command(&["HSET", "{dp:default}:repeats", &id, "replace 1  3 1 0 y"]);
    let noop = path("noop");
    let _host = Host::start(&host, &["--handler", &noop]);
    eventually("all repeats have run", || {
        let left: u64 = server.command(&["HLEN", "{dp:default}:repeats"]);
        let stats = stats(&server.url(), "default");
        let acked = stats["totals"]["acked"].as_u64();
        (left == 0 && stats["ready"] == 0 && acked >= Some(2)).then_some(())
    });
    nobody_was_refused(&server);
}

/// What the page says of topics.
#[test]
fn with_a_few_rights_more_a_producer_sends_to_topics() {
    let server = server();
    with_more(&server, "dq-producer", "%R~dqhost:topics +smembers");
    let producer = with_more(&server, "dq-producer", "~{dp:*}:*");
    for queue in ["a", "b"] {
        run(Some(&server.url()), &["topic", "subscribe", "t", queue], 0);
    }
    sent(&producer, &["x", "--topic", "t"]);
    assert_eq!(stats(&server.url(), "b")["ready"], 1);
    nobody_was_refused(&server);
}
