//! Completion in a shell, and the manual pages.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::support::{
    PATIENCE, RedisServer, dqhost, eventually, expect, guest, run, stderr, stdout,
};

/// Asks as the script of bash does, with the last word to complete.
fn asked(store: Option<&str>, words: &[&str]) -> Command {
    let mut command = dqhost(store, &[&["--", "dqhost"], words].concat());
    command
        .env("DQHOST_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n");
    command
}

fn candidates(mut command: Command) -> Vec<String> {
    let output = expect(command.output().unwrap(), 0);
    assert_eq!(stderr(&output), "");
    stdout(&output).lines().map(str::to_owned).collect()
}

/// The candidates, which a slow machine may not have in time at first.
fn wait_for(store: Option<&str>, words: &[&str]) -> Vec<String> {
    eventually(&format!("candidates of {words:?}"), || {
        let found = candidates(asked(store, words));
        (!found.is_empty()).then_some(found)
    })
}

fn file(folder: &TempDir) -> String {
    folder.path().join("dqhost.db").display().to_string()
}

/// Types, and presses the tab key until the shell has completed it to this text.
fn complete(tty: &mut Tty, typed: &str, completed: &str) {
    tty.keys(typed);
    let end = Instant::now() + PATIENCE;
    let bells = |tty: &Tty| tty.bytes().split(|byte| *byte == 7).count();
    loop {
        let before = bells(tty);
        tty.keys("\t");
        let is_done = eventually("the shell has answered", || {
            let is_done = tty.text().contains(completed);
            (is_done || bells(tty) > before).then_some(is_done)
        });
        if is_done {
            return;
        }
        assert!(Instant::now() < end, "{typed}: {}", tty.text());
    }
}

#[test]
fn bash_completes_a_command_a_state_and_a_queue_of_the_store() {
    let folder = TempDir::new().unwrap();
    let store = file(&folder);
    for (queue, payload) in [("orders", "typed by few keys"), ("emails", "x")] {
        let args = ["send", "--queue", queue, payload, "--in", "1h"];
        run(Some(&store), &args, 0);
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_dqhost")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let env = [("PATH", path.as_str()), ("DQHOST_DB", &store)];
    let env = [&env[..], &[("INPUTRC", "/dev/null"), ("PS1", "$ ")]].concat();
    let args = ["--norc", "--noprofile", "-i"];
    let mut tty = Tty::start_program("bash", &args, (120, 40), &env);
    tty.keys("source <(dqhost completions bash); echo ready-$((1 + 1))\n");
    tty.wait_for("ready-2");
    complete(&mut tty, "dqhost lis", "$ dqhost list");
    complete(&mut tty, "pend", "$ dqhost list pending");
    complete(&mut tty, "--que", "$ dqhost list pending --queue");
    complete(&mut tty, "ord", "$ dqhost list pending --queue orders");
    tty.keys("\n");
    tty.wait_for("typed by few keys");
    complete(
        &mut tty,
        "dqhost stats --queue=em",
        "$ dqhost stats --queue=emails",
    );
    tty.keys("\n");
    tty.wait_for("QUEUE");
    tty.keys("exit\n");
    tty.end(0);
}

#[test]
fn queues_and_ids_are_completed_from_the_store_that_the_words_name() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let (file, url) = (file(&folder), server.url());
    let reject = guest("reject").display().to_string();
    for (store, flag) in [(&file, "--db"), (&url, "--redis")] {
        let send = ["send", "--queue", "orders", "a", "--in", "1h"];
        let waiting = stdout(&run(Some(store), &send, 0)).trim().to_owned();
        let dead = stdout(&run(Some(store), &["send", "--queue", "failed", "b"], 0));
        let dead = dead.trim().to_owned();
        let args = ["--handler", &reject, "--queue", "failed"];
        let args = [&args[..], &["--exit-when-empty", "--no-tui"]].concat();
        run(Some(store), &args, 0);
        let queues = ["failed", "orders"];
        for words in [
            &["list", "pending", "--queue", ""] as &[&str],
            &["stats", "-q", ""],
            &["purge", ""],
            &["dead", "redrive", "x", "--to", ""],
        ] {
            assert_eq!(wait_for(Some(store), words), queues, "{words:?}");
        }
        let words = ["up", "--queue", "or"];
        assert_eq!(wait_for(Some(store), &words), ["orders"]);
        // The store may be named by a flag as well.
        let words = ["get", flag, store, "--queue", "orders", ""];
        assert_eq!(wait_for(None, &words), [waiting.as_str()]);
        for (words, id) in [
            (&["cancel", "--queue", "orders", ""] as &[&str], &waiting),
            (&["get", "--queue", "orders", &waiting[..9]], &waiting),
            (&["dead", "redrive", "--queue", "failed", ""], &dead),
        ] {
            assert_eq!(wait_for(Some(store), words), [id.as_str()], "{words:?}");
        }
    }
    let settings = folder.path().join("dqhost.toml");
    fs::write(&settings, format!("db = {file:?}\n")).unwrap();
    let settings = settings.to_str().unwrap();
    let words = ["list", "pending", "--config", settings, "--queue", "or"];
    assert_eq!(wait_for(None, &words), ["orders"]);
}

#[test]
fn commands_come_before_flags_and_flags_when_they_are_begun() {
    let commands = wait_for(None, &[""]);
    for expected in ["send", "dead", "completions", "man"] {
        assert!(commands.iter().any(|one| one == expected), "{commands:?}");
    }
    assert!(commands.iter().all(|one| !one.starts_with('-')));
    assert_eq!(wait_for(None, &["dead", "redr"]), ["redrive"]);
    assert_eq!(wait_for(None, &["send", "--idem"]), ["--idempotency-key"]);
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("handler.wasm"), "").unwrap();
    let found = eventually("the path", || {
        let mut command = asked(None, &["up", "--handler", "hand"]);
        let found = candidates(std::mem::replace(
            command.current_dir(folder.path()),
            Command::new("true"),
        ));
        (!found.is_empty()).then_some(found)
    });
    assert_eq!(found, ["handler.wasm"]);
}

#[test]
fn a_store_that_does_not_answer_gives_a_shell_nothing_and_nothing_is_made() {
    let folder = TempDir::new().unwrap();
    let broken = folder.path().join("broken.toml");
    fs::write(&broken, "no = [toml").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("redis://{}", silent.local_addr().unwrap());
    for words in [
        &["--db", &file(&folder)] as &[&str],
        &["--db", "/nowhere/dqhost.db"],
        &["--db", ":memory:"],
        &["--redis", "redis://127.0.0.1:1"],
        &["--redis", "no url"],
        &["--redis", &silent],
        &["--config", broken.to_str().unwrap()],
        &["--config", "/nowhere/dqhost.toml"],
        &[],
    ] {
        let words = [&["list", "pending"], words, &["--queue", ""]].concat();
        let mut command = asked(None, &words);
        command.env("XDG_DATA_HOME", folder.path().join("data"));
        command.current_dir(folder.path());
        assert_eq!(candidates(command), Vec::<String>::new(), "{words:?}");
    }
    let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn every_shell_has_its_script_and_the_variable_alone_changes_no_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stdout(&run(None, &["completions", shell], 0));
        assert!(script.contains("DQHOST_COMPLETE"), "{shell}: {script}");
    }
    let zsh = stdout(&run(None, &["completions", "zsh"], 0));
    assert!(zsh.starts_with("#compdef dqhost"), "{zsh}");
    let says = stderr(&run(None, &["completions", "tcsh"], 2));
    assert!(says.contains("possible values: bash"), "{says}");
    for (shell, code) in [("bash", 0), ("tcsh", 0)] {
        let mut command = dqhost(None, &["--version"]);
        command.env("DQHOST_COMPLETE", shell);
        let printed = stdout(&expect(command.output().unwrap(), code));
        assert!(printed.starts_with("dqhost "), "{printed}");
    }
}

#[test]
fn every_command_has_a_manual_page_that_groff_formats() {
    let folder = TempDir::new().unwrap();
    let pages = folder.path().join("share/man1");
    run(None, &["man", pages.to_str().unwrap()], 0);
    let reference = include_str!("../../../docs/cli.md");
    let commands = reference
        .lines()
        .filter_map(|line| line.strip_prefix("## dqhost"));
    let mut count = 0;
    for command in commands {
        let name = format!("dqhost{}.1", command.replace(' ', "-"));
        let page = pages.join(&name);
        let mut groff = Command::new("groff");
        let output = groff
            .args(["-man", "-Tutf8", "-P-cbou"])
            .arg(&page)
            .output();
        let output = output.expect("groff must be installed (Debian: apt-get install groff-base)");
        let text = stdout(&expect(output, 0));
        let title = format!("dqhost{}(1)", command.replace(' ', "-"));
        for part in [
            "NAME",
            "SYNOPSIS",
            concat!("dqhost ", env!("CARGO_PKG_VERSION")),
            &title,
        ] {
            assert!(text.contains(part), "{name}: {part}: {text}");
        }
        count += 1;
    }
    assert!(count > 30, "{count}");
    assert_eq!(fs::read_dir(&pages).unwrap().count(), count);
    let redrive = fs::read_to_string(pages.join("dqhost-dead-redrive.1")).unwrap();
    assert!(redrive.contains("\\-\\-rate"), "{redrive}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let says = stderr(&run(None, &["man", file.to_str().unwrap()], 2));
    assert!(says.contains("give another folder"), "{says}");
}
