//! `dqhost doctor`: what it finds at stores, handlers and machines that are as they should be, and not.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::support::{RedisServer, dqhost, eventually, expect, guest, run, stdout};

/// The findings by what they are about.
struct Findings(BTreeMap<String, Value>);

impl Findings {
    fn of(output: &Output) -> Self {
        let text = stdout(output);
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let named = lines.map(|line: Value| (line["about"].as_str().unwrap().to_owned(), line));
        Self(named.collect())
    }

    /// `dqhost doctor` with this store.
    fn at(store: &str, more: &[&str], code: i32) -> Self {
        Self::of(&run(
            Some(store),
            &[&["doctor", "--json"], more].concat(),
            code,
        ))
    }

    /// One is of this level, and its words have this in them.
    #[track_caller]
    fn has(&self, level: &str, about: &str, part: &str) {
        let found = self
            .0
            .get(about)
            .unwrap_or_else(|| panic!("no {about}: {:#?}", self.0));
        assert_eq!(found["level"], level, "{found}");
        let what = found["what"].as_str().unwrap();
        assert!(what.contains(part), "{found}");
        let has_mend = found["mend"].as_str().is_some_and(|mend| !mend.is_empty());
        assert_eq!(has_mend, level != "ok", "{found}");
    }
}

#[test]
fn a_server_as_it_should_be_has_nothing_bad() {
    let server = RedisServer::start();
    let found = Findings::at(&server.url(), &[], 0);
    found.has("ok", "store", "Redis 7");
    found.has("ok", "eviction", "deletes none");
    found.has("ok", "persistence", "append-only file");
    found.has("ok", "memory", "without a limit");
    found.has("ok", "rights", "user default may do what a host does");
    found.has("ok", "clock", "the store's is");
    found.has("ok", "sandbox", "16 handlers");
    found.has("ok", "addresses", "no limit");
    found.has("ok", "terminal", "there is none");
    assert!(found.0.contains_key("latency") && found.0.contains_key("open files"));
    assert_eq!(server.dump(), "");
    let text = stdout(&run(Some(&server.url()), &["doctor"], 0));
    assert!(
        text.lines()
            .any(|line| line.starts_with("ok      store         Redis 7")),
        "{text}"
    );
}

#[test]
fn settings_of_a_server_that_lose_messages_are_bad() {
    let server = RedisServer::start_with(&[
        "--maxmemory-policy",
        "allkeys-lru",
        "--maxmemory",
        "2mb",
        "--appendonly",
        "no",
    ]);
    let found = Findings::at(&server.url(), &[], 1);
    found.has("bad", "eviction", "allkeys-lru");
    found.has("bad", "persistence", "loses all messages");
    let mend = found.0["eviction"]["mend"].as_str().unwrap();
    assert!(
        mend.contains("CONFIG SET maxmemory-policy noeviction"),
        "{mend}"
    );
    let () = server.command(&["CONFIG", "SET", "save", "3600 1"]);
    let found = Findings::at(&server.url(), &["--allow-eviction"], 0);
    found.has("warn", "eviction", "allkeys-lru");
    found.has("warn", "persistence", "may lose messages");
    let text = stdout(&run(
        Some(&server.url()),
        &["doctor", "--allow-eviction"],
        0,
    ));
    let line = "warn    persistence   this Redis keeps no append-only file: its restart may lose \
        messages -> `redis-cli CONFIG SET appendonly yes`";
    assert!(text.lines().any(|printed| printed == line), "{text}");
}

#[test]
fn a_server_that_is_away_hides_nothing_else() {
    let found = Findings::at("redis://127.0.0.1:1", &[], 1);
    found.has("bad", "store", "127.0.0.1:1");
    found.has("ok", "sandbox", "16 handlers");
    assert!(found.0.contains_key("open files"));
}

#[test]
fn what_a_user_may_not_ask_is_not_known_and_what_a_host_may_not_do_is_bad() {
    let server = RedisServer::start();
    let page = include_str!("../../docs/stores.md");
    let rule = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER dq-host "));
    let rule = rule.unwrap().replace("PASSWORD", "secret");
    let () = server.command(&rule.split(' ').collect::<Vec<_>>());
    let url = server
        .url()
        .replace("redis.sock", "redis.sock?user=dq-host&pass=secret");
    let found = Findings::at(&url, &[], 0);
    found.has("unknown", "rights", "may not ask");
    found.has("ok", "clock", "the store's is");
    let () = server.command(&["CONFIG", "SET", "appendonly", "no"]);
    Findings::at(&url, &[], 0).has("warn", "persistence", "may lose messages");
    let () = server.command(&["ACL", "SETUSER", "dq-host", "+acl|whoami", "+acl|dryrun"]);
    Findings::at(&url, &[], 0).has("ok", "rights", "user dq-host may");
    let () = server.command(&["ACL", "SETUSER", "dq-host", "-hset", "-zadd"]);
    Findings::at(&url, &[], 1).has("bad", "rights", "may not: hset, zadd");
    let () = server.command(&["ACL", "SETUSER", "dq-host", "+hset", "+zadd", "resetkeys"]);
    let () = server.command(&["ACL", "SETUSER", "dq-host", "~{dp:other}:*"]);
    Findings::at(&url, &["--queue", "orders"], 1).has("bad", "rights", "get, mget");
}

#[test]
fn files_are_looked_at_with_their_disk() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db");
    let store = store.to_str().unwrap();
    let found = Findings::at(store, &[], 0);
    found.has("ok", "store", "will be made");
    assert!(found.0.contains_key("disk") && found.0.contains_key("file system"));
    assert!(!fs::exists(store).unwrap());
    run(Some(store), &["send", "a"], 0);
    let found = Findings::at(store, &[], 0);
    found.has("ok", "store", "sqlite://");
    assert!(found.0.contains_key("latency"));
    Findings::at("/nowhere/dqhost.db", &[], 1).has("bad", "store", "cannot be made");
    fs::write(store, "this is no database, but a text of some length").unwrap();
    Findings::at(store, &[], 1).has("bad", "store", "dqhost.db");
}

#[test]
fn a_handler_is_checked_and_a_limit_on_addresses_is_bad() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    let handler = guest("echo").display().to_string();
    Findings::at(&store, &["--handler", &handler], 0).has("ok", "handler", "can run");
    let bad = folder.path().join("bad.wasm");
    fs::write(&bad, "no component").unwrap();
    let found = Findings::at(&store, &["--handler", bad.to_str().unwrap()], 1);
    found.has("bad", "handler", "it cannot run");
    let missing = Findings::at(&store, &["--handler", "/nowhere/h.wasm"], 1);
    missing.has("bad", "handler", "/nowhere/h.wasm");
    let program = dqhost(Some(&store), &["doctor", "--json"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 8000000; exec \"$@\"", "sh"]);
    command.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let found = Findings::of(&expect(command.output().unwrap(), 1));
    found.has("bad", "sandbox", "no address space");
    found.has("warn", "addresses", "a limit of 7812 MiB");
}

#[test]
fn a_terminal_is_told_of() {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("dqhost.db").display().to_string();
    for ((columns, rows), line) in [
        (
            (200, 40),
            "ok      terminal      xterm-256color, 200 columns and 40 rows,",
        ),
        (
            (200, 5),
            "warn    terminal      it has 200 columns and 5 rows",
        ),
    ] {
        let env = [("LANG", "C.UTF-8"), ("DQHOST_DB", &store)];
        let program = env!("CARGO_BIN_EXE_dqhost");
        let tty = Tty::start_program(program, &["doctor"], (columns, rows), &env);
        let printed = eventually("it has ended", || {
            let bytes = tty.bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.contains("characters").then_some(text)
        });
        assert!(
            printed.lines().any(|printed| printed.starts_with(line)),
            "{printed}"
        );
    }
}
