//! The lines of the host's log that one run causes, whoever writes them: its guest, or a library that
//! works for it.

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::secrets::Secrets;
use crate::text::printable;

/// Lines of one run that the log takes; the rest is counted.
pub const RUN_LINES_MAX: usize = 20;

tokio::task_local! {
    /// The run that this thread works for.
    static CURRENT: RunLines;
}

/// The log lines of one run. A clone is the same count. When the last one is dropped, the log tells how
/// many lines were left out.
#[derive(Debug, Clone, Default)]
pub struct RunLines(Option<Arc<Count>>);

#[derive(Debug)]
struct Count {
    queue: String,
    id: String,
    attempt: u32,
    secrets: Arc<Secrets>,
    admitted: AtomicUsize,
    left_out: AtomicUsize,
    /// True when one of those left out was a warning or an error.
    is_serious: AtomicBool,
}

impl RunLines {
    /// Of the run of a message.
    pub(super) fn new(queue: &str, id: &str, attempt: u32, secrets: &Arc<Secrets>) -> Self {
        Self(Some(Arc::new(Count {
            queue: queue.to_owned(),
            id: id.to_owned(),
            attempt,
            secrets: Arc::clone(secrets),
            admitted: AtomicUsize::new(0),
            left_out: AtomicUsize::new(0),
            is_serious: AtomicBool::new(false),
        })))
    }

    /// The run that this thread works for, if any.
    #[must_use]
    pub fn current() -> Option<Self> {
        let run = CURRENT.try_with(Self::clone).ok()?;
        run.0.is_some().then_some(run)
    }

    /// Does something whose log lines are this run's.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// A future whose log lines are this run's.
    pub(super) fn cover<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, work)
    }

    /// Counts a line. False if the log takes no more lines of this run.
    #[must_use]
    pub fn admit(&self, is_serious: bool) -> bool {
        let Some(count) = &self.0 else { return true };
        if count.admitted.fetch_add(1, Ordering::Relaxed) < RUN_LINES_MAX {
            return true;
        }
        self.leave_out(1);
        count.is_serious.fetch_or(is_serious, Ordering::Relaxed);
        false
    }

    /// Counts lines that do not go to the log.
    pub fn leave_out(&self, lines: usize) {
        if let Some(count) = &self.0 {
            count.left_out.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// The queue, the message's id and the attempt.
    #[must_use]
    pub fn place(&self) -> Option<(&str, &str, u32)> {
        let count = self.0.as_ref()?;
        Some((&count.queue, &count.id, count.attempt))
    }

    /// A text without the secrets that this run knows.
    #[must_use]
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(count) => count.secrets.hide(text),
            None => Cow::Borrowed(text),
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let lines = *self.left_out.get_mut();
        if lines == 0 {
            return;
        }
        let (queue, attempt) = (self.queue.as_str(), self.attempt);
        let id = printable(&self.id);
        let id = id.as_ref();
        /// The level of an event has to be a constant.
        macro_rules! tell {
            ($level:ident) => {
                tracing::$level!(target: "guest", queue, id, attempt, source = "host",
                    "{lines} more lines of this run were left out")
            };
        }
        if *self.is_serious.get_mut() {
            tell!(warn);
        } else {
            tell!(info);
        }
    }
}

/// A future that belongs to the run in which it is made, wherever it is polled.
pub(super) fn of_this_run<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let run = CURRENT.try_with(RunLines::clone).unwrap_or_default();
    run.cover(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_run_starts_elsewhere_counts_for_it() {
        let lines = RunLines::new("q", "id", 2, &Arc::new(Secrets::new(&[])));
        assert!(RunLines::current().is_none());
        let all = lines.clone().cover(async {
            let apart = of_this_run(async {
                let run = RunLines::current().unwrap();
                assert_eq!(run.place(), Some(("q", "id", 2)));
                (0..RUN_LINES_MAX).filter(|_| run.admit(true)).count()
            });
            let taken = tokio::spawn(apart).await.unwrap();
            taken + usize::from(RunLines::current().unwrap().admit(false))
        });
        assert_eq!(all.await, RUN_LINES_MAX);
        assert!(!lines.scope(|| RunLines::current().unwrap().admit(false)));
        assert_eq!(
            lines.0.as_ref().unwrap().left_out.load(Ordering::Relaxed),
            2
        );
        assert!(RunLines::current().is_none());
    }
}
