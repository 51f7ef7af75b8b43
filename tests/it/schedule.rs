//! Schedules: one message for each tick, however many hosts there are and whatever happens to them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{RedisServer, dqhost, eventually, expect, guest, run, stats, stderr, stdout};

/// Ticks of the storms.
const TICKS: u64 = 500;

/// Hosts that are killed when they are dropped.
struct Hosts {
    config: String,
    children: Vec<Child>,
}

impl Hosts {
    fn start(config: String, number: usize) -> Self {
        let children = (0..number).map(|_| Self::one(&config)).collect();
        Self { config, children }
    }

    fn one(config: &str) -> Child {
        let mut command = dqhost(
            None,
            &["up", "--no-tui", "--log", "warn", "--config", config],
        );
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Kills one, and starts another in its place.
    fn replace(&mut self, index: usize) {
        let child = &mut self.children[index];
        child.kill().unwrap();
        child.wait().unwrap();
        *child = Self::one(&self.config);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millisecond(since_1970.as_millis().try_into().unwrap()).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Three hosts of a store send and handle the ticks of a schedule, and one of them after the other is
/// killed. In the end each tick was handled once or waits once.
fn storm(store: &str) {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("storm.toml");
    let of_store = if store.contains("://") { "redis" } else { "db" };
    let text = format!(
        "{of_store} = {store:?}\nlease = \"1s\"\nhandler = \"{}\"\nslots = 4\n\n[queue.q]\n\
         [[queue.q.schedule]]\nname = \"often\"\nevery = \"50ms\"\nmissed = \"all\"\nmissed-max = 1000\n\
         since = \"{}\"\nretries = 1000\n",
        guest("noop").display(),
        now(),
    );
    fs::write(&config, text).unwrap();
    // A file that is asked for its state has to be there.
    run(Some(store), &["send", "x", "-q", "other"], 0);
    let mut hosts = Hosts::start(config.display().to_string(), 3);
    let (mut killed, mut next_kill) = (0, 20);
    eventually("the ticks are handled", || {
        let acked = number(&stats(store, "q")["totals"]["acked"]);
        if acked >= next_kill {
            hosts.replace(killed % 3);
            killed += 1;
            next_kill = acked + 20;
        }
        (acked >= TICKS).then_some(())
    });
    // What is sent from here on waits, and tells which tick was the last.
    run(Some(store), &["pause", "-q", "q"], 0);
    eventually("a tick waits", || {
        (number(&stats(store, "q")["ready"]) > 0).then_some(())
    });
    drop(hosts);
    // What the killed hosts had in flight comes back, and waits as well.
    let mut command = dqhost(
        None,
        &[
            "up", "--no-tui", "--queue", "other", "--queue", "q", "--config",
        ],
    );
    let without = folder.path().join("without.toml");
    fs::write(
        &without,
        format!(
            "{of_store} = {store:?}\nhandler = \"{}\"\n",
            guest("noop").display()
        ),
    )
    .unwrap();
    let mut last = command.arg(&without).stderr(Stdio::null()).spawn().unwrap();
    eventually("nothing is in flight", || {
        let stats = stats(store, "q");
        (number(&stats["unack"]) == 0 && number(&stats["pending"]) == 0).then_some(())
    });
    last.kill().unwrap();
    last.wait().unwrap();
    check_ticks(store, &config);
    assert!(killed > 5, "{killed}");
}

/// Each tick from the beginning on was handled once or waits once.
fn check_ticks(store: &str, config: &Path) {
    let mut ticks = Vec::new();
    for state in ["ready", "retry"] {
        let args = ["list", state, "-q", "q", "--json", "--limit", "100000"];
        for line in stdout(&run(Some(store), &args, 0)).lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            let headers = record["headers"].as_array().unwrap();
            let tick = headers
                .iter()
                .find(|header| header[0] == "dqhost-tick")
                .unwrap();
            let tick: Timestamp = tick[1].as_str().unwrap().parse().unwrap();
            ticks.push(tick.as_millisecond());
        }
    }
    let waiting: BTreeSet<i64> = ticks.iter().copied().collect();
    assert_eq!(waiting.len(), ticks.len(), "a tick waits twice");
    let text = fs::read_to_string(config).unwrap();
    let since = text
        .lines()
        .find_map(|line| line.strip_prefix("since = "))
        .unwrap();
    let since: Timestamp = since.trim_matches('"').parse().unwrap();
    let first = since.as_millisecond().div_euclid(50) + i64::from(since.as_millisecond() % 50 != 0);
    let expected = waiting.last().unwrap() / 50 - first + 1;
    let stats = stats(store, "q");
    let acked = i64::try_from(number(&stats["totals"]["acked"])).unwrap();
    let waiting = i64::try_from(waiting.len()).unwrap();
    assert_eq!(acked + waiting, expected, "{stats}");
    assert_eq!(number(&stats["dead"]), 0);
}

#[test]
fn three_hosts_that_are_killed_send_each_tick_once_to_a_file() {
    let folder = TempDir::new().unwrap();
    storm(folder.path().join("jobs.db").to_str().unwrap());
}

#[test]
fn three_hosts_that_are_killed_send_each_tick_once_to_redis() {
    let server = RedisServer::start();
    storm(&server.url());
}

/// The file of one schedule.
fn file(schedule: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = format!("db = \"jobs.db\"\n[[queue.q.schedule]]\n{schedule}\n");
    fs::write(folder.path().join("dqhost.toml"), text).unwrap();
    folder
}

#[test]
fn a_schedule_is_listed_in_words_and_with_its_next_times() {
    let folder = file("name = \"report\"\ncron = \"0 9 1 1 *\"\ntimezone = \"Europe/Berlin\"");
    let list = |args: &[&str]| {
        let mut command = dqhost(None, &[&["schedule", "list"], args].concat());
        stdout(&expect(
            command.current_dir(folder.path()).output().unwrap(),
            0,
        ))
    };
    let text = list(&[]);
    let mut lines = text.lines();
    let first = lines.next().unwrap();
    assert!(
        first.starts_with("q report: At 09:00") && first.ends_with("(Europe/Berlin)"),
        "{text}"
    );
    let times: Vec<&str> = lines.collect();
    assert_eq!(times.len(), 5);
    assert!(
        times
            .iter()
            .all(|line| line.contains("-01-01 09:00:00 +01:00  in ")),
        "{text}"
    );
    let json: Value = serde_json::from_str(&list(&["--json", "--queue", "q"])).unwrap();
    assert!(
        json["next"][0]
            .as_str()
            .unwrap()
            .ends_with("-01-01T08:00:00Z"),
        "{json}"
    );
    assert_eq!(list(&["--queue", "other"]), "");
}

#[test]
fn the_message_of_a_tick_has_what_the_schedule_says() {
    let folder = file(
        "name = \"often\"\nevery = \"50ms\"\npayload = \"{}\"\nheader = { kind = \"report\" }\nretries = 7",
    );
    let store = folder.path().join("jobs.db").display().to_string();
    // There is no file yet that could be paused.
    run(Some(&store), &["send", "x", "-q", "other"], 0);
    run(Some(&store), &["pause", "-q", "q", "--create"], 0);
    let echo = guest("echo").display().to_string();
    let mut command = dqhost(None, &["up", "--no-tui", "--handler", &echo]);
    command.current_dir(folder.path()).stderr(Stdio::null());
    let mut host = command.spawn().unwrap();
    eventually("a tick is sent", || {
        (number(&stats(&store, "q")["ready"]) > 0).then_some(())
    });
    host.kill().unwrap();
    host.wait().unwrap();
    let listed = stdout(&run(
        Some(&store),
        &["list", "ready", "-q", "q", "--json", "--limit", "1"],
        0,
    ));
    let record: Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(record["payload"], "{}");
    assert_eq!(record["retries"], 7);
    assert_eq!(record["headers"][0], serde_json::json!(["kind", "report"]));
    assert_eq!(
        record["headers"][1],
        serde_json::json!(["dqhost-schedule", "often"])
    );
    let tick: Timestamp = record["headers"][2][1].as_str().unwrap().parse().unwrap();
    assert_eq!(tick.as_millisecond() % 50, 0);
    let age = now().duration_since(tick);
    assert!(age.as_secs() < 3600, "{age}");
}

#[test]
fn each_mistake_in_a_schedule_is_told() {
    let mut told = String::new();
    for schedule in [
        "cron = \"0 9 * * *\"",
        "name = \"a b\"\ncron = \"0 9 * * *\"",
        "name = \"x\"",
        "name = \"x\"\ncron = \"0 9 * * *\"\nevery = \"5m\"",
        "name = \"x\"\ncron = \"0 25 * * *\"",
        "name = \"x\"\ncron = \"0 0 30 2 *\"",
        "name = \"x\"\nevery = \"1ms\"",
        "name = \"x\"\nevery = \"5m\"\ntimezone = \"Europe/Bonn\"",
        "name = \"x\"\nevery = \"5m\"\nmissed = \"some\"",
        "name = \"x\"\nevery = \"5m\"\nmissed = \"all\"",
        "name = \"x\"\nevery = \"5m\"\nsince = \"monday\"",
        "name = \"x\"\nevery = \"5m\"\ncatch-up = \"400d\"",
        "name = \"x\"\nevery = \"5m\"\npayloat = \"{}\"",
        "name = \"x\"\nevery = \"5m\"\n[[queue.q.schedule]]\nname = \"x\"\nevery = \"6m\"",
    ] {
        let folder = file(schedule);
        let mut command = dqhost(None, &["schedule", "list"]);
        let refusal = expect(command.current_dir(folder.path()).output().unwrap(), 2);
        let _ = writeln!(
            told,
            "---- {}\n{}",
            schedule.escape_debug(),
            stderr(&refusal)
        );
    }
    insta::assert_snapshot!("schedule-mistakes", told);
}

#[test]
fn the_message_of_a_schedule_is_sent_when_an_operator_asks_for_it() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    for store in [server.url(), file] {
        let config = folder.path().join("run.toml");
        let of_store = if store.contains("://") { "redis" } else { "db" };
        let text = format!(
            "{of_store} = {store:?}\n[queue.reports]\n[[queue.reports.schedule]]\nname = \"daily\"\n\
             cron = \"0 8 * * *\"\npayload = \"sums\"\nheader = {{ kind = \"day\" }}\nretries = 1\n"
        );
        fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let of = |name: &str, code| {
            let args = [
                "schedule", "run", name, "-q", "reports", "--config", &config,
            ];
            run(None, &args, code)
        };
        let ids: Vec<String> = (0..2).map(|_| stdout(&of("daily", 0))).collect();
        assert_ne!(ids[0], ids[1]);
        let get = ["get", ids[0].trim(), "-q", "reports", "--json"];
        let message: Value = serde_json::from_str(&stdout(&run(Some(&store), &get, 0))).unwrap();
        assert_eq!(message["state"], "ready", "{message}");
        assert_eq!(
            (&message["payload"], &message["retries_left"]),
            (&"sums".into(), &1.into())
        );
        let headers = message["headers"].to_string();
        for has in ["day", "daily", "dqhost-tick"] {
            assert!(headers.contains(has), "{headers}");
        }
        let errors = stderr(&of("x\u{1b}", 2));
        assert!(
            errors.contains("no schedule x\\u{1b}: it has daily"),
            "{errors}"
        );
        assert_eq!(stats(&store, "reports")["ready"], 2);
    }
}
