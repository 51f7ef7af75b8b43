//! Hears of messages that may be ready sooner than a host knows.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisResult;
use tokio::task::JoinHandle;

use super::cluster::{Cluster, Place};
use super::guesses::Guesses;
use super::link::within;
use super::server::Server;
use crate::store::bells::Bells;

/// How often a silent subscription is asked whether it still lives, at least.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long to wait for the answer, and for a connection at most.
const PING_LIMIT: Duration = Duration::from_secs(2);

/// The longest pause between two tries to subscribe.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Where to subscribe. A cluster tells all its nodes of each publication, so any of them will do.
#[derive(Clone)]
pub(super) enum Ear {
    One(Arc<Server>),
    Cluster(Arc<Cluster>),
}

impl Ear {
    /// The server, and which of its nodes.
    fn choose(&self) -> (&Server, Place) {
        match self {
            Self::One(server) => (server, None),
            Self::Cluster(cluster) => (&cluster.server, cluster.anyone()),
        }
    }

    /// False for a node that has left its cluster, and is told nothing any more.
    fn is_told(&self, place: &Place) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.knows(place),
        }
    }
}

/// A subscription on a connection of its own, since a subscribed connection takes no other
/// command. It starts with the first [`Wake::heard`] and mends itself.
pub(super) struct Wake {
    ear: Ear,
    bells: Arc<Bells>,
    guesses: Arc<Guesses>,
    /// The channels that are subscribed to, and the task that listens. A std mutex: nothing is
    /// awaited while it is held.
    listening: Mutex<(BTreeSet<String>, Option<JoinHandle<()>>)>,
}

impl Wake {
    /// What wake-ups name becomes a guess.
    pub(super) fn new(ear: Ear, guesses: Arc<Guesses>) -> Self {
        Self {
            ear,
            bells: Arc::default(),
            guesses,
            listening: Mutex::default(),
        }
    }

    /// Returns at the next publication on one of the channels, or at once when there was one since
    /// the last call.
    pub(super) async fn heard(&self, channels: &[String]) {
        self.listen(channels);
        self.bells.heard(channels.iter().map(String::as_str)).await;
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
            let (ear, bells) = (self.ear.clone(), Arc::clone(&self.bells));
            let guesses = Arc::clone(&self.guesses);
            *task = Some(tokio::spawn(async move {
                listen_forever(&ear, &channels, (&bells, &guesses)).await;
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

async fn listen_forever(ear: &Ear, channels: &[String], ears: (&Bells, &Guesses)) {
    let mut pause = Duration::from_millis(50);
    loop {
        if listen_once(ear, channels, ears).await.is_ok() {
            pause = Duration::from_millis(50);
        }
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Listens until the connection is lost. An error means that there never was one.
async fn listen_once(
    ear: &Ear,
    channels: &[String],
    (bells, guesses): (&Bells, &Guesses),
) -> RedisResult<()> {
    let timed_out = |_| redis::RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    let (server, place) = ear.choose();
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
    // What was published while nobody listened is lost: look once.
    bells.ring_all();
    let (mut sink, mut stream) = pubsub.split();
    loop {
        match tokio::time::timeout(within(PING_EVERY), stream.next()).await {
            Ok(Some(told)) => {
                if let Ok(id) = std::str::from_utf8(told.get_payload_bytes()) {
                    guesses.note(told.get_channel_name(), id);
                }
                bells.ring(told.get_channel_name());
            }
            Ok(None) => return Ok(()),
            Err(_) => {
                let answer = tokio::time::timeout(PING_LIMIT, sink.ping::<redis::Value>()).await;
                if !matches!(answer, Ok(Ok(_))) || !ear.is_told(&place) {
                    return Ok(());
                }
            }
        }
    }
}
