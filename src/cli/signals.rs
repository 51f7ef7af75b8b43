//! The signals that stop a host, and those that make it load changed handlers and open its log again.

use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::log::Reopen;
use super::reload::Reload;
use super::service::ServiceManager;
use crate::host::Stage;

/// What signals ask for that do not end a process.
pub(super) struct OnSignal {
    /// See [`reopen`].
    pub reopen: Signal,
    /// None where no handlers are served.
    pub reload: Option<Reload>,
    pub log: Reopen,
    pub manager: ServiceManager,
}

impl OnSignal {
    fn hangup(&self) {
        if let Some(reload) = &self.reload {
            reload.ask();
        } else {
            // Who has asked may wait for the end of it.
            self.manager.reloading();
            self.manager.reloaded();
        }
    }
}

/// Listens for SIGUSR1. From here on it ends no process: a log may be rotated while handlers are compiled.
pub(super) fn reopen() -> anyhow::Result<Signal> {
    signal(SignalKind::user_defined1()).context("listening for SIGUSR1")
}

/// The first SIGINT or SIGTERM lets handlers finish, the second stops them. SIGHUP loads changed handlers
/// and settings, if there are any,
/// unless it tells that the terminal of this process is gone. That lets handlers finish too, and never
/// more than that, since it is told more than once. SIGUSR1 opens the file of the log again.
pub(super) fn listen(stage: watch::Sender<Stage>, mut on_signal: OnSignal) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut hangup = if is_hangup_ignored() {
        None
    } else {
        Some(signal(SignalKind::hangup()).context("listening for SIGHUP")?)
    };
    let had_terminal = has_terminal();
    tokio::spawn(async move {
        loop {
            let at_least = tokio::select! {
                _ = interrupt.recv() => Stage::Now,
                _ = terminate.recv() => Stage::Now,
                Some(()) = on_signal.reopen.recv() => {
                    on_signal.log.ask();
                    continue;
                }
                Some(()) = async { hangup.as_mut()?.recv().await } => {
                    let look = tokio::task::spawn_blocking(has_terminal);
                    if had_terminal && !look.await.unwrap_or(true) {
                        Stage::Drain
                    } else {
                        on_signal.hangup();
                        continue;
                    }
                }
            };
            let is_new = stage.send_if_modified(|stage| {
                let next = match *stage {
                    Stage::Run => Stage::Drain,
                    Stage::Drain | Stage::Now => at_least.max(*stage),
                };
                std::mem::replace(stage, next) != next
            });
            match *stage.borrow() {
                Stage::Drain if is_new => {
                    tracing::info!("stopping; a second signal stops handlers at once");
                }
                Stage::Now if is_new => tracing::info!("stopping at once"),
                _ => {}
            }
        }
    });
    Ok(())
}

/// True while this process has a controlling terminal.
fn has_terminal() -> bool {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
}

/// True when whoever started this program told it to outlive its terminal, as nohup does. Where the
/// system does not say so, nobody did.
pub(super) fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = rustix::process::Signal::HUP.as_raw() - 1;
    ignored.is_some_and(|mask| mask & (1 << bit) != 0)
}
