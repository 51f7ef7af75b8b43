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
use crate::text::cut;

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
    bytes_max: usize,
    lines_max: usize,
}

impl GuestLog {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            kept: Arc::default(),
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
        let context = cut(context, CONTEXT_MAX).into_owned();
        let mut rest = message;
        loop {
            let (line, more) = match rest.split_once('\n') {
                Some((line, more)) => (line, Some(more)),
                None => (rest, None),
            };
            if kept.lines.len() >= self.lines_max || kept.bytes >= self.bytes_max {
                // What is dropped must cost no more than to be counted.
                kept.dropped_bytes += rest.len();
                kept.dropped_lines += 1 + rest.matches('\n').count();
                return;
            }
            kept.bytes += context.len();
            let source = Source::Log {
                level,
                context: context.clone(),
            };
            self.keep(&mut kept, &source, line.as_bytes(), false);
            match more {
                Some(more) => rest = more,
                None => return,
            }
        }
    }

    /// Notes a call that was refused.
    pub(super) fn refuse(&self, what: &str) {
        let mut kept = self.lock();
        kept.refused += 1;
        if kept.refused <= REFUSALS_TOLD_MAX {
            kept.lines.push(Line {
                source: Source::Host,
                bytes: cut(what, REFUSAL_MAX).into_owned().into_bytes(),
                is_open: false,
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
        if !goes_on && taken == 0 && room == 0 {
            kept.dropped_lines += usize::from(!is_open);
            return;
        }
        if !goes_on {
            kept.lines.push(Line {
                source: source.clone(),
                bytes: Vec::new(),
                is_open: true,
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
    pub(super) fn lines(&self, secrets: &Secrets) -> Vec<LogLine> {
        let kept = self.lock();
        let host = |text| LogLine {
            source: Source::Host,
            text,
        };
        let was_cut = kept.dropped_bytes > 0;
        let line = |line: &Line| {
            let text = String::from_utf8_lossy(&line.bytes);
            LogLine {
                source: match &line.source {
                    Source::Log { level, context } => Source::Log {
                        level: *level,
                        context: secrets.hide_cut(context),
                    },
                    other => other.clone(),
                },
                text: if was_cut {
                    secrets.hide_cut(&text)
                } else {
                    secrets.hide(&text).into_owned()
                },
            }
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
        self.log.print(&self.source, bytes);
        Poll::Ready(Ok(bytes.len()))
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
        text_of(&log.lines(&Secrets::new(&[])))
    }

    fn log(bytes: usize, lines: usize) -> GuestLog {
        GuestLog::new(&Limits {
            log_bytes: bytes,
            log_lines: lines,
            ..Limits::default()
        })
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
        let refused = GuestLog::new(&Limits::default());
        refused.refuse(&"m".repeat(1_000_000));
        assert!(refused.lines(&Secrets::new(&[]))[0].text.len() < 500);
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
        let log = log(1000, 10);
        log.print(&Source::Stdout, b"key=hunter2\n");
        log.log(Level::Info, "hunter2", "hunter2");
        let lines = log.lines(&Secrets::new(&[("KEY".into(), "hunter2".into())]));
        assert_eq!(
            text_of(&lines),
            "key=[secret KEY]\ninfo [secret KEY]: [secret KEY]\n"
        );
    }
}
