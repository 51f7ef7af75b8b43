//! Handlers on the command line: `check`, `run`, and what they are given.

use std::fmt::Write as _;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{dqhost, expect, guest, guest_names, run, stderr, stdout};

/// What `check` prints of a file, with its digest and its folder left out.
fn checked(file: &std::path::Path, more: &[&str], code: i32) -> String {
    let args = [&["check", file.to_str().unwrap()], more].concat();
    let shown = stdout(&run(None, &args, code));
    let lines = shown.lines().map(|line| match line.split_once("sha256:") {
        Some((head, rest)) => format!("{head}sha256:HEX{}\n", &rest[64..]),
        None if line.starts_with("size ") => "size     N bytes\n".to_owned(),
        None => format!("{line}\n"),
    });
    let folder = file.parent().unwrap().to_str().unwrap();
    lines.collect::<String>().replace(folder, "FOLDER")
}

#[test]
fn every_example_is_checked() {
    let all: Vec<String> = guest_names()
        .iter()
        .map(|name| checked(&guest(name), &[], 0))
        .collect();
    insta::assert_snapshot!("check-examples", all.join("\n"));
    let granted = ["--allow-http", "*", "--allow-send", "q"];
    for name in ["webhook", "fan-out"] {
        let shown = checked(&guest(name), &granted, 0);
        assert!(shown.contains(": allowed"), "{shown}");
    }
    let args = ["check", "--json", guest("noop").to_str().unwrap()].map(str::to_owned);
    let found: Value = serde_json::from_slice(&run(None, &args, 0).stdout).unwrap();
    assert_eq!(found["problem"], Value::Null);
    assert_eq!(found["exports"][0], "dqhost:queue/handler@0.1.0");
}

#[test]
fn every_broken_file_is_checked() {
    let folder = TempDir::new().unwrap();
    let mut shown = String::new();
    let whole = wat::parse_str("(component (core module (func)))").unwrap();
    let foreign = r#"(component
        (import "other:thing/api@1.0.0" (instance)))"#;
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("text", b"not \x1b[31mwasm".to_vec()),
        ("module", wat::parse_str("(module)").unwrap()),
        ("nothing", wat::parse_str("(component)").unwrap()),
        ("foreign", wat::parse_str(foreign).unwrap()),
        ("half", whole[..whole.len() - 3].to_vec()),
        // What wasmtime has compiled for itself starts like this; it is code, and never loaded.
        ("compiled", b"\x7fELF\x02\x01\x01compiled".to_vec()),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        shown += &checked(&file, &[], 4);
        let refused = run(None, &["run", file.to_str().unwrap()], 4);
        assert!(stderr(&refused).contains("is not a handler"), "{name}");
    }
    insta::assert_snapshot!("check-broken", shown);
    let missing = folder.path().join("missing");
    for command in ["check", "run"] {
        let refused = run(None, &[command, missing.to_str().unwrap()], 4);
        assert!(stderr(&refused).contains("cannot read"));
    }
}

#[test]
fn one_message_is_run_without_a_store_and_the_exit_code_tells_the_verdict() {
    let mut shown = String::new();
    for (name, payload, more, code) in [
        ("noop", "x", vec![], 0),
        ("echo", "hi \u{1b}[31m", vec!["--attempt", "2"], 0),
        ("flaky", "3", vec!["--attempt", "1"], 1),
        ("flaky", "3", vec!["--attempt", "3"], 0),
        ("reject", "x", vec![], 6),
        ("trap", "x", vec![], 1),
        ("exit", "1", vec![], 1),
        ("stack", "", vec![], 1),
        ("hog", "", vec!["--memory", "4"], 1),
        ("huge-result", "", vec![], 1),
        ("spin", "", vec!["--timeout", "20ms"], 1),
        ("logger", "why", vec![], 1),
        ("env-reader", "", vec!["--env", "K=V"], 6),
        ("fan-out", "children", vec!["--header", "count=2"], 6),
        (
            "fan-out",
            "children",
            vec!["--header", "count=2", "--allow-send", "children"],
            0,
        ),
        (
            "webhook",
            "",
            vec!["--header", "url=http://127.0.0.1:1/"],
            1,
        ),
    ] {
        let file = guest(name);
        let head = ["run", file.to_str().unwrap(), "--payload", payload];
        let output = run(None, &[&head, &*more].concat(), code);
        let text = stdout(&output).replace(env!("CARGO_MANIFEST_DIR"), "ROOT");
        let kept = text
            .lines()
            .filter(|line| !line.starts_with("duration ") && !line.starts_with("memory "));
        let _ = writeln!(shown, "==== {name} {payload:?} {more:?}: exit {code}");
        for line in kept {
            let _ = writeln!(shown, "{line}");
        }
    }
    insta::assert_snapshot!("run", shown);
    let args = ["run", "--json", "--allow-send", "q", "--payload", "q"];
    let file = guest("fan-out");
    let output = run(None, &[&args[..], &[file.to_str().unwrap()]].concat(), 0);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["verdict"], &report["refused"]),
        (&"acked".into(), &0.into())
    );
    assert_eq!(report["sends"].as_array().unwrap().len(), 10);
    assert_eq!(
        (&report["sends"][0]["payload"], &report["sends"][0]["queue"]),
        (&"1".into(), &"q".into())
    );
    assert!(report["memory"].as_u64() > Some(0) && report["duration_ms"].as_f64() > Some(0.0));
}

#[test]
fn only_the_file_with_the_digest_is_loaded() {
    let (echo, noop) = (guest("echo"), guest("noop"));
    let (echo, noop) = (echo.to_str().unwrap(), noop.to_str().unwrap());
    let found: Value =
        serde_json::from_slice(&run(None, &["check", "--json", echo], 0).stdout).unwrap();
    let digest = found["digest"].as_str().unwrap();
    let handler_digest = ["--handler-digest", digest];
    run(None, &[&["run", echo][..], &handler_digest].concat(), 0);
    for refused in [
        vec!["run", noop],
        vec!["--db", ":memory:", "--handler", noop],
        vec![
            "--db",
            ":memory:",
            "--handler",
            echo,
            "--queue",
            "a",
            "--queue",
            "b",
            "--queue",
            "c",
        ],
    ] {
        let is_second = refused.len() > 4;
        let other = format!("b={noop}");
        let args: Vec<&str> = refused
            .iter()
            .map(|arg| {
                if is_second && *arg == "b" {
                    other.as_str()
                } else {
                    arg
                }
            })
            .collect();
        let output = run(None, &[&args, &handler_digest[..]].concat(), 4);
        assert!(
            stderr(&output).contains("not the one of --handler-digest"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn what_handlers_are_given_is_checked_before_anything_runs() {
    let noop = guest("noop");
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "hunter2\n").unwrap();
    let secret = format!("KEY={}", secret.display());
    let run_with = |more: &[&str], code| {
        let args = [&["run", noop.to_str().unwrap()], more].concat();
        stderr(&run(None, &args, code))
    };
    for (args, says) in [
        (vec!["--env", "K"], "NAME=VALUE"),
        (vec!["--env", "=V"], "cannot be a name"),
        (vec!["--env", "K=1", "--env", "K=2"], "K is given twice"),
        (
            vec!["--env", "KEY=1", "--secret-file", &secret],
            "KEY is given twice",
        ),
        (vec!["--env-from", "DQHOST_NOT_THERE"], "DQHOST_NOT_THERE"),
        (
            vec!["--secret-file", "K=/nonexistent/file"],
            "/nonexistent/file",
        ),
        (vec!["--allow-http", "ftp://x"], "neither http nor https"),
        (vec!["--allow-send", "a b"], "queue name"),
        (vec!["--limit", "stck=1"], "there is no such limit"),
        (vec!["--handler-digest", "abc"], "64 hexadecimal digits"),
    ] {
        let said = run_with(&args, 2);
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(!said.contains("hunter2"));
    }
    // The secret is there, without its line end, and is not shown.
    let file = guest("env-reader");
    let args = [
        "run",
        file.to_str().unwrap(),
        "--payload",
        "KEY",
        "--secret-file",
        &secret,
    ];
    let shown = stdout(&run(None, &args, 0));
    assert!(
        shown.contains("[secret KEY]") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[test]
fn compiled_code_is_kept_for_this_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let noop = guest("noop");
    let run = || {
        let mut command = dqhost(None, &["run", noop.to_str().unwrap()]);
        command.env("XDG_CACHE_HOME", folder.path());
        stderr(&expect(command.output().unwrap(), 0))
    };
    let ours = folder.path().join("dqhost");
    let files = || std::fs::read_dir(&ours).unwrap().count();
    assert_eq!(run(), "");
    let mode = std::fs::metadata(&ours).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(files() > 0);
    // Where others can write, nothing is read and nothing is put.
    std::fs::remove_dir_all(&ours).unwrap();
    std::fs::create_dir(&ours).unwrap();
    std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(run().contains("compiled code is not cached"));
    assert_eq!(files(), 0);
}

/// A component of one core module with this in it, and so many instances of it.
fn component_of(module: &str, instances: usize) -> Vec<u8> {
    let instances = "(core instance (instantiate $m))".repeat(instances);
    wat::parse_str(format!("(component (core module $m {module}) {instances})")).unwrap()
}

#[test]
fn the_flag_that_allows_more_tables_instances_and_elements_is_named() {
    let folder = TempDir::new().unwrap();
    let (table, memory) = ("(table 1 funcref)", "(memory 1)");
    let is_loaded = |found: &str| found.contains("it does not export dqhost:queue/handler");
    for (module, instances, says, flag) in [
        (table.repeat(4), 1, "", ""),
        (
            table.repeat(5),
            1,
            "5 tables, and 4 are",
            "--limit tables=5",
        ),
        (
            table.repeat(2),
            3,
            "6 tables, and 4 are",
            "--limit tables=6",
        ),
        (String::new(), 40, "", ""),
        (
            String::new(),
            41,
            "41 core module instances, and 40 are",
            "--limit instances=41",
        ),
        (
            "(table 200001 funcref)".to_owned(),
            1,
            "200001 elements in one table, and 200000 are",
            "--limit table-elements=200001",
        ),
        (memory.repeat(2), 1, "", ""),
        (memory.repeat(3), 1, "3 memories, and 2 are", ""),
        (memory.to_owned(), 3, "3 memories, and 2 are", ""),
        (
            "(memory 1025)".to_owned(),
            1,
            "67174400 bytes of memory at its start, and 67108864 are",
            "--memory 65",
        ),
    ] {
        let file = folder.path().join("handler.wasm");
        std::fs::write(&file, component_of(&module, instances)).unwrap();
        let file = file.to_str().unwrap();
        let found = stdout(&run(None, &["check", file], 4));
        if says.is_empty() {
            assert!(is_loaded(&found), "{module}: {found}");
            continue;
        }
        assert!(
            found.contains(&format!("it has {says} allowed")),
            "{module}: {found}"
        );
        if flag.is_empty() {
            assert!(found.contains("no flag allows more"), "{found}");
            continue;
        }
        assert!(found.contains(&format!("with `{flag}`")), "{found}");
        // The flag helps.
        let mut args = vec!["check", file];
        args.extend(flag.split(' '));
        let found = stdout(&run(None, &args, 4));
        assert!(is_loaded(&found), "{flag}: {found}");
    }
}
