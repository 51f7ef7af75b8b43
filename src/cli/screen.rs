//! The dashboard as the command line sets it up: with a host in this process, alone, or one frame.

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::handlers::{Loader, NoHost};
use super::open::Missing;
use super::prompt::Prompt;
use super::queues::QueuesArgs;
use super::{Exit, StoreArgs, Usage, folder, log, open, print};
use crate::control::controller::Controller;
use crate::control::{LogRing, Snapshot, Stage};
use crate::dashboard::{
    self, DashboardEnd, DashboardThread, Fact, Keys, Per, Settings, Setup, Theme,
};
use crate::host::{Host, Summary};
use crate::message::QueueName;
use crate::store::Store;
use crate::text::printable;

/// How the dashboard looks and what it may do.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Dashboard")]
pub(super) struct ScreenArgs {
    /// Change nothing from the dashboard
    #[arg(long, env = "DQHOST_READ_ONLY", value_parser = clap::builder::BoolishValueParser::new())]
    read_only: bool,
    /// Draw the dashboard with ASCII signs only
    #[arg(long, env = "DQHOST_ASCII", value_parser = clap::builder::BoolishValueParser::new())]
    ascii: bool,
    /// Leave the mouse to the terminal
    #[arg(long, env = "DQHOST_NO_MOUSE", value_parser = clap::builder::BoolishValueParser::new())]
    no_mouse: bool,
    /// Choose colours for a dark or a light background
    ///
    /// With NO_COLOR there are none.
    #[arg(
        long,
        value_name = "THEME",
        default_value = "auto",
        env = "DQHOST_THEME"
    )]
    theme: ThemeArg,
    /// Print one frame and exit, handling nothing
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "text", require_equals = true)]
    snapshot: Option<SnapshotFormat>,
}

/// What a file of settings says of the dashboard, and what it shows of all settings.
pub(super) type Look = (Keys, Vec<Fact>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ThemeArg {
    Auto,
    Dark,
    Light,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SnapshotFormat {
    Text,
    Ansi,
    Svg,
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

impl ScreenArgs {
    pub(super) fn settings(&self, (keys, facts): Look) -> Settings {
        // What some terminals say of themselves: "foreground;background", 7 and 15 being white.
        let says_light = || {
            let colors = std::env::var("COLORFGBG").unwrap_or_default();
            matches!(colors.rsplit(';').next(), Some("7" | "15"))
        };
        Settings {
            theme: Theme {
                light: match self.theme {
                    ThemeArg::Auto => says_light(),
                    ThemeArg::Dark => false,
                    ThemeArg::Light => true,
                },
                no_color: is_set("NO_COLOR"),
                ascii: self.ascii,
            },
            read_only: self.read_only,
            mouse: !self.no_mouse,
            per: Per::default(),
            keys,
            facts: facts.into(),
        }
    }

    /// True when one frame is wanted and nothing else.
    pub(super) fn is_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }
}

/// True when there is a terminal for a dashboard.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal()
        && io::stdout().is_terminal()
        && std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

/// A folder of this user's for logs and typed lines, made if need be.
fn state_folder() -> Option<PathBuf> {
    let folder = folder::of_user("XDG_STATE_HOME", ".local/state")?;
    folder::make(&folder).ok()?;
    Some(folder)
}

/// Sends the log to the screen and, if there is a place for it, to files. Call it before anything is
/// logged.
pub(super) fn start_log(args: &log::LogArgs) -> anyhow::Result<(Arc<LogRing>, log::Log)> {
    let ring = Arc::new(LogRing::default());
    let log = log::to_screen(args, &ring, state_folder().as_deref())?;
    Ok((ring, log))
}

fn setup(settings: Settings) -> Setup {
    Setup {
        settings,
        parser: Box::new(Prompt),
        lines: state_folder().map(|folder| folder.join("lines")),
    }
}

/// Prints one frame.
pub(super) async fn snapshot(
    (args, look): (&ScreenArgs, Look),
    store: Arc<dyn Store>,
    queues: Vec<QueueName>,
) -> anyhow::Result<Exit> {
    let controller = Controller {
        store,
        queues,
        host: None,
        read_only: true,
        handlers: None,
    };
    let size = match crossterm::terminal::size() {
        Ok(size) if io::stdout().is_terminal() => size,
        _ => (number("COLUMNS", 120), number("LINES", 40)),
    };
    let settings = args.settings(look);
    let opened = |snapshot| dashboard::opened_on(settings.clone(), snapshot, size);
    let wants = |snapshot: &Snapshot| opened(snapshot.clone()).query;
    let snapshot = controller.snapshot(wants).await?;
    let refused = snapshot.outage.clone();
    let picture = dashboard::picture(&mut opened(snapshot), Instant::now());
    let text = match args.snapshot {
        Some(SnapshotFormat::Ansi) => picture.ansi(),
        Some(SnapshotFormat::Svg) => picture.svg(),
        Some(SnapshotFormat::Text) | None => picture.text(),
    };
    print::stdout().write_all(text.as_bytes())?;
    let Some(error) = refused else {
        return Ok(Exit::Done);
    };
    say(&format!("error: {error}"));
    Ok(Exit::Partly)
}

/// A size from the environment, within what can be drawn.
fn number(name: &str, default: u16) -> u16 {
    let value = std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok());
    value.unwrap_or(default).clamp(10, 500)
}

/// Runs a host with the dashboard on top, until the host has ended.
///
/// A dashboard that fails takes nothing with it: the terminal is given back, and the host goes on
/// without. A terminal that is gone stops the host as SIGTERM does, since nobody is left to watch it.
pub(super) async fn with_host(
    settings: Settings,
    host: Host,
    (stage, stages): (watch::Sender<Stage>, watch::Receiver<Stage>),
    (store, handlers): (Arc<dyn Store>, Arc<Loader>),
    logs: Arc<LogRing>,
) -> anyhow::Result<Summary> {
    let controller = Controller {
        store,
        queues: Vec::new(),
        host: Some((host.monitor(), stage.clone())),
        read_only: settings.read_only,
        handlers: Some(handlers),
    };
    let (channels, controller) = controller.open(Arc::clone(&logs));
    let (ended, mut has_ended) = watch::channel(false);
    let mut host = AbortOnDropHandle::new(tokio::spawn(host.run(stages)));
    let end = async move {
        let _ = has_ended.wait_for(|ended| *ended).await;
    };
    let mut screen =
        DashboardThread::start(setup(settings), channels, end).context("the dashboard")?;
    let (summary, is_watched) = tokio::select! {
        summary = &mut host => {
            ended.send_replace(true);
            screen.close().await;
            (summary, true)
        }
        end = screen.ended() => {
            let is_watched = without_screen(end, &stage);
            (host.await, is_watched)
        }
    };
    let summary = summary.context("the host")?;
    drop(controller);
    if let Some(file) = logs.file().filter(|_| is_watched) {
        say(&format!("the log is in {file}"));
    }
    Ok(summary)
}

/// What a host does whose dashboard has ended before it. False when its terminal is gone.
fn without_screen(end: DashboardEnd, stage: &watch::Sender<Stage>) -> bool {
    let is_watched = match end {
        DashboardEnd::Left => true,
        DashboardEnd::TerminalGone(error) => {
            tracing::warn!("the terminal is gone, so the host stops: {error}");
            false
        }
        DashboardEnd::Bug => {
            tracing::error!("the dashboard has ended by a bug in dqhost; the host goes on");
            say("the dashboard has ended by a bug in dqhost\nthe host goes on; Ctrl-C stops it");
            return true;
        }
    };
    stage.send_if_modified(|now| {
        let is_first = *now == Stage::Run;
        *now = (*now).max(Stage::Drain);
        is_first
    });
    is_watched
}

/// How long a line may take that is written to a terminal which nobody may read.
const SAY_LIMIT: Duration = Duration::from_millis(500);

/// Says something on a terminal that may be gone, or that nobody reads.
fn say(text: &str) {
    let text = printable_lines(text);
    let (written, is_written) = std::sync::mpsc::channel();
    // Left behind if it has to wait: the program ends without it.
    let _ = std::thread::Builder::new().spawn(move || {
        let _ = writeln!(io::stderr(), "{text}");
        let _ = written.send(());
    });
    let _ = is_written.recv_timeout(SAY_LIMIT);
}

fn printable_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(printable).collect();
    lines.join("\n")
}

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    #[command(flatten)]
    queues: QueuesArgs,
    #[command(flatten)]
    screen: ScreenArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// The queues to show; none for all that dqhost uses, now and later.
async fn shown(queues: &QueuesArgs, store: &dyn Store) -> anyhow::Result<Vec<QueueName>> {
    if !queues.is_discovering() {
        return Ok(queues.named().to_vec());
    }
    let chosen = queues.choose(store).await?;
    if let Some(note) = chosen.note {
        say(&note);
    }
    Ok(chosen.queues)
}

/// `dqhost top`: the dashboard without a host.
pub(super) async fn top(args: TopArgs, look: Look) -> anyhow::Result<Exit> {
    if args.screen.is_snapshot() {
        log::to_stderr("warn", false)?;
        let store = open::store(&args.store, Missing::Refuse).await?;
        let queues = shown(&args.queues, &*store).await?;
        return snapshot((&args.screen, look), store, queues).await;
    }
    if !has_terminal() {
        return Err(Usage(
            "there is no terminal for a dashboard: `dqhost top --snapshot` prints one frame, \
             `dqhost stats` the numbers"
                .to_owned(),
        )
        .into());
    }
    let store = open::store(&args.store, Missing::Refuse).await?;
    let queues = shown(&args.queues, &*store).await?;
    let (logs, _log) = start_log(&log::LogArgs::of_top())?;
    let controller = Controller {
        store,
        queues,
        host: None,
        read_only: args.screen.read_only,
        handlers: Some(Arc::new(NoHost)),
    };
    let (channels, _desk) = controller.open(logs);
    let settings = args.screen.settings(look);
    let (end, mut is_end) = watch::channel(false);
    let end_of_screen = async move {
        let _ = is_end.wait_for(|end| *end).await;
    };
    let mut screen = DashboardThread::start(setup(settings), channels, end_of_screen)
        .context("the dashboard")?;
    tokio::select! {
        ended = screen.ended() => match ended {
            DashboardEnd::Left | DashboardEnd::TerminalGone(_) => {}
            DashboardEnd::Bug => anyhow::bail!("a bug in dqhost: the dashboard panicked"),
        },
        () = told_to_end()? => {
            end.send_replace(true);
            screen.close().await;
        }
    }
    Ok(Exit::Done)
}

/// Returns at the first signal that ends a program.
fn told_to_end() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let mut signals = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ]
    .into_iter()
    .map(signal)
    .collect::<io::Result<Vec<_>>>()
    .context("listening for signals")?;
    Ok(async move {
        let waits = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures_util::future::select_all(waits).await;
    })
}
