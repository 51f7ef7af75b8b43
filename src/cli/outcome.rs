//! What a command that changes messages says: what became of each, and how many that were.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Map, Value, json};

use super::Exit;
use super::print::{self, json_line};
use crate::control::Match;
use crate::message::{MessageId, QueueName, State};
use crate::text::{grouped, printable, times};

/// How messages are changed, and what is printed of it.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct ChangeArgs {
    /// Print what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print a JSON object for each message
    #[arg(long)]
    pub json: bool,
}

/// Why something is not done to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Not {
    InFlight,
    /// No message of this id is in a state for it.
    Found,
    PayloadMissing,
    /// So many times already.
    RedrivenTooOften(u32),
}

impl Not {
    fn outcome(self) -> &'static str {
        match self {
            Self::InFlight => "in-flight",
            Self::Found => "not-found",
            Self::PayloadMissing => "payload-missing",
            Self::RedrivenTooOften(_) => "redriven-too-often",
        }
    }
}

/// Why nothing would be done to a message that is to wait.
pub(super) fn not_waiting(found: Option<&Match>) -> Option<Not> {
    match found.map(|found| found.state) {
        Some(State::Pending | State::Ready | State::Retry) => None,
        Some(State::Unack) => Some(Not::InFlight),
        _ => Some(Not::Found),
    }
}

/// Why nothing would be done to a message that is to wait or to be in flight.
pub(super) fn not_alive(found: Option<&Match>) -> Option<Not> {
    not_waiting(found).filter(|why| *why != Not::InFlight)
}

/// Why nothing would be done to a message that is to be a dead letter.
pub(super) fn not_dead(found: Option<&Match>) -> Option<Not> {
    let is_dead = found.is_some_and(|found| found.state == State::Dead);
    (!is_dead).then_some(Not::Found)
}

/// What is done to messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verb {
    /// `cancelled`
    pub done: &'static str,
    /// What it is done to: `waiting message`, `message`, `dead letter`.
    pub to: &'static str,
}

impl Verb {
    pub(super) const CANCEL: Self = Self {
        done: "cancelled",
        to: "waiting message",
    };
    pub(super) const KILL: Self = Self {
        done: "cancelled",
        to: "message",
    };
    pub(super) const RESCHEDULE: Self = Self {
        done: "rescheduled",
        to: "waiting message",
    };
    pub(super) const REDRIVE: Self = Self {
        done: "redriven",
        to: "dead letter",
    };
    pub(super) const DELETE: Self = Self {
        done: "deleted",
        to: "dead letter",
    };

    /// `3 waiting messages`
    pub(super) fn several(self, count: usize) -> String {
        let s = if count == 1 { "" } else { "s" };
        format!("{} {}{s}", grouped(count as u64), self.to)
    }
}

/// Prints what becomes of each message, and counts.
pub(super) struct Outcomes<'a> {
    verb: Verb,
    queue: &'a QueueName,
    change: ChangeArgs,
    done: usize,
    asked: usize,
}

impl<'a> Outcomes<'a> {
    pub(super) fn new(verb: Verb, queue: &'a QueueName, change: ChangeArgs) -> Self {
        Self {
            verb,
            queue,
            change,
            done: 0,
            asked: 0,
        }
    }

    /// It is done. `text` follows the id in a line, `fields` are for JSON.
    pub(super) fn done(&mut self, id: &MessageId, text: &str, fields: Value) -> io::Result<()> {
        (self.done, self.asked) = (self.done + 1, self.asked + 1);
        if self.change.json {
            return self.json(id, self.verb.done, fields);
        }
        writeln!(print::stdout(), "{}{text}", printable(id.as_str()))
    }

    /// It is not done.
    pub(super) fn not(&mut self, id: &MessageId, why: Not) -> io::Result<()> {
        self.asked += 1;
        if self.change.json {
            let fields = match why {
                Not::RedrivenTooOften(redrives) => json!({"redrives": redrives}),
                _ => Value::Null,
            };
            return self.json(id, why.outcome(), fields);
        }
        let (id, did) = (printable(id.as_str()), self.verb.done);
        match (why, self.verb.to) {
            (Not::InFlight, _) => tell!("{id} is not {did}: a host is handling it"),
            (Not::Found, "dead letter") => {
                tell!("{id} is not {did}: it is no dead letter of {}", self.queue);
            }
            (Not::Found, "message") => {
                tell!("{id} is not {did}: it neither waits nor is in flight in this queue");
            }
            (Not::Found, _) => tell!("{id} is not {did}: it does not wait in this queue"),
            (Not::PayloadMissing, _) => {
                tell!("{id} is not {did}: its payload is missing from the store");
            }
            (Not::RedrivenTooOften(0), _) => {
                tell!(
                    "{id} is not {did}: --max-redrives 0 allows none; --force or a higher --max-redrives goes \
                     over it"
                );
            }
            (Not::RedrivenTooOften(redrives), _) => tell!(
                "{id} is not {did}: it was redriven {} already; --force or a higher --max-redrives goes \
                 over it",
                times(redrives)
            ),
        }
        Ok(())
    }

    fn json(&self, id: &MessageId, outcome: &str, fields: Value) -> io::Result<()> {
        let mut value = Map::new();
        value.insert("id".to_owned(), json!(id));
        value.insert("outcome".to_owned(), json!(outcome));
        if self.change.dry_run {
            value.insert("dry_run".to_owned(), json!(true));
        }
        if let Value::Object(fields) = fields {
            value.extend(fields);
        }
        json_line(&Value::Object(value))
    }

    /// What is said when the store fails with the next `asking`, before those that come after them.
    pub(super) fn before(&self, asking: usize) -> String {
        let (did, queue) = (self.verb.done, self.queue);
        let several = self.verb.several(self.done);
        let next = grouped(asking as u64);
        format!("{several} of {queue} were {did} before; of the next {next}, some may have been")
    }

    /// How it ended. A dry run says how many it would be.
    pub(super) fn exit(self) -> Exit {
        if self.change.dry_run {
            let several = self.verb.several(self.done);
            let (queue, did) = (self.queue, self.verb.done);
            tell!("{several} of {queue} would be {did}; this is a dry run, and nothing is changed");
        } else if self.asked == 0 {
            let (queue, to) = (self.queue, self.verb.to);
            tell!(
                "no {to} of {queue} matches, so nothing is {}",
                self.verb.done
            );
        }
        how_much(self.done, self.asked)
    }
}

/// The exit code for so many done of so many asked.
pub(super) fn how_much(done: usize, asked: usize) -> Exit {
    match done {
        _ if done == asked => Exit::Done,
        0 => Exit::Failed,
        _ => Exit::Partly,
    }
}
