//! `dqhost-handler` in a real component: `guest-examples/sdk-order`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::web::Web;
use crate::support::{expect, guest, run, stdout};

/// One run with a payload; its report.
fn order(payload: &str, more: &[&str], code: i32) -> Value {
    let file = guest("sdk-order").display().to_string();
    let args = ["run", &file, "--json", "--payload", payload];
    serde_json::from_slice(&run(None, &[&args[..], more].concat(), code).stdout).unwrap()
}

/// An order that is paid at this path.
fn paid_at(web: &Web, path: &str) -> String {
    let url = web.url(path);
    format!(r#"{{"order":"A-1","amount":2.5,"pay":"{url}"}}"#)
}

#[test]
fn a_result_of_the_function_is_the_verdict() {
    let report = order(r#"{"order": "A-1", "amount": 1}"#, &[], 0);
    assert_eq!(report["verdict"], "acked");
    assert_eq!(report["log"][0]["text"], "order A-1 is free");
    let returned: Value = serde_json::from_str(report["result"].as_str().unwrap()).unwrap();
    assert_eq!(returned["order"], "A-1");
    let report = order(r#"{"order": "A-1", "amount": 0}"#, &[], 6);
    assert_eq!(report["reason"], "order A-1 has no amount");
    let report = order("hello", &[], 6);
    let reason = report["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("the payload is not as expected: expected value"),
        "{reason}"
    );
}

#[test]
fn http_and_the_outbox_work_as_the_operator_allows() {
    let web = Web::start();
    let address = format!("127.0.0.1:{}", web.port);
    let allowed = ["--allow-http", &address, "--allow-send", "receipts"];
    let payload = paid_at(&web, "/200");
    let report = order(
        &payload,
        &[&allowed[..], &["--id", "id-1", "--attempt", "3"]].concat(),
        0,
    );
    assert_eq!(report["log"][0]["text"], "order A-1 is paid: HTTP 200");
    let sent = &report["sends"][0];
    assert_eq!(sent["queue"], "receipts");
    assert_eq!(
        (&sent["delay_ms"], &sent["retries"]),
        (&60_000.into(), &2.into())
    );
    assert_eq!(sent["headers"], serde_json::json!([["attempt", "3"]]));
    assert_eq!(sent["payload"], payload);
    let requests = web.requests();
    assert_eq!((&*requests[0].method, &*requests[0].path), ("POST", "/200"));
    assert_eq!(requests[0].headers["idempotency-key"], "id-1");
    assert_eq!(requests[0].headers["content-type"], "application/json");
    assert_eq!(requests[0].body, payload.as_bytes());
    // Not allowed: the first is a request, the second a send.
    let report = order(&payload, &[], 1);
    assert_eq!(
        (&report["verdict"], &report["delay_ms"]),
        (&"nacked".into(), &1_500.into())
    );
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("--allow-http"), "{reason}");
    let report = order(&payload, &["--allow-http", &address], 1);
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("receipts"), "{reason}");
    for (path, code, verdict) in [("/503", 1, "nacked"), ("/404", 6, "rejected")] {
        let report = order(&paid_at(&web, path), &allowed, code);
        assert_eq!(report["verdict"], verdict);
        assert!(
            report["reason"]
                .as_str()
                .unwrap()
                .starts_with(&format!("HTTP {}", &path[1..]))
        );
    }
    let report = order(
        r#"{"order": "A-1", "amount": 1, "pay": "nowhere"}"#,
        &allowed,
        1,
    );
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("\"nowhere\" is not a URL"), "{reason}");
}

#[test]
fn the_crate_can_be_packaged_with_its_interface() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed = Command::new(env!("CARGO"))
        .args([
            "package",
            "--package",
            "dqhost-handler",
            "--list",
            "--allow-dirty",
            "--offline",
        ])
        .current_dir(root)
        .output();
    let listed = stdout(&expect(listed.unwrap(), 0));
    for file in ["wit/queue.wit", "src/lib.rs", "src/wasi.rs", "README.md"] {
        assert!(listed.lines().any(|line| line == file), "{file}: {listed}");
    }
}
