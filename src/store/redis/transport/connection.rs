//! One connection that mends itself. It is replaced after an error that a connection does not survive, a
//! time-out among them, so a black hole is left as soon as it is noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::faults::{is_no_script, needs_new_connection};
use super::server::{NodeAddr, Server};
use super::timeouts::{within, within_limit};
use crate::store::redis::scripts::{self, Script};

/// How long to wait for a connection, at most.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How long to wait for an answer. Scripts take milliseconds; a server that is silent for longer
/// is treated as gone.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// A connection to one server, made when first needed.
pub(crate) struct Connection {
    server: Arc<Server>,
    /// A node of a cluster; none for whatever the URL leads to.
    place: NodeAddr,
    /// Where the connection is served: those threads that the store was opened on, so that whoever asks
    /// may be kept from going on without keeping others from being answered.
    threads: Handle,
    /// Held while connecting, so that many callers make one connection.
    current: Mutex<Current>,
    /// How often it was tried to connect in vain.
    failures: AtomicU64,
    /// The last connection that failed. Apart from the mutex, since it is noted where nothing can
    /// be awaited: a request that is given up by its caller is one that was not answered in time.
    broken: AtomicU64,
}

/// What came of the last try to connect.
#[derive(Default)]
struct Current {
    /// Tells a connection from its successors: only the one that failed is thrown away.
    number: u64,
    connection: Option<MultiplexedConnection>,
    failure: Option<RedisError>,
}

/// Notes a connection as broken unless its request was answered.
struct Unanswered<'a> {
    broken: &'a AtomicU64,
    number: u64,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.broken.fetch_max(self.number, Ordering::Relaxed);
    }
}

impl Connection {
    pub(crate) fn new(server: Arc<Server>, place: NodeAddr, threads: Handle) -> Self {
        Self {
            server,
            place,
            threads,
            current: Mutex::default(),
            failures: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        }
    }

    async fn connection(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection
            && current.number > self.broken.load(Ordering::Relaxed)
        {
            return Ok((current.number, connection.clone()));
        }
        // Those who waited for one try do not wait for another each, one after the other.
        if let Some(failure) = &current.failure
            && self.failures.load(Ordering::Relaxed) > failures
        {
            return Err(failure.clone());
        }
        match self.connect().await {
            Ok(made) => {
                current.number += 1;
                current.connection = Some(made.clone());
                Ok((current.number, made))
            }
            Err(error) => {
                current.failure = Some(error.clone());
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let limit = within(CONNECT_LIMIT);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(ANSWER_LIMIT));
        let (server, place) = (Arc::clone(&self.server), self.place.clone());
        // Files are read and sentinels asked within the limit, too.
        let making = within_limit(limit, async move {
            let client = server.client(place.as_ref()).await?;
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        });
        let made = AbortOnDropHandle::new(self.threads.spawn(making));
        made.await.map_err(std::io::Error::other)?
    }

    /// Sends commands in one round trip. Each has an answer of its own; the error is that of the
    /// connection. When `asking`, the node is told before each of the last commands that it was sent
    /// here while its slot is still elsewhere.
    pub(crate) async fn exchange(
        &self,
        commands: &[&Cmd],
        asking: Option<usize>,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let (number, mut connection) = self.connection().await?;
        let mut pipeline = Pipeline::with_capacity(commands.len());
        pipeline.ignore_errors();
        for (index, command) in commands.iter().enumerate() {
            if asking.is_some_and(|from| index >= from) {
                pipeline.add_command(redis::cmd("ASKING")).ignore();
            }
            pipeline.add_command((*command).clone());
        }
        let unanswered = Unanswered {
            broken: &self.broken,
            number,
        };
        let answer: RedisResult<Vec<RedisResult<Value>>> =
            pipeline.query_async(&mut connection).await;
        let lost = match &answer {
            Err(_) => true,
            Ok(results) => results
                .iter()
                .any(|r| r.as_ref().is_err_and(needs_new_connection)),
        };
        if !lost {
            std::mem::forget(unanswered);
        }
        answer
    }

    /// Sends commands in one round trip; each has an answer or an error of its own. Scripts that the
    /// server does not know (any more) are loaded, and only their commands sent again.
    pub(crate) async fn answers(
        &self,
        commands: &[&Cmd],
        asking: bool,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let mut answers = self.exchange(commands, asking.then_some(0)).await?;
        let unknown: Vec<usize> = answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| answer.as_ref().is_err_and(is_no_script))
            .map(|(index, _)| index)
            .collect();
        if !unknown.is_empty() {
            let loads: Vec<Cmd> = scripts::all().into_iter().map(load).collect();
            let again = unknown.iter().map(|&index| commands[index]);
            let again: Vec<&Cmd> = loads.iter().chain(again).collect();
            let repeated = self.exchange(&again, asking.then_some(loads.len())).await?;
            for (index, answer) in unknown
                .into_iter()
                .zip(repeated.into_iter().skip(loads.len()))
            {
                answers[index] = answer;
            }
        }
        self.name_wrong_keys(commands, &mut answers).await;
        Ok(answers)
    }
}

fn load(script: &Script) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(&script.source);
    command
}
