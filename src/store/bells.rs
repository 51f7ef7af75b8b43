//! How those who wait for a queue are woken, each queue by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select_all;
use tokio::sync::Notify;

/// A bell for each name. One that is rung while nobody waits is heard by the next who does; of several
/// who wait for the same name one is woken.
#[derive(Debug, Default)]
pub(super) struct Bells(Mutex<HashMap<String, Arc<Notify>>>);

impl Bells {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, name: &str) -> Arc<Notify> {
        let mut bells = self.lock();
        if let Some(bell) = bells.get(name) {
            return Arc::clone(bell);
        }
        Arc::clone(bells.entry(name.to_owned()).or_default())
    }

    /// Returns when one of these is rung, or at once when one was since the last call; never when
    /// there are none.
    pub(super) async fn heard(&self, names: impl Iterator<Item = &str>) {
        let bells: Vec<Arc<Notify>> = names.map(|name| self.of(name)).collect();
        if bells.is_empty() {
            return std::future::pending().await;
        }
        select_all(bells.iter().map(|bell| Box::pin(bell.notified()))).await;
    }

    /// Wakes one who waits for this name, or else the next who will.
    pub(super) fn ring(&self, name: &str) {
        self.of(name).notify_one();
    }

    /// Rings every bell that anybody has listened to.
    pub(super) fn ring_all(&self) {
        self.lock().values().for_each(|bell| bell.notify_one());
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
        assert!(heard(&["a"]).is_none() && heard(&["b"]).is_none());
        bells.ring("a");
        assert!(heard(&["b"]).is_none());
        assert!(heard(&["b", "a"]).is_some());
        bells.ring_all();
        assert!(heard(&["a"]).is_some() && heard(&["b"]).is_some());
        assert!(heard(&["a", "b"]).is_none() && heard(&[]).is_none());
    }
}
