//! The program's log.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::Usage;
use crate::control::{LogLevel, LogRing};

/// Bytes of the file of the log before it makes room for a new one; one old one is kept.
const FILE_MAX: u64 = 16 * 1024 * 1024;

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

/// The log of a host that has no screen; it ends with this.
pub(super) struct HostLog {
    dropped: ErrorCounter,
    /// Writes what is left, within a second, when dropped.
    _writer: WorkerGuard,
}

impl HostLog {
    /// Tells of lines that are missing, if any are.
    pub(super) fn end(self) {
        let lines = self.dropped.dropped_lines();
        if lines > 0 {
            tracing::warn!("{lines} lines of the log were left out, since nobody read them");
        }
    }
}

/// Logs to stderr from a thread of its own: whoever reads it may stop, and nothing waits for them.
pub(super) fn of_host(level: &str, json: bool) -> anyhow::Result<HostLog> {
    let ansi = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (stderr, writer) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_WAITING_MAX)
        .thread_name("log")
        .finish(io::stderr());
    let dropped = stderr.error_counter();
    init(level, json, stderr, ansi)?;
    Ok(HostLog {
        dropped,
        _writer: writer,
    })
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
        .with_target(false);
    let result = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.try_init()
    };
    result.map_err(|error| anyhow::anyhow!("the log cannot be set up: {error}"))
}

/// Logs to the screen's ring and to a file, never to the terminal. Panics are logged as well, since
/// whoever catches them has no other place to tell of them.
pub(super) fn to_screen(
    level: &str,
    json: bool,
    ring: &Arc<LogRing>,
    path: Option<PathBuf>,
) -> anyhow::Result<()> {
    let file = path.as_deref().map(LogFile::open).transpose();
    let (file, trouble) = match file {
        Ok(file) => (file, None),
        Err(error) => (None, Some(error)),
    };
    if let (Some(_), Some(path)) = (&file, &path) {
        ring.set_file(&path.display().to_string());
    }
    let sink = Sink {
        ring: Arc::clone(ring),
        file: Arc::new(Mutex::new(file)),
    };
    init(level, json, sink, false)?;
    if let (Some(error), Some(path)) = (trouble, path) {
        tracing::warn!("the log is on the screen only: {}: {error}", path.display());
    }
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("a bug in dqhost: {panic}");
    }));
    Ok(())
}

/// The file of the log, for this user alone, since handlers print into it.
struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            size,
        })
    }

    /// Writes a line. What cannot be written is left out: the ring has it.
    fn add(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size >= FILE_MAX {
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }
}

/// Where the lines of the log go while the dashboard has the terminal.
#[derive(Clone)]
struct Sink {
    ring: Arc<LogRing>,
    file: Arc<Mutex<Option<LogFile>>>,
}

/// One line on its way.
struct SinkLine {
    sink: Sink,
    level: LogLevel,
    is_guest: bool,
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = SinkLine;

    fn make_writer(&'a self) -> SinkLine {
        SinkLine {
            sink: self.clone(),
            level: LogLevel::Info,
            is_guest: false,
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> SinkLine {
        let level = match *about.level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            _ => LogLevel::Info,
        };
        SinkLine {
            sink: self.clone(),
            level,
            is_guest: about.target() == "guest",
        }
    }
}

impl Write for SinkLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.sink.ring.add(
            self.level,
            self.is_guest,
            String::from_utf8_lossy(line).trim_end(),
        );
        let mut file = self
            .sink
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &mut *file
            && open.add(line).is_err()
        {
            // Its disk is full, say. There is no place to tell of it but the ring.
            *file = None;
            self.sink.ring.add(
                LogLevel::Warn,
                false,
                "the file of the log cannot be written any more",
            );
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_makes_room_when_it_is_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dqhost.log");
        std::fs::write(&path, vec![b'x'; usize::try_from(FILE_MAX).unwrap()]).unwrap();
        let mut file = LogFile::open(&path).unwrap();
        file.add(b"one\n").unwrap();
        file.add(b"two\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        let old = std::fs::metadata(folder.path().join("dqhost.log.1")).unwrap();
        assert_eq!(old.len(), FILE_MAX);
    }
}
