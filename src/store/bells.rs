//! How those who wait for a queue are woken, each queue by itself.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select_all;
use tokio::sync::Notify;

/// A bell for each name. One that is rung while nobody waits is heard by the next who does. A bell that
/// nobody has listened to yet counts as rung: what happened before is not known.
#[derive(Debug, Default)]
pub(super) struct Bells(Mutex<HashMap<String, Arc<Bell>>>);

#[derive(Debug)]
struct Bell {
    notify: Notify,
    waiting: AtomicUsize,
}

/// Somebody waits as long as this is there.
struct Waiting<'a>(&'a Bell);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung() -> Arc<Self> {
        let notify = Notify::new();
        notify.notify_one();
        Arc::new(Self {
            notify,
            waiting: AtomicUsize::new(0),
        })
    }

    async fn heard(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        self.notify.notified().await;
    }

    /// Wakes all who wait, or else the next who will. One by one: what was told to one that goes away
    /// without having looked is told to the next, while what all are told at once would be lost.
    fn ring(&self) {
        for _ in 0..self.waiting.load(Ordering::SeqCst).max(1) {
            self.notify.notify_one();
        }
    }
}

impl Bells {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Bell>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, name: &str) -> Arc<Bell> {
        let mut bells = self.lock();
        if let Some(bell) = bells.get(name) {
            return Arc::clone(bell);
        }
        Arc::clone(bells.entry(name.to_owned()).or_insert_with(Bell::rung))
    }

    /// Returns when one of these is rung, or at once when one was since the last call; never when
    /// there are none.
    pub(super) async fn heard(&self, names: impl Iterator<Item = &str>) {
        let bells: Vec<Arc<Bell>> = names.map(|name| self.of(name)).collect();
        if bells.is_empty() {
            return std::future::pending().await;
        }
        let heard = bells
            .iter()
            .map(|bell| Box::pin(bell.heard()) as Pin<Box<_>>);
        select_all(heard).await;
    }

    /// Wakes all who wait for this name, or else the next who will.
    pub(super) fn ring(&self, name: &str) {
        self.of(name).ring();
    }

    /// Rings every bell.
    pub(super) fn ring_all(&self) {
        self.lock().values().for_each(|bell| bell.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn each_name_has_its_own_bell_and_keeps_what_nobody_heard() {
        let bells = Bells::default();
        let heard = |names: &'static [&str]| bells.heard(names.iter().copied()).now_or_never();
        // What came before the first wait may have been missed.
        assert!(heard(&["a"]).is_some() && heard(&["b"]).is_some());
        assert!(heard(&["a"]).is_none() && heard(&["b"]).is_none());
        bells.ring("a");
        assert!(heard(&["b"]).is_none());
        assert!(heard(&["b", "a"]).is_some());
        bells.ring_all();
        assert!(heard(&["a"]).is_some() && heard(&["b"]).is_some());
        assert!(heard(&["a", "b"]).is_none() && heard(&[]).is_none());
    }

    #[tokio::test]
    async fn what_was_told_to_one_that_goes_away_is_told_to_the_next() {
        let bells = Bells::default();
        bells.heard(["a"].into_iter()).await;
        let mut heard = Box::pin(bells.heard(["a"].into_iter()));
        assert!((&mut heard).now_or_never().is_none());
        bells.ring("a");
        // Given up before it could look: the next one is told.
        drop(heard);
        assert!(bells.heard(["a"].into_iter()).now_or_never().is_some());
        assert!(bells.heard(["a"].into_iter()).now_or_never().is_none());
    }

    #[tokio::test]
    async fn all_who_wait_are_woken_once() {
        let bells = Bells::default();
        bells.heard(["a"].into_iter()).await;
        let mut first = Box::pin(bells.heard(["a"].into_iter()));
        let mut second = Box::pin(bells.heard(["a"].into_iter()));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        bells.ring("a");
        assert!(first.now_or_never().is_some() && second.now_or_never().is_some());
        assert!(bells.heard(["a"].into_iter()).now_or_never().is_none());
    }
}
