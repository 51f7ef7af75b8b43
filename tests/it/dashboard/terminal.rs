//! The terminal is given back as it was, however the program ends, and nothing is drawn where there
//! is none.

use std::sync::Arc;

use dqhost::control::{Channels, Line, Snapshot};
use dqhost::dashboard::{CommandParser, Settings, Setup};
use dqhost::message::{MessageId, QueueName};
use rustix::process::{Signal, WaitOptions, waitpid};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};

use super::sample::theme;
use super::tty::Tty;
use crate::support::{dqhost, eventually, expect, guest, run, stats, stderr, stdout};

fn store(folder: &TempDir) -> String {
    folder.path().join("dqhost.db").display().to_string()
}

/// A host with one message in flight, whose handler takes hours.
fn busy(store: &str) -> Tty {
    let handler = guest("sleeper");
    let args = [
        "--handler",
        handler.to_str().unwrap(),
        "--timeout",
        "5h",
        "--drain",
        "5h",
    ];
    let mut tty = Tty::start(store, &args, (80, 24));
    tty.wait_for("> default");
    tty.keys(":send 9999999\r");
    tty.wait_for("sent ");
    eventually("it is in flight", || {
        (stats(store, "default")["unack"] == 1).then_some(())
    });
    tty
}

#[test]
fn leaving_with_messages_in_hand_asks_and_then_drains() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let mut tty = busy(&store);
    tty.keys("4");
    tty.wait_for("1 of 16 slots busy");
    tty.keys("q");
    tty.wait_for("1 message is in flight");
    tty.keys("n");
    tty.wait_until("no question is left", |text| !text.contains("sure?"));
    tty.keys("q");
    tty.wait_for("sure?");
    tty.keys("y");
    tty.wait_for("stopping: 1 in flight");
    tty.keys("q");
    tty.end(0);
    assert_eq!(stats(&store, "default")["totals"]["released"], 1);
}

#[test]
fn one_that_only_looks_can_be_left() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let handler = guest("noop");
    let args = ["--handler", handler.to_str().unwrap(), "--read-only"];
    let mut tty = Tty::start(&store, &args, (80, 24));
    tty.wait_for("> default");
    tty.wait_for("[read only]");
    tty.keys(":send x\r");
    tty.wait_for("nothing is changed");
    tty.keys("q");
    tty.end(0);
    assert_eq!(stats(&store, "default")["totals"]["sent"], 0);
}

#[test]
fn a_signal_drains_and_a_second_one_stops_at_once() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let mut tty = busy(&store);
    tty.signal(Signal::TERM);
    tty.wait_for("stopping: 1 in flight");
    tty.signal(Signal::TERM);
    tty.end(0);
    assert_eq!(stats(&store, "default")["totals"]["released"], 1);
}

#[test]
fn it_can_be_put_aside_and_taken_up_again() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    run(Some(&store), &["pause", "--create"], 0);
    let mut tty = Tty::start(&store, &["top"], (80, 24));
    tty.wait_for("> default");
    for stop in ["key", "signal"] {
        if stop == "key" {
            tty.keys("\x1a");
        } else {
            tty.signal(Signal::TSTP);
        }
        let (_, status) = waitpid(Some(tty.pid()), WaitOptions::UNTRACED)
            .unwrap()
            .unwrap();
        assert!(status.stopped(), "{status:?}");
        eventually("the terminal is as before", || {
            tty.is_restored().then_some(())
        });
        tty.signal(Signal::CONT);
        eventually("it is back", || {
            tty.on_screen(vt100::Screen::alternate_screen).then_some(())
        });
        tty.wait_for("> default");
    }
    tty.keys("q");
    tty.end(0);
}

#[test]
fn it_fits_every_size_while_it_runs() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    run(Some(&store), &["send", "x", "--in", "1h"], 0);
    let mut tty = Tty::start(&store, &["top"], (120, 40));
    tty.wait_for("FAIL/s");
    tty.resize(40, 10);
    tty.wait_for("  QUEUE     PEND READY");
    tty.resize(30, 5);
    tty.wait_for("p1 r0 u0 t0 d0");
    tty.resize(80, 24);
    tty.wait_for("FAIL/s");
    tty.keys("q");
    tty.end(0);
}

#[test]
fn without_colours_the_selection_can_still_be_seen() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    run(Some(&store), &["send", "x", "--in", "1h"], 0);
    let mut tty = Tty::start_with(&store, &["top"], (80, 24), &[("NO_COLOR", "1")]);
    tty.wait_for("> default");
    let colors = tty.on_screen(|screen| {
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| screen.cell(row, column))
            .filter(|cell| {
                cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default
            })
            .count()
    });
    assert_eq!(colors, 0);
    let selected = tty.on_screen(|screen| {
        let row = (0..24).find(|row| {
            screen
                .cell(*row, 0)
                .is_some_and(|cell| cell.contents() == ">")
        });
        screen.cell(row.unwrap(), 3).unwrap().inverse()
    });
    assert!(selected);
    tty.keys("q");
    tty.end(0);
}

#[test]
fn one_frame_needs_no_terminal() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    run(
        Some(&store),
        &["send", "x", "--in", "1h", "--queue", "q"],
        0,
    );
    let snapshot = |args: &[&str]| {
        let output = dqhost(Some(&store), args)
            .env("COLUMNS", "80")
            .env("LINES", "24")
            .output();
        stdout(&expect(output.unwrap(), 0))
    };
    let text = snapshot(&["top", "--snapshot"]);
    assert!(text.contains("> q ") && !text.contains('\x1b'), "{text}");
    assert!(text.lines().count() == 24 && text.lines().all(|line| line.chars().count() <= 80));
    assert!(snapshot(&["--snapshot", "--queue", "q"]).contains("> q "));
    assert!(snapshot(&["top", "--snapshot=ansi"]).contains("\x1b[0;"));
    assert!(snapshot(&["top", "--snapshot=svg"]).starts_with("<svg "));
    let errors = stderr(&run(Some(&store), &["top"], 2));
    assert!(errors.contains("no terminal"), "{errors}");
}

#[test]
fn what_is_wrong_from_the_start_is_told_on_the_terminal() {
    let folder = TempDir::new().unwrap();
    let tty = Tty::start(&store(&folder), &["--handler", "/nowhere.wasm"], (100, 24));
    let left = tty.end(4);
    assert!(
        left.contains("cannot read the handler /nowhere.wasm"),
        "{left}"
    );
    let tty = Tty::start("/proc/nowhere/q.db", &["top"], (100, 24));
    let left = tty.end(3);
    assert!(left.contains("cannot be used"), "{left}");
}

#[test]
fn without_a_place_for_it_the_log_is_on_the_screen_only() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    let handler = guest("noop");
    let args = ["--handler", handler.to_str().unwrap()];
    let env = [("XDG_STATE_HOME", "/proc/nowhere")];
    let mut tty = Tty::start_with(&store, &args, (100, 24), &env);
    tty.wait_for("> default");
    tty.keys("6");
    tty.wait_for("it is kept on this screen only");
    tty.wait_for("serving");
    tty.keys("q");
    let left = tty.end(0);
    assert!(!left.contains("the log is in"), "{left}");
}

/// Not a test by itself: what [`a_panic_leaves_the_terminal_as_it_was`] runs in a terminal.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it panics, in a terminal that another test gives it"]
async fn panics() {
    struct Panics;
    impl CommandParser for Panics {
        fn parse(&self, _: &str, _: &QueueName, _: &[MessageId]) -> Result<Line, String> {
            panic!("a bug in the dashboard")
        }
        fn complete(&self, _before: &str) -> Vec<String> {
            Vec::new()
        }
    }
    let (_snapshots, snapshots) = watch::channel(Arc::new(Snapshot::empty("none".to_owned())));
    let (commands, _commands) = mpsc::unbounded_channel();
    let (_notices, notices) = mpsc::unbounded_channel();
    let channels = Channels {
        snapshots,
        commands,
        notices,
        logs: Arc::default(),
    };
    let setup = Setup {
        settings: Settings::of(theme()),
        parser: Box::new(Panics),
        lines: None,
    };
    dqhost::dashboard::run(setup, channels, std::future::pending())
        .await
        .unwrap();
}

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    let program = std::env::current_exe().unwrap();
    let args = [
        "--exact",
        "dashboard::terminal::panics",
        "--ignored",
        "--nocapture",
    ];
    let mut tty = Tty::start_program(program.to_str().unwrap(), &args, (80, 24), &[]);
    tty.wait_for("[1 Overview]");
    tty.keys(":x\r");
    tty.end(101);
}

#[test]
fn the_mouse_works_unless_it_is_left_to_the_terminal() {
    let folder = TempDir::new().unwrap();
    let store = store(&folder);
    run(Some(&store), &["send", "x", "--in", "1h"], 0);
    let is_told = |tty: &Tty| tty.on_screen(vt100::Screen::mouse_protocol_mode);
    for args in [&["top"][..], &["top", "--no-mouse"]] {
        let mut tty = Tty::start(&store, args, (80, 24));
        tty.wait_for("> default");
        let on = if args.len() == 1 {
            vt100::MouseProtocolMode::PressRelease
        } else {
            vt100::MouseProtocolMode::None
        };
        assert_eq!(is_told(&tty), on);
        // A click on the tab of the log.
        let text = tty.text();
        let column = text.lines().next().unwrap().find("6 Log").unwrap() + 1;
        tty.keys(&format!("\x1b[<0;{column};1M\x1b[<0;{column};1m"));
        tty.wait_for("[6 Log");
        tty.keys("q");
        eventually("the mouse is given back", || {
            (is_told(&tty) == vt100::MouseProtocolMode::None).then_some(())
        });
        tty.end(0);
    }
}
