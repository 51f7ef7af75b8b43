//! Hears of messages that may be ready sooner than a host knows.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisResult;
use tokio::task::JoinHandle;

use super::prefetch::PayloadPrefetch;
use super::transport::cluster::Cluster;
use super::transport::server::{NodeAddr, Server};
use super::transport::timeouts::within;
use crate::store::notifier::{Notifier, Subscription};

/// How often a silent subscription is asked whether it still lives, at least.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long to wait for the answer, and for a connection at most.
const PING_LIMIT: Duration = Duration::from_secs(2);

/// The longest pause between two tries to subscribe.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is published when a message in flight was cancelled (`lua/cancel.lua`).
const KILLED: &[u8] = b"killed";

/// Where to subscribe. A cluster tells all its nodes of each publication, so any of them will do.
#[derive(Clone)]
pub(super) enum SubscriptionSource {
    One(Arc<Server>),
    Cluster(Arc<Cluster>),
}

impl SubscriptionSource {
    /// The server, and which of its nodes.
    fn choose(&self) -> (&Server, NodeAddr) {
        match self {
            Self::One(server) => (server, None),
            Self::Cluster(cluster) => (&cluster.server, cluster.anyone()),
        }
    }

    /// False for a node that has left its cluster, and is told nothing any more.
    fn is_told(&self, place: &NodeAddr) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.knows(place),
        }
    }
}

/// A subscription on a connection of its own, since a subscribed connection takes no other
/// command. It starts with the first [`Wake::subscribe`] and repairs itself.
pub(super) struct Wake {
    source: SubscriptionSource,
    notifier: Arc<Notifier>,
    prefetch: Arc<PayloadPrefetch>,
    /// The channels that are subscribed to, and the task that listens. A std mutex: nothing is
    /// awaited while it is held.
    listening: Mutex<(BTreeSet<String>, Option<JoinHandle<()>>)>,
}

impl Wake {
    /// What wake-ups name becomes a guess.
    pub(super) fn new(source: SubscriptionSource, prefetch: Arc<PayloadPrefetch>) -> Self {
        Self {
            source,
            notifier: Arc::default(),
            prefetch,
            listening: Mutex::default(),
        }
    }

    /// Where others may subscribe, too.
    pub(super) fn source(&self) -> SubscriptionSource {
        self.source.clone()
    }

    /// A subscription to publications on these channels.
    pub(super) fn subscribe(&self, channels: Vec<String>) -> Subscription {
        self.listen(&channels);
        self.notifier.subscribe(channels)
    }

    fn listen(&self, channels: &[String]) {
        let mut listening = self
            .listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (known, task) = &mut *listening;
        let before = known.len();
        for channel in channels {
            if !known.contains(channel) {
                known.insert(channel.clone());
            }
        }
        if known.len() > before {
            if let Some(task) = task.take() {
                task.abort();
            }
            let channels: Vec<String> = known.iter().cloned().collect();
            let (source, notifier) = (self.source.clone(), Arc::clone(&self.notifier));
            let prefetch = Arc::clone(&self.prefetch);
            let is_again = AtomicBool::new(false);
            let on = move |told: Told<'_>| match told {
                // What was published while nobody listened is lost: look once.
                Told::Listening => {
                    notifier.notify_all();
                    // Before it listened for the first time, this host had nothing in flight.
                    if is_again.swap(true, Ordering::Relaxed) {
                        notifier.notify_all_killed();
                    }
                }
                Told::Published(told) => {
                    if told.get_payload_bytes() == KILLED {
                        notifier.notify_killed(told.get_channel_name());
                    }
                    if let Ok(id) = std::str::from_utf8(told.get_payload_bytes()) {
                        prefetch.note(told.get_channel_name(), id);
                    }
                    notifier.notify(told.get_channel_name());
                }
                Told::Failed(_) => {}
            };
            *task = Some(tokio::spawn(async move {
                listen_forever(&source, &channels, on).await;
            }));
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let listening = self
            .listening
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = listening.1.take() {
            task.abort();
        }
    }
}

/// What a subscription brings.
pub(super) enum Told<'t> {
    /// From here on nothing is missed until the connection is lost.
    Listening,
    Published(&'t redis::Msg),
    /// It could not begin to listen, and tries again.
    Failed(redis::RedisError),
}

/// Listens to these channels, over one connection after the other.
pub(super) async fn listen_forever(
    source: &SubscriptionSource,
    channels: &[String],
    on: impl Fn(Told<'_>),
) -> Infallible {
    let mut pause = Duration::from_millis(50);
    loop {
        match listen_once(source, channels, &on).await {
            Ok(()) => pause = Duration::from_millis(50),
            Err(error) => on(Told::Failed(error)),
        }
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Listens until the connection is lost. An error means that there never was one.
async fn listen_once(
    source: &SubscriptionSource,
    channels: &[String],
    on: &impl Fn(Told<'_>),
) -> RedisResult<()> {
    let timed_out = |_| redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    let (server, place) = source.choose();
    let connecting = async {
        server
            .client(place.as_ref())
            .await?
            .get_async_pubsub()
            .await
    };
    let mut pubsub = tokio::time::timeout(within(PING_LIMIT), connecting)
        .await
        .map_err(timed_out)??;
    tokio::time::timeout(PING_LIMIT, pubsub.subscribe(channels))
        .await
        .map_err(timed_out)??;
    on(Told::Listening);
    let (mut sink, mut stream) = pubsub.split();
    loop {
        match tokio::time::timeout(within(PING_EVERY), stream.next()).await {
            Ok(Some(told)) => on(Told::Published(&told)),
            Ok(None) => return Ok(()),
            Err(_) => {
                let answer = tokio::time::timeout(PING_LIMIT, sink.ping::<redis::Value>()).await;
                if !matches!(answer, Ok(Ok(_))) || !source.is_told(&place) {
                    return Ok(());
                }
            }
        }
    }
}
