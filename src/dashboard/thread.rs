//! The dashboard on a thread of its own. Whoever writes to a terminal that nobody reads waits for as
//! long as that lasts, so nothing else may share that thread.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::terminal::{self, Unread};
use super::{Setup, run_until};
use crate::control::Channels;

/// How long a dashboard that was told to end may take to write what it has begun.
const FINISH_LIMIT: Duration = Duration::from_millis(500);

/// After that nobody seems to read the terminal: for so long, what waits to be read is discarded, so
/// that there is room for what gives the terminal back.
const DISCARD_LIMIT: Duration = Duration::from_secs(1);

/// How often it is discarded.
const DISCARD_EVERY: Duration = Duration::from_millis(10);

/// How a dashboard ended.
#[derive(Debug)]
pub enum DashboardEnd {
    /// An operator left it, or it was told to end.
    Left,
    /// Its terminal cannot be written to or read from any more.
    TerminalGone(io::Error),
    /// It panicked.
    Bug,
}

/// A dashboard that runs.
pub struct DashboardThread {
    ended: oneshot::Receiver<DashboardEnd>,
    unread: Arc<Unread>,
}

impl DashboardThread {
    /// Takes the terminal and shows the dashboard until an operator leaves it, `end` comes or the
    /// terminal is gone.
    ///
    /// # Errors
    ///
    /// When there are no more threads.
    pub fn start(
        setup: Setup,
        channels: Channels,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, ended) = oneshot::channel();
        let unread = Arc::<Unread>::default();
        let in_thread = Arc::clone(&unread);
        let work = move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run_until(setup, channels, end, in_thread))
        };
        std::thread::Builder::new()
            .name("dashboard".to_owned())
            .spawn(move || {
                let end = match catch_unwind(AssertUnwindSafe(work)) {
                    Ok(Ok(())) => DashboardEnd::Left,
                    Ok(Err(error)) => DashboardEnd::TerminalGone(error),
                    Err(_) => DashboardEnd::Bug,
                };
                let _ = sender.send(end);
            })?;
        Ok(Self { ended, unread })
    }

    /// Returns when the dashboard has ended and given the terminal back. It may be called again after
    /// it was given up, and not after it has returned.
    pub async fn ended(&mut self) -> DashboardEnd {
        (&mut self.ended).await.unwrap_or(DashboardEnd::Bug)
    }

    /// Waits for a dashboard whose `end` has come, for a second and a half at most: the program ends
    /// also when nobody reads its terminal.
    pub async fn close(mut self) {
        if tokio::time::timeout(FINISH_LIMIT, self.ended())
            .await
            .is_ok()
        {
            return;
        }
        let limit = Instant::now() + DISCARD_LIMIT;
        while Instant::now() < limit {
            self.unread.discard();
            if tokio::time::timeout(DISCARD_EVERY, self.ended())
                .await
                .is_ok()
            {
                return;
            }
        }
        terminal::restore_settings();
    }
}
