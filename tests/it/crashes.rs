//! The program ends, without any tidying up, before and after each request that it can make of a
//! store; then it is started again. Nothing may be lost, doubled, or in a state that it cannot be in.
//!
//! The list of requests is the program's own, and the match below has to name each.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dqhost::store::{Operation, Side};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{RedisServer, dqhost, eventually, expect, guest, stats, stdout};

/// Points at a time: each waits for the expiry of a lease.
const AT_A_TIME: usize = 4;

/// What a process is asked, so that it makes a certain request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Sends two messages.
    Send,
    /// Handles what waits, until nothing does.
    Handle,
    /// The same with a handler for which leases are renewed.
    HandleSlowly,
    /// Is told to stop with a message in flight, once.
    Stop,
    /// One command of a person, on the message that waits, or on the dead letter.
    OnWaiting(&'static str),
    OnDead(&'static str),
    /// One command that looks.
    Look(&'static str),
    /// Moves the queue to another store, or has it moved from there.
    CopyFrom,
    CopyTo,
    /// The test has no cluster.
    Nothing,
}

/// An act that comes to a request.
fn act(operation: Operation) -> Act {
    match operation {
        Operation::Send
        | Operation::NameQueue
        | Operation::Open
        | Operation::ReadInfo
        | Operation::Events => Act::Send,
        Operation::Advance
        | Operation::Reserve
        | Operation::ReadPayloads
        | Operation::Settle
        | Operation::KeepEnded
        | Operation::Count
        | Operation::Leave => Act::Handle,
        // A host that has nothing left to do does not wait for the answer to a heartbeat.
        Operation::Extend | Operation::Heartbeat => Act::HandleSlowly,
        Operation::Release => Act::Stop,
        Operation::Cancel => Act::OnWaiting("cancel"),
        Operation::Reschedule => Act::OnWaiting("reschedule"),
        Operation::Get => Act::OnWaiting("get"),
        Operation::Redrive => Act::OnDead("dead redrive"),
        Operation::DeleteDead => Act::OnDead("dead delete"),
        Operation::Pause => Act::Look("pause"),
        Operation::Overview => Act::Look("top --snapshot"),
        Operation::List => Act::Look("list ready"),
        Operation::ListHosts => Act::Look("stats"),
        Operation::ListQueues => Act::Look("stats --all-queues"),
        Operation::Audit => Act::Look("audit --repair"),
        Operation::BeginTransfer | Operation::Export | Operation::RemoveExported => Act::CopyFrom,
        Operation::Import | Operation::CommitImport => Act::CopyTo,
        Operation::ReadSlots => Act::Nothing,
    }
}

/// Requests that one of the stores does not make.
fn is_made(operation: Operation, on_redis: bool) -> bool {
    match operation {
        Operation::ReadPayloads | Operation::NameQueue | Operation::ReadInfo => on_redis,
        Operation::Open => !on_redis,
        Operation::ReadSlots => false,
        _ => true,
    }
}

/// A queue of its own for each point.
struct Point<'p> {
    store: &'p str,
    other: &'p str,
    queue: String,
    failpoint: &'static str,
}

impl Point<'_> {
    fn command(&self, words: &str, more: &[&str]) -> Command {
        let mut args: Vec<&str> = words.split(' ').collect();
        match args.last() {
            Some(&"--all-queues") => {
                args.pop();
            }
            _ => args.extend(["--queue", &self.queue]),
        }
        dqhost(Some(self.store), &[&args, more].concat())
    }

    fn host(&self, handler: &str, more: &[&str]) -> Command {
        let file = guest(handler);
        let args = [
            "--handler",
            file.to_str().unwrap(),
            "--lease",
            "1s",
            "--log",
            "warn",
            "--queue",
            &self.queue,
        ];
        dqhost(Some(self.store), &[&args, more].concat())
    }

    fn copy(&self, from: &str, to: &str) -> Command {
        let args = ["move", "--from", from, "--to", to, "--queue", &self.queue];
        dqhost(None, &args)
    }

    /// Ends where the point is: without it, ends well.
    fn end(&self, mut command: Command, dies: bool) {
        if dies {
            command.env("FAILPOINTS", format!("{}=return", self.failpoint));
        }
        let output = command.output().unwrap();
        if dies {
            self.must_have_died(output.status);
        } else {
            expect(output, 0);
        }
    }

    fn must_have_died(&self, status: ExitStatus) {
        let aborted = status.signal() == Some(Signal::ABORT.as_raw());
        assert!(aborted, "{} was not passed: {status}", self.failpoint);
    }

    fn send(&self, payload: &str) -> String {
        stdout(&expect(
            self.command("send", &[payload]).output().unwrap(),
            0,
        ))
        .trim()
        .to_owned()
    }

    /// A host that is told to stop while its handler runs.
    fn stop(&self) {
        let mut command = self.host("sleeper", &["--drain", "1ms"]);
        command.env("FAILPOINTS", format!("{}=return", self.failpoint));
        let mut host = command.spawn().unwrap();
        eventually("it is in flight", || {
            (stats(self.store, &self.queue)["unack"] == 1).then_some(())
        });
        kill_process(Pid::from_child(&host), Signal::TERM).unwrap();
        self.must_have_died(host.wait().unwrap());
    }

    fn act(&self, act: Act, waits: &str, dead: &str, dies: bool) {
        let later = ["--exit-when-empty"];
        match act {
            Act::Send => self.end(self.command("send", &["20"]), dies),
            Act::Handle => self.end(self.host("noop", &later), dies),
            Act::HandleSlowly => self.end(self.host("sleeper", &later), dies),
            Act::Stop if dies => self.stop(),
            Act::OnWaiting(words) if dies => self.end(self.command(words, &[waits]), true),
            Act::OnDead(words) if dies => self.end(self.command(words, &[dead]), true),
            // It may have been done, and then a repeat finds nothing to do.
            Act::OnWaiting(words) => drop(self.command(words, &[waits]).output().unwrap()),
            Act::OnDead(words) => drop(self.command(words, &[dead]).output().unwrap()),
            Act::Look(words) => self.end(self.command(words, &[]), dies),
            Act::CopyFrom => self.end(self.copy(self.store, self.other), dies),
            Act::CopyTo => self.end(self.copy(self.other, self.store), dies),
            // What it had in flight is handled in the end.
            Act::Stop | Act::Nothing => {}
        }
    }

    fn test(&self, act: Act) {
        let sleeps = match act {
            Act::HandleSlowly => "700",
            Act::Stop => "60000",
            _ => "0",
        };
        let dead = match act {
            Act::OnDead(_) => self.send("to be rejected"),
            _ => String::new(),
        };
        if !dead.is_empty() {
            self.end(self.host("reject", &["--exit-when-empty"]), false);
        }
        let waits = self.send(sleeps);
        if act == Act::CopyTo {
            self.end(self.copy(self.store, self.other), false);
        }
        self.act(act, &waits, &dead, true);
        self.act(act, &waits, &dead, false);
        if act == Act::CopyFrom {
            self.end(self.copy(self.other, self.store), false);
        }
        expect(self.command("resume", &[]).output().unwrap(), 0);
        self.end(self.host("noop", &["--exit-when-empty"]), false);
        self.must_add_up(act);
    }

    /// Nothing waits, nothing is left over, and every message has come to one end.
    fn must_add_up(&self, act: Act) {
        let counts = stats(self.store, &self.queue);
        let number = |value: &Value| value.as_u64().unwrap();
        let total = |name: &str| number(&counts["totals"][name]);
        for state in ["pending", "ready", "unack", "retry", "moving"] {
            assert_eq!(counts[state], 0, "{}: {counts}", self.failpoint);
        }
        if matches!(act, Act::CopyFrom | Act::CopyTo) {
            // What arrives by a copy was sent elsewhere.
            assert_eq!(total("acked"), 1, "{}: {counts}", self.failpoint);
        } else {
            let ended = total("acked") + total("cancelled") + total("deleted");
            let all = ended + number(&counts["dead"]);
            assert_eq!(total("sent"), all, "{}: {counts}", self.failpoint);
        }
        let audit = self.command("audit", &[]).output().unwrap();
        assert!(
            audit.status.success(),
            "{}: {}",
            self.failpoint,
            stdout(&audit)
        );
    }
}

#[test]
fn a_crash_before_or_after_any_request_leaves_everything_in_order() {
    let server = RedisServer::start();
    let folder = TempDir::new().unwrap();
    let number = AtomicUsize::new(0);
    let sides = [Side::Before, Side::After];
    let points: Vec<(Operation, Side, bool)> = Operation::ALL
        .iter()
        .flat_map(|operation| sides.map(|side| (*operation, side)))
        .flat_map(|(operation, side)| [true, false].map(|on_redis| (operation, side, on_redis)))
        .filter(|(operation, _, on_redis)| is_made(*operation, *on_redis))
        .collect();
    let all = points.len();
    let todo = Mutex::new(points);
    let work = || {
        loop {
            let Some((operation, side, on_redis)) = todo.lock().unwrap().pop() else {
                return;
            };
            let number = number.fetch_add(1, Ordering::SeqCst);
            let file = |name: &str| {
                let path = folder.path().join(format!("{number}-{name}.db"));
                path.to_str().unwrap().to_owned()
            };
            let store = if on_redis {
                server.url()
            } else {
                file("store")
            };
            Point {
                store: &store,
                other: &file("other"),
                queue: format!("q{number}"),
                failpoint: operation.failpoint(side),
            }
            .test(act(operation));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(work);
        }
    });
    println!("{all} points were passed");
}
