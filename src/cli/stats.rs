//! `dqhost stats`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::fail_if::Condition;
use super::open::Missing;
use super::outcome::how_much;
use super::queues::QueuesArgs;
use super::table::size_of_terminal;
use super::{Exit, StoreArgs, log, open, print, time};
use crate::format;
use crate::message::QueueName;
use crate::store::{Counts, HOST_SILENCE, Overview, SeenHost, Store, StoreError, StoreResult};
use crate::text::{grouped, printable};

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    queues: QueuesArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Fail if a queue meets one of these: dead>0,lag>60s
    ///
    /// Compare pending, ready, unack, retry, dead, moving, hosts or lag with a number by >, >=, <, <= or
    /// =. lag is how long the next ready message has waited. The exit code is 1 then.
    #[arg(long, value_name = "CONDITIONS", value_delimiter = ',')]
    fail_if: Vec<Condition>,
    /// Print again every so often [default: 2s]
    ///
    /// A terminal shows the latest reading only. It ends at the first reading that --fail-if fails, or with
    /// Ctrl-C.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true,
        default_missing_value = "2s", value_parser = time::some_duration)]
    watch: Option<Duration>,
    #[command(flatten)]
    store: StoreArgs,
}

/// A queue, how it stands, and its hosts.
type Row = (QueueName, Overview, Vec<SeenHost>);

/// What is printed of one reading.
struct Reading {
    text: String,
    /// Lines for stderr.
    notes: Vec<String>,
    exit: Exit,
}

pub(super) async fn stats(args: StatsArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let store = open::store(&args.store, Missing::Refuse).await?;
    let mut reading = read(&args, &*store).await?;
    let Some(every) = args.watch else {
        show(&reading)?;
        return Ok(reading.exit);
    };
    let (mut is_first, mut is_away) = (true, false);
    loop {
        let screen = size_of_terminal().filter(|_| !args.json);
        match screen {
            Some(size) => redraw(&reading, size, is_first)?,
            // Its last figures are not printed again.
            None if is_away => {}
            None => show(&reading)?,
        }
        if reading.exit != Exit::Done {
            return Ok(reading.exit);
        }
        is_first = false;
        tokio::time::sleep(every).await;
        match read(&args, &*store).await {
            Ok(next) => (reading, is_away) = (next, false),
            Err(error) => {
                let error = format!("{error:#}");
                let note = format!("reading on until the store answers: {}", printable(&error));
                if screen.is_none() && !is_away {
                    tell!("{note}");
                }
                (reading.notes, is_away) = (vec![note], true);
            }
        }
    }
}

fn show(reading: &Reading) -> io::Result<()> {
    print::stdout().write_all(reading.text.as_bytes())?;
    for note in &reading.notes {
        tell!("{note}");
    }
    Ok(())
}

/// Puts a reading in the place of the one before.
fn redraw(reading: &Reading, size: (usize, usize), is_first: bool) -> io::Result<()> {
    let lines: Vec<&str> = reading.text.lines().collect();
    let notes = reading.notes.iter().map(String::as_str);
    let mut frame = if is_first { "\x1b[2J\x1b[H" } else { "\x1b[H" }.to_owned();
    for line in fitting(&lines.into_iter().chain(notes).collect::<Vec<_>>(), size) {
        frame += &line;
        frame += "\x1b[K\n";
    }
    frame += "\x1b[J";
    let mut out = print::stdout();
    out.write_all(frame.as_bytes())?;
    out.flush()
}

/// The lines that a terminal of so many columns and rows has room for, which may take several rows each.
/// The last row stays free.
fn fitting(lines: &[&str], (columns, rows): (usize, usize)) -> Vec<String> {
    let rows_of = |line: &&str| line.chars().count().div_ceil(columns).max(1);
    if lines.iter().map(rows_of).sum::<usize>() < rows {
        return lines.iter().map(|line| (*line).to_owned()).collect();
    }
    let (mut fitting, mut used) = (Vec::new(), 0);
    for line in lines {
        used += rows_of(line);
        // One row is for what is said of the rest.
        if used + 2 > rows {
            break;
        }
        fitting.push((*line).to_owned());
    }
    fitting.push(format!("… {} more lines", lines.len() - fitting.len()));
    fitting
}

/// Says which conditions are met.
fn met(conditions: &[Condition], rows: &[Row]) -> Vec<String> {
    let mut met = Vec::new();
    for (queue, overview, hosts) in rows {
        for condition in conditions {
            if let Some(found) = condition.met(overview, hosts.len()) {
                met.push(format!("queue {queue}: {found} ({condition})"));
            }
        }
    }
    met
}

async fn read(args: &StatsArgs, store: &dyn Store) -> anyhow::Result<Reading> {
    let chosen = args.queues.choose(store).await?;
    let queues = chosen.queues;
    let mut notes = Vec::new();
    if let Some(note) = chosen.note
        && (queues.is_empty() || !chosen.complete)
    {
        notes.push(note);
    }
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for queue in queues {
        match row_of(store, &queue).await {
            Ok((overview, hosts)) => rows.push((queue, overview, hosts)),
            // One that is broken hides no other.
            Err(error @ StoreError::Refused { .. }) => refused.push((queue, error)),
            Err(error) => return Err(error.into()),
        }
    }
    let text = if args.json {
        json_text(store, &rows, &refused)
    } else {
        let flags = printable(&open::flags(&args.store)).into_owned();
        table_text(&store.describe(), &flags, &rows)
    };
    for (queue, overview, _) in &rows {
        // One that was used under these names is no doubt the one that is meant.
        if overview.counts == Counts::default()
            && let Some(hint) = open::naming_hint(store, queue).await
        {
            notes.push(format!("queue {queue}: {hint}"));
        }
    }
    for (queue, error) in &refused {
        let error = error.to_string();
        notes.push(format!(
            "error: queue {queue} is not shown: {}",
            printable(&error)
        ));
    }
    let is_empty = |row: &Row| row.1.counts == Counts::default();
    let missing = if rows.iter().any(is_empty) {
        args.queues.missing(store).await?
    } else {
        Vec::new()
    };
    for queue in &missing {
        notes.push(format!("there is no queue {queue}: nobody has sent to it"));
    }
    let met = met(&args.fail_if, &rows);
    let is_watched = missing.is_empty() || args.fail_if.is_empty();
    let exit = if met.is_empty() && is_watched {
        how_much(rows.len(), rows.len() + refused.len())
    } else {
        Exit::Failed
    };
    notes.extend(met);
    Ok(Reading { text, notes, exit })
}

fn json_text(store: &dyn Store, rows: &[Row], refused: &[(QueueName, StoreError)]) -> String {
    let mut queues: Vec<_> = rows
        .iter()
        .map(|(queue, overview, hosts)| format::json::stats(queue, overview, hosts))
        .collect();
    let errors = refused.iter();
    queues.extend(errors.map(|(queue, error)| json!({"queue": queue, "error": error.to_string()})));
    format::json::text(&json!({"store": store.describe(), "queues": queues})) + "\n"
}

async fn row_of(store: &dyn Store, queue: &QueueName) -> StoreResult<(Overview, Vec<SeenHost>)> {
    let overview = store.overview(queue).await?;
    Ok((overview, store.hosts(queue, HOST_SILENCE).await?))
}

/// A line for each queue: its counts and its hosts.
/// `flags` name the store again, in the commands that are advised.
fn table_text(store: &str, flags: &str, rows: &[Row]) -> String {
    let mut out = format!("store {}\n", printable(store));
    let _ = writeln!(
        out,
        "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} | {:>10} {:>10} {:>10} {:>8} | {:>5}",
        "QUEUE",
        "PENDING",
        "READY",
        "UNACK",
        "RETRY",
        "DEAD",
        "SENT",
        "ACKED",
        "NACKED",
        "DIED",
        "HOSTS",
    );
    for (queue, overview, hosts) in rows {
        let (c, t) = (overview.counts, overview.counts.totals);
        let _ = writeln!(
            out,
            "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} | {:>10} {:>10} {:>10} {:>8} | {:>5}",
            queue.as_str(),
            c.pending,
            c.ready,
            c.unack,
            c.retry,
            c.dead,
            t.sent,
            t.acked,
            t.nacked,
            t.dead,
            hosts.len(),
        );
    }
    add_advice(&mut out, flags, rows);
    out
}

/// What there is to say of each queue beside its figures.
fn add_advice(out: &mut String, flags: &str, rows: &[Row]) {
    for (queue, overview, _) in rows {
        let c = overview.counts;
        if overview.paused {
            let _ = writeln!(
                out,
                "{queue} is paused: `dqhost resume --queue {queue}{flags}` resumes it"
            );
        }
        if overview.limited > 0 {
            let limited = grouped(overview.limited);
            let _ = writeln!(
                out,
                "{queue}: a limit holds back {limited} messages that are due"
            );
        }
        if c.moving == 0 {
            continue;
        }
        let _ = writeln!(
            out,
            "{queue}: {} messages are on their way to or from another store; if no `dqhost move` \
             runs, run it again to end it",
            c.moving
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_has_as_many_lines_as_a_terminal_has_room_for() {
        let lines = ["a", "b", "12345678901", "d"];
        assert_eq!(fitting(&lines, (80, 5)), lines);
        assert_eq!(fitting(&lines, (80, 4)), ["a", "b", "… 2 more lines"]);
        // The third takes two rows.
        assert_eq!(fitting(&lines, (10, 6)), lines);
        assert_eq!(fitting(&lines, (10, 5)), ["a", "b", "… 2 more lines"]);
        assert_eq!(fitting(&lines, (80, 1)), ["… 4 more lines"]);
        assert!(fitting(&[], (80, 24)).is_empty());
    }
}
