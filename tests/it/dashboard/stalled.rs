//! Terminals that nobody reads, and those that go away: neither stops a host.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::tty::Tty;
use crate::support::{RedisServer, dqhost, eventually, expect, feed, guest, stats};

/// A screen so large that a few frames of it are more than any terminal keeps unread.
const LARGE: (u16, u16) = (300, 100);

/// Draws every cell of the screen again.
const REDRAW: &str = "\x0c";

fn total(store: &str, name: &str) -> u64 {
    stats(store, "default")["totals"][name].as_u64().unwrap()
}

/// A host with its dashboard, whose handlers take so many milliseconds as a message says.
fn host(store: &str, more: &[&str]) -> Tty {
    let handler = guest("sleeper");
    let args = [&["--handler", handler.to_str().unwrap()], more].concat();
    let mut tty = Tty::start(store, &args, LARGE);
    if !more.contains(&"--no-tui") {
        tty.wait_for("> default");
    }
    tty
}

fn send(store: &str, payload: &str, count: usize) {
    let lines = format!("{{\"payload\": {payload:?}}}\n").repeat(count);
    let command = dqhost(Some(store), &["send", "--ndjson"]);
    expect(feed(command, lines.as_bytes()), 0);
}

/// Sends messages and waits until so many are acked in all.
fn pass(store: &str, payload: &str, count: usize, acked: u64) {
    send(store, payload, count);
    eventually("all are acked", || {
        (total(store, "acked") == acked).then_some(())
    });
}

/// While nobody reads the terminal: messages that need their lease renewed and others are handled
/// once each, and SIGTERM ends the host. Later the terminal is read again, and is as it was.
fn a_stalled_terminal_stops_nothing(store: &str) {
    let mut tty = host(store, &["--lease", "3s"]);
    tty.keys("6");
    tty.wait_for("dqhost.log");
    tty.stall();
    for round in 0..30 {
        tty.keys(REDRAW);
        // So long that each round has a frame.
        pass(store, "120", 5, (round + 1) * 5);
    }
    // Two leases long.
    pass(store, "6000", 3, 153);
    send(store, "2000", 1);
    eventually("one is in flight", || {
        (stats(store, "default")["unack"] == 1).then_some(())
    });
    tty.signal(Signal::TERM);
    assert_eq!(tty.code(), 0);
    for (name, expected) in [
        ("acked", 154),
        ("nacked", 0),
        ("expired", 0),
        ("released", 0),
    ] {
        assert_eq!(total(store, name), expected, "{name}");
    }
    tty.read_on();
    tty.end(0);
}

#[test]
fn a_terminal_that_is_not_read_stops_nothing_on_redis() {
    let server = RedisServer::start();
    a_stalled_terminal_stops_nothing(&server.url());
}

#[test]
fn a_terminal_that_is_not_read_stops_nothing_on_a_file() {
    let folder = TempDir::new().unwrap();
    a_stalled_terminal_stops_nothing(folder.path().join("dqhost.db").to_str().unwrap());
}

/// So many messages a second, for `DQHOST_STALL_SECONDS` (300).
const A_SECOND: u32 = 500;

#[test]
#[ignore = "takes minutes: cargo test --test it -- --ignored --nocapture unread_for_minutes"]
fn a_terminal_that_is_unread_for_minutes_stops_nothing() {
    let seconds = std::env::var("DQHOST_STALL_SECONDS").map_or(300, |n| n.parse().unwrap());
    let server = RedisServer::start();
    let url = server.url();
    let mut tty = host(&url, &["--lease", "3s", "--slots", "64"]);
    tty.keys("6");
    tty.wait_for("dqhost.log");
    tty.stall();
    let begin = Instant::now();
    let mut command = dqhost(Some(&url), &["send", "--ndjson"]);
    let mut producer = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = producer.stdin.take().unwrap();
    let count = seconds * A_SECOND;
    for n in 0..count {
        std::thread::sleep(
            (begin + Duration::from_secs(1) * n / A_SECOND)
                .saturating_duration_since(Instant::now()),
        );
        // One in a hundred is longer than a lease.
        let ms = if n % 100 == 0 { 4000 } else { 5 };
        writeln!(lines, "{{\"payload\": \"{ms}\"}}").unwrap();
        lines.flush().unwrap();
        if n % A_SECOND == 0 {
            tty.keys(REDRAW);
        }
    }
    drop(lines);
    assert!(producer.wait().unwrap().success());
    eventually("all are acked", || {
        (total(&url, "acked") == u64::from(count)).then_some(())
    });
    println!(
        "{count} sent in {:?}: {}",
        begin.elapsed(),
        stats(&url, "default")
    );
    let told = Instant::now();
    tty.signal(Signal::TERM);
    assert_eq!(tty.code(), 0);
    println!("it ended {:?} after SIGTERM", told.elapsed());
    for name in ["nacked", "expired", "released", "dead"] {
        assert_eq!(total(&url, name), 0, "{name}");
    }
    let log = std::fs::read_to_string(tty.state.path().join("dqhost/dqhost.log")).unwrap();
    println!("{}", log.lines().last().unwrap());
    assert!(log.contains(" stale=0 lost=0 "), "{log}");
}

#[test]
fn a_dashboard_without_a_host_ends_when_it_is_told_to_and_its_terminal_is_not_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    send(store, "x", 1);
    let mut tty = Tty::start(store, &["top"], LARGE);
    tty.wait_for("> default");
    tty.stall();
    for round in 0..30 {
        tty.keys(REDRAW);
        send(store, "x", 1);
        assert_eq!(total(store, "sent"), round + 2);
    }
    tty.signal(Signal::TERM);
    assert_eq!(tty.code(), 0);
    tty.read_on();
    tty.end(0);
}

/// How long a process has computed so far.
fn computed(pid: rustix::process::Pid) -> Duration {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    // utime and stime, in hundredths of a second.
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[test]
fn a_terminal_that_goes_away_drains_the_host_quietly() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    for more in [&[][..], &["--no-tui"][..]] {
        let acked = stats_or_none(store);
        let mut tty = host(store, more);
        send(store, "3000", 1);
        eventually("it is in flight", || {
            (stats(store, "default")["unack"] == 1).then_some(())
        });
        let begin = Instant::now();
        let before = computed(tty.pid());
        tty.hang_up(|| send(store, "0", 1));
        let mut spent = Duration::ZERO;
        eventually("the host has drained", || {
            spent = computed(tty.pid());
            (total(store, "acked") == acked + 2).then_some(())
        });
        // Something that spins computes for all of this time.
        assert!(
            spent.saturating_sub(before) * 2 < begin.elapsed(),
            "{before:?} {spent:?}"
        );
        assert_eq!(tty.code(), 0, "{more:?}");
        assert_eq!(total(store, "released"), 0, "{more:?}");
        if more.is_empty() {
            let log = std::fs::read_to_string(tty.state.path().join("dqhost/dqhost.log")).unwrap();
            assert!(
                log.contains("stopped") && !log.contains("panicked"),
                "{log}"
            );
        }
    }
}

fn stats_or_none(store: &str) -> u64 {
    if std::path::Path::new(store).exists() {
        total(store, "acked")
    } else {
        0
    }
}

/// However often it is told: the kernel tells of it, and so does the shell.
#[test]
fn hangups_never_stop_handlers_at_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    let mut tty = host(store, &["--no-tui"]);
    send(store, "2000", 1);
    eventually("it is in flight", || {
        (stats(store, "default")["unack"] == 1).then_some(())
    });
    tty.hang_up(|| send(store, "0", 1));
    for _ in 0..3 {
        tty.signal(Signal::HUP);
    }
    assert_eq!(tty.code(), 0);
    assert_eq!((total(store, "acked"), total(store, "released")), (2, 0));
}

#[test]
fn a_host_that_is_told_to_outlive_its_terminal_does() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    let handler = guest("sleeper");
    let script = "trap '' HUP; exec \"$0\" --no-tui --handler \"$1\"";
    let mut host = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_dqhost")])
        .arg(&handler)
        .env("DQHOST_DB", store)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it serves", || path.exists().then_some(()));
    pass(store, "0", 1, 1);
    let pid = rustix::process::Pid::from_child(&host);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    pass(store, "0", 1, 2);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(host.wait().unwrap().code(), Some(0));
}

/// Its shell has the terminal: nothing is drawn, and the host works and ends as without a dashboard.
#[test]
fn a_host_in_the_background_works_and_ends() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    let handler = guest("sleeper");
    let script =
        "set -m; \"$0\" --handler \"$1\" & echo \"it is $!.\"; wait $!; echo \"ended $?.\"";
    let args = [
        "-c",
        script,
        env!("CARGO_BIN_EXE_dqhost"),
        handler.to_str().unwrap(),
    ];
    let env = [("DQHOST_DB", store)];
    let mut tty = Tty::start_program("sh", &args, (80, 24), &env);
    let text = tty.wait_until("its number", |text| {
        text.contains("it is ") && text.contains('.')
    });
    let number = text
        .split("it is ")
        .nth(1)
        .unwrap()
        .split('.')
        .next()
        .unwrap();
    let pid = rustix::process::Pid::from_raw(number.parse().unwrap()).unwrap();
    eventually("it serves", || path.exists().then_some(()));
    pass(store, "0", 1, 1);
    // So long that whoever looks sees it, also on a busy machine.
    send(store, "8000", 1);
    eventually("it is in flight", || {
        (stats(store, "default")["unack"] == 1).then_some(())
    });
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    tty.wait_for("ended 0.");
    assert_eq!(total(store, "acked"), 2);
    tty.end(0);
}

#[test]
fn a_terminal_that_calls_itself_huge_costs_no_memory() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    let mut tty = host(store, &[]);
    let before = tty.bytes().len();
    tty.pretend(u16::MAX, u16::MAX);
    eventually("it has drawn", || {
        // Each row of the largest screen is told of.
        (tty.bytes().len() > before + 500).then_some(())
    });
    pass(store, "0", 1, 1);
    let path = format!("/proc/{}/status", tty.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.unwrap().split_whitespace().next().unwrap();
    assert!(kib.parse::<u64>().unwrap() < 1 << 20, "{status}");
    tty.signal(Signal::TERM);
    assert_eq!(tty.code(), 0);
}
