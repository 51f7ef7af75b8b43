//! `dqhost run` with many messages, with dead letters, and again and again.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::servers::tools::free_port;
use crate::support::{RedisServer, dqhost, expect, feed, guest, run, stats, stderr, stdout};

const ORDERS: &str = r#"{"payload": {"order": "A-1", "status": "paid", "amount": 1}, "retries": 7}

{"payload": {"order": "A-2", "status": "processing", "amount": 2}, "in": "1h"}
{"payload": "no order", "headers": {"k": "v"}}
"#;

fn order_timeout() -> String {
    guest("order-timeout").display().to_string()
}

#[test]
fn each_message_of_a_file_or_of_stdin_is_run() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("orders.ndjson");
    fs::write(&file, ORDERS).unwrap();
    let (orders, file) = (order_timeout(), file.display().to_string());
    let shown = stdout(&run(None, &["run", &orders, "--messages", &file], 1));
    for line in [
        r#"message   1: {"order": "A-1", "status": "paid", "amount": 1}"#,
        "log       stdout: order A-1 is paid (1.00)",
        "message   2: {\"order\"",
        "verdict   nacked: the payment of order A-2 is under way, to be retried in 1000 ms",
        "message   3: no order",
        "verdict   rejected: not an order",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let command = dqhost(None, &["run", &orders, "--messages", "-", "--json"]);
    let shown = stdout(&expect(feed(command, ORDERS.as_bytes()), 1));
    let reports = shown
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let verdicts: Vec<_> = reports
        .map(|report| (report["message"].clone(), report["verdict"].clone()))
        .collect();
    let expected = [(1, "acked"), (2, "nacked"), (3, "rejected")];
    assert_eq!(verdicts, expected.map(|(n, v)| (n.into(), v.into())));
    // Its own retries make the number of attempts.
    let echo = guest("echo").display().to_string();
    let shown = stdout(&run(None, &["run", &echo, "--messages", &file], 0));
    assert!(shown.contains("attempt 1 of 8"), "{shown}");
    assert_eq!(shown.matches("attempt 1 of 4").count(), 2, "{shown}");
}

#[test]
fn a_rejection_is_the_exit_code_of_several_runs_unless_one_failed() {
    let orders = order_timeout();
    let with = |lines: &str, code| {
        let command = dqhost(None, &["run", &orders, "--messages", "-"]);
        expect(feed(command, lines.as_bytes()), code);
    };
    let lines: Vec<&str> = ORDERS.lines().filter(|line| !line.is_empty()).collect();
    with(lines[0], 0);
    with(&[lines[2], lines[0], lines[2]].join("\n"), 6);
    with(&[lines[2], lines[1], lines[2]].join("\n"), 1);
}

#[test]
fn a_wrong_line_is_named_and_nothing_runs() {
    let echo = guest("echo").display().to_string();
    let with = |lines: &[u8]| {
        let command = dqhost(None, &["run", &echo, "--messages", "-"]);
        let output = expect(feed(command, lines), 2);
        assert_eq!(stdout(&output), "");
        stderr(&output)
    };
    for (lines, says) in [
        (
            &b"{\"payload\": 1}\n\nhello"[..],
            "error: line 3 of -: it is not a JSON object",
        ),
        (
            b"{\"payload\": 1, \"\x1b[2J\": 1}",
            "error: line 1 of -: it is not valid JSON at column 17",
        ),
        (b"\xff", "error: line 1 of -: it is not a JSON object"),
        (b"{\"payload\": 1, \"retries\": -1}", "retries must be"),
        (b"\n \n", "error: - has no message: give a line for each"),
        (b"", "error: - has no message"),
    ] {
        let refusal = with(lines);
        assert!(refusal.contains(says), "{says}: {refusal}");
        assert!(!refusal.contains('\u{1b}'), "{refusal:?}");
    }
    let long = format!("{{\"payload\": \"{}\"}}", "x".repeat(300_000));
    assert!(with(long.as_bytes()).contains("the limit is 262144"));
    let refusal = stderr(&run(None, &["run", &echo, "--messages", "not there"], 2));
    assert!(refusal.contains("not there"), "{refusal}");
}

#[test]
fn runs_that_are_repeated_are_counted_in_a_table() {
    let orders = order_timeout();
    let args = ["run", &orders, "--messages", "-", "--repeat", "20"];
    let shown = stdout(&expect(feed(dqhost(None, &args), ORDERS.as_bytes()), 1));
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let ends = ["20 acked", "20 nacked", "20 rejected"];
    assert_eq!(rows.len(), 5, "{shown}");
    for (row, (number, end)) in rows[1..4].iter().zip((1..).zip(ends)) {
        assert_eq!(row[0], number.to_string(), "{shown}");
        assert_eq!(row[1], "20", "{shown}");
        assert_eq!(row[6..].join(" "), end, "{shown}");
    }
    assert_eq!(rows[4][..2], ["all", "60"]);
    assert!(
        shown.ends_with("20 acked, 20 nacked, 20 rejected\n"),
        "{shown}"
    );
    let times: Vec<f64> = rows[4][2..5].iter().map(|t| t.parse().unwrap()).collect();
    assert!(times[0] > 0.0 && times.is_sorted(), "{shown}");
    // One message has one row.
    let args = ["run", &orders, "--payload", "x", "--repeat", "3"];
    let shown = stdout(&run(None, &args, 6));
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let shown = stdout(&run(None, &[&args[..], &["--json"]].concat(), 6));
    let row: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&row["message"], &row["runs"]), (&Value::Null, &3.into()));
    assert_eq!(row["verdicts"], serde_json::json!({"rejected": 3}));
    assert!(row["memory"].as_u64().unwrap() > 0);
    assert!(row["duration_ms"]["p99"].as_f64() >= row["duration_ms"]["p50"].as_f64());
    run(None, &["run", &orders, "--repeat", "0"], 2);
}

#[test]
fn a_dead_letter_is_run_as_it_was_delivered_last_and_stays() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    let (echo, flaky) = (guest("echo"), guest("flaky"));
    let (echo, flaky) = (echo.display().to_string(), flaky.display().to_string());
    for path in [server.url(), file] {
        let store = Some(&*path);
        let send = [
            "send",
            "9",
            "--queue",
            "q",
            "--retries",
            "1",
            "--header",
            "k=v",
        ];
        let id = stdout(&run(store, &send, 0)).trim().to_owned();
        let dead = ["run", &echo, "--queue", "q", "--dead", &id];
        let refusal = stderr(&run(store, &dead, 1));
        assert!(refusal.contains(&format!("{id} is ready, not a dead letter")));
        let spec = format!("q={flaky}");
        let up = [
            "--queue",
            &spec,
            "--exit-when-empty",
            "--backoff",
            "1ms",
            "--no-tui",
        ];
        run(store, &up, 0);
        let before = stats(&path, "q");
        assert_eq!(before["dead"], 1);
        let shown = stdout(&run(store, &dead, 0));
        assert!(shown.contains("attempt 2 of 2"), "{shown}");
        assert!(shown.contains("stdout: 9"), "{shown}");
        // It may be run as another attempt, and as often as is wanted.
        let again = [&dead[..], &["--attempt", "1"]].concat();
        assert!(stdout(&run(store, &again, 0)).contains("attempt 1 of 2"));
        let often = ["--attempt", "9", "--repeat", "3"];
        let flaky = ["run", &flaky, "--queue", "q", "--dead", &id];
        let shown = stdout(&run(store, &[&flaky[..], &often].concat(), 0));
        assert!(shown.ends_with("3 acked\n"), "{shown}");
        assert_eq!(stats(&path, "q"), before);
        let other = ["run", &echo, "--queue", "q", "--dead", "\u{1b}[2J"];
        let refusal = stderr(&run(store, &other, 1));
        let says = "error: queue q has no message \\u{1b}[2J: `dqhost dead list`";
        assert!(refusal.starts_with(says), "{refusal}");
        for more in [["--payload", "x"], ["--messages", "x"], ["--header", "k=v"]] {
            run(store, &[&dead[..], &more].concat(), 2);
        }
    }
}

#[test]
fn a_store_that_is_not_there_is_not_made_to_run_a_dead_letter() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    let echo = guest("echo").display().to_string();
    run(Some(&file), &["run", &echo, "--dead", "x"], 3);
    assert!(!folder.path().join("dqhost.db").exists());
    let refusal = stderr(&run(None, &["run", &echo, "--db", &file], 2));
    assert!(
        refusal.contains("--db is only used with --dead"),
        "{refusal}"
    );
}

#[test]
fn a_dead_letter_reaches_its_own_store_as_little_as_in_a_host() {
    let port = free_port();
    let server = RedisServer::start_with(&["--port", &port.to_string()]);
    let address = format!("127.0.0.1:{port}");
    let store = format!("redis://{address}");
    let url = format!("url=http://{address}/");
    let send = ["send", "x", "--retries", "0", "--header", &url];
    let id = stdout(&run(Some(&store), &send, 0)).trim().to_owned();
    let reject = guest("reject").display().to_string();
    let up = ["--handler", &reject, "--exit-when-empty", "--no-tui"];
    run(Some(&store), &up, 0);
    let webhook = guest("webhook").display().to_string();
    let dead = [
        "run",
        &webhook,
        "--dead",
        &id,
        "--allow-http",
        &address,
        "--json",
    ];
    let report = stdout(&run(Some(&store), &dead, 1));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["refused"], 1, "{report}");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("does not allow a request"), "{reason}");
    drop(server);
}
