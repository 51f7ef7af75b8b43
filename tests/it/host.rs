//! The host as a process: what it does when handlers, signals, other hosts and Redis do their
//! worst.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    Host, RedisServer, dqhost, eventually, expect, feed, guest, run, stats, stderr, stdout,
    with_message,
};

fn path(name: &str) -> String {
    guest(name).to_str().unwrap().to_owned()
}

fn send(url: &str, queue: &str, payload: &str, more: &[&str]) -> String {
    let args = [&["send", "--queue", queue, payload], more].concat();
    stdout(&run(Some(url), &args, 0)).trim().to_owned()
}

fn get(url: &str, queue: &str, id: &str) -> Value {
    let output = run(Some(url), &["get", "--json", "--queue", queue, id], 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_message_that_always_fails_ends_dead_with_all_that_is_known_and_can_be_redriven() {
    let server = RedisServer::start();
    let url = server.url();
    let id = send(&url, "q", "99", &["--retries", "2", "--header", "k=v"]);
    let handler = path("flaky");
    let host = ["--handler", &handler, "--queue", "q", "--exit-when-empty"];
    run(Some(&url), &host, 0);
    let counts = stats(&url, "q");
    assert_eq!(
        (&counts["dead"], &counts["totals"]["nacked"]),
        (&1.into(), &3.into())
    );
    let record = get(&url, "q", &id);
    assert_eq!(record["state"], "dead");
    assert_eq!(record["attempts"], 3);
    assert_eq!(record["payload"], "99");
    assert_eq!(record["headers"][0], serde_json::json!(["k", "v"]));
    let history = record["history"].as_array().unwrap();
    let numbers: Vec<_> = history
        .iter()
        .map(|attempt| attempt["attempt"].as_u64())
        .collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    assert_eq!(history[2]["reason"], "attempt 3 of 99 that are needed");
    assert_eq!(history[2]["class"], "nacked");
    assert_eq!(history[2]["handler"].as_str().unwrap().len(), 64);
    let listed = stdout(&run(Some(&url), &["dead", "list", "--queue", "q"], 0));
    assert!(
        listed.contains(&id) && listed.contains("attempt 3 of 99"),
        "{listed}"
    );
    // Again, with the budget that it had: three more runs.
    run(Some(&url), &["dead", "redrive", "--queue", "q", &id], 0);
    run(Some(&url), &host, 0);
    assert_eq!(stats(&url, "q")["totals"]["nacked"], 6);
}

#[test]
fn a_message_that_fails_at_first_is_acked_in_the_end() {
    let server = RedisServer::start();
    let url = server.url();
    send(&url, "default", "3", &[]);
    run(
        Some(&url),
        &["--handler", &path("flaky"), "--exit-when-empty"],
        0,
    );
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["totals"]["nacked"], &counts["totals"]["acked"]),
        (&2.into(), &1.into())
    );
    assert_eq!(counts["dead"], 0);
}

#[test]
fn a_crashed_hosts_messages_are_delivered_again_with_the_attempt_counted() {
    let server = RedisServer::start();
    let url = server.url();
    let ids: Vec<String> = (0..4)
        .map(|_| send(&url, "default", "600000", &["--retries", "5"]))
        .collect();
    let first = Host::start(
        &url,
        &[
            "--handler",
            &path("sleeper"),
            "--lease",
            "3s",
            "--slots",
            "4",
            "--timeout",
            "1h",
        ],
    );
    eventually("all are in flight", || {
        (stats(&url, "default")["unack"] == 4).then_some(())
    });
    drop(first); // kill -9
    let mut second = Host::start(&url, &["--handler", &path("echo")]);
    for id in &ids {
        let line = second.wait_for("acked", |line| line["id"] == id.as_str());
        assert_eq!(line["attempt"], 2);
    }
    assert_eq!(stats(&url, "default")["totals"]["expired"], 4);
}

#[test]
fn a_terminated_host_finishes_what_it_can_and_gives_the_rest_back() {
    let server = RedisServer::start();
    let url = server.url();
    let long = send(&url, "default", "600000", &[]);
    let mut host = Host::start(
        &url,
        &[
            "--handler",
            &path("sleeper"),
            "--timeout",
            "1h",
            "--drain",
            "5s",
        ],
    );
    eventually("it is in flight", || {
        (stats(&url, "default")["unack"] == 1).then_some(())
    });
    let short = send(&url, "default", "300", &[]);
    eventually("both are in flight", || {
        (stats(&url, "default")["unack"] == 2).then_some(())
    });
    host.signal(Signal::TERM);
    host.wait_for("stopping; a second signal stops handlers at once", |_| true);
    let (status, lines) = host.end();
    assert!(status.success(), "{lines:#?}");
    let acked = with_message(&lines, "acked");
    assert_eq!(acked.len(), 1, "{lines:#?}");
    assert_eq!(acked[0]["id"], short.as_str());
    let record = get(&url, "default", &long);
    assert_eq!(
        (&record["state"], &record["attempts"]),
        (&"ready".into(), &0.into())
    );
    assert_eq!(record["retries_left"], 3);
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["totals"]["released"], &counts["unack"]),
        (&1.into(), &0.into())
    );
    assert_eq!(counts["hosts"], Value::Array(Vec::new()));
}

#[test]
fn a_second_signal_stops_handlers_at_once() {
    let server = RedisServer::start();
    let url = server.url();
    for _ in 0..3 {
        send(&url, "default", "x", &[]);
    }
    let mut host = Host::start(
        &url,
        &[
            "--handler",
            &path("spin"),
            "--timeout",
            "1h",
            "--drain",
            "1h",
        ],
    );
    eventually("all are in flight", || {
        (stats(&url, "default")["unack"] == 3).then_some(())
    });
    host.signal(Signal::INT);
    host.wait_for("stopping; a second signal stops handlers at once", |_| true);
    host.signal(Signal::INT);
    let (status, _) = host.end();
    assert!(status.success());
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["ready"], &counts["totals"]["released"]),
        (&3.into(), &3.into())
    );
}

#[test]
fn handlers_that_run_for_several_leases_run_once() {
    let server = RedisServer::start();
    let url = server.url();
    for _ in 0..4 {
        send(&url, "default", "6500", &[]);
    }
    run(
        Some(&url),
        &[
            "--handler",
            &path("sleeper"),
            "--lease",
            "2s",
            "--exit-when-empty",
        ],
        0,
    );
    let counts = stats(&url, "default");
    assert_eq!(
        (&counts["totals"]["acked"], &counts["totals"]["expired"]),
        (&4.into(), &0.into())
    );
}

#[test]
fn a_handler_that_never_returns_is_stopped_while_the_others_go_on() {
    let server = RedisServer::start();
    let url = server.url();
    let stuck = send(&url, "stuck", "x", &["--retries", "0"]);
    let greedy = send(&url, "greedy", "x", &["--retries", "0"]);
    let well: Vec<String> = (0..20)
        .map(|n| send(&url, "well", &n.to_string(), &[]))
        .collect();
    let queues = [
        format!("--queue=stuck={}", path("spin")),
        format!("--queue=greedy={}", path("hog")),
        format!("--queue=well={}", path("echo")),
    ];
    let mut args: Vec<&str> = queues.iter().map(String::as_str).collect();
    args.extend(["--slots", "3", "--timeout", "2s", "--memory", "16"]);
    let mut host = Host::start(&url, &args);
    // The others are done before the one that never returns is.
    for id in &well {
        host.wait_for("acked", |line| line["id"] == id.as_str());
    }
    let line = host.wait_for("dead", |line| line["id"] == stuck.as_str());
    assert_eq!(line["class"], "timed-out");
    let record = get(&url, "stuck", &stuck);
    assert_eq!(record["history"][0]["class"], "timed-out");
    assert_eq!(record["history"][0]["reason"], "no verdict within 2s");
    let record = get(&url, "greedy", &greedy);
    assert_eq!(record["history"][0]["class"], "out-of-memory");
    assert_eq!(
        record["history"][0]["reason"],
        "more than 16 MiB of memory wanted"
    );
}

/// A backlog of handlers that never return cannot take the slots that another queue needs, nor the
/// threads: the others are all acked while none of the first has ended.
#[test]
fn slow_handlers_of_one_queue_leave_the_others_their_share() {
    let server = RedisServer::start();
    let url = server.url();
    for _ in 0..10 {
        send(&url, "slow", "x", &[]);
    }
    let well: Vec<String> = (0..30)
        .map(|n| send(&url, "well", &n.to_string(), &[]))
        .collect();
    let queues = [
        format!("--queue=slow={}", path("spin")),
        format!("--queue=well={}", path("echo")),
    ];
    let mut args: Vec<&str> = queues.iter().map(String::as_str).collect();
    args.extend(["--slots", "4", "--timeout", "1h"]);
    let mut host = Host::start(&url, &args);
    for id in &well {
        host.wait_for("acked", |line| line["id"] == id.as_str());
    }
    // With nothing else to do, the slow ones have half of the slots. The others are for what comes.
    eventually("two slots are in use", || {
        (stats(&url, "slow")["unack"] == 2).then_some(())
    });
    for n in 0..30 {
        let late = send(&url, "well", &n.to_string(), &[]);
        host.wait_for("acked", |line| line["id"] == late.as_str());
        assert_eq!(stats(&url, "slow")["unack"], 2);
    }
}

#[test]
fn a_trap_is_a_nack_with_the_back_off_of_the_queue() {
    let server = RedisServer::start();
    let url = server.url();
    let id = send(&url, "default", "x", &["--retries", "1"]);
    let handler = path("trap");
    run(
        Some(&url),
        &[
            "--handler",
            &handler,
            "--exit-when-empty",
            "--backoff",
            "30ms",
        ],
        0,
    );
    let record = get(&url, "default", &id);
    assert_eq!(
        (&record["state"], &record["attempts"]),
        (&"dead".into(), &2.into())
    );
    assert_eq!(record["history"][1]["class"], "trapped");
    let log = record["history"][1]["log"].as_str().unwrap();
    assert!(log.contains("attempt 2: a bug in the handler"), "{log}");
}

#[test]
fn a_host_outlives_its_redis() {
    let mut server = RedisServer::start();
    let url = server.url();
    let mut host = Host::start(&url, &["--handler", &path("echo")]);
    let before = send(&url, "default", "before", &[]);
    host.wait_for("acked", |line| line["id"] == before.as_str());
    server.kill();
    let line = host.wait_for_start("trying again until the store answers");
    assert!(
        line["message"].as_str().unwrap().contains("not reachable"),
        "{line}"
    );
    server.restart();
    host.wait_for("the store answers again", |_| true);
    let after = send(&url, "default", "after", &[]);
    host.wait_for("acked", |line| line["id"] == after.as_str());
}

/// A message that nothing announced (a delayqueue producer publishes nothing) is found by looking.
#[test]
fn a_message_that_nothing_announced_is_found() {
    let server = RedisServer::start();
    let url = server.url();
    let mut host = Host::start(&url, &["--handler", &path("echo")]);
    let first = send(&url, "default", "first", &[]);
    host.wait_for("acked", |line| line["id"] == first.as_str());
    let () = server.command(&["SET", "{dp:default}:msg:silent", "x"]);
    let () = server.command(&["HSET", "{dp:default}:retry:cnt", "silent", "3"]);
    let () = server.command(&["ZADD", "{dp:default}:pending", "1", "silent"]);
    host.wait_for("acked", |line| line["id"] == "silent");
}

/// Each takes its time to find that nobody answers; one after the other they would need minutes.
#[test]
fn a_host_of_many_queues_stops_soon_when_its_store_is_silent() {
    let server = RedisServer::start();
    let handler = path("noop");
    let queues: Vec<String> = (0..64).map(|n| format!("q{n}")).collect();
    let queues = queues.join(",");
    let args = ["--handler", &handler, "--queue", &queues];
    let mut host = Host::start(&server.url(), &args);
    eventually("all queues are served", || {
        let hosts: usize = (0..64)
            .map(|n| server.command::<usize>(&["ZCARD", &format!("{{dp:q{n}}}:hosts")]))
            .sum();
        (hosts == 64).then_some(())
    });
    server.signal(Signal::STOP);
    host.wait_for_line_with("trying again until the store answers");
    let begin = Instant::now();
    host.signal(Signal::TERM);
    assert!(host.end().0.success());
    assert!(begin.elapsed() < Duration::from_mins(1));
    server.signal(Signal::CONT);
}

#[test]
fn dead_letters_are_kept_as_long_and_as_many_as_is_wanted() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("db").display().to_string();
    let handler = path("reject");
    for store in [server.url(), file] {
        let dead = || stats(&store, "default")["dead"].clone();
        let command = dqhost(Some(&store), &["send", "--ndjson", "-"]);
        // More than are deleted in one step.
        expect(
            feed(command, "{\"payload\": \"x\"}\n".repeat(1100).as_bytes()),
            0,
        );
        let args = ["--handler", &handler, "--slots", "64", "--exit-when-empty"];
        run(Some(&store), &args, 0);
        let last = send(&store, "default", "last", &[]);
        run(Some(&store), &args, 0);
        assert_eq!(dead(), 1101);

        let with =
            |flag: &str, value: &str| Host::start(&store, &["--handler", &handler, flag, value]);
        let _host = with("--dead-max-age", "1h");
        let mut host = with("--dead-max", "1");
        let gone = "dead letters past their retention were deleted";
        host.wait_for(gone, |line| line["deleted"] == 1100);
        assert_eq!(dead(), 1);
        assert_eq!(get(&store, "default", &last)["state"], "dead");
        let _host = with("--dead-max-age", "1ms");
        eventually("none is kept", || (dead() == 0).then_some(()));
        assert_eq!(stats(&store, "default")["totals"]["deleted"], 1101);
    }
}

#[test]
fn a_dead_letter_that_cannot_be_deleted_keeps_no_others() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("db");
    let store = file.to_str().unwrap();
    let handler = path("reject");
    for _ in 0..3 {
        send(store, "default", "x", &[]);
    }
    let args = ["--handler", &handler, "--exit-when-empty"];
    run(Some(store), &args, 0);
    // An id that is no text, of one that died long ago.
    let sql = "UPDATE messages SET id = CAST(x'ff61' AS TEXT), place = 1
               WHERE seq = (SELECT min(seq) FROM messages)";
    let connection = rusqlite::Connection::open(&file).unwrap();
    assert_eq!(connection.execute(sql, []).unwrap(), 1);
    let args = [
        "--handler",
        &handler,
        "--dead-max-age",
        "1h",
        "--dead-max",
        "1",
    ];
    let mut host = Host::start(store, &args);
    let gone = "dead letters past their retention were deleted";
    host.wait_for(gone, |line| line["deleted"] == 1);
    assert_eq!(stats(store, "default")["dead"], 2);
}

#[test]
fn a_lost_payload_becomes_a_dead_letter_that_says_so() {
    let server = RedisServer::start();
    let url = server.url();
    let id = send(&url, "default", "x", &[]);
    let () = server.command(&["DEL", &format!("{{dp:default}}:msg:{id}")]);
    run(
        Some(&url),
        &["--handler", &path("echo"), "--exit-when-empty"],
        0,
    );
    let record = get(&url, "default", &id);
    assert_eq!(record["state"], "dead");
    assert_eq!(record["payload_missing"], true);
    assert_eq!(record["history"][0]["class"], "payload-missing");
}

#[test]
fn nothing_runs_before_it_is_due() {
    let server = RedisServer::start();
    let url = server.url();
    let mut host = Host::start(&url, &["--handler", &path("echo")]);
    let sent_at = Instant::now();
    let ids: Vec<String> = [900, 300, 600]
        .map(|ms| send(&url, "default", "x", &["--in", &format!("{ms}ms")]))
        .into();
    for (index, ms) in [(1, 300), (2, 600), (0, 900)] {
        host.wait_for("acked", |line| line["id"] == ids[index].as_str());
        assert!(sent_at.elapsed() >= Duration::from_millis(ms));
    }
}

#[test]
fn hostile_text_does_not_reach_the_log_as_it_is() {
    let server = RedisServer::start();
    let url = server.url();
    send(&url, "default", "\x1b]52;c;aGk=\x07\u{9b}6n\u{202e}", &[]);
    let () = server.command(&["SET", "{dp:default}:msg:\x1b[2J", "\x1b[2J"]);
    let () = server.command(&["HSET", "{dp:default}:retry:cnt", "\x1b[2J", "3"]);
    let () = server.command(&["LPUSH", "{dp:default}:ready", "\x1b[2J"]);
    let output = run(
        Some(&url),
        &["--handler", &path("echo"), "--exit-when-empty"],
        0,
    );
    let log = stderr(&output);
    assert!(
        log.contains("\\u{1b}]52") && log.contains("id=\\u{1b}[2J"),
        "{log}"
    );
    assert!(
        !log.chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
        "{log:?}"
    );
}

/// Whoever reads the log may stop reading: nothing waits for them.
#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let mut server = RedisServer::start();
    let url = server.url();
    let handler = path("sleeper");
    let args = ["--handler", &handler, "--slots", "64", "--lease", "6s"];
    let mut host = dqhost(Some(&url), &args)
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut log = host.stderr.take().unwrap();
    // Their lines fill the pipe.
    let lines = "{\"payload\": \"0\"}\n".repeat(2000);
    let send = || dqhost(Some(&url), &["send", "--ndjson", "-"]);
    expect(feed(send(), lines.as_bytes()), 0);
    eventually("the log is full", || {
        (rustix::io::ioctl_fionread(&log).unwrap() > 60_000).then_some(())
    });
    // Redis goes and comes, which is logged as well, while a handler runs for two leases.
    expect(feed(send(), b"{\"payload\": \"13000\"}\n"), 0);
    let totals = || stats(&url, "default")["totals"].clone();
    eventually("all others are acked", || {
        (totals()["acked"] == 2000).then_some(())
    });
    server.kill();
    server.restart();
    eventually("all are acked", || {
        (totals()["acked"] == 2001).then_some(())
    });
    assert_eq!(totals()["expired"], 0);
    let reader = std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    rustix::process::kill_process(rustix::process::Pid::from_child(&host), Signal::TERM).unwrap();
    assert!(host.wait().unwrap().success());
    assert!(reader.join().unwrap().unwrap() > 60_000);
}

#[test]
fn a_bad_handler_stops_its_own_queue_alone() {
    let server = RedisServer::start();
    let folder = tempfile::TempDir::new().unwrap();
    let db = folder.path().join("q.db").to_str().unwrap().to_owned();
    let bad = folder.path().join("bad.wasm");
    std::fs::write(&bad, "no handler").unwrap();
    let good = format!("good={}", path("noop"));
    let (bad, missing) = (
        format!("bad={}", bad.display()),
        format!("missing={}", folder.path().join("missing").display()),
    );
    for store in [&server.url(), &db] {
        let args = ["--queue", &*bad, "--queue", &*good, "--queue", &*missing];
        let mut host = Host::start(store, &args);
        send(store, "good", "x", &[]);
        host.wait_for("acked", |line| line["queue"] == "good");
        for (queue, reason) in [
            ("bad", "is not a handler"),
            ("missing", "cannot read the handler"),
        ] {
            let line = host.wait_for_queue(reason, queue);
            assert_eq!(line["level"], "ERROR");
            let text = line["message"].as_str().unwrap();
            assert!(text.starts_with("this queue is not served: "), "{text}");
        }
        drop(host);
        // If none is left, or if all are wanted, the host does not start.
        for (more, says) in [
            (
                &["--queue", &*bad, "--queue", &*missing] as &[&str],
                "is not a handler",
            ),
            (
                &["--queue", &*good, "--queue", &*missing, "--strict"],
                "cannot read",
            ),
            (&["--queue", &*bad], "is not a handler"),
        ] {
            let errors = stderr(&run(Some(store), more, 4));
            assert!(errors.contains(says), "{errors}");
        }
    }
}

/// As another user than root, whom no permission stops.
#[cfg(target_os = "linux")]
#[test]
fn a_host_gives_up_what_it_never_needs() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

    let handler = path("noop");
    let mut command = dqhost(None, &["--db", ":memory:", "--handler", &handler]);
    command.stderr(Stdio::piped());
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_serving = lines.any(|line| line.unwrap().contains("serving"));
    let of_process = |name: &str| format!("/proc/{}/{name}", child.id());
    let mut threads = Vec::new();
    for thread in std::fs::read_dir(of_process("task")).unwrap() {
        let status = thread.unwrap().path().join("status");
        threads.push(std::fs::read_to_string(status).unwrap());
    }
    let limits = std::fs::read_to_string(of_process("limits")).unwrap();
    // Files of a process that is not dumpable belong to root.
    let owner = std::fs::metadata(of_process("environ")).unwrap().uid();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_serving);
    assert!(threads.len() > 3);
    for status in threads {
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    }
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{limits}");
    assert_eq!(owner, 0);
}
