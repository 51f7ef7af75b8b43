//! One walk through everything that an operator does, in a terminal, on both stores.

use serde_json::Value;
use tempfile::TempDir;

use super::tty::Tty;
use crate::support::{RedisServer, eventually, guest, run, stats, stdout};

const ENTER: &str = "\r";
/// Back, as Esc is; an Esc would make an Alt of the key that follows at once.
const BACK: &str = "\x7f";
const ESCAPE: &str = "\x1b";
const CTRL_S: &str = "\x13";
const CTRL_A: &str = "\x01";
const CTRL_K: &str = "\x0b";

fn total(store: &str, name: &str) -> u64 {
    stats(store, "default")["totals"][name].as_u64().unwrap()
}

fn dead(store: &str) -> Vec<Value> {
    let output = run(Some(store), &["dead", "list", "--json"], 0);
    let line = |line: &str| serde_json::from_str(line).unwrap();
    stdout(&output).lines().map(line).collect()
}

fn walk(store: &str) {
    let handler = guest("flaky");
    let mut tty = Tty::start(store, &["--handler", handler.to_str().unwrap()], (120, 40));
    tty.wait_for("[1 Overview]");
    tty.wait_for("> default");
    tty.wait_for("live");
    send_three(store, &mut tty);
    mend_the_dead_one(store, &mut tty);
    pause_and_resume(store, &mut tty);
    redrive_all(store, &mut tty);
    leave(tty);
}

fn send_three(store: &str, tty: &mut Tty) {
    // Three messages from the prompt: acked at once, acked at the second attempt, never acked.
    for (line, says) in [
        ("1", "due now"),
        ("2 --in 100ms", "due "),
        ("9 --retries 1", "due now"),
    ] {
        tty.keys("s");
        tty.wait_for(":send");
        tty.keys(line);
        tty.keys(ENTER);
        tty.wait_until("the answer, and the message", |text| {
            text.contains("sent ")
                && text.contains(says)
                && text.contains("message ")
                && !text.contains(":send")
        });
        tty.keys(BACK);
        tty.wait_for("QUEUE");
    }
    eventually("two are acked and one is dead", || {
        (total(store, "acked") == 2 && total(store, "dead") == 1).then_some(())
    });
    tty.wait_until("the screen shows the dead letter", |text| {
        text.lines().any(|line| line.contains("▶ DEAD 1 "))
    });
}

fn mend_the_dead_one(store: &str, tty: &mut Tty) {
    // The dead letter by its reason, then itself: its attempts and what it holds.
    tty.keys("3");
    tty.wait_for("nacked: attempt 2 of 9 that are needed");
    tty.keys("j");
    tty.keys(ENTER);
    tty.wait_for("LAST FAILURE");
    tty.wait_for("> ");
    tty.keys(ENTER);
    tty.wait_for("attempts, latest first");
    tty.wait_for("attempt 1 of 9 that are needed");

    // Edited and sent again, it is acked; the original is kept.
    let original = dead(store).remove(0);
    tty.keys("e");
    tty.wait_for("^S sends it");
    tty.keys(CTRL_A);
    tty.keys(CTRL_K);
    tty.keys("1");
    tty.keys(CTRL_S);
    tty.wait_for("the dead letter is kept");
    eventually("the edited one is acked", || {
        (total(store, "acked") == 3).then_some(())
    });
    assert_eq!(dead(store), [original]);
    tty.keys(BACK);
    tty.keys(BACK);
}

fn pause_and_resume(store: &str, tty: &mut Tty) {
    // Paused, nothing passes; resumed, it does.
    tty.keys("p");
    tty.wait_for("[paused]");
    tty.keys(":send 1\r");
    tty.wait_for("sent ");
    tty.keys("1");
    tty.wait_for("the queue is paused: p lets it go on");
    assert_eq!(stats(store, "default")["ready"], 1);
    tty.keys(":resume\r");
    tty.wait_until("it goes on", |text| !text.contains("[paused]"));
    eventually("it is acked", || (total(store, "acked") == 4).then_some(()));
    // A name that nobody uses makes no queue.
    tty.keys(":pause -q nosuch\r");
    tty.wait_for("there is no queue nosuch: --create makes it");
    assert!(!stdout(&run(Some(store), &["stats"], 0)).contains("nosuch"));
}

fn redrive_all(store: &str, tty: &mut Tty) {
    // All dead letters put back, after a question that counts.
    tty.keys(":redrive all\r");
    tty.wait_for("Put 1 dead letter of default back");
    tty.answer("y");
    tty.wait_for("1 redriven");
    eventually("it is dead again", || {
        (total(store, "dead") == 2).then_some(())
    });
}

fn leave(mut tty: Tty) {
    tty.keys(":nonsense\r");
    tty.wait_for("unrecognized subcommand");
    tty.keys(ESCAPE);
    tty.wait_until("the prompt is left", |text| !text.contains(":nonsense"));
    tty.keys("6");
    tty.wait_for("dqhost.log");
    tty.keys("4");
    tty.wait_for("nothing is in flight");
    tty.keys("q");
    assert_eq!(tty.code(), 0);
    let lines = std::fs::read_to_string(tty.state.path().join("dqhost/lines")).unwrap();
    assert!(
        lines.lines().count() >= 6 && lines.contains("2 --in 100ms"),
        "{lines}"
    );
    let log = std::fs::read_to_string(tty.state.path().join("dqhost/dqhost.log")).unwrap();
    assert!(log.contains("acked") && log.contains("dead"), "{log}");
    let left = tty.end(0);
    assert!(left.contains("the log is in"), "{left}");
}

#[test]
fn an_operator_does_everything_on_a_file() {
    let folder = TempDir::new().unwrap();
    walk(folder.path().join("dqhost.db").to_str().unwrap());
}

#[test]
fn an_operator_does_everything_on_redis() {
    let server = RedisServer::start();
    walk(&server.url());
}

#[test]
fn a_running_handler_is_stopped_and_the_queue_goes_on() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    let handler = guest("spin");
    let args = [
        "--handler",
        handler.to_str().unwrap(),
        "--timeout",
        "1h",
        "--slots",
        "2",
    ];
    let mut tty = Tty::start(store, &args, (80, 24));
    tty.wait_for("> default");
    tty.keys(":send x --retries 0\r");
    tty.wait_for("sent ");
    tty.keys("4");
    tty.wait_for("1 of 2 slots busy");
    tty.wait_for("> ");
    tty.keys("K");
    tty.wait_for("sure?");
    tty.keys("y");
    tty.wait_for("is stopped");
    eventually("it is dead", || (total(store, "dead") == 1).then_some(()));
    let last = &dead(store)[0]["history"][0];
    assert_eq!(last["class"], "stopped", "{last}");
    tty.wait_for("0 of 2 slots busy");
    tty.keys("q");
    tty.end(0);
}

#[test]
fn an_operator_without_a_host_sees_and_steers_all_queues() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    for queue in ["one", "two"] {
        run(
            Some(store),
            &["send", "x", "--in", "1h", "--queue", queue],
            0,
        );
    }
    let mut tty = Tty::start(store, &["top"], (80, 24));
    tty.wait_until("all queues and that none is served", |text| {
        text.contains("> one") && text.contains("  two") && text.contains("none serves this queue")
    });
    tty.keys("j");
    tty.wait_for("> two");
    tty.keys("\r");
    tty.wait_for("> 0");
    tty.keys("x");
    tty.wait_for("1 message rescheduled");
    assert_eq!(stats(store, "two")["ready"], 1);
    assert_eq!(stats(store, "one")["pending"], 1);
    tty.keys("2]");
    tty.wait_for("[ready 1]");
    tty.wait_for("> 0");
    tty.keys("C");
    tty.wait_for("sure?");
    tty.keys("y");
    tty.wait_for("1 message cancelled");
    assert_eq!(stats(store, "two")["ready"], 0);
    tty.keys("q");
    tty.end(0);
}

#[test]
fn what_was_sent_under_a_key_is_not_sent_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    let args = ["send", "x", "--in", "1h", "--idempotency-key", "k"];
    let id = stdout(&run(Some(store), &args, 0));
    let mut tty = Tty::start(store, &["top"], (120, 24));
    tty.wait_for("> default");
    tty.keys(":send y --idempotency-key k\r");
    tty.wait_for(&format!("{} was sent before", id.trim()));
    assert_eq!(stats(store, "default")["ready"], 0);
    tty.keys("q");
    tty.end(0);
}

#[test]
fn of_many_queues_each_is_kept_up_to_date() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("dqhost.db");
    let store = path.to_str().unwrap();
    for n in 1..=5 {
        let queue = format!("queue{n}");
        run(
            Some(store),
            &["send", "x", "--in", "1h", "--queue", &queue],
            0,
        );
    }
    let mut tty = Tty::start(store, &["top"], (80, 30));
    let row = |text: &str, name: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start_matches(['>', ' ']).starts_with(name));
        line.map_or(String::new(), |line| {
            line.split_whitespace()
                .skip(1)
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
    };
    tty.wait_for("> queue1");
    for n in 1..=5 {
        let queue = format!("queue{n}");
        tty.wait_until("it is shown", |text| row(text, &queue).contains('1'));
        run(
            Some(store),
            &["send", "x", "--in", "1h", "--queue", &queue],
            0,
        );
        tty.wait_until("it is shown anew", |text| row(text, &queue).contains('2'));
    }
    tty.keys(":queue queue4\r");
    tty.wait_for("queue queue4");
    tty.keys(":queue nowhere\r");
    tty.wait_for("no queue nowhere");
    tty.keys("q");
    tty.end(0);
}
