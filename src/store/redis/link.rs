//! One connection that mends itself: replaced after an error that a connection does not survive,
//! a time-out among them, so that a black hole is left as soon as it is noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, Value};
use redis::{Pipeline, ServerErrorKind};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::scripts::{self, Script};
use crate::store::{StoreError, StoreResult};
use crate::text::printable;

/// How long to wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How long to wait for an answer. Scripts take milliseconds; a server that is silent for longer
/// is treated as gone.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// A connection to one server, made when first needed.
pub(super) struct Link {
    client: Client,
    /// Where the connection is served: those threads that the store was opened on, so that whoever asks
    /// may be kept from going on without keeping others from being answered.
    threads: Handle,
    /// How errors name the server; without secrets.
    store: Arc<str>,
    /// Held while connecting, so that many callers make one connection. The number tells a
    /// connection from its successors: only the one that failed is thrown away.
    current: Mutex<(u64, Option<MultiplexedConnection>)>,
    /// The last connection that failed. Apart from the mutex, since it is noted where nothing can
    /// be awaited: a request that is given up by its caller is one that was not answered in time.
    broken: AtomicU64,
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

impl Link {
    pub(super) fn new(client: Client, store: Arc<str>) -> Self {
        Self {
            client,
            threads: Handle::current(),
            store,
            current: Mutex::new((0, None)),
            broken: AtomicU64::new(0),
        }
    }

    async fn connection(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        let mut current = self.current.lock().await;
        if let (number, Some(connection)) = &*current
            && *number > self.broken.load(Ordering::Relaxed)
        {
            return Ok((*number, connection.clone()));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(ANSWER_LIMIT));
        let client = self.client.clone();
        let making = async move {
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        let made = AbortOnDropHandle::new(self.threads.spawn(making));
        let made = made.await.map_err(std::io::Error::other)??;
        *current = (current.0 + 1, Some(made.clone()));
        Ok((current.0, made))
    }

    /// Sends commands in one round trip. Each has an answer of its own; the error is that of the
    /// connection.
    async fn exchange(&self, commands: &[&Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
        let (number, mut connection) = self.connection().await?;
        let mut pipeline = Pipeline::with_capacity(commands.len());
        pipeline.ignore_errors();
        for command in commands {
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

    /// Sends commands in one round trip and returns their answers, or the first error among them.
    pub(super) async fn run(
        &self,
        operation: &'static str,
        commands: &[Cmd],
    ) -> StoreResult<Vec<Value>> {
        let answers = self.run_each(operation, commands).await?;
        answers
            .into_iter()
            .collect::<RedisResult<_>>()
            .map_err(|error| self.error(operation, &error))
    }

    /// Sends commands in one round trip; each has an answer or an error of its own. Scripts that the
    /// server does not know (any more) are loaded, and only their commands sent again.
    pub(super) async fn run_each(
        &self,
        operation: &'static str,
        commands: &[Cmd],
    ) -> StoreResult<Vec<RedisResult<Value>>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let fail = |error: RedisError| self.error(operation, &error);
        let mut answers = self
            .exchange(&commands.iter().collect::<Vec<_>>())
            .await
            .map_err(fail)?;
        let unknown: Vec<usize> = answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| answer.as_ref().is_err_and(is_no_script))
            .map(|(index, _)| index)
            .collect();
        if !unknown.is_empty() {
            let mut again: Vec<Cmd> = scripts::all().into_iter().map(load).collect();
            let loads = again.len();
            again.extend(unknown.iter().map(|&index| commands[index].clone()));
            let repeated = self
                .exchange(&again.iter().collect::<Vec<_>>())
                .await
                .map_err(fail)?;
            for (index, answer) in unknown.into_iter().zip(repeated.into_iter().skip(loads)) {
                answers[index] = answer;
            }
        }
        Ok(answers)
    }

    /// What a library error means to us.
    pub(super) fn error(&self, operation: &'static str, error: &RedisError) -> StoreError {
        let store = self.store.to_string();
        let reason = printable(&error.to_string()).into_owned();
        match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
                StoreError::Unusable {
                    store,
                    reason: format!("{reason}; check the user and the password in its URL"),
                }
            }
            ErrorKind::Io
            | ErrorKind::Parse
            | ErrorKind::Server(
                ServerErrorKind::ReadOnly
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain,
            ) => StoreError::Unreachable {
                store,
                operation,
                reason,
            },
            ErrorKind::Client | ErrorKind::InvalidClientConfig => {
                StoreError::Unusable { store, reason }
            }
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => StoreError::Unusable {
                store,
                reason: format!("{reason}; give the user and the password in its URL"),
            },
            _ if error.code() == Some("BUSY") => StoreError::Unreachable {
                store,
                operation,
                reason,
            },
            _ => StoreError::Refused {
                store,
                operation,
                reason,
            },
        }
    }
}

/// A failover or a demotion leaves connections that answer, but not for long, or only with errors.
fn needs_new_connection(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The server's memory is full, and it did nothing of what it was asked.
pub(super) fn is_full(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

fn load(script: &Script) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(&script.source);
    command
}
