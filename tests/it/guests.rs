//! Every example handler, run in the sandbox: what it does, and what is done to it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dqhost::runtime::{Call, Handler, Level, Limits, Permissions, Report, Runtime, Source};
use dqhost::verdict::Outcome;
use sha2::{Digest, Sha256};

use crate::support::{guest, guest_folders, guest_names};

/// The example handlers that have a test here or, those that use the network, send or were made for
/// other hosts, in `sandbox`.
const TESTED: [&str; 39] = [
    "async-hog",
    "async-order",
    "checksum",
    "command",
    "echo",
    "env-reader",
    "exit",
    "fan-out",
    "fetch",
    "fetch-hog",
    "file-reader",
    "flaky",
    "hog",
    "huge-result",
    "inbound",
    "incoming",
    "log-flood",
    "logger",
    "messaging",
    "noop",
    "order-timeout",
    "punctual",
    "random-hog",
    "reject",
    "request-hog",
    "resource-leak",
    "rounds",
    "sdk-order",
    "secret-teller",
    "service",
    "sleeper",
    "slow-loris-http",
    "socket-opener",
    "spin",
    "stack",
    "stdout-flood",
    "trap",
    "warn-flood",
    "webhook",
];

#[test]
fn every_example_is_tested_and_there() {
    assert_eq!(
        guest_names(),
        TESTED,
        "add a test for each handler in guest-examples"
    );
    for name in TESTED {
        assert!(guest(name).exists(), "{name} was not built");
    }
}

#[test]
fn the_readme_of_the_examples_has_a_line_for_each() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest-examples");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let mut lines: Vec<&str> = readme
        .lines()
        .filter(|line| line.starts_with("* ["))
        .collect();
    let line = |folder: PathBuf| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let description = manifest
            .lines()
            .find_map(|line| line.strip_prefix("description = \""));
        let description = description.unwrap().trim_end_matches('"');
        let path = folder.strip_prefix(&root).unwrap().display().to_string();
        let name = folder.file_name().unwrap().to_str().unwrap();
        format!("* [`{name}`]({path}): {description}.")
    };
    let mut wanted: Vec<String> = guest_folders().into_iter().map(line).collect();
    lines.sort_unstable();
    wanted.sort();
    assert_eq!(lines, wanted);
}

fn limits() -> Limits {
    Limits {
        time: Duration::from_secs(30),
        time_max: Duration::from_secs(30),
        memory: 8 << 20,
        ..Limits::default()
    }
}

fn load(name: &str, limits: Limits) -> (Runtime, Handler) {
    load_with(&guest(name), limits, Permissions::default())
}

pub(crate) fn load_with(
    file: &Path,
    limits: Limits,
    permissions: Permissions,
) -> (Runtime, Handler) {
    load_in(|runtime| runtime, file, limits, permissions)
}

/// In the engine that the runtime is told to use.
pub(crate) fn load_in(
    engine: fn(Runtime) -> Runtime,
    file: &Path,
    limits: Limits,
    permissions: Permissions,
) -> (Runtime, Handler) {
    let runtime = engine(Runtime::new(4, limits, permissions, None).unwrap());
    let handler = runtime.load(&runtime.read(file).unwrap()).unwrap();
    (runtime, handler)
}

pub(crate) fn call(payload: &[u8], attempt: u32) -> Call {
    Call {
        id: "id".to_owned(),
        queue: "q".to_owned(),
        payload: payload.to_vec(),
        headers: vec![("k".to_owned(), "v".to_owned())],
        attempt,
        attempts_max: 4,
        sent_at_ms: None,
        due_at_ms: Some(5),
    }
}

async fn run(name: &str, payload: &[u8], attempt: u32) -> Report {
    let other = load_in(
        Runtime::always_async,
        &guest(name),
        limits(),
        Permissions::default(),
    );
    let in_other = other.1.run(call(payload, attempt)).await;
    let (_runtime, handler) = load(name, limits());
    let report = handler.run(call(payload, attempt)).await;
    // Whichever engine runs it, it ends in the same way.
    assert_eq!(in_other.outcome.class(), report.outcome.class(), "{name}");
    report
}

#[tokio::test]
async fn echo_prints_and_acks() {
    let report = run("echo", b"hello", 2).await;
    assert_eq!(report.outcome, Outcome::Acked);
    assert_eq!(report.log_text(), "attempt 2 of 4\nhello\n");
    assert!(report.memory > 0 && report.memory <= 8 << 20);
}

#[tokio::test]
async fn noop_acks_and_prints_nothing() {
    let report = run("noop", b"anything", 1).await;
    assert_eq!((report.outcome, report.log), (Outcome::Acked, vec![]));
}

#[tokio::test]
async fn order_timeout_decides_by_the_status() {
    let order = |status: &str| {
        format!(r#"{{"order":"A-1","status":"{status}","amount":2,"check_again_ms":70}}"#)
    };
    for status in ["paid", "unpaid"] {
        assert_eq!(
            run("order-timeout", order(status).as_bytes(), 1)
                .await
                .outcome,
            Outcome::Acked
        );
    }
    assert_eq!(
        run("order-timeout", order("processing").as_bytes(), 1)
            .await
            .outcome,
        Outcome::Nacked {
            delay: Some(Duration::from_millis(70)),
            reason: "the payment of order A-1 is under way".to_owned(),
        }
    );
    for bad in [order("lost").as_bytes(), b"{}", b"\xff"] {
        let outcome = run("order-timeout", bad, 1).await.outcome;
        assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn punctual_says_when_it_runs_and_how_late_that_is() {
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let report = run("punctual", b"", 1).await;
    assert_eq!(report.outcome, Outcome::Acked);
    let log = report.log_text();
    let words: Vec<&str> = log.split_whitespace().collect();
    let ["at", at, "late", late] = words[..] else {
        panic!("{log}")
    };
    let (at, late): (u128, u128) = (at.parse().unwrap(), late.parse().unwrap());
    assert!(
        at >= before.unwrap().as_micros() && late == at - 5000,
        "{log}"
    );
    let (_runtime, handler) = load("punctual", limits());
    let never_waited = Call {
        due_at_ms: None,
        ..call(b"", 1)
    };
    let log = handler.run(never_waited).await.log_text();
    assert!(log.ends_with(" late unknown\n"), "{log}");
}

#[tokio::test]
async fn flaky_acks_from_the_attempt_that_it_is_told() {
    let outcome = run("flaky", b"3", 2).await.outcome;
    let Outcome::Nacked { delay, reason } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (delay, reason.as_str()),
        (Some(Duration::ZERO), "attempt 2 of 3 that are needed")
    );
    assert_eq!(run("flaky", b"3", 3).await.outcome, Outcome::Acked);
}

#[tokio::test]
async fn reject_rejects() {
    let reason = "attempt 1: not wanted".to_owned();
    assert_eq!(
        run("reject", b"", 1).await.outcome,
        Outcome::Rejected { reason }
    );
}

#[tokio::test]
async fn checksum_tells_a_whole_payload_from_a_damaged_one() {
    let body = vec![9; 64 * 1024];
    let mut payload = Sha256::digest(&body).to_vec();
    payload.extend(body);
    assert_eq!(run("checksum", &payload, 1).await.outcome, Outcome::Acked);
    payload[40] ^= 1;
    let outcome = run("checksum", &payload, 1).await.outcome;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
}

#[tokio::test]
async fn trap_is_an_outcome_with_the_panic_message() {
    let outcome = run("trap", b"", 3).await.outcome;
    let Outcome::Trapped { reason } = &outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        reason.contains("attempt 3: a bug in the handler"),
        "{reason}"
    );
    assert_eq!(outcome.class(), "trapped");
}

#[tokio::test]
async fn spin_is_stopped_at_its_limit() {
    let limit = Duration::from_millis(50);
    let limits = Limits {
        time: limit,
        time_max: limit,
        ..limits()
    };
    let (_runtime, handler) = load("spin", limits);
    let report = handler.run(call(b"", 1)).await;
    assert_eq!(report.outcome, Outcome::TimedOut { limit });
    assert!(report.duration >= limit);
}

#[tokio::test]
async fn sleeper_is_stopped_within_its_host_call() {
    let limit = Duration::from_millis(50);
    let limits = Limits {
        time: limit,
        time_max: limit,
        ..limits()
    };
    let (_runtime, handler) = load("sleeper", limits);
    assert_eq!(
        handler.run(call(b"600000", 1)).await.outcome,
        Outcome::TimedOut { limit }
    );
}

#[tokio::test]
async fn sleeper_acks_when_it_has_slept() {
    assert_eq!(run("sleeper", b"1", 1).await.outcome, Outcome::Acked);
}

#[tokio::test]
async fn rounds_acks_when_it_has_computed() {
    assert_eq!(run("rounds", b"1000", 1).await.outcome, Outcome::Acked);
    let outcome = run("rounds", b"many", 1).await.outcome;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
}

#[tokio::test]
async fn runs_for_which_the_sandbox_has_no_place_are_given_back() {
    // It has places for four, and one to spare.
    let (runtime, handler) = load("sleeper", limits());
    assert_eq!((runtime.slots(), handler.places()), (4, 4));
    assert_eq!(handler.memory_in_use(), 0);
    let handler = &handler;
    let running: Vec<_> = (0..5).map(|_| handler.run(call(b"600000", 1))).collect();
    let mut running = Box::pin(futures_util::future::join_all(running));
    let memory = std::future::poll_fn(|cx| {
        assert!(running.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(handler.memory_in_use())
    });
    assert!(memory.await >= 5 * 64 * 1024);
    let busy = Outcome::HostBusy {
        what: "place in the sandbox",
    };
    assert_eq!(handler.run(call(b"1", 1)).await.outcome, busy);
    drop(running);
    assert_eq!(handler.memory_in_use(), 0);
    assert_eq!(handler.run(call(b"1", 1)).await.outcome, Outcome::Acked);
}

#[test]
fn a_sandbox_is_as_large_as_there_is_room_for() {
    let with = |room| Runtime::with_room(room, limits(), &Permissions::default(), None);
    // No processor has addresses for so many.
    let least = with((16, 1 << 20)).unwrap().slots();
    assert!((16..1 << 17).contains(&least), "{least}");
    assert_eq!(with((2, 8)).unwrap().slots(), 8);
    assert!(with((1 << 20, 1 << 20)).is_err());
}

#[tokio::test]
async fn a_guest_moves_its_limit_as_far_as_it_may() {
    let (time, time_max) = (Duration::from_secs(2), Duration::from_mins(10));
    let (_runtime, handler) = load(
        "sleeper",
        Limits {
            time,
            time_max,
            ..limits()
        },
    );
    let extend = |ms: &str| Call {
        headers: vec![("extend-ms".to_owned(), ms.to_owned())],
        ..call(b"2500", 1)
    };
    let report = handler.run(extend("60000")).await;
    assert_eq!(report.outcome, Outcome::Acked);
    assert!(report.duration > time);
    let log = report.log_text();
    let numbers: Vec<u64> = log
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    let [granted, wanted, left] = numbers[..] else {
        panic!("{log}")
    };
    assert!(wanted == 60_000 && granted <= wanted && left <= granted && left > 0);
    // Beyond the maximum it gets the maximum; without any it is stopped.
    let report = handler.run(extend("99999999999")).await;
    let granted: u64 = report
        .log_text()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(granted > 500_000 && granted <= 600_000, "{granted}");
    assert_eq!(
        handler.run(call(b"600000", 1)).await.outcome,
        Outcome::TimedOut { limit: time }
    );
}

#[tokio::test]
async fn hog_hits_its_ceiling() {
    let report = run("hog", b"", 1).await;
    assert_eq!(report.outcome, Outcome::OutOfMemory { limit: 8 << 20 });
    assert!(report.memory <= 8 << 20);
    assert_eq!(report.outcome.reason(), "more than 8 MiB of memory wanted");
}

#[tokio::test]
async fn a_dropped_run_stops_the_guest_and_frees_its_place() {
    let (_runtime, handler) = load("spin", limits());
    // More than the pool has room for, one after the other.
    for _ in 0..20 {
        let run = handler.run(call(b"", 1));
        assert!(
            tokio::time::timeout(Duration::from_millis(15), run)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn no_state_crosses_from_one_message_to_the_next() {
    let (_runtime, handler) = load("echo", limits());
    for n in 0..50 {
        let payload = n.to_string();
        let report = handler.run(call(payload.as_bytes(), 1)).await;
        assert_eq!(report.log_text(), format!("attempt 1 of 4\n{payload}\n"));
    }
}

#[test]
fn the_digest_is_that_of_the_file() {
    let (_runtime, handler) = load("echo", limits());
    let bytes = std::fs::read(guest("echo")).unwrap();
    let digest = dqhost::text::hex(&Sha256::digest(&bytes));
    assert_eq!(handler.digest(), digest);
}

/// The class and the reason of a run.
async fn end(name: &str, payload: &[u8]) -> (&'static str, String) {
    let limits = if name.ends_with("flood") {
        Limits {
            time: Duration::from_millis(100),
            time_max: Duration::from_millis(100),
            ..limits()
        }
    } else {
        limits()
    };
    let (_runtime, handler) = load(name, limits);
    let outcome = handler.run(call(payload, 1)).await.outcome;
    (outcome.class(), outcome.reason())
}

#[tokio::test]
async fn each_limit_that_is_passed_has_its_class_and_says_how_to_raise_it() {
    for (name, class, reason) in [
        ("stack", "out-of-stack", "more than 512 KiB of stack wanted"),
        (
            "huge-result",
            "over-limit",
            "more wanted than 524288 bytes in one call (--limit call-bytes)",
        ),
        (
            "random-hog",
            "over-limit",
            "more wanted than 524288 bytes in one call (--limit call-bytes)",
        ),
        (
            "resource-leak",
            "over-limit",
            "more wanted than 128 handles held (--limit resources)",
        ),
        ("log-flood", "timed-out", "no verdict within 100ms"),
        ("stdout-flood", "timed-out", "no verdict within 100ms"),
        ("exit", "exited", "the handler exited with an error"),
    ] {
        assert_eq!(end(name, b"").await, (class, reason.to_owned()), "{name}");
    }
    assert_eq!(
        end("exit", b"0").await.1,
        "the handler exited instead of returning"
    );
}

/// The noop handler with its core code changed.
fn changed_noop(change: impl FnOnce(String) -> String) -> tempfile::TempPath {
    let text = wasmprinter::print_file(guest("noop")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), wat::parse_str(change(text)).unwrap()).unwrap();
    file.into_temp_path()
}

/// The text of a component whose handler does this before all else.
fn at_its_start(text: &str, code: &str) -> String {
    // What is exported under this name, found by its number behind the export.
    let (head, rest) = text
        .split_once("(export \"dqhost:queue/handler@0.1.0#handle\" (func ")
        .unwrap();
    let (number, rest) = rest.split_once(')').unwrap();
    let (between, body) = rest.split_once(&format!("(func (;{number};)")).unwrap();
    let mut lines = body.lines();
    let (types, locals) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(locals.trim_start().starts_with("(local"), "{locals}");
    let after: Vec<&str> = lines.collect();
    format!(
        "{head}(export \"dqhost:queue/handler@0.1.0#handle\" (func {number}){between}\
         (func (;{number};){types}\n{locals}\n{code}\n{}",
        after.join("\n")
    )
}

/// A handler that runs this code, which no Rust code compiles to, and then does nothing.
pub(crate) fn noop_after(code: &str) -> tempfile::TempPath {
    changed_noop(|text| at_its_start(&text, code))
}

/// A handler that grows a table without end, which no Rust code can.
pub(crate) fn table() -> tempfile::TempPath {
    changed_noop(|text| {
        let code = "(loop $again ref.null func i32.const 1000 table.grow 0 drop br $again)";
        at_its_start(&text, code).replace("(table (;0;) 40 40 funcref)", "(table (;0;) 40 funcref)")
    })
}

#[tokio::test]
async fn a_table_grows_as_far_as_it_may() {
    let (_runtime, handler) = load_with(&table(), limits(), Permissions::default());
    let outcome = handler.run(call(b"", 1)).await.outcome;
    assert_eq!(
        (outcome.class(), outcome.reason().as_str()),
        (
            "over-limit",
            "more wanted than 200000 elements of a table (--limit table-elements)"
        )
    );
}

#[test]
fn a_component_of_too_many_parts_is_not_loaded() {
    let many = changed_noop(|text| {
        let parts = "(core instance (instantiate $empty))".repeat(41);
        let end = text.trim_end().strip_suffix(')').unwrap();
        format!("{end} (core module $empty) {parts})")
    });
    let refused = |limits: Limits| {
        let runtime = Runtime::new(1, limits, Permissions::default(), None).unwrap();
        let file = runtime.read(&many).unwrap();
        runtime.load(&file).err().map(|error| error.to_string())
    };
    let error = refused(limits()).unwrap();
    assert!(error.contains("44 core module instances"), "{error}");
    let limits = Limits {
        instances: 60,
        ..limits()
    };
    assert_eq!(refused(limits), None);
}

#[test]
fn a_file_is_as_large_and_takes_as_long_as_it_may() {
    let limits = Limits {
        component_bytes: 1000,
        ..limits()
    };
    let runtime = Runtime::new(1, limits, Permissions::default(), None).unwrap();
    let error = runtime.read(&guest("noop")).err().unwrap().to_string();
    assert!(error.contains("more than 1000 bytes"), "{error}");
    let limits = Limits {
        compile_time: Duration::from_nanos(1),
        ..Limits::default()
    };
    let runtime = Runtime::new(1, limits, Permissions::default(), None).unwrap();
    let file = runtime.read(&guest("noop")).unwrap();
    let error = runtime.load(&file).err().unwrap().to_string();
    assert!(error.contains("--limit compile-time"), "{error}");
}

#[tokio::test]
async fn floods_are_cut_with_a_mark_and_harm_nothing() {
    let limits = Limits {
        log_bytes: 1000,
        log_lines: 5,
        ..Limits::default()
    };
    for name in ["log-flood", "stdout-flood"] {
        let (_runtime, handler) = load(name, limits);
        let report = handler.run(call(b"5000", 1)).await;
        assert_eq!(report.outcome, Outcome::Acked, "{name}");
        let last = report.log.last().unwrap();
        assert_eq!(report.log.len(), 6, "{name}: {:?}", report.log);
        assert_eq!(
            (&last.source, last.text.as_str()),
            (&Source::Host, "cut: 499500 bytes more, 4995 lines more"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn log_lines_have_level_and_context() {
    let report = run("logger", b"why", 1).await;
    assert_eq!(report.outcome.reason(), "why");
    let levels: Vec<Level> = report
        .log
        .iter()
        .filter_map(|line| match &line.source {
            Source::Log { level, context } if context == "orders" => Some(*level),
            _ => None,
        })
        .collect();
    let words: Vec<&str> = levels.into_iter().map(Level::as_str).collect();
    assert_eq!(
        words,
        [
            "trace", "debug", "info", "warn", "error", "critical", "info"
        ]
    );
    assert!(
        report
            .log_text()
            .contains("a line on stdout\na line on stderr\n")
    );
}

#[tokio::test]
async fn a_guest_has_no_environment_files_or_sockets() {
    let (class, reason) = end("env-reader", b"").await;
    assert_eq!(
        (class, reason.as_str()),
        ("rejected", "env: none; args: none; cwd: none")
    );
    let (class, reason) = end("file-reader", b"").await;
    assert_eq!(class, "rejected");
    assert_eq!(reason.matches("No such file").count(), 4, "{reason}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let report = run("socket-opener", port.as_bytes(), 1).await;
    assert_eq!(report.outcome.class(), "rejected", "{:?}", report.outcome);
    assert!(listener.accept().is_err());
    // Two of TCP, one of UDP: each is counted and told.
    assert_eq!(report.refused, 3, "{:?}", report.log);
    assert!(report.log_text().contains("[refused: a TCP socket]"));
}

#[tokio::test]
async fn a_guest_sees_the_variables_that_it_is_given_and_no_secret_is_shown() {
    let permissions = || Permissions {
        env: vec![("PLAIN".into(), "text".into())],
        secrets: vec![("KEY".into(), "hunter2".into())],
        ..Permissions::default()
    };
    let (_runtime, handler) = load_with(&guest("env-reader"), limits(), permissions());
    let all = handler.run(call(b"", 1)).await.outcome.reason();
    assert_eq!(
        all,
        "env: PLAIN=text, KEY=[secret KEY]; args: none; cwd: none"
    );
    let one = handler.run(call(b"KEY", 1)).await;
    assert_eq!(one.outcome, Outcome::Acked);
    let log = one.log_text();
    assert!(
        log.contains("[secret KEY]") && !log.contains("hunter2"),
        "{log}"
    );
}
