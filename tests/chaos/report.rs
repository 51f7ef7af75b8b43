//! What a trial came to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::check::Violation;
use crate::history::{Event, What};

pub(crate) struct Report {
    pub violations: Vec<Violation>,
    pub history: PathBuf,
    pub events: Vec<Event>,
    /// The messages that tear down their hosts.
    pub deadly: BTreeSet<String>,
    pub cuts: usize,
    /// The longest time for which the machine stood still.
    pub stall: Duration,
}

/// The figures of one trial, or of many.
#[derive(Default)]
pub(crate) struct Sum {
    trials: usize,
    accepted: usize,
    runs: usize,
    cuts: usize,
    faults: BTreeMap<String, usize>,
    violations: usize,
}

impl Sum {
    pub(crate) fn add(&mut self, report: &Report) {
        self.trials += 1;
        self.cuts += report.cuts;
        self.violations += report.violations.len();
        for event in &report.events {
            match &event.what {
                What::Fault { name } => {
                    let end = name.find('(').unwrap_or(name.len());
                    // Not that it ends.
                    let ends = name.starts_with("Thaw") || name.ends_with("false)");
                    if !ends && !name.ends_with(", 0ns)") {
                        *self.faults.entry(name[..end].to_owned()).or_default() += 1;
                    }
                }
                What::Run { .. } => self.runs += 1,
                What::Accepted { .. } => self.accepted += 1,
                _ => {}
            }
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.violations == 0
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.trials > 1 {
            write!(f, "{} trials, ", self.trials)?;
        }
        write!(
            f,
            "{} messages accepted, {} runs, {} connections cut, {:?}, {} violations",
            self.accepted, self.runs, self.cuts, self.faults, self.violations
        )
    }
}

impl Report {
    /// What happened, in one line.
    pub(crate) fn summary(&self) -> String {
        let mut sum = Sum::default();
        sum.add(self);
        sum.to_string()
    }

    fn ids(&self, which: impl Fn(&Event) -> Option<&String>) -> BTreeSet<&str> {
        self.events
            .iter()
            .filter_map(which)
            .map(String::as_str)
            .collect()
    }

    /// The messages whose handlers were told of as gone with their process, each time.
    pub(crate) fn torn_down(&self) -> BTreeSet<&str> {
        self.ids(|event| match &event.what {
            What::TornDown { id } => Some(id),
            _ => None,
        })
    }

    pub(crate) fn dead(&self) -> BTreeSet<String> {
        let dead = self.ids(|event| match &event.what {
            What::Dead { id, .. } => Some(id),
            _ => None,
        });
        dead.into_iter().map(str::to_owned).collect()
    }

    /// Something was wrong, and nothing that does not show as well when the machine stands still.
    pub(crate) fn is_only_late(&self) -> bool {
        !self.violations.is_empty() && self.violations.iter().all(|one| one.is_of_time)
    }

    /// Fails unless every promise was kept. Then the history is kept under a name that no later trial has.
    pub(crate) fn must_be_clean(self) {
        println!("{}", self.summary());
        if self.violations.is_empty() {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let kept = format!("failed-{}.jsonl", now.as_secs());
        let kept = self.history.with_extension(kept);
        fs::copy(&self.history, &kept).unwrap();
        panic!(
            "{:#?}\n{}\nthe history is in {}",
            &self.violations[..self.violations.len().min(40)],
            self.summary(),
            kept.display()
        );
    }
}
