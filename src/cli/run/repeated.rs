//! What `dqhost run --repeat` prints: verdicts, times and memory of many runs.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hdrhistogram::{CreationError, Histogram};
use serde_json::{Value, json};

use crate::cli::print;
use crate::runtime::Report;

/// Messages that have a row each. Of more there is only the row of all.
const ROWS_MAX: usize = 100;

/// Digits of a time that are kept.
const DIGITS: u8 = 3;

/// The runs of one message, or of all.
struct Row {
    verdicts: BTreeMap<&'static str, u64>,
    /// Nanoseconds.
    durations: Histogram<u64>,
    /// The most linear memory of a run, bytes.
    memory: usize,
}

impl Row {
    fn new() -> Result<Self, CreationError> {
        Ok(Self {
            verdicts: BTreeMap::new(),
            durations: Histogram::new(DIGITS)?,
            memory: 0,
        })
    }

    fn add(&mut self, report: &Report) {
        *self.verdicts.entry(report.outcome.class()).or_default() += 1;
        let nanos = u64::try_from(report.duration.as_nanos()).unwrap_or(u64::MAX);
        // It grows as needed.
        let _ = self.durations.record(nanos);
        self.memory = self.memory.max(report.memory);
    }

    /// The median, the 99th percentile and the longest, milliseconds.
    fn times(&self) -> [f64; 3] {
        let of = &self.durations;
        [
            of.value_at_quantile(0.5),
            of.value_at_quantile(0.99),
            of.max(),
        ]
        .map(ms)
    }

    fn as_json(&self, message: Option<usize>) -> Value {
        let [p50, p99, max] = self.times();
        json!({
            "message": message,
            "runs": self.durations.len(),
            "verdicts": self.verdicts,
            "duration_ms": {"p50": p50, "p99": p99, "max": max},
            "memory": self.memory,
        })
    }

    fn print(&self, out: &mut impl Write, message: &str) -> io::Result<()> {
        let [p50, p99, max] = self.times();
        let (runs, memory) = (self.durations.len(), self.memory / 1024);
        let verdicts = self.verdicts.iter();
        let verdicts: Vec<String> = verdicts.map(|(class, n)| format!("{n} {class}")).collect();
        writeln!(
            out,
            "{message:>7} {runs:>9} {p50:>10.3} {p99:>10.3} {max:>10.3} {memory:>10}  {}",
            verdicts.join(", ")
        )
    }
}

/// Exact below 104 days.
#[expect(
    clippy::cast_precision_loss,
    reason = "times are shown with three digits"
)]
fn ms(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// All runs.
pub(super) struct Repeated {
    /// By the message's place; none of one message, or of too many.
    rows: Vec<Row>,
    all: Row,
}

impl Repeated {
    pub(super) fn new(messages: usize) -> Result<Self, CreationError> {
        let rows = if (2..=ROWS_MAX).contains(&messages) {
            messages
        } else {
            0
        };
        Ok(Self {
            rows: (0..rows).map(|_| Row::new()).collect::<Result<_, _>>()?,
            all: Row::new()?,
        })
    }

    /// Adds a run of the message at this place.
    pub(super) fn add(&mut self, at: usize, report: &Report) {
        if let Some(row) = self.rows.get_mut(at) {
            row.add(report);
        }
        self.all.add(report);
    }

    pub(super) fn print_table(&self) -> io::Result<()> {
        let mut out = print::stdout();
        writeln!(
            out,
            "{:>7} {:>9} {:>10} {:>10} {:>10} {:>10}  VERDICTS",
            "MESSAGE", "RUNS", "P50 MS", "P99 MS", "MAX MS", "MEMORY KIB"
        )?;
        for (number, row) in (1..).zip(&self.rows) {
            row.print(&mut out, &u64::to_string(&number))?;
        }
        self.all.print(&mut out, "all")
    }

    /// A line for each row; that of all has no message.
    pub(super) fn print_json(&self) -> io::Result<()> {
        for (number, row) in (1..).zip(&self.rows) {
            print::json_line(&row.as_json(Some(number)))?;
        }
        print::json_line(&self.all.as_json(None))
    }
}
