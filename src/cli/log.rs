//! The program's log.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use self::file::LogFile;
use super::Usage;
use crate::control::{LogLevel, LogRing};

mod file;
mod format;

/// Lines that wait for whoever reads the log of a host; what comes then is left out.
const LINES_WAITING_MAX: usize = 65_536;

/// A bare level is meant for this program; the libraries below keep to warnings.
fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    let directives = match level {
        "error" | "warn" | "info" | "debug" | "trace" => {
            format!("warn,dqhost={level},guest={level}")
        }
        other => other.to_owned(),
    };
    EnvFilter::try_new(&directives)
        .map_err(|error| Usage(format!("--log {level:?} is not understood: {error}")).into())
}

/// Logs to stderr.
pub(super) fn to_stderr(level: &str, json: bool) -> anyhow::Result<()> {
    let ansi = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    init(level, json, io::stderr, ansi)
}

/// The log of a host or a dashboard, written by a thread of its own: whoever reads it may stop, the
/// disk may hang, and nothing waits for them. Dropping it ends it.
pub(super) struct Log {
    dropped: ErrorCounter,
    writer: Option<WorkerGuard>,
}

/// How long lines that are left may take to be written when the log ends. The writer's own limit,
/// which it keeps only if its queue is not full, is 1.1 s.
const END_LIMIT: Duration = Duration::from_millis(1200);

impl Log {
    fn to(destination: impl Write + Send + 'static) -> (NonBlocking, Self) {
        let (lines, writer) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(LINES_WAITING_MAX)
            .thread_name("log")
            .finish(destination);
        let log = Self {
            dropped: lines.error_counter(),
            writer: Some(writer),
        };
        (lines, log)
    }
}

impl Drop for Log {
    /// Tells of lines that are missing, if any are, and writes what is left.
    fn drop(&mut self) {
        let lines = self.dropped.dropped_lines();
        if lines > 0 {
            tracing::warn!("{lines} lines of the log were left out, since nobody read them");
        }
        let writer = self.writer.take();
        let (done, is_done) = std::sync::mpsc::channel();
        // Apart, since the writer tells of its trouble on a stdout that may not be read either.
        let _ = std::thread::Builder::new().spawn(move || {
            drop(writer);
            let _ = done.send(());
        });
        let _ = is_done.recv_timeout(END_LIMIT);
    }
}

/// Logs to stderr, as [`Log`] says.
pub(super) fn of_host(level: &str, json: bool) -> anyhow::Result<Log> {
    let ansi = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (lines, log) = Log::to(io::stderr());
    init(level, json, lines, ansi)?;
    Ok(log)
}

fn init(
    level: &str,
    json: bool,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
    ansi: bool,
) -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(level)?)
        .with_writer(writer)
        .with_ansi(ansi)
        // They go to stderr, and end the program when that is closed.
        .log_internal_errors(false)
        .with_target(false);
    let result = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.fmt_fields(format::TextFields).try_init()
    };
    result.map_err(|error| anyhow::anyhow!("the log cannot be set up: {error}"))
}

/// Logs to the screen's ring and to a file of this process in the folder, never to the terminal.
/// Panics are logged as well, since whoever catches them has no other place to tell of them.
pub(super) fn to_screen(
    level: &str,
    json: bool,
    ring: &Arc<LogRing>,
    folder: Option<&Path>,
) -> anyhow::Result<Option<Log>> {
    let (file, trouble) = match folder.map(LogFile::open).transpose() {
        Ok(file) => (file, None),
        Err(error) => (None, Some(error)),
    };
    if let Some(file) = &file {
        ring.set_file(&file.path.display().to_string());
    }
    let writes = |file| {
        Log::to(FileOrNothing {
            file: Some(file),
            ring: Arc::clone(ring),
        })
    };
    let (lines, log) = file.map(writes).unzip();
    let ring = Arc::clone(ring);
    init(level, json, Sink { ring, lines }, false)?;
    if let (Some(error), Some(folder)) = (trouble, folder) {
        let folder = folder.display();
        tracing::warn!("the log is on the screen only: {folder}: {error}");
    }
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("a bug in dqhost: {panic}");
    }));
    Ok(log)
}

/// Writes to the file of the log, until that fails.
struct FileOrNothing {
    file: Option<LogFile>,
    ring: Arc<LogRing>,
}

impl Write for FileOrNothing {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(file) = &mut self.file
            && file.add(line).is_err()
        {
            // Its disk is full, say. There is no place to tell of it but the ring.
            self.file = None;
            let text = "the file of the log cannot be written any more";
            self.ring.add(LogLevel::Warn, false, text);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where the lines of the log go while the dashboard has the terminal.
struct Sink {
    ring: Arc<LogRing>,
    /// To the thread that writes the file, if there is one.
    lines: Option<NonBlocking>,
}

/// One line on its way.
struct SinkLine<'a> {
    sink: &'a Sink,
    level: LogLevel,
    is_guest: bool,
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = SinkLine<'a>;

    fn make_writer(&'a self) -> SinkLine<'a> {
        SinkLine {
            sink: self,
            level: LogLevel::Info,
            is_guest: false,
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> SinkLine<'a> {
        let level = match *about.level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        SinkLine {
            sink: self,
            level,
            is_guest: about.target() == "guest",
        }
    }
}

impl Write for SinkLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.sink
            .ring
            .add(self.level, self.is_guest, text.trim_end());
        if let Some(lines) = &self.sink.lines {
            // It waits for nothing: what does not fit is counted.
            lines.clone().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
