//! The program's log.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::destination::Destination;
pub(super) use self::destination::Reopen;
use self::file::LogFile;
use self::format::{Fields, Format};
use self::rate::Rate;
use super::Usage;
use crate::control::{LogLevel, LogRing};
use crate::runtime::RunLines;
use crate::text::printable;

mod destination;
mod file;
mod format;
mod rate;

/// Lines that wait for whoever reads the log of a host; what comes then is left out.
const LINES_WAITING_MAX: usize = 65_536;

/// Whatever these libraries log is about handlers, also where no run is known.
const GUEST_LIBRARIES: [&str; 3] = ["wasmtime", "wasi", "hyper"];

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

/// What is logged, and how.
#[derive(Debug, Clone, Args)]
pub(super) struct LogArgs {
    /// Log from this level on: error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "DQHOST_LOG")]
    pub log: String,
    /// Log as text or as JSON
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "DQHOST_LOG_FORMAT"
    )]
    log_format: LogFormat,
    /// Append the log to this file instead of stderr
    ///
    /// SIGUSR1 opens the file again, for logrotate. Beside a dashboard it is used instead of the files
    /// in $XDG_STATE_HOME/dqhost.
    #[arg(long, value_name = "PATH", env = "DQHOST_LOG_FILE")]
    log_file: Option<PathBuf>,
}

impl LogArgs {
    /// Those of a dashboard without a host.
    pub(super) fn of_top() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            log_file: None,
        }
    }

    fn is_json(&self) -> bool {
        self.log_format == LogFormat::Json
    }

    /// For a file.
    fn plain(&self) -> Format {
        if self.is_json() {
            return Format::Json;
        }
        Format::Text { has_colours: false }
    }

    /// Opens the file that is named, if one is.
    fn open(&self) -> Result<Option<LogFile>, Usage> {
        let Some(path) = &self.log_file else {
            return Ok(None);
        };
        let file = LogFile::open_named(path).map_err(|error| {
            let path = path.display().to_string();
            let path = printable(&path);
            Usage(format!("--log-file: {path} cannot be opened: {error}"))
        })?;
        Ok(Some(file))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Logs to stderr.
pub(super) fn to_stderr(level: &str, json: bool) -> anyhow::Result<()> {
    init(level, format_of(json), Sink::Stderr, Arc::default())
}

fn format_of(json: bool) -> Format {
    if json {
        return Format::Json;
    }
    let has_colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    Format::Text { has_colours }
}

/// The log of a host or a dashboard, written by threads of its own: whoever reads it may stop, the
/// disk may hang, and nothing waits for them. Dropping it ends it.
pub(super) struct Log {
    writers: Vec<(ErrorCounter, WorkerGuard)>,
    rate: Arc<Rate>,
    reopen: Reopen,
}

/// How long lines that are left may take to be written when the log ends. The writer's own limit,
/// which it keeps only if its queue is not full, is 1.1 s.
const END_LIMIT: Duration = Duration::from_millis(1200);

impl Log {
    fn new(rate: &Arc<Rate>) -> Self {
        Self {
            writers: Vec::new(),
            rate: Arc::clone(rate),
            reopen: Reopen::default(),
        }
    }

    /// What opens its files again.
    pub(super) fn reopen(&self) -> Reopen {
        self.reopen.clone()
    }

    /// One more place to write to, which has a queue of its own.
    fn add(&mut self, destination: impl Write + Send + 'static) -> NonBlocking {
        let (lines, writer) = NonBlockingBuilder::default()
            .lossy(true)
            .buffered_lines_limit(LINES_WAITING_MAX)
            .thread_name("log")
            .finish(destination);
        self.writers.push((lines.error_counter(), writer));
        lines
    }

    fn add_file(&mut self, file: LogFile, ring: Option<&Arc<LogRing>>) -> NonBlocking {
        self.add(Destination::new(file, self.reopen.clone(), ring.cloned()))
    }
}

impl Drop for Log {
    /// Tells of lines that are missing, if any are, and writes what is left.
    fn drop(&mut self) {
        let dropped = self.writers.iter().map(|(dropped, _)| dropped);
        let lines: usize = dropped.map(ErrorCounter::dropped_lines).sum();
        if lines > 0 {
            tracing::warn!("{lines} lines of the log were left out, since nobody read them");
        }
        if let Some(message) = self.rate.end() {
            tracing::warn!("{message}");
        }
        let writers = std::mem::take(&mut self.writers);
        let (done, is_done) = std::sync::mpsc::channel();
        for (_, writer) in writers {
            let done = done.clone();
            // Apart, since the writer tells of its trouble on a stdout that may not be read either.
            let _ = std::thread::Builder::new().spawn(move || {
                drop(writer);
                drop(done);
            });
        }
        drop(done);
        // Nothing comes: it ends when all of them have ended.
        let _: Result<(), _> = is_done.recv_timeout(END_LIMIT);
    }
}

/// Logs to stderr or the file that is named, as [`Log`] says.
pub(super) fn of_host(args: &LogArgs) -> anyhow::Result<Log> {
    let rate = Arc::default();
    let mut log = Log::new(&rate);
    let (lines, format) = match args.open()? {
        Some(file) => (log.add_file(file, None), args.plain()),
        None => (log.add(io::stderr()), format_of(args.is_json())),
    };
    init(&args.log, format, Sink::Lines(lines), rate)?;
    Ok(log)
}

fn init(level: &str, format: Format, sink: Sink, rate: Arc<Rate>) -> anyhow::Result<()> {
    let lines = Lines { format, sink, rate };
    tracing_subscriber::registry()
        .with(filter(level)?)
        .with(lines)
        .try_init()
        .map_err(|error| anyhow::anyhow!("the log cannot be set up: {error}"))
}

/// Logs to the screen's ring and to files, never to the terminal: to the one that is named, or to two of
/// this process in the folder. Of those one is for the host's own lines, and one for those of handlers,
/// which push out nothing of the host's. Panics are logged as well, since whoever catches them has no
/// other place to tell of them.
pub(super) fn to_screen(
    args: &LogArgs,
    ring: &Arc<LogRing>,
    folder: Option<&Path>,
) -> anyhow::Result<Log> {
    let (files, trouble) = match (args.open()?, args.open()?) {
        (Some(host), Some(guests)) => (Some([host, guests]), None),
        _ => match folder.map(LogFile::open_both).transpose() {
            Ok(files) => (files, None),
            Err(error) => (None, Some(error)),
        },
    };
    if let Some([host, guests]) = &files {
        let mut shown = host.path.display().to_string();
        if guests.path != host.path {
            let guests = guests.path.file_name().unwrap_or_default();
            shown = format!("{shown} and {}", guests.display());
        }
        ring.set_file(&shown);
    }
    let rate = Arc::default();
    let mut log = Log::new(&rate);
    let files = files.map(|files| files.map(|file| log.add_file(file, Some(ring))));
    let sink = Sink::Screen {
        ring: Arc::clone(ring),
        files,
    };
    init(&args.log, args.plain(), sink, rate)?;
    if let (Some(error), Some(folder)) = (trouble, folder) {
        let folder = folder.display();
        tracing::warn!("the log is on the screen only: {folder}: {error}");
    }
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("a bug in dqhost: {panic}");
    }));
    Ok(log)
}

/// Writes each event to the log. What a run causes is marked, and has limits: so many lines of each run,
/// and a rate for all runs together.
struct Lines {
    format: Format,
    sink: Sink,
    rate: Arc<Rate>,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = *event.metadata().level();
        let target = Target::of(event);
        let run = RunLines::current();
        let is_guest = target.is_guest(run.is_some());
        if is_guest
            && run
                .as_ref()
                .is_some_and(|run| !run.admit(level <= Level::WARN))
        {
            return;
        }
        let mut fields = Fields::of(event);
        if let Some(run) = run.filter(|_| is_guest && target.0 != "guest") {
            fields.add_run(&run);
        }
        let line = self.format.line(level, is_guest, &fields);
        let now = Instant::now();
        if !is_guest || self.rate.admit(line.len(), now) {
            self.sink.write(level, is_guest, &line);
        }
        if let Some(message) = self.rate.left_out(now) {
            let fields = Fields::about_guests(message);
            let line = self.format.line(Level::WARN, true, &fields);
            self.sink.write(Level::WARN, true, &line);
        }
    }
}

/// What an event is about. An event of the crate `log` tells it in a field.
struct Target(String);

impl Target {
    fn of(event: &Event<'_>) -> Self {
        let mut target = Self(event.metadata().target().to_owned());
        if target.0 == "log" {
            event.record(&mut target);
        }
        target
    }

    /// True if a handler causes it. What dqhost itself says in a run is the host's.
    fn is_guest(&self, is_in_run: bool) -> bool {
        let name = self.0.as_str();
        let is_ours = name == "dqhost" || name.starts_with("dqhost::");
        let is_theirs = || {
            GUEST_LIBRARIES
                .iter()
                .any(|library| name.starts_with(library))
        };
        name == "guest" || !is_ours && (is_in_run || is_theirs())
    }
}

impl Visit for Target {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "log.target" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

/// Where the lines of the log go.
enum Sink {
    Stderr,
    Lines(NonBlocking),
    /// While the dashboard has the terminal.
    Screen {
        ring: Arc<LogRing>,
        /// To the threads that write the files, of the host and of handlers, if there are any.
        files: Option<[NonBlocking; 2]>,
    },
}

impl Sink {
    fn write(&self, level: Level, is_guest: bool, line: &str) {
        let file = match self {
            Self::Stderr => {
                // There is no place to tell that it is closed.
                let _ = io::stderr().write_all(line.as_bytes());
                return;
            }
            Self::Lines(lines) => Some(lines),
            Self::Screen { ring, files } => {
                let level = match level {
                    Level::ERROR => LogLevel::Error,
                    Level::WARN => LogLevel::Warn,
                    _ => LogLevel::Info,
                };
                ring.add(level, is_guest, line.trim_end());
                files.as_ref().map(|files| &files[usize::from(is_guest)])
            }
        };
        if let Some(file) = file {
            // It waits for nothing: what does not fit is counted.
            let _ = file.clone().write_all(line.as_bytes());
        }
    }
}
