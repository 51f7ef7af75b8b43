//! The signals that stop a host.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::host::Stage;

/// The first SIGINT or SIGTERM lets handlers finish, the second stops them. The end of the terminal
/// (SIGHUP) lets them finish too, and never more than that, since it is told more than once.
pub(super) fn stop_by(stage: watch::Sender<Stage>) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut hangup = if is_hangup_ignored() {
        None
    } else {
        Some(signal(SignalKind::hangup()).context("listening for SIGHUP")?)
    };
    tokio::spawn(async move {
        loop {
            let at_least = tokio::select! {
                _ = interrupt.recv() => Stage::Now,
                _ = terminate.recv() => Stage::Now,
                Some(()) = async { hangup.as_mut()?.recv().await } => Stage::Drain,
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

/// True when whoever started this program told it to outlive its terminal, as nohup does. Where the
/// system does not say so, nobody did.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = rustix::process::Signal::HUP.as_raw() - 1;
    ignored.is_some_and(|mask| mask & (1 << bit) != 0)
}
