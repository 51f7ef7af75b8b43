//! Metrics and health.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Api, with_each_store};
use crate::support::{RedisServer, eventually, guest, run, stats, stdout};

const MESSAGES: &str = "/queues/q/messages";

/// The samples of a scrape by name and labels, as they are written. The text is checked against the
/// rules of OpenMetrics.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let (mut kind, mut name) = ("", "");
    let mut families = BTreeSet::new();
    let mut lines = text.lines();
    assert_eq!(lines.next_back(), Some("# EOF"));
    for line in lines {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            name = rest.split(' ').next().unwrap();
            assert!(families.insert(name), "{name} is there twice");
            assert!(name.starts_with("dqhost_"), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (of, is) = rest.split_once(' ').unwrap();
            assert_eq!(of, name);
            kind = is;
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let of = series.split('{').next().unwrap();
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other}"),
        };
        let is_of = |suffix: &&str| of == format!("{name}{suffix}");
        assert!(
            suffixes.iter().any(is_of),
            "{line} is no sample of {kind} {name}"
        );
        assert!(value >= 0.0, "{line}");
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "{line} is there twice"
        );
    }
    check_histograms(&samples);
    samples
}

/// Buckets grow, and the last of them counts all.
fn check_histograms(samples: &BTreeMap<String, f64>) {
    for (series, count) in samples {
        let Some((name, labels)) = series.split_once("_count") else {
            continue;
        };
        let labels = labels.trim_matches(['{', '}']);
        let bucket = |series: &&String| {
            let mut words = series
                .strip_prefix(name)
                .unwrap_or("")
                .split(['{', ',', '}']);
            let is_of_these = labels.is_empty() || series.contains(labels);
            words.next() == Some("_bucket") && is_of_these
        };
        let bound = |series: &str| -> f64 {
            let bound = series
                .split("le=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            bound.parse().unwrap()
        };
        let mut buckets: Vec<(f64, f64)> = samples
            .keys()
            .filter(bucket)
            .map(|series| (bound(series), samples[series]))
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.len() > 10, "{series}");
        assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{series}");
        let (bound, all) = buckets.last().unwrap();
        assert!(bound.is_infinite() && (all - count).abs() < 0.5, "{series}");
    }
}

fn scrape(api: &Api) -> BTreeMap<String, f64> {
    let answer = api.get("/metrics").is(200);
    assert!(
        answer
            .head
            .contains("content-type: application/openmetrics-text; version=1.0.0")
    );
    samples(&answer.body)
}

/// What is labelled is bounded, and no id is among it.
fn check_labels(seen: &BTreeMap<String, f64>, id: &str) {
    let labels: BTreeSet<&str> = seen
        .keys()
        .flat_map(|series| series.split(['{', ',']).skip(1))
        .map(|label| label.split('=').next().unwrap())
        .collect();
    assert_eq!(
        labels,
        [
            "class",
            "event",
            "le",
            "operation",
            "queue",
            "state",
            "version"
        ]
        .into()
    );
    assert!(!seen.keys().any(|series| series.contains(id)));
}

#[test]
fn the_numbers_of_a_scrape_are_those_of_the_queue_and_of_the_host() {
    with_each_store(|store| {
        let handlers = ["noop", "reject"].map(|name| guest(name).display().to_string());
        let queues = [format!("q={}", handlers[0]), format!("bad={}", handlers[1])];
        let mut api = Api::beside(store, &["--queue", &queues[0], "--queue", &queues[1]]);
        for _ in 0..5 {
            let id = api.post(MESSAGES, &[], "x").is(201).id();
            api.host.wait_for("acked", |line| line["id"] == id.as_str());
        }
        let id = api.post("/queues/bad/messages", &[], "x").is(201).id();
        api.host.wait_for("dead", |line| line["id"] == id.as_str());
        api.post(MESSAGES, &[("dqhost-in", "1h")], "x").is(201);
        eventually("it is a dead letter", || {
            (stats(store, "bad")["dead"] == 1).then_some(())
        });
        let is = |samples: &BTreeMap<String, f64>, series: &str| {
            *samples
                .get(series)
                .unwrap_or_else(|| panic!("no {series}: {samples:#?}"))
        };
        let seen = scrape(&api);
        for (series, value) in [
            ("dqhost_store_up", 1.0),
            ("dqhost_queues", 2.0),
            ("dqhost_queues_unread", 0.0),
            ("dqhost_messages{queue=\"q\",state=\"pending\"}", 1.0),
            ("dqhost_messages{queue=\"bad\",state=\"dead\"}", 1.0),
            ("dqhost_events_total{queue=\"q\",event=\"acked\"}", 5.0),
            ("dqhost_events_total{queue=\"bad\",event=\"rejected\"}", 1.0),
            ("dqhost_attempts_total{queue=\"q\",class=\"acked\"}", 5.0),
            ("dqhost_attempts_total{queue=\"q\",class=\"rejected\"}", 0.0),
            (
                "dqhost_attempts_total{queue=\"bad\",class=\"rejected\"}",
                1.0,
            ),
            ("dqhost_handler_seconds_count{queue=\"q\"}", 5.0),
            ("dqhost_lateness_seconds_count{queue=\"q\"}", 5.0),
            ("dqhost_lag_seconds{queue=\"q\"}", 0.0),
            ("dqhost_slots", 32.0),
            ("dqhost_queue_slots{queue=\"q\"}", 16.0),
            ("dqhost_queue_slots{queue=\"bad\"}", 16.0),
            ("dqhost_slots_busy", 0.0),
            ("dqhost_leases_lost_total", 0.0),
            ("dqhost_stale_settlements_total", 0.0),
            ("dqhost_paused{queue=\"q\"}", 0.0),
        ] {
            assert!(
                (is(&seen, series) - value).abs() < 1e-9,
                "{series}: {}",
                is(&seen, series)
            );
        }
        assert!(is(&seen, "dqhost_store_requests_total{operation=\"settle\"}") >= 1.0);
        assert!(
            seen.keys()
                .any(|series| series.starts_with("dqhost_build_info{version="))
        );
        check_labels(&seen, &id);
        // Nothing is a series of one scrape alone.
        let before: Vec<String> = seen
            .into_keys()
            .filter(|series| !series.contains("operation"))
            .collect();
        let after: Vec<String> = scrape(&api)
            .into_keys()
            .filter(|series| !series.contains("operation"))
            .collect();
        assert_eq!(before, after);
    });
}

/// The name of the histogram that a series is of.
fn histogram(name: &str) -> Option<&str> {
    let ends = ["_bucket", "_sum", "_count"];
    ends.into_iter().find_map(|end| name.strip_suffix(end))
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("dqhost_")).collect()
}

#[test]
fn the_page_names_every_metric_and_rules_and_dashboard_name_no_other() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let handler = guest("noop").display().to_string();
    let mut api = Api::beside(&store, &["--queue", "q", "--handler", &handler]);
    let id = api.post(MESSAGES, &[], "x").is(201).id();
    api.host.wait_for("acked", |line| line["id"] == id.as_str());
    let seen = scrape(&api);
    let series = seen.keys().map(|series| series.split('{').next().unwrap());
    let series: BTreeSet<&str> = series.collect();
    let told: BTreeSet<&str> = series
        .iter()
        .map(|name| histogram(name).unwrap_or(name))
        .collect();
    assert_eq!(names(include_str!("../../../docs/metrics.md")), told);
    for text in [
        include_str!("../../../docs/alerts.yml"),
        include_str!("../../../docs/grafana.json"),
    ] {
        let names = names(text);
        assert!(names.len() > 5 && names.is_subset(&series), "{names:?}");
    }
    let dashboard = include_str!("../../../docs/grafana.json");
    serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
}

#[test]
fn a_queue_that_cannot_be_read_is_left_out_and_counted() {
    let server = RedisServer::start();
    let api = Api::serve(&server.url(), &[]);
    for queue in ["bad", "q"] {
        api.post(&format!("/queues/{queue}/messages"), &[], "x")
            .is(201);
    }
    let mut connection = server.connection();
    let pending = "{dp:bad}:pending";
    redis::Cmd::set(pending, "of another program")
        .exec(&mut connection)
        .unwrap();
    let seen = scrape(&api);
    for (series, value) in [
        ("dqhost_store_up", 1.0),
        ("dqhost_queues", 2.0),
        ("dqhost_queues_unread", 1.0),
        ("dqhost_messages{queue=\"q\",state=\"ready\"}", 1.0),
    ] {
        assert!((seen[series] - value).abs() < 1e-9, "{series}: {seen:#?}");
    }
    assert!(!seen.keys().any(|series| series.contains("\"bad\"")));
}

#[test]
fn a_scrape_while_the_store_is_away_says_so_and_still_has_the_hosts_numbers() {
    let mut server = RedisServer::start();
    let handler = guest("noop").display().to_string();
    let mut api = Api::beside(&server.url(), &["--queue", "q", "--handler", &handler]);
    let id = api.post(MESSAGES, &[], "x").is(201).id();
    api.host.wait_for("acked", |line| line["id"] == id.as_str());
    assert_eq!(api.get("/livez").is(200).json()["live"], true);
    assert_eq!(api.get("/readyz").is(200).json()["ready"], true);
    server.kill();
    eventually("it is not ready", || {
        let answer = api.get("/readyz");
        (answer.status == 503).then(|| answer.is_problem(503, "the store is not reachable"))
    });
    api.get("/livez").is(200);
    let seen = scrape(&api);
    assert!(seen["dqhost_store_up"] < 0.5);
    assert!((seen["dqhost_attempts_total{queue=\"q\",class=\"acked\"}"] - 1.0).abs() < 1e-9);
    assert!(!seen.contains_key("dqhost_queues"));
    assert!(
        seen.iter()
            .any(|(series, value)| series.starts_with("dqhost_store_errors") && *value > 0.0)
    );
    server.restart();
    eventually("it is ready", || {
        (api.get("/readyz").status == 200).then_some(())
    });
}

#[test]
fn a_host_whose_store_only_answers_questions_is_not_ready() {
    let server = RedisServer::start();
    let url = server.url();
    let id = stdout(&run(Some(&url), &["send", "x", "--queue", "q"], 0));
    let mut connection = server.connection();
    let mut need_replicas = |replicas: &str| {
        let mut set = redis::cmd("CONFIG");
        set.arg(&["SET", "min-replicas-to-write", replicas]);
        set.exec(&mut connection).unwrap();
    };
    need_replicas("1");
    let handler = guest("noop").display().to_string();
    let mut api = Api::beside(&url, &["--queue", "q", "--handler", &handler]);
    eventually("it is not ready", || {
        let answer = api.get("/readyz");
        (answer.status == 503).then(|| answer.is_problem(503, "refuses what queue q needs"))
    });
    need_replicas("0");
    api.host.wait_for("acked", |line| line["id"] == id.trim());
    eventually("it is ready", || {
        (api.get("/readyz").status == 200).then_some(())
    });
}

#[test]
fn a_host_that_stops_or_lacks_a_handler_is_not_ready() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let sleeper = guest("sleeper").display().to_string();
    let queues = [format!("q={sleeper}"), "lost=/nowhere.wasm".to_owned()];
    let api = Api::beside(&store, &["--queue", &queues[0], "--queue", &queues[1]]);
    api.get("/readyz")
        .is_problem(503, "the handler of queue lost could not be loaded");
    drop(api);
    let api = Api::beside(&store, &["--queue", &queues[0]]);
    api.get("/readyz").is(200);
    run(Some(&store), &["send", "5000", "--queue", "q"], 0);
    eventually("it is in flight", || {
        (stats(&store, "q")["unack"] == 1).then_some(())
    });
    api.host.signal(Signal::TERM);
    eventually("it is not ready", || {
        let answer = api.get("/readyz");
        (answer.status == 503).then(|| answer.is_problem(503, "the host is stopping"))
    });
    api.get("/livez").is(200);
}

/// The older format, which `promtool check metrics` reads.
#[test]
fn clients_that_take_only_plain_text_get_the_same_in_the_older_format() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let api = Api::serve(&store, &[]);
    api.post(MESSAGES, &[], "x").is(201);
    let classic = api
        .ask("GET", "/metrics", &[("accept", "text/plain")], b"")
        .is(200);
    assert!(
        classic
            .head
            .contains("content-type: text/plain; version=0.0.4")
    );
    assert!(classic.body.contains("# TYPE dqhost_build_info gauge"));
    assert!(!classic.body.contains("# EOF"));
    let named = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
        series.collect::<BTreeSet<String>>()
    };
    // Requests to the store have been counted since, so only what the series are is compared.
    let first = named(&classic.body);
    let latest = named(&api.get("/metrics").is(200).body);
    assert!(first.is_subset(&latest), "{:?}", first.difference(&latest));
    for line in classic
        .body
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
    {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, _, name, kind] = words[..] else {
            panic!("{line}");
        };
        assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
    }
}
