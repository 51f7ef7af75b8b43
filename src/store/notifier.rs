//! How those who wait for a queue are woken, each queue by itself.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select_all;
use tokio::sync::Notify;

/// A signal for each name. A notification while nobody waits is kept for the next who does. A new
/// signal counts as notified: what happened before is not known.
#[derive(Debug, Default)]
pub(super) struct Notifier(Mutex<HashMap<String, Arc<Signal>>>);

#[derive(Debug)]
struct Signal {
    notify: Notify,
    waiting: AtomicUsize,
}

/// Somebody waits as long as this is there.
struct Waiting<'a>(&'a Signal);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Signal {
    fn notified_once() -> Arc<Self> {
        let notify = Notify::new();
        notify.notify_one();
        Arc::new(Self {
            notify,
            waiting: AtomicUsize::new(0),
        })
    }

    async fn notified(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        self.notify.notified().await;
    }

    /// Wakes all who wait, or else the next who will. One by one: what was told to one that goes away
    /// without having looked is told to the next, while what all are told at once would be lost.
    fn notify(&self) {
        for _ in 0..self.waiting.load(Ordering::SeqCst).max(1) {
            self.notify.notify_one();
        }
    }
}

impl Notifier {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Signal>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, name: &str) -> Arc<Signal> {
        let mut notifier = self.lock();
        if let Some(signal) = notifier.get(name) {
            return Arc::clone(signal);
        }
        Arc::clone(
            notifier
                .entry(name.to_owned())
                .or_insert_with(Signal::notified_once),
        )
    }

    /// Returns when one of these is notified, or at once when one was since the last call; never when
    /// there are none.
    pub(super) async fn notified(&self, names: impl Iterator<Item = &str>) {
        let signals: Vec<Arc<Signal>> = names.map(|name| self.of(name)).collect();
        if signals.is_empty() {
            return std::future::pending().await;
        }
        let notified = signals
            .iter()
            .map(|signal| Box::pin(signal.notified()) as Pin<Box<_>>);
        select_all(notified).await;
    }

    /// Wakes all who wait for this name, or else the next who will.
    pub(super) fn notify(&self, name: &str) {
        self.of(name).notify();
    }

    /// Notifies every signal.
    pub(super) fn notify_all(&self) {
        self.lock().values().for_each(|signal| signal.notify());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn each_name_has_its_own_signal_and_keeps_what_nobody_waited_for() {
        let notifier = Notifier::default();
        let heard =
            |names: &'static [&str]| notifier.notified(names.iter().copied()).now_or_never();
        // What came before the first wait may have been missed.
        assert!(heard(&["a"]).is_some() && heard(&["b"]).is_some());
        assert!(heard(&["a"]).is_none() && heard(&["b"]).is_none());
        notifier.notify("a");
        assert!(heard(&["b"]).is_none());
        assert!(heard(&["b", "a"]).is_some());
        notifier.notify_all();
        assert!(heard(&["a"]).is_some() && heard(&["b"]).is_some());
        assert!(heard(&["a", "b"]).is_none() && heard(&[]).is_none());
    }

    #[tokio::test]
    async fn what_was_told_to_one_that_goes_away_is_told_to_the_next() {
        let notifier = Notifier::default();
        notifier.notified(["a"].into_iter()).await;
        let mut waiting = Box::pin(notifier.notified(["a"].into_iter()));
        assert!((&mut waiting).now_or_never().is_none());
        notifier.notify("a");
        // Given up before it could look: the next one is told.
        drop(waiting);
        assert!(
            notifier
                .notified(["a"].into_iter())
                .now_or_never()
                .is_some()
        );
        assert!(
            notifier
                .notified(["a"].into_iter())
                .now_or_never()
                .is_none()
        );
    }

    #[tokio::test]
    async fn all_who_wait_are_woken_once() {
        let notifier = Notifier::default();
        notifier.notified(["a"].into_iter()).await;
        let mut first = Box::pin(notifier.notified(["a"].into_iter()));
        let mut second = Box::pin(notifier.notified(["a"].into_iter()));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        notifier.notify("a");
        assert!(first.now_or_never().is_some() && second.now_or_never().is_some());
        assert!(
            notifier
                .notified(["a"].into_iter())
                .now_or_never()
                .is_none()
        );
    }
}
