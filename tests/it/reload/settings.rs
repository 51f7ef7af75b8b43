//! Settings that are changed while a host works.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::support::{
    Host, RedisServer, dqhost, eventually, expect, guest, run, send_patiently, stats, stdout,
    with_hangups, with_message,
};

const READ: &str = "the settings were read again";
const KEPT: &str = "the settings stay as they were";
/// How long a handler takes that is there when its queue changes.
const TAKES_MS: u64 = 5000;

const ANEW: &str = "the queue is served with its new settings";

/// A file of settings, and the store of its queues.
struct Settings {
    folder: TempDir,
    store: String,
    /// How often a host was told of the file.
    told: usize,
}

impl Settings {
    fn new(store: Option<String>) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("dqhost.db").display().to_string();
        Self {
            store: store.unwrap_or(file),
            folder,
            told: 0,
        }
    }

    fn path(&self) -> String {
        let path = self.folder.path().join("dqhost.toml");
        path.display().to_string()
    }

    /// Each queue with its example and the keys of its table; `top` stands before them.
    fn write(&self, top: &str, queues: &[(&str, &str, &str)]) {
        let table = |(name, example, keys): &(&str, &str, &str)| {
            let handler = guest(example).display().to_string();
            format!("[queue.{name}]\nhandler = {handler:?}\n{keys}\n")
        };
        let tables: String = queues.iter().map(table).collect();
        let new = self.folder.path().join("new.toml");
        fs::write(&new, format!("{top}\n{tables}")).unwrap();
        fs::rename(&new, self.path()).unwrap();
    }

    fn start(&self, args: &[&str]) -> Host {
        let path = self.path();
        let args = [&["--config", &path], args].concat();
        Host::start_command(with_hangups(&dqhost(Some(&self.store), &args)))
    }

    /// Tells a host, and waits until it has read them.
    fn tell(&mut self, host: &mut Host) {
        self.told += 1;
        host.signal(Signal::HUP);
        host.wait_for_count(READ, self.told);
    }

    fn send(&self, queue: &str, payload: &str) -> String {
        let args = ["send", payload, "--queue", queue, "--retries", "0"];
        stdout(&run(Some(&self.store), &args, 0)).trim().to_owned()
    }

    /// The last attempt of a message, once it is dead.
    fn how_it_died(&self, queue: &str, id: &str) -> Value {
        eventually("it is dead", || {
            let args = ["get", "--json", "--queue", queue, id];
            let record: Value =
                serde_json::from_slice(&run(Some(&self.store), &args, 0).stdout).unwrap();
            (record["state"] == "dead").then(|| record["history"][0].clone())
        })
    }
}

fn stop(host: Host) -> Vec<Value> {
    host.signal(Signal::TERM);
    let (status, lines) = host.end();
    assert!(status.success());
    lines
}

fn queues_come_change_and_go(store: Option<String>) {
    let mut settings = Settings::new(store);
    settings.write("", &[("one", "env-reader", "env = { COLOR = \"red\" }")]);
    let mut host = settings.start(&[]);
    host.wait_for_queue("serving", "one");
    let died = settings.how_it_died("one", &settings.send("one", ""));
    assert!(
        died["reason"].as_str().unwrap().contains("COLOR=red"),
        "{died}"
    );

    let two = ("two", "reject", "retries = 0");
    settings.write(
        "",
        &[("one", "env-reader", "env = { COLOR = \"blue\" }"), two],
    );
    settings.tell(&mut host);
    host.wait_for_queue("serving", "two");
    let died = settings.how_it_died("two", &settings.send("two", "x"));
    assert_eq!(died["class"], "rejected");
    let died = settings.how_it_died("one", &settings.send("one", ""));
    assert!(
        died["reason"].as_str().unwrap().contains("COLOR=blue"),
        "{died}"
    );

    settings.write("", &[two]);
    settings.tell(&mut host);
    host.wait_for_queue("served no longer", "one");
    // It is not reserved by a loop that goes on: the same host would have taken it before the next one.
    let left = settings.send("one", "");
    settings.how_it_died("two", &settings.send("two", "y"));
    eventually("the host has left the queue", || {
        let shown = stats(&settings.store, "one");
        (shown["hosts"] == 0 || shown["hosts"].as_array().is_some_and(Vec::is_empty)).then_some(())
    });
    assert_eq!(stats(&settings.store, "one")["ready"], 1);

    settings.write("", &[two, ("one", "env-reader", "")]);
    settings.tell(&mut host);
    let died = settings.how_it_died("one", &left);
    assert_eq!(died["class"], "rejected");
    let lines = stop(host);
    let stopped = with_message(&lines, "stopped")[0];
    assert_eq!(
        (&stopped["lost"], &stopped["released"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn queues_come_change_and_go_on_a_file() {
    queues_come_change_and_go(None);
}

#[test]
fn queues_come_change_and_go_on_redis() {
    let server = RedisServer::start();
    queues_come_change_and_go(Some(server.url()));
}

/// The lease is a tenth of what the handler takes, so it has to be renewed by what is left of the old loop.
#[test]
fn what_runs_ends_under_its_old_settings_and_counts_among_the_slots_of_the_new_ones() {
    let mut settings = Settings::new(None);
    let keys = "slots = 1\nlease = \"1s\"\ntimeout = \"60s\"\n";
    settings.write("", &[("one", "sleeper", keys)]);
    let mut host = settings.start(&["--log", "debug"]);
    host.wait_for_queue("serving", "one");
    let first = settings.send("one", &TAKES_MS.to_string());
    host.wait_for("reserved", |line| line["id"] == *first);
    let keys = "slots = 1\nlease = \"30s\"\ntimeout = \"60s\"\n";
    settings.write("", &[("one", "sleeper", keys)]);
    settings.tell(&mut host);
    host.wait_for_queue(ANEW, "one");
    let second = settings.send("one", "0");
    host.wait_for("acked", |line| line["id"] == *second);
    let lines = stop(host);
    let asked_at = |id: &str| {
        let reserved = with_message(&lines, "reserved").into_iter();
        let mut of_it = reserved.filter(|line| line["id"] == id);
        of_it.next().unwrap()["asked_at_ms"].as_u64().unwrap()
    };
    assert!(asked_at(&second) - asked_at(&first) >= TAKES_MS);
    assert_eq!(with_message(&lines, "reserved").len(), 2);
    let stopped = with_message(&lines, "stopped")[0];
    assert_eq!(
        (&stopped["acked"], &stopped["lost"]),
        (&2.into(), &0.into())
    );
}

#[test]
fn a_host_tells_what_is_in_flight_also_from_before_its_queue_changed() {
    let mut settings = Settings::new(None);
    settings.write("drain = \"0s\"", &[("one", "sleeper", "lease = \"10s\"")]);
    let mut host = settings.start(&["--log", "debug"]);
    host.wait_for_queue("serving", "one");
    let id = settings.send("one", "9999999");
    host.wait_for("reserved", |line| line["id"] == *id);
    settings.write("drain = \"0s\"", &[("one", "sleeper", "lease = \"20s\"")]);
    settings.tell(&mut host);
    host.wait_for_queue(ANEW, "one");
    let changed = Instant::now();
    let in_flight = eventually("the host has told of itself since then", || {
        let host = &stats(&settings.store, "one")["hosts"][0];
        let seen = Duration::from_millis(host["seen_ms_ago"].as_u64()?);
        (seen < changed.elapsed()).then(|| host["in_flight"].clone())
    });
    assert_eq!(in_flight, 1);
    stop(host);
}

#[test]
fn what_runs_of_a_queue_that_is_gone_is_given_back_at_the_end() {
    let mut settings = Settings::new(None);
    let stays = ("stays", "echo", "");
    settings.write("drain = \"0s\"", &[("goes", "sleeper", ""), stays]);
    let mut host = settings.start(&["--log", "debug"]);
    host.wait_for_queue("serving", "stays");
    let id = settings.send("goes", "9999999");
    host.wait_for("reserved", |line| line["id"] == *id);
    settings.write("drain = \"0s\"", &[stays]);
    settings.tell(&mut host);
    host.wait_for_queue("served no longer", "goes");
    assert_eq!(stats(&settings.store, "goes")["unack"], 1);
    let lines = stop(host);
    assert_eq!(with_message(&lines, "stopped")[0]["released"], 1);
    assert_eq!(stats(&settings.store, "goes")["unack"], 0);
}

#[test]
fn wrong_settings_change_nothing_and_say_where_they_are_wrong() {
    let mut settings = Settings::new(None);
    let one = ("one", "echo", "memory = 64");
    settings.write("slots = 4", &[one]);
    let mut host = settings.start(&[]);
    host.wait_for_queue("serving", "one");
    let mut kept = 0;
    for (top, queue, reason) in [
        ("slot = 4", one, "dqhost.toml:1"),
        (
            "slots = 4",
            ("one", "echo", "lease = \"soon\""),
            "dqhost.toml:4",
        ),
        (
            "slots = 4",
            ("one", "echo", "memory = 512"),
            "restart the host",
        ),
        (
            "slots = 4",
            ("one", "echo", "env-from = [\"NOT_SET_HERE\"]"),
            "NOT_SET_HERE",
        ),
    ] {
        settings.write(top, &[queue, ("new", "echo", "")]);
        host.signal(Signal::HUP);
        kept += 1;
        host.wait_for_count(KEPT, kept);
        host.wait_for_line_with(reason);
        let id = settings.send("one", "x");
        host.wait_for("acked", |line| line["id"] == *id);
    }
    fs::write(settings.path(), b"\xff").unwrap();
    host.signal(Signal::HUP);
    host.wait_for_count(KEPT, kept + 1);
    // Those that wait for a restart hold up no others.
    settings.write("slots = 5", &[one, ("new", "echo", "")]);
    settings.tell(&mut host);
    let waits = host.wait_for_start("these settings of the file wait for a restart");
    assert!(
        waits["message"].as_str().unwrap().ends_with(": slots"),
        "{waits}"
    );
    host.wait_for_queue("serving", "new");
    stop(host);
}

#[test]
fn a_queue_whose_new_handler_is_broken_stays_whole_as_it_was() {
    let mut settings = Settings::new(None);
    settings.write("", &[("one", "env-reader", "env = { COLOR = \"red\" }")]);
    let mut host = settings.start(&[]);
    host.wait_for_queue("serving", "one");
    fs::write(settings.folder.path().join("broken.wasm"), "broken").unwrap();
    let text = "[queue.one]\nhandler = \"broken.wasm\"\nenv = { COLOR = \"blue\" }\nretries = 7\n";
    fs::write(settings.path(), text).unwrap();
    settings.tell(&mut host);
    host.wait_for_queue("the old handler goes on", "one");
    let died = settings.how_it_died("one", &settings.send("one", ""));
    assert!(
        died["reason"].as_str().unwrap().contains("COLOR=red"),
        "{died}"
    );
    stop(host);
}

#[test]
fn a_watched_file_of_settings_is_taken_over_and_the_dashboard_shows_its_queues() {
    let settings = Settings::new(None);
    settings.write("", &[("one", "echo", "")]);
    let path = settings.path();
    let mut tty = Tty::start(&settings.store, &["--config", &path, "--watch"], (120, 40));
    tty.wait_for("> one");
    settings.write("", &[("one", "echo", ""), ("another", "echo", "")]);
    tty.wait_for("another");
    tty.signal(Signal::TERM);
    tty.end(0);
}

/// Settings change 60 times while messages flow; leases and slots are among them.
fn changes_lose_nothing(store: Option<String>) {
    let mut settings = Settings::new(store);
    // On a busy machine a host may get no processor for longer than a short lease.
    let write = |settings: &Settings, n: usize| {
        let keys = format!(
            "lease = \"{}s\"\nslots = {}\nretries = {n}",
            600 + n % 3,
            4 + n % 5
        );
        let other = ("other", "echo", "");
        let queues = [("one", "sleeper", keys.as_str()), other];
        settings.write(
            "",
            if n.is_multiple_of(4) {
                &queues[..1]
            } else {
                &queues
            },
        );
    };
    write(&settings, 1);
    let mut host = settings.start(&["--slots", "16"]);
    host.wait_for_queue("serving", "one");
    let mut sent = 0;
    for n in 2..=60 {
        for queue in ["one", "other"] {
            let line = |m| format!("{{\"payload\": \"3\", \"idempotency_key\": \"{n}-{m}\"}}\n");
            let lines: String = (0..50).map(line).collect();
            expect(send_patiently(&settings.store, queue, lines.as_bytes()), 0);
        }
        sent += 50;
        write(&settings, n);
        settings.tell(&mut host);
    }
    settings.write("", &[("one", "echo", ""), ("other", "echo", "")]);
    settings.tell(&mut host);
    for queue in ["one", "other"] {
        eventually("all are acked", || {
            (stats(&settings.store, queue)["totals"]["acked"] == sent).then_some(())
        });
        let totals = &stats(&settings.store, queue)["totals"];
        for name in ["nacked", "rejected", "expired", "released"] {
            assert_eq!(totals[name], 0, "{name}");
        }
    }
    let lines = stop(host);
    assert_eq!(with_message(&lines, "acked").len(), 2 * sent);
    let stopped = with_message(&lines, "stopped")[0];
    let none = Value::from(0);
    assert_eq!((&stopped["lost"], &stopped["stale"]), (&none, &none));
}

#[test]
fn sixty_changes_of_settings_lose_nothing_on_a_file() {
    changes_lose_nothing(None);
}

#[test]
fn sixty_changes_of_settings_lose_nothing_on_redis() {
    let server = RedisServer::start();
    changes_lose_nothing(Some(server.url()));
}
