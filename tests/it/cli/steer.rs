//! Pausing queues, and listing what is in them.

use std::fmt::Write as _;

use tempfile::TempDir;

use crate::dashboard::tty::Tty;
use crate::http_api::with_each_store;
use crate::support::{RedisServer, dqhost, expect, feed, run, stats, stderr, stdout};

#[test]
fn a_paused_queue_is_named_in_the_advice_to_resume_it() {
    let server = RedisServer::start();
    let url = server.url();
    run(Some(&url), &["send", "x", "--queue", "mails"], 0);
    run(Some(&url), &["pause", "--queue", "mails"], 0);
    let text = stdout(&run(Some(&url), &["stats"], 0));
    let advice = "mails is paused: `dqhost resume --queue mails` resumes it";
    assert!(text.contains(advice), "{text}");
    // The flags of the store are repeated: what is printed can be run.
    let text = stdout(&run(None, &["stats", "--redis", &url], 0));
    let advice = text.split('`').nth(1).unwrap();
    assert_eq!(advice, format!("dqhost resume --queue mails --redis {url}"));
    let words: Vec<&str> = advice.split(' ').skip(1).collect();
    run(None, &words, 0);
    assert_eq!(stats(&url, "mails")["paused"], false);
}

#[test]
fn a_queue_that_is_not_there_is_paused_only_when_it_is_to_be_made() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    for store in [server.url(), file] {
        run(Some(&store), &["send", "x"], 0);
        let none = || {
            let text = stdout(&run(Some(&store), &["stats"], 0));
            assert!(!text.contains("nosuch"), "{text}");
        };
        for command in ["pause", "resume"] {
            let output = run(Some(&store), &[command, "--queue", "nosuch"], 1);
            let errors = stderr(&output);
            assert!(errors.contains("there is no queue nosuch"), "{errors}");
            assert_eq!(errors.contains("--create"), command == "pause", "{errors}");
            assert_eq!(stdout(&output), "");
            none();
        }
        run(Some(&store), &["pause", "-q", "nosuch", "--create"], 0);
        assert_eq!(stats(&store, "nosuch")["paused"], true);
        run(Some(&store), &["pause", "-q", "nosuch"], 0);
        run(Some(&store), &["resume", "-q", "nosuch"], 0);
        assert_eq!(stats(&store, "nosuch")["paused"], false);
    }
    // What another program keeps in Redis is there, though no dqhost has listed it.
    let _: u64 = server.command(&["LPUSH", "{dp:others}:ready", "x"]);
    run(Some(&server.url()), &["pause", "--queue", "others"], 0);
}

#[test]
fn a_list_that_stops_says_how_many_there_are() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dqhost.db").display().to_string();
    let mut lines = String::new();
    for n in 0..1234 {
        writeln!(lines, "{{\"payload\":{n}}}").unwrap();
    }
    for store in [server.url(), file] {
        let command = dqhost(Some(&store), &["send", "--ndjson"]);
        expect(feed(command, lines.as_bytes()), 0);
        let list = |args: &[&str]| {
            let output = run(Some(&store), &[&["list", "ready"], args].concat(), 0);
            (stdout(&output).lines().count(), stderr(&output))
        };
        let says = "50 of 1,234 shown; --limit 0 or --offset 50 shows more\n";
        assert_eq!(list(&[]), (50, says.to_owned()));
        assert_eq!(list(&["--json"]), (50, says.to_owned()));
        let says = "250 of 1,234 shown; --limit 0 or --offset 350 shows more\n";
        let part = list(&["--offset", "100", "--limit", "250"]);
        assert_eq!(part, (250, says.to_owned()));
        for whole in [
            &["--limit", "0"][..],
            &["--limit", "1234"],
            &["--limit", "2000"],
        ] {
            assert_eq!(list(whole), (1234, String::new()));
        }
        assert_eq!(list(&["--offset", "1200"]), (34, String::new()));
        let dead = run(Some(&store), &["dead", "list"], 0);
        assert_eq!(
            (stdout(&dead), stderr(&dead)),
            (String::new(), String::new())
        );
    }
}

#[test]
fn a_list_is_a_table_on_a_terminal_and_lines_in_a_pipe() {
    with_each_store(|store| {
        let sent = run(Some(store), &["send", "one", "--in", "90m"], 0);
        let id = stdout(&sent).trim().to_owned();
        let header = format!(
            "{:<36}  {:<12}  ATTEMPTS  LAST FAILURE  PAYLOAD",
            "ID", "DUE"
        );
        let row = |text: &str| {
            text.lines()
                .find(|line| line.starts_with(&id))
                .unwrap()
                .to_owned()
        };
        let list = |more: &[&str]| {
            let args = [&["list", "pending"], more].concat();
            stdout(&run(Some(store), &args, 0))
        };
        // What scripts read.
        let lines = list(&[]);
        assert!(lines.starts_with(&format!("{id}  20")) && lines.ends_with("  attempts 0  one\n"));
        assert_eq!(list(&["-o", "lines"]), lines);
        assert_eq!(list(&["-o", "json"]), list(&["--json"]));
        let table = list(&["-o", "wide"]);
        assert_eq!(table.lines().count(), 2, "{table}");
        let of_id = row(&table);
        assert!(of_id.starts_with(&format!("{id}  in 1h ")), "{of_id}");
        assert!(of_id.ends_with("  0         -             one"), "{of_id}");
        let columns: Vec<&str> = header.split_whitespace().collect();
        let first: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(first, columns);
        let tty = Tty::start(store, &["list", "pending"], (120, 10));
        let screen = tty.end(0);
        assert!(
            screen.contains("LAST FAILURE") && row(&screen).contains("  in 1h "),
            "{screen}"
        );
        let tty = Tty::start(store, &["list", "ready"], (120, 10));
        assert!(tty.end(0).contains("default has no such messages in ready"));
        run(Some(store), &["list", "pending", "-o", "wide", "--json"], 2);
    });
}
