//! Schedules: one message for each tick, however many hosts there are and whatever happens to them.

mod clocks;

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
        "name = \"x\"\ncron = \"99 9 * * *\"",
        "name = \"x\"\ncron = \"61 * * * * *\"",
        "name = \"x\"\ncron = \"* * * *\"",
        "name = \"x\"\ncron = \"0 0 30 2 *\"",
        "name = \"x\"\nevery = \"1ms\"",
        "name = \"x\"\nevery = \"5m\"\ntimezone = \"Europe/Bonn\"",
        "name = \"x\"\nevery = \"5m\"\nmissed = \"some\"",
        "name = \"x\"\nevery = \"5m\"\noverlap = \"queue\"",
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

/// The settings of a store with these queues.
fn settings(folder: &Path, store: &str, queues: &str) -> String {
    let of_store = if store.contains("://") { "redis" } else { "db" };
    let config = folder.join("dqhost.toml");
    fs::write(&config, format!("{of_store} = {store:?}\n{queues}")).unwrap();
    // A file that is asked for its state has to be there.
    run(Some(store), &["send", "x", "-q", "nobody"], 0);
    config.display().to_string()
}

fn with_each_store(check: impl Fn(&Path, &str)) {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    check(folder.path(), &server.url());
    let file = folder.path().join("jobs.db").display().to_string();
    check(folder.path(), &file);
}

/// What `dqhost schedule list` says of the only schedule of `q`.
fn listed(config: &str) -> Value {
    let args = ["schedule", "list", "--json", "-q", "q", "--config", config];
    serde_json::from_str(&stdout(&run(None, &args, 0))).unwrap()
}

#[test]
fn a_tick_is_skipped_while_the_last_one_runs_on_any_host() {
    with_each_store(|folder, store| {
        let sleeper = guest("sleeper").display().to_string();
        let queues = format!(
            "handler = {sleeper:?}\ntimeout = \"3h\"\n[queue.q]\n[[queue.q.schedule]]\n\
             name = \"often\"\nevery = \"50ms\"\npayload = \"3600000\"\noverlap = \"skip\"\n"
        );
        let config = settings(folder, store, &queues);
        let _hosts = Hosts::start(config.clone(), 2);
        let mut skipped = 0;
        for round in 1..=3 {
            eventually("ticks are skipped while one runs", || {
                let is_running = stats(store, "q")["unack"] == 1;
                let now = number(&listed(&config)["skipped"]);
                (is_running && now >= skipped + 3).then_some(())
            });
            let now = stats(store, "q");
            assert_eq!(number(&now["totals"]["sent"]), round, "{now}");
            let args = ["list", "unack", "-q", "q", "--json"];
            let running: Value =
                serde_json::from_str(stdout(&run(Some(store), &args, 0)).trim()).unwrap();
            let id = running["id"].as_str().unwrap();
            skipped = number(&listed(&config)["skipped"]);
            run(Some(store), &["cancel", "--kill", id, "-q", "q"], 0);
        }
        let text = stdout(&run(None, &["schedule", "list", "--config", &config], 0));
        assert!(text.contains("q often: Every 50ms, "), "{text}");
        assert!(text.contains(" ticks skipped\n"), "{text}");
    });
}

/// The ticks of the messages that wait in `q`, in order, as unix milliseconds.
fn waiting_ticks(store: &str) -> Vec<i64> {
    let args = ["list", "ready", "-q", "q", "--json", "--limit", "100000"];
    let listed = stdout(&run(Some(store), &args, 0));
    let tick = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let tick: Timestamp = record["headers"][1][1].as_str().unwrap().parse().unwrap();
        tick.as_millisecond()
    };
    let mut ticks: Vec<i64> = listed.lines().map(tick).collect();
    ticks.sort_unstable();
    ticks
}

#[test]
fn a_new_schedule_begins_when_a_host_first_sees_it_and_goes_on_after_a_restart() {
    with_each_store(|folder, store| {
        let noop = guest("noop").display().to_string();
        let queues = format!(
            "handler = {noop:?}\n[queue.q]\n[[queue.q.schedule]]\nname = \"s\"\nevery = \"100ms\"\n"
        );
        let config = settings(folder, store, &queues);
        run(Some(store), &["pause", "-q", "q", "--create"], 0);
        let began = now().as_millisecond();
        let until = |tick: i64| {
            let _hosts = Hosts::start(config.clone(), 2);
            eventually("ticks are sent", || {
                let ticks = waiting_ticks(store);
                ticks.last().is_some_and(|last| *last >= tick).then_some(())
            });
        };
        until(began);
        let first = waiting_ticks(store);
        // None of the minute before.
        assert!(first[0] >= began, "{began}: {first:?}");
        // What came while no host was there, too.
        until(now().as_millisecond());
        let all = waiting_ticks(store);
        let gaps = all.windows(2).filter(|two| two[1] - two[0] != 100);
        assert_eq!((all[0], gaps.count()), (first[0], 0), "{all:?}");
    });
}

/// Pauses and resumes the schedule of `q`, whose messages wait, under two hosts. Returns the ticks that were
/// sent before, those after, and a time in the pause.
fn pause_and_resume(folder: &Path, store: &str, missed: &str) -> (Vec<i64>, Vec<i64>, i64) {
    let noop = guest("noop").display().to_string();
    let queues = format!(
        "handler = {noop:?}\n[queue.q]\n[[queue.q.schedule]]\nname = \"s\"\nevery = \"100ms\"\n\
         {missed}\n[queue.other]\n[[queue.other.schedule]]\nname = \"s\"\nevery = \"100ms\"\n"
    );
    let config = settings(folder, store, &queues);
    let config = config.as_str();
    run(Some(store), &["pause", "-q", "q", "--create"], 0);
    let mut hosts = Hosts::start(config.to_owned(), 2);
    let handled_elsewhere = || number(&stats(store, "other")["totals"]["acked"]);
    eventually("ticks are sent", || {
        (number(&stats(store, "q")["ready"]) > 1).then_some(())
    });
    let of = |verb: &str, code| {
        let args = ["schedule", verb, "s", "-q", "q", "--config", config];
        stdout(&run(None, &args, code))
    };
    assert_eq!(of("pause", 0), "q s is paused\n");
    let before = waiting_ticks(store);
    for host in 0..2 {
        // Those of the other queue go on meanwhile, also by a host that begins now.
        hosts.replace(host);
        let handled = handled_elsewhere();
        eventually("other ticks are handled", || {
            (handled_elsewhere() >= handled + 5).then_some(())
        });
        assert_eq!(waiting_ticks(store), before);
    }
    let shown = listed(config);
    assert_eq!(
        (&shown["paused"], &shown["skipped"]),
        (&true.into(), &0.into())
    );
    let text = stdout(&run(
        None,
        &["schedule", "list", "-q", "q", "--config", config],
        0,
    ));
    assert!(
        text.starts_with("q s: Every 100ms, paused since "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
    let in_pause = now().as_millisecond();
    assert_eq!(of("resume", 0), "q s goes on\n");
    eventually("ticks are sent again", || {
        let ticks = waiting_ticks(store);
        let new = ticks.iter().filter(|tick| **tick > in_pause).count();
        (new >= 3).then_some(())
    });
    assert_eq!(listed(config)["paused"], false);
    drop(hosts);
    let mut after = waiting_ticks(store);
    after.retain(|tick| !before.contains(tick));
    (before, after, in_pause)
}

#[test]
fn ticks_of_a_pause_are_left_out_if_missed_ticks_are() {
    with_each_store(|folder, store| {
        let (_, after, in_pause) = pause_and_resume(folder, store, "");
        assert!(
            after.iter().all(|tick| *tick > in_pause),
            "{after:?} {in_pause}"
        );
    });
}

#[test]
fn ticks_of_a_pause_are_made_up_for_if_missed_ticks_are() {
    with_each_store(|folder, store| {
        let missed = format!("missed = \"all\"\nmissed-max = 1000\nsince = \"{}\"", now());
        let (mut before, after, _) = pause_and_resume(folder, store, &missed);
        before.extend(after);
        let gaps = before.windows(2).filter(|two| two[1] - two[0] != 100);
        assert_eq!(gaps.count(), 0, "{before:?}");
    });
}

#[test]
fn only_a_schedule_of_the_settings_is_paused() {
    let folder = file("name = \"daily\"\ncron = \"0 8 * * *\"");
    let paused = |args: &[&str], code| {
        let mut command = dqhost(None, &[&["schedule", "pause"], args].concat());
        expect(command.current_dir(folder.path()).output().unwrap(), code)
    };
    let refused = stderr(&paused(&["weekly", "-q", "q"], 2));
    assert!(
        refused.contains("queue q has no schedule weekly: it has daily"),
        "{refused}"
    );
    let refused = stderr(&paused(&["daily", "-q", "r"], 2));
    assert!(refused.contains("dqhost.toml has none for it"), "{refused}");
    // The store need not be there yet.
    let done: Value =
        serde_json::from_str(&stdout(&paused(&["daily", "-q", "q", "--json"], 0))).unwrap();
    assert_eq!(
        done,
        serde_json::json!({"queue": "q", "schedule": "daily", "paused": true})
    );
}
