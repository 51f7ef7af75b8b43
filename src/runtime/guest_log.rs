//! What a run prints and logs: its two streams, its log lines and what the host has to say of it,
//! in one list that is cut at its limits. A guest that floods it goes on at full speed and fills
//! nothing.

use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::limits::Limits;
use super::secrets::Secrets;

/// Bytes that a guest may write in one call.
const WRITE_MAX: usize = 64 * 1024;

/// Refusals that are told of one run, and the bytes of each; all are counted.
const REFUSALS_TOLD_MAX: usize = 20;
const REFUSAL_MAX: usize = 400;

/// Bytes of a log line's context that are kept.
const CONTEXT_MAX: usize = 256;

/// How much a log line matters, by wasi:logging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Critical,
}

impl Level {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Critical => "critical",
        }
    }
}

/// Where a line comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Printed.
    Stdout,
    /// Printed.
    Stderr,
    /// Logged.
    Log {
        /// As the guest says.
        level: Level,
        /// As the guest says; may be empty.
        context: String,
    },
    /// Said by the host: a call that it refused, or that something was cut.
    Host,
}

/// One line of what a run prints and logs, or of what the host says of it. Not fit for a terminal
/// as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Where it comes from.
    pub source: Source,
    /// Without its end.
    pub text: String,
}

/// The lines as one text, each with its end: what is printed as it is, what is logged with level
/// and context before it.
#[must_use]
pub fn text_of(lines: &[LogLine]) -> String {
    let mut text = String::new();
    for LogLine { source, text: line } in lines {
        let _ = match source {
            Source::Stdout | Source::Stderr => writeln!(text, "{line}"),
            Source::Log { level, context } if context.is_empty() => {
                writeln!(text, "{}: {line}", level.as_str())
            }
            Source::Log { level, context } => {
                writeln!(text, "{} {context}: {line}", level.as_str())
            }
            Source::Host => writeln!(text, "[{line}]"),
        };
    }
    text
}

#[derive(Debug)]
struct Line {
    source: Source,
    bytes: Vec<u8>,
    /// True when more may come before its end.
    is_open: bool,
    /// True when some of it was left out at its end.
    is_cut: bool,
}

impl Line {
    /// Its text without secrets, however it was cut.
    fn hidden(&self, secrets: &Secrets) -> String {
        if !self.is_cut {
            let text = String::from_utf8_lossy(&self.bytes);
            return secrets.hide(&text).into_owned();
        }
        // A character of which a part was cut off would stand between the secret and the end.
        let bytes = match std::str::from_utf8(&self.bytes[last_character(&self.bytes)..]) {
            Err(error) if error.error_len().is_none() => &self.bytes[..last_character(&self.bytes)],
            _ => &self.bytes,
        };
        secrets
            .hide_cut(&String::from_utf8_lossy(bytes))
            .into_owned()
    }
}

/// Where the last character begins, whole or not.
fn last_character(bytes: &[u8]) -> usize {
    let continues = |byte: &&u8| **byte & 0xc0 == 0x80;
    let tail = bytes.iter().rev().take_while(continues).count();
    bytes.len().saturating_sub(tail + 1)
}

#[derive(Debug, Default)]
struct Kept {
    lines: Vec<Line>,
    bytes: usize,
    dropped_bytes: usize,
    dropped_lines: usize,
    refused: usize,
}

/// The lines of one run. A clone is the same list.
#[derive(Debug, Clone)]
pub(super) struct GuestLog {
    kept: Arc<Mutex<Kept>>,
    secrets: Arc<Secrets>,
    bytes_max: usize,
    lines_max: usize,
}

impl GuestLog {
    /// What it keeps and tells is without these secrets.
    pub(super) fn new(limits: &Limits, secrets: &Arc<Secrets>) -> Self {
        Self {
            kept: Arc::default(),
            secrets: Arc::clone(secrets),
            bytes_max: limits.log_bytes,
            lines_max: limits.log_lines,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was printed, a part of a line or many.
    fn print(&self, source: &Source, bytes: &[u8]) {
        let mut kept = self.lock();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (part, ends) = match part.split_last() {
                Some((b'\n', line)) => (line, true),
                _ => (part, false),
            };
            self.keep(&mut kept, source, part, !ends);
        }
    }

    /// Keeps a line that was logged; one with line ends in it becomes several.
    pub(super) fn log(&self, level: Level, context: &str, message: &str) {
        let mut kept = self.lock();
        let mut rest = message;
        // Made for the first line that is kept: what is dropped must cost no more than to be counted.
        let mut shown = None;
        loop {
            let (line, more) = match rest.split_once('\n') {
                Some((line, more)) => (line, Some(more)),
                None => (rest, None),
            };
            if kept.lines.len() >= self.lines_max || kept.bytes >= self.bytes_max {
                kept.dropped_bytes += rest.len();
                kept.dropped_lines += 1 + rest.matches('\n').count();
                return;
            }
            let context = shown
                .get_or_insert_with(|| self.secrets.hide_and_cut(context, CONTEXT_MAX))
                .clone();
            kept.bytes += context.len();
            let source = Source::Log { level, context };
            self.keep(&mut kept, &source, line.as_bytes(), false);
            match more {
                Some(more) => rest = more,
                None => return,
            }
        }
    }

    /// At most `max` bytes of what a guest says, without secrets.
    pub(super) fn shown(&self, text: &str, max: usize) -> String {
        self.secrets.hide_and_cut(text, max)
    }

    /// Notes a call that was refused.
    pub(super) fn refuse(&self, what: &str) {
        let mut kept = self.lock();
        kept.refused += 1;
        if kept.refused <= REFUSALS_TOLD_MAX {
            kept.lines.push(Line {
                source: Source::Host,
                bytes: self.secrets.hide_and_cut(what, REFUSAL_MAX).into_bytes(),
                is_open: false,
                is_cut: false,
            });
        }
    }

    fn keep(&self, kept: &mut Kept, source: &Source, part: &[u8], is_open: bool) {
        let goes_on = kept
            .lines
            .last()
            .is_some_and(|last| last.is_open && last.source == *source);
        if !goes_on && kept.lines.len() >= self.lines_max {
            kept.dropped_lines += usize::from(!is_open);
            kept.dropped_bytes += part.len();
            return;
        }
        let room = self.bytes_max.saturating_sub(kept.bytes);
        let taken = part.len().min(room);
        kept.bytes += taken;
        kept.dropped_bytes += part.len() - taken;
        if goes_on
            && taken < part.len()
            && let Some(last) = kept.lines.last_mut()
        {
            last.is_cut = true;
        }
        if !goes_on && taken == 0 && room == 0 {
            kept.dropped_lines += usize::from(!is_open);
            return;
        }
        if !goes_on {
            kept.lines.push(Line {
                source: source.clone(),
                bytes: Vec::new(),
                is_open: true,
                is_cut: taken < part.len(),
            });
        }
        if let Some(last) = kept.lines.last_mut() {
            last.bytes.extend_from_slice(&part[..taken]);
            last.is_open = is_open;
        }
    }

    /// The calls that were refused.
    pub(super) fn refused(&self) -> usize {
        self.lock().refused
    }

    /// What was kept so far, without secrets, and a mark when something was cut.
    pub(super) fn lines(&self) -> Vec<LogLine> {
        let kept = self.lock();
        let host = |text| LogLine {
            source: Source::Host,
            text,
        };
        let line = |line: &Line| match &line.source {
            // It was hidden before it was cut.
            Source::Host => host(String::from_utf8_lossy(&line.bytes).into_owned()),
            source => LogLine {
                source: source.clone(),
                text: line.hidden(&self.secrets),
            },
        };
        let mut lines: Vec<LogLine> = kept.lines.iter().map(line).collect();
        if kept.refused > REFUSALS_TOLD_MAX {
            lines.push(host(format!(
                "{} more calls were refused",
                kept.refused - REFUSALS_TOLD_MAX
            )));
        }
        if kept.dropped_bytes > 0 || kept.dropped_lines > 0 {
            lines.push(host(format!(
                "cut: {} bytes more, {} lines more",
                kept.dropped_bytes, kept.dropped_lines
            )));
        }
        lines
    }

    /// One of the two streams that a guest prints to.
    pub(super) fn stream(&self, source: Source) -> GuestStream {
        GuestStream {
            log: self.clone(),
            source,
        }
    }
}

/// One of the two streams that a guest prints to.
#[derive(Debug, Clone)]
pub(super) struct GuestStream {
    log: GuestLog,
    source: Source,
}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for GuestStream {
    async fn ready(&mut self) {}
}

impl OutputStream for GuestStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.print(&self.source, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_MAX)
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // A guest of WASI 0.3 may offer all of its memory.
        let taken = bytes.len().min(WRITE_MAX);
        self.log.print(&self.source, &bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(log: &GuestLog) -> String {
        text_of(&log.lines())
    }

    fn log(bytes: usize, lines: usize) -> GuestLog {
        log_without(bytes, lines, &[])
    }

    fn log_without(bytes: usize, lines: usize, secrets: &[(String, String)]) -> GuestLog {
        let limits = Limits {
            log_bytes: bytes,
            log_lines: lines,
            ..Limits::default()
        };
        GuestLog::new(&limits, &Arc::new(Secrets::new(secrets)))
    }

    /// The longest part of the secret that is in the text, in bytes.
    fn longest_part(secret: &str, text: &str) -> usize {
        let borders: Vec<usize> = (0..=secret.len())
            .filter(|at| secret.is_char_boundary(*at))
            .collect();
        let parts = borders.iter().flat_map(|from| {
            let ends = borders.iter().filter(move |to| *to > from);
            ends.map(move |to| &secret[*from..*to])
        });
        let found = parts.filter(|part| text.contains(part));
        found.map(str::len).max().unwrap_or(0)
    }

    #[test]
    fn a_secret_at_the_cut_of_a_context_stays_hidden() {
        for secret in ["0123456789", "0\u{e9}1\u{2603}2\u{1f600}345"] {
            let named = [("KEY".to_owned(), secret.to_owned())];
            for before in 0..300 {
                for after in [0, 1, 300] {
                    let said = format!("{}{secret}{}", "x".repeat(before), "y".repeat(after));
                    let log = log_without(10_000, 10, &named);
                    log.log(Level::Info, &said, "text");
                    // A refusal is cut at 400 bytes.
                    log.refuse(&format!("{}{said}", "x".repeat(200)));
                    let text = text_of(&log.lines());
                    let part = longest_part(secret, &text);
                    assert!(
                        part < super::super::secrets::CUT_MIN,
                        "{before}, {after}: {text}"
                    );
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_part_of_a_secret_stays_wherever_a_run_is_cut(
            secret in "[0-9\u{e9}\u{2603}]{4,20}(\n[k-p]{8,12})?",
            before in 0_usize..60,
            after in 0_usize..60,
            bytes in 1_usize..120,
            halves in 0_usize..80,
            logged in proptest::bool::ANY,
        ) {
            let named = [("KEY".to_owned(), secret.clone())];
            let log = log_without(bytes, 10, &named);
            let said = format!("{}{secret}{}\nlast", "x".repeat(before), "y".repeat(after));
            if logged {
                log.log(Level::Info, "", &said);
            } else {
                let (first, second) = said.as_bytes().split_at(halves.min(said.len()));
                log.print(&Source::Stdout, first);
                log.print(&Source::Stdout, second);
            }
            let lines = log.lines();
            for line in lines.iter().filter(|line| line.source != Source::Host) {
                for part in secret.lines().filter(|part| part.len() >= 8 || !secret.contains('\n')) {
                    // What stays may be a mark cut off, never a part that is long enough to be found.
                    let found = longest_part(part, &line.text);
                    proptest::prop_assert!(found < super::super::secrets::CUT_MIN, "{:?}", lines);
                }
            }
        }
    }

    #[test]
    fn a_flood_of_bytes_is_cut_and_counted() {
        let log = log(100, 1000);
        for _ in 0..3 {
            log.print(&Source::Stdout, &[b'x'; 50]);
        }
        log.print(&Source::Stdout, b"\nmore\n");
        log.log(Level::Info, "context", "more");
        assert_eq!(
            text(&log),
            format!("{}\n[cut: 58 bytes more, 2 lines more]\n", "x".repeat(100))
        );
    }

    #[test]
    fn a_flood_of_lines_is_cut_and_counted() {
        let log = log(1000, 2);
        log.print(&Source::Stdout, b"a\nb\n\nc\nd");
        log.log(Level::Warn, "", "e");
        assert_eq!(text(&log), "a\nb\n[cut: 3 bytes more, 3 lines more]\n");
    }

    #[test]
    fn parts_of_a_line_are_put_together_for_each_stream() {
        let log = log(1000, 1000);
        let snowman = "\u{2603}".as_bytes();
        log.print(&Source::Stdout, &snowman[..1]);
        log.print(&Source::Stdout, &snowman[1..]);
        log.print(&Source::Stderr, b"other");
        log.print(&Source::Stdout, b"new\n\nend");
        log.log(Level::Error, "db", "one\ntwo");
        assert_eq!(
            text(&log),
            "\u{2603}\nother\nnew\n\nend\nerror db: one\nerror db: two\n"
        );
    }

    #[test]
    fn what_is_dropped_of_a_message_is_only_counted() {
        let log = log(1000, 3);
        log.log(Level::Info, &"c".repeat(100_000), &"x\n".repeat(500_000));
        let text = text(&log);
        assert!(text.len() < 1500, "{}", text.len());
        assert!(
            text.ends_with("[cut: 999994 bytes more, 499998 lines more]\n"),
            "{text}"
        );
        let refused = log_without(1000, 3, &[]);
        refused.refuse(&"m".repeat(1_000_000));
        assert!(refused.lines()[0].text.len() < 500);
    }

    #[test]
    fn refusals_are_all_counted_and_the_first_are_told() {
        let log = log(0, 0);
        for n in 0..25 {
            log.refuse(&format!("refused {n}"));
        }
        assert_eq!(log.refused(), 25);
        let text = text(&log);
        assert!(
            text.contains("[refused 19]") && !text.contains("[refused 20]"),
            "{text}"
        );
        assert!(text.ends_with("[5 more calls were refused]\n"), "{text}");
    }

    #[test]
    fn secrets_are_not_kept() {
        let log = log_without(1000, 10, &[("KEY".into(), "hunter2".into())]);
        log.print(&Source::Stdout, b"key=hunter2\n");
        log.log(Level::Info, "hunter2", "hunter2");
        let lines = log.lines();
        assert_eq!(
            text_of(&lines),
            "key=[secret KEY]\ninfo [secret KEY]: [secret KEY]\n"
        );
    }
}
