//! How those who wait for a queue are woken, each queue by itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

/// Passes hints on to the subscriptions of a store.
#[derive(Debug, Default)]
pub(super) struct Notifier(Mutex<Vec<Subscriber>>);

#[derive(Debug)]
struct Subscriber {
    names: Vec<String>,
    signal: Weak<Signal>,
}

/// Hints about some queues, as [`Deliver::subscribe`](super::Deliver::subscribe) says. It ends when it
/// is dropped.
#[derive(Debug)]
pub struct Subscription(Arc<Signal>);

impl Subscription {
    /// Returns at the next hint, or at once if one has come since the last call. Several tasks may
    /// wait: a hint wakes all of them, or else the next that will wait. So no hint is lost between
    /// two calls, nor with a future that is dropped. The first call returns at once, since what
    /// happened before the subscription is not known.
    pub async fn notified(&self) {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.0);
        self.0.notify.notified().await;
    }

    /// Returns when a message in flight may have been taken from its host, or at once if that has happened
    /// since the last call. For one task.
    pub async fn killed(&self) {
        self.0.killed.notified().await;
    }
}

#[derive(Debug, Default)]
struct Signal {
    notify: Notify,
    waiting: AtomicUsize,
    killed: Notify,
}

/// Somebody waits as long as this is there.
struct Waiting<'a>(&'a Signal);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Signal {
    /// One by one: what was told to one that goes away without having looked is told to the next, while
    /// what all are told at once would be lost.
    fn notify(&self) {
        for _ in 0..self.waiting.load(Ordering::SeqCst).max(1) {
            self.notify.notify_one();
        }
    }
}

impl Notifier {
    fn lock(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A subscription to these names.
    pub(super) fn subscribe(&self, names: Vec<String>) -> Subscription {
        let signal = Arc::<Signal>::default();
        if !names.is_empty() {
            signal.notify();
        }
        let mut subscribers = self.lock();
        subscribers.retain(|one| one.signal.strong_count() > 0);
        subscribers.push(Subscriber {
            names,
            signal: Arc::downgrade(&signal),
        });
        Subscription(signal)
    }

    /// Notifies the subscriptions to this name.
    pub(super) fn notify(&self, name: &str) {
        self.notify_those(|subscriber| subscriber.names.iter().any(|one| one == name));
    }

    /// Notifies every subscription.
    pub(super) fn notify_all(&self) {
        self.notify_those(|_| true);
    }

    /// Tells the subscriptions to this name that a host may have lost what it has in flight.
    pub(super) fn notify_killed(&self, name: &str) {
        self.tell(
            |subscriber| subscriber.names.iter().any(|one| one == name),
            |signal| signal.killed.notify_one(),
        );
    }

    /// Tells it every subscription.
    pub(super) fn notify_all_killed(&self) {
        self.tell(|_| true, |signal| signal.killed.notify_one());
    }

    fn notify_those(&self, which: impl Fn(&Subscriber) -> bool) {
        self.tell(which, Signal::notify);
    }

    fn tell(&self, which: impl Fn(&Subscriber) -> bool, what: impl Fn(&Signal)) {
        let subscribers = self.lock();
        let signals = subscribers.iter().filter(|one| which(one));
        let signals = signals.filter_map(|one| one.signal.upgrade());
        signals.for_each(|signal| what(&signal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn subscribe(notifier: &Notifier, names: &[&str]) -> Subscription {
        notifier.subscribe(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn is_notified(subscription: &Subscription) -> bool {
        subscription.notified().now_or_never().is_some()
    }

    #[tokio::test]
    async fn each_name_has_its_own_signal_and_keeps_what_nobody_waited_for() {
        let notifier = Notifier::default();
        let [a, b] = ["a", "b"].map(|name| subscribe(&notifier, &[name]));
        let both = subscribe(&notifier, &["b", "a"]);
        // What came before the first wait may have been missed.
        assert!([&a, &b, &both].into_iter().all(is_notified));
        assert!(![&a, &b, &both].into_iter().any(is_notified));
        notifier.notify("a");
        assert!(!is_notified(&b));
        assert!(is_notified(&a) && is_notified(&both));
        notifier.notify_all();
        assert!(is_notified(&a) && is_notified(&b) && is_notified(&both));
        assert!(![&a, &b, &both].into_iter().any(is_notified));
        assert!(!is_notified(&subscribe(&notifier, &[])));
    }

    #[tokio::test]
    async fn what_was_told_to_one_that_goes_away_is_told_to_the_next() {
        let notifier = Notifier::default();
        let a = subscribe(&notifier, &["a"]);
        a.notified().await;
        let mut waiting = Box::pin(a.notified());
        assert!((&mut waiting).now_or_never().is_none());
        notifier.notify("a");
        // Given up before it could look: the next one is told.
        drop(waiting);
        assert!(is_notified(&a));
        assert!(!is_notified(&a));
    }

    #[tokio::test]
    async fn all_who_wait_are_woken_once() {
        let notifier = Notifier::default();
        let (a, other) = (subscribe(&notifier, &["a"]), subscribe(&notifier, &["a"]));
        a.notified().await;
        other.notified().await;
        let mut first = Box::pin(a.notified());
        let mut second = Box::pin(a.notified());
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        notifier.notify("a");
        assert!(first.now_or_never().is_some() && second.now_or_never().is_some());
        assert!(!is_notified(&a));
        // Another subscription is told by itself.
        assert!(is_notified(&other) && !is_notified(&other));
    }

    #[tokio::test]
    async fn a_kill_is_told_apart_and_kept_until_somebody_looks() {
        let notifier = Notifier::default();
        let [a, b] = ["a", "b"].map(|name| subscribe(&notifier, &[name]));
        let is_killed = |one: &Subscription| one.killed().now_or_never().is_some();
        assert!(is_notified(&a) && !is_killed(&a));
        notifier.notify_killed("a");
        notifier.notify_killed("a");
        assert!(!is_notified(&a) && is_killed(&a) && !is_killed(&a) && !is_killed(&b));
        notifier.notify_all_killed();
        assert!(is_killed(&a) && is_killed(&b));
        notifier.notify("a");
        assert!(is_notified(&a) && !is_killed(&a));
    }

    #[test]
    fn a_subscription_that_is_dropped_leaves_nothing() {
        let notifier = Notifier::default();
        let first = subscribe(&notifier, &["a"]);
        drop(first);
        let second = subscribe(&notifier, &["a"]);
        assert_eq!(notifier.lock().len(), 1);
        drop(second);
    }
}
