//! What was measured, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::machine::Machine;

/// What a median has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    fn json(self) -> Value {
        match self {
            Self::AtLeast(least) => json!({"at_least": least}),
            Self::AtMost(most) => json!({"at_most": most}),
        }
    }
}

/// The unit of a row, and its goal if it has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    unit: &'static str,
    goal: Option<Goal>,
}

impl Measure {
    pub(crate) const fn of(unit: &'static str) -> Self {
        Self { unit, goal: None }
    }

    /// With a goal from below, if there is one.
    pub(crate) fn at_least(self, goal: impl Into<Option<f64>>) -> Self {
        let goal = goal.into().map(Goal::AtLeast);
        Self { goal, ..self }
    }

    /// With a goal from above, if there is one.
    pub(crate) fn at_most(self, goal: impl Into<Option<f64>>) -> Self {
        let goal = goal.into().map(Goal::AtMost);
        Self { goal, ..self }
    }
}

/// One quantity, and what it was each time.
#[derive(Debug)]
struct Row {
    subject: String,
    name: String,
    measure: Measure,
    samples: Vec<f64>,
}

impl Row {
    /// The median, the least and the most.
    fn spread(&self) -> (f64, f64, f64) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        (
            sorted[sorted.len() / 2],
            sorted[0],
            sorted[sorted.len() - 1],
        )
    }

    fn goal(&self) -> String {
        let met = |goal: Goal| {
            if goal.is_met_by(self.spread().0) {
                "met"
            } else {
                "MISSED"
            }
        };
        match self.measure.goal {
            None => String::new(),
            Some(goal @ Goal::AtLeast(least)) => {
                format!("at least {}: {}", shown(least), met(goal))
            }
            Some(goal @ Goal::AtMost(most)) => format!("at most {}: {}", shown(most), met(goal)),
        }
    }

    fn json(&self) -> Value {
        let (median, least, most) = self.spread();
        json!({
            "subject": self.subject,
            "name": self.name,
            "unit": self.measure.unit,
            "goal": self.measure.goal.map(Goal::json),
            "met": self.measure.goal.map(|goal| goal.is_met_by(median)),
            "median": median,
            "least": least,
            "most": most,
            "samples": self.samples,
        })
    }
}

/// All rows, in the order in which they were first measured.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
    /// Subjects, and the command that repeats each.
    commands: Vec<(String, String)>,
    is_refused: bool,
}

impl Table {
    /// What follows belongs to this subject.
    pub(crate) fn begin(&mut self, subject: &str, command: &str) {
        self.commands.push((subject.to_owned(), command.to_owned()));
    }

    fn subject(&self) -> &str {
        self.commands
            .last()
            .map_or("", |(subject, _)| subject.as_str())
    }

    /// Says on stderr how far it is.
    pub(crate) fn round(&self, round: u32, of: u32) {
        eprintln!("{}: round {round} of {of}", self.subject());
    }

    /// Notes what one round has measured.
    pub(crate) fn add(&mut self, name: &str, measure: Measure, sample: f64) {
        let subject = self.subject().to_owned();
        let known = self
            .rows
            .iter_mut()
            .find(|row| row.subject == subject && row.name == name);
        if let Some(row) = known {
            row.samples.push(sample);
            return;
        }
        self.rows.push(Row {
            subject,
            name: name.to_owned(),
            measure,
            samples: vec![sample],
        });
    }

    /// Makes the program end with 1, once everything is written.
    pub(crate) fn refuse(&mut self) {
        self.is_refused = true;
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// As Markdown, with the commands below it.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n\n", Machine::this().line());
        text += "| subject | what | median (least to most) | unit | goal for the median |\n";
        text += "|---|---|---|---|---|\n";
        for row in &self.rows {
            let (median, least, most) = row.spread();
            let _ = writeln!(
                text,
                "| {} | {} | {} ({} to {}) | {} | {} |",
                row.subject,
                row.name,
                shown(median),
                shown(least),
                shown(most),
                row.measure.unit,
                row.goal(),
            );
        }
        text.push('\n');
        for (subject, command) in &self.commands {
            let _ = writeln!(text, "{subject}: `{command}`");
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let commands: Vec<Value> = self
            .commands
            .iter()
            .map(|(subject, command)| json!({"subject": subject, "command": command}))
            .collect();
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        json!({"machine": Machine::this().json(), "commands": commands, "rows": rows})
    }
}

/// As many digits as a person wants to read.
fn shown(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        grouped(&format!("{value:.0}"))
    } else if size >= 100.0 || value.fract().abs() < f64::EPSILON {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// With a comma before each three digits.
fn grouped(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
