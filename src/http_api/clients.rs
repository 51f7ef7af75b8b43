//! Requests under way, in all and for each client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;

use super::listener::Peer;
use super::problem::Problem;

/// Requests under way at a time, in all and of one client.
const REQUESTS_MAX: usize = 256;
const REQUESTS_OF_ONE_MAX: usize = 128;
const UNSIGNED_OF_ONE_MAX: usize = 16;

/// Streams of events at a time, in all and of one client.
const LISTENERS_MAX: usize = 32;
const LISTENERS_OF_ONE_MAX: usize = 8;

/// Who asks: the name of a token, or where a request without one comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ClientKey {
    Token(String),
    Peer(Peer),
    /// The sender of a webhook, before its signature was seen.
    Unsigned(Peer),
}

/// What is counted, and how many there may be.
#[derive(Debug, Clone, Copy)]
struct Limits {
    what: &'static str,
    all: usize,
    of_one: usize,
    unsigned: usize,
}

impl Limits {
    fn of(self, key: &ClientKey) -> usize {
        match key {
            ClientKey::Token(_) | ClientKey::Peer(_) => self.of_one,
            ClientKey::Unsigned(_) => self.unsigned,
        }
    }
}

/// The requests under way.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    counts: Arc<Mutex<Counts>>,
    limits: Limits,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            counts: Arc::default(),
            limits: Limits {
                what: "requests",
                all: REQUESTS_MAX,
                of_one: REQUESTS_OF_ONE_MAX,
                unsigned: UNSIGNED_OF_ONE_MAX,
            },
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_client: HashMap<ClientKey, usize>,
}

/// One request, until it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay {
    clients: Clients,
    key: ClientKey,
}

impl Clients {
    /// Of those that listen to events: each takes a connection to the store.
    pub(super) fn of_listeners() -> Self {
        Self {
            counts: Arc::default(),
            limits: Limits {
                what: "streams of events",
                all: LISTENERS_MAX,
                of_one: LISTENERS_OF_ONE_MAX,
                unsigned: 0,
            },
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request, unless there are too many.
    pub(super) fn begin(&self, key: ClientKey) -> Result<UnderWay, Problem> {
        let mut counts = self.lock();
        let of_one = counts.by_client.get(&key).copied().unwrap_or(0);
        let what = self.limits.what;
        if of_one >= self.limits.of(&key) {
            return Err(Problem::try_again(
                StatusCode::TOO_MANY_REQUESTS,
                format!("{of_one} {what} of this client are under way, which is the limit"),
            ));
        }
        if counts.all >= self.limits.all {
            return Err(Problem::try_again(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{} {what} are under way, which is the limit", counts.all),
            ));
        }
        counts.all += 1;
        counts.by_client.insert(key.clone(), of_one + 1);
        drop(counts);
        Ok(UnderWay {
            clients: self.clone(),
            key,
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut counts = self.clients.lock();
        counts.all -= 1;
        if let Some(of_one) = counts.by_client.get_mut(&self.key) {
            *of_one -= 1;
            if *of_one == 0 {
                counts.by_client.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_all_and_what_ends_is_free_again() {
        let clients = Clients::default();
        let key = |name: &str| ClientKey::Token(name.to_owned());
        let begin = |name: &str| clients.begin(key(name));
        let status = |name: &str| begin(name).unwrap_err().status.as_u16();
        let mut first: Vec<UnderWay> = (0..REQUESTS_OF_ONE_MAX)
            .map(|_| begin("a").unwrap())
            .collect();
        assert_eq!(status("a"), 429);
        let others: Vec<UnderWay> = (REQUESTS_OF_ONE_MAX..REQUESTS_MAX)
            .map(|_| begin("b").unwrap())
            .collect();
        assert_eq!((status("a"), status("c")), (429, 503));
        first.pop();
        drop(begin("c").unwrap());
        drop((first, others));
        assert!(clients.lock().by_client.is_empty());
    }
}
