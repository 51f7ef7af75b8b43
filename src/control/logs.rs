//! The latest lines of the log, kept for the screen.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::text::{cut, printable};

/// Lines that are kept, and how many of them may be of handlers while the host has more.
const LINES_MAX: usize = 2000;
const GUEST_LINES_MAX: usize = LINES_MAX / 2;

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

#[derive(Debug, Default)]
struct Lines {
    all: VecDeque<LogLine>,
    /// How many of them are of handlers.
    guests: usize,
}

impl Lines {
    /// Adds a line and lets go of an old one. Handlers push out nothing of the host's beyond their share.
    fn add(&mut self, line: LogLine) {
        if self.all.len() >= LINES_MAX {
            let guests = self.guests + usize::from(line.is_guest);
            let oldest = if guests > GUEST_LINES_MAX {
                self.all.iter().position(|line| line.is_guest)
            } else {
                None
            };
            let gone = self.all.remove(oldest.unwrap_or(0));
            self.guests -= usize::from(gone.is_some_and(|line| line.is_guest));
        }
        self.guests += usize::from(line.is_guest);
        self.all.push_back(line);
    }
}

/// The latest lines of the log. A std mutex: nothing is awaited while it is held.
#[derive(Debug, Default)]
pub struct LogRing {
    lines: Mutex<Lines>,
    added: AtomicU64,
    /// Where the whole log is, if anywhere.
    file: Mutex<Option<String>>,
}

impl LogRing {
    /// Adds a line, made fit for a terminal, and lets go of the oldest.
    pub fn add(&self, level: LogLevel, is_guest: bool, text: &str) {
        let text = printable(&cut(text, LINE_MAX)).into_owned();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.add(LogLine {
            level,
            is_guest,
            text,
        });
        drop(lines);
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
        let matching = lines.all.iter().rev().filter(|line| which(line));
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

    #[test]
    fn lines_of_handlers_do_not_push_out_those_of_the_host() {
        let ring = LogRing::default();
        for n in 0..LINES_MAX - GUEST_LINES_MAX {
            ring.add(LogLevel::Info, false, &format!("host {n}"));
        }
        for n in 0..10 * LINES_MAX {
            ring.add(LogLevel::Info, true, &format!("guest {n}"));
        }
        let all = ring.latest(usize::MAX, 0, |_| true);
        assert_eq!(all.len(), LINES_MAX);
        assert_eq!(all[0].text, "host 0");
        assert_eq!(all[LINES_MAX - 1].text, "guest 19999");
        // Nor does the host keep more for them than it needs itself.
        for n in 0..LINES_MAX {
            ring.add(LogLevel::Info, false, &format!("later {n}"));
        }
        assert!(ring.latest(1, 0, |line| line.is_guest).is_empty());
    }
}
