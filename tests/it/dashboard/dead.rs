//! Many dead letters at once.

use std::fmt::Write as _;

use tempfile::TempDir;

use super::tty::Tty;
use crate::support::{dqhost, expect, feed, guest, run, stats};

/// A file with 60 dead letters of two reasons: 40 that are no numbers, and 20 that need a ninth
/// attempt.
fn many_dead(folder: &TempDir) -> String {
    let store = folder.path().join("dqhost.db").display().to_string();
    let mut lines = String::new();
    for n in 0..60 {
        let payload = if n % 3 == 0 {
            "9".to_owned()
        } else {
            format!("word{n}")
        };
        writeln!(lines, "{{\"payload\":\"{payload}\",\"retries\":0}}").unwrap();
    }
    expect(
        feed(
            dqhost(Some(&store), &["send", "--ndjson"]),
            lines.as_bytes(),
        ),
        0,
    );
    let handler = guest("flaky");
    run(
        Some(&store),
        &["--handler", handler.to_str().unwrap(), "--exit-when-empty"],
        0,
    );
    assert_eq!(stats(&store, "default")["dead"], 60);
    store
}

#[test]
fn a_task_goes_at_its_pace_and_can_be_stopped() {
    let folder = TempDir::new().unwrap();
    let store = many_dead(&folder);
    let mut tty = Tty::start(&store, &["top"], (100, 30));
    tty.wait_for("> default");
    // It would take hours.
    tty.keys(":redrive all --rate 1\r");
    tty.wait_for("Put 60 dead letters of default back");
    tty.answer("y");
    tty.wait_for("redriving: ");
    tty.keys(":delete all\r");
    tty.wait_for("wait for the end of redriving");
    tty.keys(":stop\r");
    tty.wait_for("stopped: ");
    let counts = stats(&store, "default");
    let redriven = counts["totals"]["redriven"].as_u64().unwrap();
    assert!((1..60).contains(&redriven), "{counts}");
    assert_eq!(counts["dead"], 60 - redriven);
    tty.keys("q");
    tty.end(0);
}

#[test]
fn dead_letters_are_chosen_by_reason_by_filter_and_by_mark() {
    let folder = TempDir::new().unwrap();
    let store = many_dead(&folder);
    let mut tty = Tty::start(&store, &["top"], (100, 30));
    tty.wait_for("> default");
    tty.keys("3");
    tty.wait_for("attempt 1 of 9");
    // The words differ, and are one reason all the same.
    let line = tty.wait_for("is not the number of an attempt");
    let line = line.lines().find(|line| line.contains("payload \"…\""));
    assert!(
        line.unwrap()
            .trim_start_matches(['│', ' '])
            .starts_with("40 ")
    );
    tty.keys("/word !word1\r");
    tty.wait_for("/word !word1");
    tty.wait_until("the filter is used", |text| {
        !text.contains("attempt 1 of 9")
    });
    tty.keys("D");
    // Of the 40 words, eight begin with word1.
    tty.wait_for("Delete 32 dead letters of default that match");
    tty.answer("y");
    tty.wait_for("32 deleted");
    assert_eq!(stats(&store, "default")["dead"], 28);
    tty.keys("\x7f");
    tty.wait_for("attempt 1 of 9");
    // Those of one reason, by a question with their number.
    tty.keys("jr");
    tty.wait_for("Put 20 dead letters of default with the reason");
    tty.answer("n");
    tty.wait_until("no question is left", |text| !text.contains("sure?"));
    tty.keys("\r");
    tty.wait_for("LAST FAILURE");
    tty.wait_for("attempt 1 of 9");
    tty.keys("  ");
    tty.wait_for("2 marked");
    tty.keys("r");
    tty.wait_for("Put 2 dead letters back");
    tty.keys("y");
    tty.wait_for("2 redriven");
    assert_eq!(stats(&store, "default")["ready"], 2);
    tty.keys("q");
    tty.end(0);
}

#[test]
fn enter_deletes_no_dead_letter_and_a_late_key_leaves_no_screen() {
    let folder = TempDir::new().unwrap();
    let store = many_dead(&folder);
    let mut tty = Tty::start(&store, &["top"], (100, 30));
    tty.wait_for("> default");
    tty.keys("3");
    tty.wait_for("attempt 1 of 9");
    tty.keys("X");
    tty.wait_for("Delete 60 dead letters of default");
    tty.wait_for("[n no]");
    tty.answer("\r");
    assert_eq!(stats(&store, "default")["dead"], 60);
    // The second q is for the question that the first has closed: it does not end the program.
    tty.keys("X");
    tty.wait_for("sure?");
    tty.answer("qq");
    tty.keys("X");
    tty.wait_for("sure?");
    tty.answer("y");
    tty.wait_for("60 deleted");
    assert_eq!(stats(&store, "default")["dead"], 0);
    tty.keys("q");
    tty.end(0);
}
