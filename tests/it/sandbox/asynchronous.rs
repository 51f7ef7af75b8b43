//! Components of WASI 0.3 and of `handler-async`: that they run, and what is done to those that do their worst.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dqhost::runtime::{EngineKind, Limits, Permissions, Runtime};
use dqhost::store::address::Endpoints;
use dqhost::verdict::Outcome;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Builder;

use super::hostile::{self, Engine};
use super::web::Web;
use crate::guests::{call, load_in, load_with};
use crate::support::{Host, RedisServer, dqhost, eventually, expect, guest, run, stats, stdout};

/// What the hostile one does, and how it ends.
const MODES: [(&str, &str); 13] = [
    ("afterwards", "acked"),
    ("cancelled-waits", "timed-out"),
    ("copies", "timed-out"),
    ("futures", "over-limit"),
    ("lost-streams", "timed-out"),
    ("nothing-left", "trapped"),
    ("prints", "timed-out"),
    ("spin", "timed-out"),
    ("streams", "over-limit"),
    ("tasks", "over-limit"),
    ("wait", "timed-out"),
    ("waits", "over-limit"),
    ("yield", "timed-out"),
];

/// What a run may make the host keep by `resources` and `call_bytes`, less than which it is to be.
const KEPT_MAX: u64 = 16 << 20;

fn limits(time: Duration) -> Limits {
    Limits {
        time,
        time_max: time,
        memory: 16 << 20,
        ..Limits::default()
    }
}

#[tokio::test]
async fn what_it_waits_for_is_waited_for_at_once() {
    let limits = limits(Duration::from_mins(1));
    let (_runtime, handler) = load_with(&guest("async-order"), limits, Permissions::default());
    let report = handler.run(call(b"2000\n1\n1000", 1)).await;
    assert_eq!(report.outcome, Outcome::Acked);
    let text = "1: waited\n1000: waited\n2000: waited\n";
    assert_eq!(report.log_text(), text);
    assert_eq!(report.result.as_deref(), Some(&b"3"[..]));
    // What follows starts anew.
    let report = handler.run(call(b"1", 1)).await;
    assert_eq!(report.log_text(), "1: waited\n");
}

#[tokio::test]
async fn requests_of_wasi_0_3_go_where_those_of_0_2_go() {
    let web = Web::start();
    let allowed = format!("127.0.0.1:{}", web.port);
    let order = |never: Endpoints| {
        let permissions = Permissions {
            http: vec![allowed.parse().unwrap(), "*".parse().unwrap()],
            never,
            ..Permissions::default()
        };
        let limits = Limits {
            http_total: Duration::from_millis(300),
            ..limits(Duration::from_mins(1))
        };
        load_with(&guest("async-order"), limits, permissions)
    };
    let (_runtime, handler) = order(Endpoints::default());
    let two = format!("{}\n{}", web.url("/200"), web.url("/200?two"));
    let report = handler.run(call(two.as_bytes(), 1)).await;
    assert_eq!(report.outcome, Outcome::Acked, "{:?}", report.log);
    assert_eq!(report.log_text().matches(": the body\n").count(), 2);
    let refused = |path: &str| {
        let (handler, url) = (&handler, path.to_owned());
        async move { handler.run(call(url.as_bytes(), 1)).await }
    };
    let before = web.connections();
    // Another port, this machine by name, and a scheme of its own.
    for url in [
        "http://127.0.0.1:1/",
        "http://localhost/",
        "file://127.0.0.1/",
    ] {
        let report = refused(url).await;
        assert_eq!(report.outcome.class(), "nacked", "{url}");
        assert_eq!(
            report.refused,
            usize::from(!url.starts_with("file")),
            "{url}: {:?}",
            report.log
        );
    }
    assert_eq!(web.connections(), before);
    let status = refused(&web.url("/503")).await.outcome.reason();
    assert!(status.ends_with("status 503"), "{status}");
    // One that drips, and one that never answers.
    for path in ["/drip", "/keep"] {
        let report = refused(&web.url(path)).await;
        assert_ne!(report.outcome.class(), "timed-out", "{path}");
    }
    eventually("no connection is left", || (web.kept() == 0).then_some(()));
}

#[tokio::test]
async fn a_handler_of_wasi_0_3_has_no_powers() {
    let limits = limits(Duration::from_mins(1));
    let (_runtime, handler) = load_with(&guest("async-hog"), limits, Permissions::default());
    let report = handler.run(call(b"powers", 1)).await;
    let outcome = Outcome::Rejected {
        reason: "found: ".to_owned(),
    };
    assert_eq!(report.outcome, outcome);
    assert_eq!(report.refused, 2, "{:?}", report.log);
    let report = handler.run(call(b"random", 1)).await;
    let outcome = Outcome::Rejected {
        reason: format!("{} bytes", limits.call_bytes),
    };
    assert_eq!(report.outcome, outcome);
}

/// Counted where it is made, as in `leaks`.
#[test]
fn no_task_stream_or_wait_outlives_its_run_or_fills_the_host() {
    let threads = Builder::new_current_thread().enable_all().build().unwrap();
    for (mode, class) in MODES {
        let time = match class {
            "timed-out" => Duration::from_millis(300),
            _ => Duration::from_hours(1),
        };
        let (_runtime, handler) =
            load_with(&guest("async-hog"), limits(time), Permissions::default());
        let run = |times: usize| {
            for _ in 0..times {
                let report = threads.block_on(handler.run(call(mode.as_bytes(), 1)));
                assert_eq!(
                    report.outcome.class(),
                    class,
                    "{mode}: {:?}",
                    report.outcome
                );
                assert!(report.log.len() <= 1002, "{mode}");
            }
        };
        run(2);
        let runs = 4;
        let counted = allocation_counter::measure(|| run(runs));
        println!("{mode}: {counted:?}");
        assert!(
            counted.count_current < i64::try_from(runs).unwrap(),
            "{mode} leaves something behind: {counted:?}"
        );
        assert!(
            counted.bytes_max < KEPT_MAX,
            "{mode} fills the host: {counted:?}"
        );
    }
}

#[test]
fn asynchronous_handlers_that_do_their_worst_harm_nobody() {
    let server = RedisServer::start();
    let url = server.url();
    let (hog, order) = (guest("async-hog"), guest("async-order"));
    let queues = [
        format!("hog={}", hog.display()),
        format!("order={}", order.display()),
        format!("echo={}", guest("echo").display()),
    ];
    let mut args = vec!["--slots", "8", "--timeout", "300ms", "--memory", "16"];
    args.extend(["--log", "error"]);
    for queue in &queues {
        args.extend(["--queue", queue]);
    }
    let _host = Host::start_silently(&url, &args);
    let each = 20;
    for (mode, _) in MODES {
        hostile::send(&url, "hog", mode, each);
    }
    // A good one may meet the time limit as well, on a machine that is busy.
    hostile::send_with(&url, "order", "1", (200, "1000"));
    hostile::send_with(&url, "echo", "hello", (200, "1000"));
    let all = |queue: &str, total: &str, count: usize| {
        eventually(queue, || {
            (stats(&url, queue)["totals"][total] == count).then_some(())
        });
    };
    all("echo", "acked", 200);
    all("order", "acked", 200);
    let acked = MODES.iter().filter(|(_, class)| *class == "acked").count();
    // A slow machine may stop some that would have been acked.
    eventually("all have ended", || {
        let now = stats(&url, "hog");
        let ended = now["totals"]["acked"].as_u64().unwrap() + now["dead"].as_u64().unwrap();
        (ended == (MODES.len() * each) as u64).then_some(())
    });
    let now = stats(&url, "hog");
    assert!(now["totals"]["acked"].as_u64().unwrap() <= (acked * each) as u64);
    let list = [
        "dead", "list", "--json", "--limit", "1000", "--queue", "hog",
    ];
    for line in stdout(&run(Some(&url), &list, 0)).lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let (mode, class) = (&record["payload"], &record["history"][0]["class"]);
        let expected = MODES.iter().find(|(name, _)| mode == name).unwrap().1;
        // A slow machine may stop one before it has filled its table.
        assert!(class == expected || class == "timed-out", "{mode}: {class}");
    }
}

#[test]
fn what_is_hostile_in_wasi_0_2_is_so_in_the_other_engine() {
    hostile::each_ends_with_its_class(&hostile::ENDLESS, "100ms", Engine::Async);
    hostile::each_ends_with_its_class(&hostile::OTHERS, "1h", Engine::Async);
}

#[test]
fn the_engine_is_told_and_compiled_code_is_kept_for_it() {
    for (name, engine) in [
        ("echo", EngineKind::Sync),
        ("async-order", EngineKind::Async),
    ] {
        let file = guest(name).display().to_string();
        let said = stdout(&run(None, &["check", &file], 0));
        assert!(
            said.contains(&format!("engine   {}\n", engine.words())),
            "{said}"
        );
        let json: Value =
            serde_json::from_str(&stdout(&run(None, &["check", "--json", &file], 0))).unwrap();
        assert_eq!(json["engine"], engine.words());
    }
    let cache = TempDir::new().unwrap();
    let loaded = |program: &Path| {
        let runtime = Runtime::new(
            1,
            Limits::default(),
            Permissions::default(),
            Some(cache.path()),
        );
        let runtime = runtime.unwrap().compile_with(program);
        runtime
            .load(&runtime.read(&guest("async-order")).unwrap())
            .is_ok()
    };
    let nobody = PathBuf::from("/nonexistent");
    assert!(!loaded(&nobody));
    assert!(loaded(Path::new(env!("CARGO_BIN_EXE_dqhost"))));
    assert!(loaded(&nobody));
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2);
}

/// A task that ends without a result, of which the library once made a panic.
#[tokio::test]
async fn a_task_that_ends_without_a_result_is_a_trap() {
    let text = r#"(component
        (core module $m
            (func (export "run") (result i32) i32.const 0)
            (func (export "cb") (param i32 i32 i32) (result i32) unreachable))
        (core instance $i (instantiate $m))
        (type $run (func async (result (result))))
        (func $run (type $run)
            (canon lift (core func $i "run") async (callback (core func $i "cb"))))
        (instance $exported (export "run" (func $run)))
        (export "wasi:cli/run@0.3.0" (instance $exported)))"#;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("silent.wasm");
    fs::write(&file, wat::parse_str(text).unwrap()).unwrap();
    let limits = limits(Duration::from_mins(1));
    let (_runtime, handler) = load_with(&file, limits, Permissions::default());
    let outcome = handler.run(call(b"", 1)).await.outcome;
    assert_eq!(outcome.class(), "trapped", "{outcome:?}");
}

/// Tells a runtime which engine to use.
type Choice = fn(Runtime) -> Runtime;

#[tokio::test]
#[ignore = "its figures are those of this machine"]
async fn what_a_message_costs_in_each_engine() {
    let limits = limits(Duration::from_mins(1));
    let runs = 20_000;
    let engines: [(&str, Choice); 2] = [
        ("first", |runtime| runtime),
        ("second", Runtime::always_async),
    ];
    for name in ["noop", "echo", "order-timeout"] {
        for (engine, choose) in engines {
            let (_runtime, handler) = load_in(choose, &guest(name), limits, Permissions::default());
            let mut took = Vec::with_capacity(runs);
            for _ in 0..runs {
                let report = handler.run(call(b"x", 1)).await;
                took.push(report.duration);
            }
            took.sort_unstable();
            println!(
                "{name}, {engine} engine: p50 {:?}, p99 {:?}",
                took[runs / 2],
                took[runs * 99 / 100]
            );
        }
    }
}

/// That of `dqhost new`, with promises, and built for them.
#[test]
fn a_handler_in_javascript_that_awaits_runs_as_one_that_does_not() {
    let folder = TempDir::new().unwrap();
    let mut command = dqhost(None, &["new", "orders", "--lang", "js"]);
    expect(command.current_dir(folder.path()).output().unwrap(), 0);
    let made = folder.path().join("orders");
    let change = |file: &str, from: &str, to: &str| {
        let file = made.join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replace(from, to)).unwrap();
    };
    change("package.json", "--sync ", "");
    let awaits = "async function handle(message) {\n  await Promise.resolve();";
    change("handler.js", "function handle(message) {", awaits);
    change("handler.js", "const handler =", "const handlerAsync =");
    let world = "include dqhost:queue/consumer-async@0.1.0;
                 import wasi:logging/logging@0.1.0-draft;";
    change(
        "wit/world.wit",
        "include dqhost:queue/consumer-with-logging@0.1.0;",
        world,
    );
    let target = Path::new(env!("CARGO_BIN_EXE_dqhost"))
        .ancestors()
        .nth(2)
        .unwrap();
    let downloads = target.join("tools/npm");
    assert!(downloads.is_dir(), "run `make languages` first");
    for args in [&["install"][..], &["run", "build"]] {
        let mut npm = Command::new("npm");
        npm.args(args).current_dir(&made);
        npm.env("npm_config_cache", &downloads)
            .env("npm_config_offline", "true");
        expect(npm.output().unwrap(), 0);
    }
    let run = |args: &[&str], code| {
        let mut command = dqhost(None, args);
        stdout(&expect(command.current_dir(&made).output().unwrap(), code))
    };
    let said = run(&["check", "handler.wasm"], 0);
    let engine = EngineKind::Async.words();
    assert!(said.contains(&format!("engine   {engine}\n")), "{said}");
    let said = run(&["run", "handler.wasm", "--messages", "messages.ndjson"], 1);
    let verdicts: Vec<_> = said
        .lines()
        .filter_map(|line| line.strip_prefix("verdict ")?.trim().split(':').next())
        .collect();
    assert_eq!(verdicts, ["acked", "nacked", "rejected"]);
}
