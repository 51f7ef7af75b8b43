//! The HTTP API as programs of users ask it, in the languages that they use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{Api, with_each_store};
use crate::support::{guest, run, stdout};

/// The steps of each client: what it asks, and what it prints of the answers.
const HTTPX: &str = r#"
import httpx, sys
api = httpx.Client(base_url=sys.argv[1], timeout=60)
key = {"idempotency-key": "order-17"}
sent = api.post("/queues/q/messages", content=b"17", headers={**key, "dqhost-in": "1h"})
print(sent.status_code, api.post("/queues/q/messages", content=b"17", headers=key).status_code)
print(api.post("/queues/q/messages", content=b"18", headers=key).status_code)
path = "/queues/q/messages/" + sent.json()["id"]
print(api.get(path).json()["state"], api.post(path + "/reschedule").status_code)
print(api.get(path, params={"wait": "60s"}).json()["state"])
batch = api.post("/queues/q/messages", json=[{"payload": {"n": 1}, "in": "1h"}, {"payload": "é", "in": "2h"}])
print(batch.status_code, len(batch.json()))
page = api.get("/queues/q/messages", params={"state": "pending"}).json()
print([message["payload"] for message in page["messages"]])
print(api.post("/queues/q/messages/" + batch.json()[0]["id"] + "/cancel").status_code)
print(api.get("/queues/q/stats").json()["pending"], api.get("/queues/q/messages/none").status_code)
"#;

const FETCH: &str = r#"
const at = process.argv[2];
const ask = (path, more = {}) => fetch(at + path, more);
const post = (path, body, headers = {}) => ask(path, { method: "POST", body, headers });
const key = { "idempotency-key": "order-17" };
const sent = await post("/queues/q/messages", "17", { ...key, "dqhost-in": "1h" });
console.log(sent.status, (await post("/queues/q/messages", "17", key)).status);
console.log((await post("/queues/q/messages", "18", key)).status);
const path = "/queues/q/messages/" + (await sent.json()).id;
console.log((await (await ask(path)).json()).state, (await post(path + "/reschedule")).status);
console.log((await (await ask(path + "?wait=60s")).json()).state);
const messages = [{ payload: { n: 1 }, in: "1h" }, { payload: "é", in: "2h" }];
const json = { "content-type": "application/json" };
const batch = await post("/queues/q/messages", JSON.stringify(messages), json);
const sentAll = await batch.json();
console.log(batch.status, sentAll.length);
const page = await (await ask("/queues/q/messages?state=pending")).json();
console.log("['" + page.messages.map((message) => message.payload).join("', '") + "']");
console.log((await post("/queues/q/messages/" + sentAll[0].id + "/cancel")).status);
const stats = await (await ask("/queues/q/stats")).json();
console.log(stats.pending, (await ask("/queues/q/messages/none")).status);
"#;

const PRINTED: &str = "\
201 200
422
pending 200
acked
201 2
['{\"n\":1}', 'é']
204
1 404
";

/// A program of `make clients`.
fn client(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_dqhost"));
    let target = program.parent().and_then(Path::parent).unwrap();
    let client = target.join("tools/clients/bin").join(name);
    assert!(client.exists(), "run `make clients` first");
    client
}

fn does_the_steps(program: impl AsRef<std::ffi::OsStr>, file: &str, text: &str) {
    with_each_store(|store| {
        let folder = TempDir::new().unwrap();
        let script = folder.path().join(file);
        fs::write(&script, text).unwrap();
        let handler = guest("noop").display().to_string();
        let api = Api::beside(store, &["--handler", &handler, "--queue", "q"]);
        let mut command = Command::new(&program);
        command.env("NO_PROXY", "*").arg(&script);
        command.arg(format!("http://{}", api.at));
        assert_eq!(stdout(&command.output().unwrap()), PRINTED);
    });
}

#[test]
fn httpx_of_python_sends_waits_and_cancels() {
    does_the_steps(client("python"), "steps.py", HTTPX);
}

#[test]
fn fetch_of_node_sends_waits_and_cancels() {
    does_the_steps("node", "steps.mjs", FETCH);
}

/// Requests made from the document, right ones and wrong ones: no answer is a fault of the server, and
/// each has the status, the type and the shape that the document tells.
#[test]
fn what_schemathesis_makes_of_the_document_is_answered_as_it_says() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    // A queue that is there, with a message in each state that lists show.
    let send = |more: &[&str]| {
        run(
            Some(&store),
            &[&["send", "x", "--queue", "0"], more].concat(),
            0,
        )
    };
    let reject = guest("reject").display().to_string();
    send(&[]);
    let handle = [
        "--handler",
        &reject,
        "--queue",
        "0",
        "--exit-when-empty",
        "--no-tui",
    ];
    run(Some(&store), &handle, 0);
    send(&["--in", "1h"]);
    send(&[]);
    let api = Api::serve(&store, &[]);
    let mut command = Command::new(client("st"));
    command
        .current_dir(&folder)
        .env("NO_PROXY", "*")
        .args(["run", &format!("http://{}/openapi.json", api.at)])
        // A stream has no end.
        .args(["--exclude-path", "/queues/{queue}/events"])
        // What is valid by its shape may still be refused: a time that is none, or two times at once.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .args(["--max-examples", "20", "--seed", "1", "--no-color"])
        .args(["--request-timeout", "60", "--generation-database", "none"]);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("Tested: 16"), "{printed}");
}
