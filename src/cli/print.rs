//! What commands write to stdout. Everything from outside goes through `text` first.

use std::io::{self, StdoutLock, Write};

use serde_json::{Value, json};

use super::time::rfc3339;
use crate::control::ended_text;
use crate::format::json;
use crate::format::message::outcome_text;
use crate::message::{Attempt, HistoryEntry, QueueName, Record, Sent, State};
use crate::store::{End, Ended};
use crate::text::{payload, printable};

/// Bytes of a payload in a list, and in the view of one message.
pub(super) const PAYLOAD_IN_LIST: usize = 60;
const PAYLOAD_IN_FULL: usize = 1 << 20;

/// Standard output. Its errors name it, so that they are not taken for those of the store.
pub(super) struct Stdout(StdoutLock<'static>);

/// Where every command prints.
pub(super) fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| named(&error))
    }
}

/// The error keeps its kind: a reader that has gone is no failure.
fn named(error: &io::Error) -> io::Error {
    let text = format!("cannot write to standard output: {error}");
    io::Error::new(error.kind(), text)
}

/// One line of JSON.
pub(super) fn json_line(value: &Value) -> io::Result<()> {
    writeln!(stdout(), "{}", json::text(value))
}

/// The answer to one message sent, or to one copy of it, whose queue is named. The id is printed once.
pub(super) fn sent(
    sent: &Sent,
    queue: Option<&QueueName>,
    is_first: bool,
    as_json: bool,
) -> io::Result<()> {
    if as_json {
        let mut answer = json::sent(sent);
        if let Some(queue) = queue {
            answer["queue"] = json!(queue);
        }
        return json_line(&answer);
    }
    let id = printable(sent.id.as_str());
    if let Some(what) = outcome_text(sent.outcome) {
        if let Some(queue) = queue {
            tell!("{id} {what} ({queue})");
        } else {
            tell!("{id} {what}");
        }
    }
    if is_first {
        writeln!(stdout(), "{id}")?;
    }
    Ok(())
}

/// One line of a list.
pub(super) fn record_line(record: &Record) -> io::Result<()> {
    let mut out = stdout();
    write!(out, "{}", printable(record.id.as_str()))?;
    if let Some(at_ms) = record.at_ms {
        write!(out, "  {}", rfc3339(at_ms))?;
    }
    write!(out, "  attempts {}", record.attempts)?;
    if let Some(failure) = failure(record) {
        write!(out, "  {failure}")?;
    }
    writeln!(out, "  {}", shown_payload(record, PAYLOAD_IN_LIST))
}

/// The class and the reason of the last failed attempt.
pub(super) fn failure(record: &Record) -> Option<String> {
    let last = record.last_attempt()?;
    let mut failure = printable(&last.class).into_owned();
    if !last.reason.is_empty() {
        failure.push_str(": ");
        failure.push_str(&printable(&last.reason));
    }
    Some(failure)
}

pub(super) fn shown_payload(record: &Record, max: usize) -> String {
    match &record.payload {
        Some(bytes) if bytes.is_empty() => "(empty)".to_owned(),
        Some(bytes) => payload(bytes, max),
        None => "(payload missing)".to_owned(),
    }
}

/// Everything about one message.
pub(super) fn record(record: &Record) -> io::Result<()> {
    let mut out = stdout();
    writeln!(out, "id            {}", printable(record.id.as_str()))?;
    writeln!(out, "state         {}", record.state.as_str())?;
    if let Some(at_ms) = record.at_ms {
        let what = match record.state {
            State::Unack => "lease expires",
            State::Dead => "died",
            _ => "due",
        };
        writeln!(out, "{what:<13} {}", rfc3339(at_ms))?;
    }
    writeln!(out, "attempts      {}", record.attempts)?;
    writeln!(out, "retries left  {}", record.retries_left)?;
    if record.redrives() > 0 {
        writeln!(out, "redrives      {}", record.redrives())?;
    }
    for (key, value) in &record.headers {
        writeln!(out, "header        {}={}", printable(key), printable(value))?;
    }
    writeln!(
        out,
        "payload       {}",
        shown_payload(record, PAYLOAD_IN_FULL)
    )?;
    for entry in &record.history {
        match entry {
            HistoryEntry::Attempt(attempt) => print_attempt(&mut out, attempt)?,
            HistoryEntry::Redriven {
                redriven_from,
                at_ms,
                ..
            } => {
                writeln!(
                    out,
                    "{}  redriven from {}",
                    rfc3339(*at_ms),
                    printable(redriven_from)
                )?;
            }
        }
    }
    Ok(())
}

/// How a message ended.
pub(super) fn ended(ended: &Ended, result: Option<&[u8]>, now_ms: u64) -> io::Result<()> {
    let mut out = stdout();
    writeln!(out, "id            {}", printable(ended.id.as_str()))?;
    writeln!(out, "state         {}", ended_text(ended, now_ms))?;
    writeln!(out, "ended         {}", rfc3339(ended.at_ms))?;
    writeln!(out, "handler       {}", printable(&ended.handler))?;
    if let Some(result) = result {
        writeln!(out, "result        {}", payload(result, PAYLOAD_IN_FULL))?;
    }
    if ended.end == End::Died {
        writeln!(out, "since then    redriven or deleted")?;
    }
    Ok(())
}

fn print_attempt(out: &mut impl Write, attempt: &Attempt) -> io::Result<()> {
    write!(
        out,
        "{}  attempt {} ",
        rfc3339(attempt.at_ms),
        attempt.attempt
    )?;
    write!(out, "{}", printable(&attempt.class))?;
    if let Some(duration_ms) = attempt.duration_ms {
        write!(out, " after {duration_ms} ms")?;
    }
    writeln!(out, ": {}", printable(&attempt.reason))?;
    for line in attempt.log.lines() {
        writeln!(out, "    {}", printable(line))?;
    }
    Ok(())
}
