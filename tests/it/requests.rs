//! What a host asks of Redis, counted by Redis.

use std::collections::HashMap;
use std::time::Instant;

use crate::support::{Host, RedisServer, dqhost, eventually, expect, feed, guest, run, stats};

/// How often each command was called since the last look, those of scripts too.
fn calls(server: &RedisServer) -> HashMap<String, u64> {
    let info: String = server.command(&["INFO", "commandstats"]);
    let call = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(call).collect()
}

fn of(calls: &HashMap<String, u64>, names: &[&str]) -> u64 {
    names.iter().filter_map(|name| calls.get(*name)).sum()
}

fn send(server: &RedisServer, count: usize, more: &str) {
    let line = format!("{{\"payload\": \"x\"{more}}}\n");
    let command = dqhost(Some(&server.url()), &["send", "--ndjson", "-"]);
    expect(feed(command, line.repeat(count).as_bytes()), 0);
}

#[test]
fn an_idle_host_asks_at_most_twice_a_second() {
    let server = RedisServer::start();
    send(&server, 1000, ", \"in\": \"1h\"");
    let handler = guest("noop");
    let mut host = Host::start(&server.url(), &["--handler", handler.to_str().unwrap()]);
    host.wait_for("serving", |_| true);
    let subscribed = eventually("it listens", || {
        let calls = calls(&server);
        (of(&calls, &["subscribe"]) >= 1).then(|| of(&calls, &["evalsha"]))
    });
    // Once it listens it looks whether something came before that: two requests, and then it waits.
    eventually("it has begun to wait", || {
        (of(&calls(&server), &["evalsha"]) >= subscribed + 3).then_some(())
    });
    let began = Instant::now();
    server.command::<()>(&["CONFIG", "RESETSTAT"]);
    let calls = eventually("it has looked a few times", || {
        let calls = calls(&server);
        (of(&calls, &["evalsha"]) >= 6).then_some(calls)
    });
    // What is slow asks less often, so no machine fails this that does not ask too much.
    let sent = of(&calls, &["evalsha", "mget", "ping", "sadd", "subscribe"]);
    let seconds = began.elapsed().as_secs() + 1;
    assert!(sent <= 2 * seconds, "{calls:?} in {seconds} s");
}

#[test]
fn even_one_slot_takes_no_more_than_three_requests_a_message() {
    const MESSAGES: u64 = 200;
    let server = RedisServer::start();
    send(&server, 200, "");
    let handler = guest("noop");
    let args = ["--handler", handler.to_str().unwrap(), "--slots", "1"];
    let began = Instant::now();
    server.command::<()>(&["CONFIG", "RESETSTAT"]);
    let args = [&["up"], &args[..], &["--exit-when-empty"]].concat();
    run(Some(&server.url()), &args, 0);
    let calls = calls(&server);
    assert_eq!(stats(&server.url(), "default")["totals"]["acked"], MESSAGES);
    // One that reserves and one that settles for each; beside them the looks of each second, a
    // heartbeat, and the end.
    let looks = began.elapsed().as_secs() + 10;
    let scripts = of(&calls, &["evalsha"]);
    assert!(scripts <= 2 * MESSAGES + looks, "{calls:?}");
    assert_eq!(of(&calls, &["mget"]), MESSAGES, "{calls:?}");
}
