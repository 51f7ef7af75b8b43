//! Who is let in.

use std::fs;

use tempfile::TempDir;

use super::{Api, with_each_store};
use crate::support::{eventually, run, stderr, stdout};

/// A new token for this, and its line for the file.
fn token(name: &str, more: &[&str]) -> (String, String) {
    let printed = stdout(&run(None, &[&["token", "new", name], more].concat(), 0));
    let mut lines = printed.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.next().unwrap())
}

fn file(folder: &TempDir) -> String {
    folder.path().join("dqhost.db").display().to_string()
}

#[test]
fn other_machines_are_let_in_only_with_tokens() {
    let folder = TempDir::new().unwrap();
    let handler = crate::support::guest("noop").display().to_string();
    for address in ["0.0.0.0:0", "[::]:0"] {
        for command in [&["serve"] as &[&str], &["--handler", &handler, "--no-tui"]] {
            let args = [command, &["--listen", address]].concat();
            let says = stderr(&run(Some(&file(&folder)), &args, 2));
            assert!(says.contains("give --tokens FILE"), "{says}");
        }
    }
    for (args, says) in [
        (&["serve", "--listen", "7420"] as &[&str], "unix:PATH"),
        (&["serve", "--listen", "example.com:80"], "unix:PATH"),
        (
            &["serve", "--tokens", "/nowhere"],
            "the tokens cannot be used: /nowhere: ",
        ),
        (
            &["--handler", &handler, "--tokens", "/nowhere"],
            "--tokens is for --listen",
        ),
        (
            &["serve", "--listen", "unix:/nowhere/s"],
            "cannot listen on unix:/nowhere/s",
        ),
        (&["serve", "--db", ":memory:"], "only `dqhost up`"),
        (&["token", "new", "a/b", "--role", "send"], "is not allowed"),
        (
            &["token", "new", "a", "--role", "root"],
            "use send, view or operate",
        ),
    ] {
        let printed = stderr(&run(Some(&file(&folder)), args, 2));
        assert!(printed.contains(says), "{args:?}: {printed}");
    }
    let (_, line) = token("a", &["--role", "send"]);
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, line.replace("sha256:", "sha256:x")).unwrap();
    let args = ["serve", "--tokens", tokens.to_str().unwrap()];
    let says = stderr(&run(Some(&file(&folder)), &args, 2));
    assert!(
        says.contains("line 1: the last word must be sha256:"),
        "{says}"
    );
}

#[test]
fn a_token_allows_its_roles_on_its_queues_and_nothing_else() {
    with_each_store(|store| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("tokens");
        let (shop, shop_line) = token("shop", &["--role", "send", "--queue", "q"]);
        let (eye, eye_line) = token("eye", &["--role", "view", "--queue", "q"]);
        let (boss, boss_line) = token("boss", &["--role", "operate"]);
        fs::write(&path, [shop_line, eye_line, boss_line].join("\n")).unwrap();
        let mut api = Api::serve(store, &["--tokens", path.to_str().unwrap()]);
        let ask = |token: &str, method: &str, path: &str| {
            let bearer = format!("Bearer {token}");
            api.ask(method, path, &[("authorization", &bearer)], b"")
                .status
        };
        let all = [
            ("POST", "/queues/q/messages"),
            ("POST", "/queues/other/messages"),
            ("GET", "/queues/q/messages?state=ready"),
            ("GET", "/queues/other/stats"),
            ("GET", "/stats"),
            ("POST", "/queues/q/pause"),
        ];
        let of = |token: &str| all.map(|(method, path)| ask(token, method, path));
        assert_eq!(of(&shop), [201, 403, 403, 403, 403, 403]);
        assert_eq!(of(&boss), [201, 201, 200, 200, 200, 200]);
        assert_eq!(of(&eye), [403, 403, 200, 403, 200, 403]);
        assert_eq!(of("dqh_other"), [401; 6]);
        let bearer = format!("Bearer {eye}");
        let seen = api
            .ask("GET", "/stats", &[("authorization", &bearer)], b"")
            .json();
        assert_eq!(seen["queues"].as_array().unwrap().len(), 1, "{seen}");
        let none = api.get("/stats");
        none.is_problem(401, "authorization: Bearer");
        assert!(none.head.contains("www-authenticate: bearer"), "{none:?}");
        let basic = [("authorization", "Basic YTpi")];
        api.ask("GET", "/nothing", &basic, b"")
            .is_problem(401, "Bearer");
        let twice = [
            ("authorization", bearer.as_str()),
            ("authorization", &bearer),
        ];
        api.ask("GET", "/stats", &twice, b"")
            .is_problem(400, "twice");
        let line = api.host.wait_for("paused over HTTP", |_| true);
        assert_eq!(
            (&line["client"], &line["queue"]),
            (&"boss".into(), &"q".into())
        );
    });
}

#[test]
fn a_token_that_is_taken_out_of_the_file_is_refused_and_a_broken_file_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("tokens");
    let (old, old_line) = token("old", &["--role", "view"]);
    let (new, new_line) = token("new", &["--role", "view"]);
    fs::write(&path, old_line).unwrap();
    let mut api = Api::serve(&file(&folder), &["--tokens", path.to_str().unwrap()]);
    let ask = |api: &Api, token: &str| {
        let bearer = format!("Bearer {token}");
        api.ask("GET", "/stats", &[("authorization", &bearer)], b"")
            .status
    };
    assert_eq!((ask(&api, &old), ask(&api, &new)), (200, 401));
    fs::write(&path, "# for now: no one\nbroken").unwrap();
    api.host
        .wait_for_start("the tokens stay as they were: line 2");
    assert_eq!((ask(&api, &old), ask(&api, &new)), (200, 401));
    fs::write(&path, new_line).unwrap();
    eventually("the new token is known", || {
        (ask(&api, &new) == 200).then_some(())
    });
    assert_eq!(ask(&api, &old), 401);
    fs::write(&path, "# no one\n").unwrap();
    eventually("nobody has a token", || {
        (ask(&api, &new) == 401).then_some(())
    });
    // To begin with, it is a mistake.
    let args = ["serve", "--tokens", path.to_str().unwrap()];
    let refusal = stderr(&run(Some(&file(&folder)), &args, 2));
    assert!(refusal.contains("dqhost token new"), "{refusal}");
}

#[test]
fn a_handler_does_not_reach_the_api_of_its_host() {
    let folder = TempDir::new().unwrap();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let handler = crate::support::guest("webhook").display().to_string();
    let args = [
        "--queue",
        "q",
        "--handler",
        &handler,
        "--allow-http",
        &at,
        "--listen",
        &at,
    ];
    let store = file(&folder);
    let mut host = crate::support::Host::start(&store, &args);
    host.wait_for("listening", |_| true);
    let url = format!("url=http://{at}/queues/q/pause");
    let send = [
        "send",
        "x",
        "--queue",
        "q",
        "--retries",
        "0",
        "--header",
        &url,
    ];
    let id = stdout(&run(Some(&store), &send, 0));
    host.wait_for("dead", |line| line["id"] == id.trim());
    assert_eq!(crate::support::stats(&store, "q")["paused"], false);
}

#[test]
fn pages_of_other_sites_and_names_that_were_made_to_point_here_are_refused() {
    let folder = TempDir::new().unwrap();
    let store = file(&folder);
    let api = Api::serve(&store, &[]);
    let send = |headers: &[(&str, &str)]| api.ask("POST", "/queues/q/messages", headers, b"x");
    send(&[("host", "evil.example")]).is_problem(403, "only localhost");
    send(&[("host", "evil.example:7420")]).is_problem(403, "only localhost");
    send(&[("origin", "http://evil.example")]).is_problem(403, "other sites");
    send(&[("origin", "null")]).is_problem(403, "other sites");
    send(&[("sec-fetch-site", "cross-site")]).is_problem(403, "other sites");
    send(&[("host", "localhost"), ("host", "evil.example")]).is_problem(400, "twice");
    // What a browser asks before it sends anything else than a form.
    let asked = [
        ("origin", "http://evil.example"),
        ("access-control-request-method", "POST"),
    ];
    let preflight = api.ask("OPTIONS", "/queues/q/messages", &asked, b"");
    assert!(preflight.status == 403 && !preflight.head.contains("access-control-allow"));
    // An address in the request line counts as much as the header.
    api.ask("GET", "http://evil.example/stats", &[], b"")
        .is_problem(403, "only localhost");
    assert_eq!(crate::support::stats(&store, "q")["totals"]["sent"], 0);
    send(&[("host", "127.0.0.1:1"), ("origin", "http://127.0.0.1:1")]).is(201);
}
