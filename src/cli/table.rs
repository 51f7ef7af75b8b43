//! A list of messages as a table, for operators: a header, columns below each other, and times from now.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::print::{self, failure, shown_payload};
use crate::message::{Record, State};
use crate::text::{human_duration, printable};

/// Characters of the last failure at most.
const FAILURE_MAX: usize = 40;

/// Characters of a payload where no terminal says how wide it is, and at least.
const PAYLOAD_MAX: usize = 60;
const PAYLOAD_MIN: usize = 20;

/// What stands between two columns.
const GAP: &str = "  ";

const COLUMNS: usize = 5;

/// A table that grows page by page. Columns are as wide as what has come needs.
#[derive(Debug)]
pub(super) struct Table {
    state: State,
    /// The store's clock, unix milliseconds.
    now_ms: u64,
    /// Characters of a line; none if nobody knows.
    width: Option<usize>,
    /// Of each column but the last.
    widths: [usize; COLUMNS - 1],
    has_header: bool,
}

impl Table {
    pub(super) fn new(state: State, now_ms: u64) -> Self {
        Self {
            state,
            now_ms,
            width: width_of_terminal(),
            widths: [0; COLUMNS - 1],
            has_header: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_header
    }

    pub(super) fn print(&mut self, records: &[&Record]) -> io::Result<()> {
        if !records.is_empty() {
            print::stdout().write_all(self.text(records).as_bytes())?;
        }
        Ok(())
    }

    fn text(&mut self, records: &[&Record]) -> String {
        let mut rows: Vec<[String; COLUMNS - 1]> = Vec::with_capacity(records.len() + 1);
        if !self.has_header {
            let when = match self.state {
                State::Pending => "DUE",
                State::Unack => "LEASE EXPIRES",
                State::Dead => "DIED",
                _ => "SENT",
            };
            rows.push(["ID", when, "ATTEMPTS", "LAST FAILURE"].map(str::to_owned));
        }
        rows.extend(records.iter().map(|record| self.cells(record)));
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let used = self.widths.iter().sum::<usize>() + GAP.len() * (COLUMNS - 1);
        let payload_max = self.width.map_or(PAYLOAD_MAX, |width| {
            width.saturating_sub(used).clamp(PAYLOAD_MIN, PAYLOAD_MAX)
        });
        let mut payloads = records.iter().map(|record| {
            // A payload that is cut has a mark at its end.
            shown_payload(record, payload_max - 1)
        });
        let mut text = String::new();
        for row in &rows {
            for (width, cell) in self.widths.iter().zip(row) {
                let _ = write!(text, "{cell:<width$}{GAP}");
            }
            let payload = if self.has_header {
                payloads.next().unwrap_or_default()
            } else {
                self.has_header = true;
                "PAYLOAD".to_owned()
            };
            text += &payload;
            text.push('\n');
        }
        text
    }

    /// All cells of a row but the last.
    fn cells(&self, record: &Record) -> [String; COLUMNS - 1] {
        let at_ms = record.at_ms.or_else(|| record.id.sent_at_ms());
        let when = at_ms.map_or_else(|| "-".to_owned(), |at_ms| from_now(at_ms, self.now_ms));
        [
            printable(record.id.as_str()).into_owned(),
            when,
            record.attempts.to_string(),
            shortened(&failure(record).unwrap_or_else(|| "-".to_owned())),
        ]
    }
}

/// `in 3m 05s`, `12s ago`, `now`
fn from_now(at_ms: u64, now_ms: u64) -> String {
    let apart = human_duration(Duration::from_millis(at_ms.abs_diff(now_ms)));
    match at_ms.cmp(&now_ms) {
        std::cmp::Ordering::Greater => format!("in {apart}"),
        std::cmp::Ordering::Equal => "now".to_owned(),
        std::cmp::Ordering::Less => format!("{apart} ago"),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(FAILURE_MAX) {
        None => text.to_owned(),
        Some(_) => text.chars().take(FAILURE_MAX - 1).chain(['…']).collect(),
    }
}

/// Columns of the terminal that stdout is.
pub(super) fn width_of_terminal() -> Option<usize> {
    size_of_terminal().map(|(columns, _)| columns)
}

/// Columns and rows of the terminal that stdout is.
pub(super) fn size_of_terminal() -> Option<(usize, usize)> {
    let out = io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(id: &str, at_ms: Option<u64>, payload: &str) -> Record {
        Record {
            id: id.into(),
            state: State::Pending,
            at_ms,
            attempts: 0,
            retries_left: 3,
            headers: Vec::new(),
            history: Vec::new(),
            payload: Some(payload.as_bytes().to_vec()),
        }
    }

    fn table(state: State, width: Option<usize>) -> Table {
        Table {
            state,
            now_ms: 100_000,
            width,
            widths: [0; COLUMNS - 1],
            has_header: false,
        }
    }

    #[test]
    fn columns_are_below_each_other_and_times_are_from_now() {
        let first = record("a", Some(100_850), "{}");
        let second = record("longer", Some(40_000), "x");
        let third = record("c", Some(100_000), "y");
        let mut table = table(State::Pending, None);
        assert_eq!(
            table.text(&[&first, &second]),
            "ID      DUE         ATTEMPTS  LAST FAILURE  PAYLOAD\n\
             a       in 850ms    0         -             {}\n\
             longer  1m 00s ago  0         -             x\n"
        );
        // The next page has no header, and the columns stay as wide.
        assert_eq!(
            table.text(&[&third]),
            "c       now         0         -             y\n"
        );
    }

    #[test]
    fn a_payload_is_cut_to_the_width_of_the_terminal() {
        let long = record("a", None, &"x".repeat(200));
        for (width, payload) in [(None, 60), (Some(70), 36), (Some(10), 20), (Some(500), 60)] {
            let text = table(State::Ready, width).text(&[&long]);
            let line = text.lines().nth(1).unwrap();
            let shown = line.rsplit(' ').next().unwrap();
            assert_eq!(shown.chars().count(), payload, "{width:?}: {line}");
            assert!(shown.ends_with('…'));
        }
    }

    proptest! {
        #[test]
        fn any_record_is_one_line(id in ".*", payload in ".*", at_ms: Option<u64>, width: Option<usize>) {
            let text = table(State::Dead, width).text(&[&record(&id, at_ms, &payload)]);
            prop_assert_eq!(text.lines().count(), 2);
            prop_assert!(!text.contains('\x1b'));
        }
    }
}
