//! The latest lines of the log, kept for the screen.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::text::{cut, printable};

/// Lines that are kept.
const LINES_MAX: usize = 2000;

/// Bytes of a line that are kept.
const LINE_MAX: usize = 1000;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Ordinary.
    Info,
    /// To be looked at.
    Warn,
    /// Wrong.
    Error,
}

/// One line of the log, fit for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: LogLevel,
    /// True when a handler printed it.
    pub is_guest: bool,
    /// The line.
    pub text: String,
}

/// The latest lines of the log. A std mutex: nothing is awaited while it is held.
#[derive(Debug, Default)]
pub struct LogRing {
    lines: Mutex<VecDeque<LogLine>>,
    added: AtomicU64,
    /// Where the whole log is, if anywhere.
    file: Mutex<Option<String>>,
}

impl LogRing {
    /// Adds a line, made fit for a terminal, and lets go of the oldest.
    pub fn add(&self, level: LogLevel, is_guest: bool, text: &str) {
        let text = printable(&cut(text, LINE_MAX)).into_owned();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(LogLine {
            level,
            is_guest,
            text,
        });
        self.added.fetch_add(1, Ordering::Relaxed);
    }

    /// Lines added since the start: what tells whether there are new ones.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }

    /// Up to `count` lines of which `which` is true, oldest first, after passing over the latest
    /// `skip` of them.
    pub fn latest(
        &self,
        count: usize,
        skip: usize,
        which: impl Fn(&LogLine) -> bool,
    ) -> Vec<LogLine> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let matching = lines.iter().rev().filter(|line| which(line));
        let mut page: Vec<LogLine> = matching.skip(skip).take(count).cloned().collect();
        page.reverse();
        page
    }

    /// Notes where the whole log is.
    pub fn set_file(&self, path: &str) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(printable(path).into_owned());
    }

    /// Where the whole log is, if anywhere.
    #[must_use]
    pub fn file(&self) -> Option<String> {
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_lines_are_kept_and_are_harmless() {
        let ring = LogRing::default();
        for n in 0..LINES_MAX + 5 {
            ring.add(LogLevel::Info, n % 2 == 0, &format!("line {n}\x1b[2J"));
        }
        let page = ring.latest(2, 1, |line| line.is_guest);
        let texts: Vec<&str> = page.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["line 2000\\u{1b}[2J", "line 2002\\u{1b}[2J"]);
        assert_eq!(ring.latest(usize::MAX, 0, |_| true).len(), LINES_MAX);
        assert_eq!(ring.added(), LINES_MAX as u64 + 5);
        ring.add(LogLevel::Warn, false, &"x".repeat(1 << 20));
        assert!(ring.latest(1, 0, |_| true)[0].text.len() < 2 * LINE_MAX);
    }
}
