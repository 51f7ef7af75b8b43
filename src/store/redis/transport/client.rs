//! The way of commands to a server: one link, or in a cluster one to each node that has what they are
//! about. What a node did not run because it has not what is asked for is sent to the one that has.

use crate::store::timing::Timed;
use crate::store::{Operation, Side};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;

use super::cluster::{Cluster, Redirect, redirect, slot_of};
use super::connection::Connection;
use super::faults::store_error;
use super::server::{NodeAddr, Server};
use crate::store::{StoreError, StoreResult};

/// How long commands wait for a cluster that is being changed. It is less than the time limit of an
/// answer, so that renewals get theirs.
const PATIENCE: Duration = Duration::from_secs(2);

/// The first pause of that wait, and the longest.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A way to the server or the servers, with connections of its own.
pub(crate) struct Client {
    name: Arc<str>,
    to: To,
}

enum To {
    One(Connection),
    Cluster(Nodes),
}

struct Nodes {
    cluster: Arc<Cluster>,
    threads: Handle,
    /// A std mutex: nothing is awaited while it is held.
    links: Mutex<HashMap<NodeAddr, Arc<Connection>>>,
}

impl Client {
    /// To whatever the URL leads to.
    pub(crate) fn to_one(server: &Arc<Server>) -> Self {
        Self::to_node(server, None)
    }

    /// To one node of a cluster.
    pub(crate) fn to_node(server: &Arc<Server>, place: NodeAddr) -> Self {
        Self {
            name: Arc::clone(&server.name),
            to: To::One(Connection::new(
                Arc::clone(server),
                place,
                Handle::current(),
            )),
        }
    }

    pub(crate) fn to_cluster(cluster: &Arc<Cluster>) -> Self {
        Self {
            name: Arc::clone(&cluster.server.name),
            to: To::Cluster(Nodes {
                cluster: Arc::clone(cluster),
                threads: Handle::current(),
                links: Mutex::default(),
            }),
        }
    }

    /// A way to each master of a cluster; none for one server.
    pub(crate) async fn masters(&self, operation: Operation) -> StoreResult<Option<Vec<Self>>> {
        let To::Cluster(nodes) = &self.to else {
            return Ok(None);
        };
        // Brings the map up to date.
        let known = nodes.cluster.owner(Some(0)).await;
        known.map_err(|error| self.error(operation, &error))?;
        let masters = nodes.cluster.masters().into_iter();
        let server = &nodes.cluster.server;
        Ok(Some(
            masters.map(|place| Self::to_node(server, place)).collect(),
        ))
    }

    /// Sends commands in one round trip and returns their answers, or the first error among them.
    pub(crate) async fn run(
        &self,
        operation: Operation,
        commands: &[Cmd],
    ) -> StoreResult<Vec<Value>> {
        let answers = self.run_each(operation, commands).await?;
        answers
            .into_iter()
            .collect::<RedisResult<_>>()
            .map_err(|error| self.error(operation, &error))
    }

    /// Sends commands in one round trip; each has an answer or an error of its own. In a cluster their
    /// keys are in one slot.
    pub(crate) async fn run_each(
        &self,
        operation: Operation,
        commands: &[Cmd],
    ) -> StoreResult<Vec<RedisResult<Value>>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        operation.passes(Side::Before);
        let timed = Timed::begin(operation);
        let answers = match &self.to {
            To::One(link) => {
                let commands: Vec<&Cmd> = commands.iter().collect();
                link.answers(&commands, false).await
            }
            // Boxed, so that the way to one server is as short as without clusters.
            To::Cluster(nodes) => Box::pin(nodes.answers(commands)).await,
        };
        let is_ok = |answers: &Vec<RedisResult<Value>>| answers.iter().all(Result::is_ok);
        timed.end(answers.as_ref().is_ok_and(is_ok));
        operation.passes(Side::After);
        answers.map_err(|error| self.error(operation, &error))
    }

    /// What a library error means to us.
    pub(crate) fn error(&self, operation: Operation, error: &RedisError) -> StoreError {
        store_error(&self.name, operation, error)
    }
}

/// Commands that have no answer yet, by their number.
struct Open {
    answers: Vec<Option<RedisResult<Value>>>,
    /// For the owner of the slot.
    plain: Vec<usize>,
    /// For a node that the slot is on its way to.
    asks: Option<(NodeAddr, Vec<usize>)>,
    /// What comes next may come after a pause.
    waits: bool,
}

impl Nodes {
    fn link(&self, place: &NodeAddr) -> Arc<Connection> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(place) {
            return Arc::clone(link);
        }
        // Those of nodes that have gone are not needed any more.
        links.retain(|place, _| self.cluster.knows(place));
        let server = Arc::clone(&self.cluster.server);
        let link = Arc::new(Connection::new(server, place.clone(), self.threads.clone()));
        links.insert(place.clone(), Arc::clone(&link));
        link
    }

    /// As [`Connection::answers`]. A command that was redirected was not run, so it is safe to send it again.
    async fn answers(&self, commands: &[Cmd]) -> RedisResult<Vec<RedisResult<Value>>> {
        let slot = slot_of(commands);
        let end = Instant::now() + PATIENCE;
        let mut pause = PAUSE;
        let mut open = Open {
            answers: commands.iter().map(|_| None).collect(),
            plain: (0..commands.len()).collect(),
            asks: None,
            waits: false,
        };
        loop {
            let (place, numbers, asking) = if let Some((place, numbers)) = open.asks.take() {
                (Some(Arc::new(place)), numbers, true)
            } else {
                let owner = self.cluster.owner(slot).await;
                let owner = owner.or_else(|error| open.fail(error).map(|()| None))?;
                (owner, std::mem::take(&mut open.plain), false)
            };
            match place {
                Some(place) => {
                    let sent: Vec<&Cmd> = numbers.iter().map(|&at| &commands[at]).collect();
                    match self.link(&place).answers(&sent, asking).await {
                        Ok(answers) => {
                            self.take(&mut open, &place, numbers.into_iter().zip(answers));
                        }
                        Err(error) => {
                            self.cluster.mark_stale();
                            open.fail(error)?;
                        }
                    }
                }
                None => self.nobody(&mut open, numbers),
            }
            if open.is_done() || Instant::now() >= end {
                return Ok(open
                    .answers
                    .into_iter()
                    .map(|answer| answer.unwrap_or_else(|| Err(lost())))
                    .collect());
            }
            if std::mem::take(&mut open.waits) {
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Notes answers, and what is to be sent again. Each has what it was answered for an answer, in case
    /// it comes to nothing better.
    fn take(
        &self,
        open: &mut Open,
        place: &NodeAddr,
        answers: impl Iterator<Item = (usize, RedisResult<Value>)>,
    ) {
        for (number, answer) in answers {
            match answer
                .as_ref()
                .err()
                .and_then(|error| redirect(error, place))
            {
                Some(Redirect::Moved(slot, to)) => {
                    // One that sends to itself, or in a circle, is not sure itself.
                    open.waits |= to == *place || open.answers[number].is_some();
                    self.cluster.moved(slot, to);
                    open.plain.push(number);
                }
                Some(Redirect::Ask(to)) => match &mut open.asks {
                    Some((_, numbers)) => numbers.push(number),
                    none => *none = Some((to, vec![number])),
                },
                Some(Redirect::Wait) => {
                    open.waits = true;
                    open.plain.push(number);
                    // The map is asked for once: the wait may be a long one.
                    if open.answers[number].is_none() && answer.as_ref().is_err_and(is_down) {
                        self.cluster.mark_stale();
                    }
                }
                None => {
                    if answer.as_ref().is_err_and(is_stale) {
                        self.cluster.mark_stale();
                    }
                }
            }
            open.answers[number] = Some(answer);
        }
    }

    fn nobody(&self, open: &mut Open, numbers: Vec<usize>) {
        self.cluster.mark_stale();
        open.waits = true;
        for number in numbers {
            let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
            open.answers[number] = Some(Err((kind, "no node has the slot of these keys").into()));
            open.plain.push(number);
        }
    }
}

impl Open {
    fn is_done(&self) -> bool {
        self.plain.is_empty() && self.asks.is_none()
    }

    /// The connection was lost. What has been answered stays answered, and the rest fails; if nothing
    /// was answered, all fails.
    fn fail(&mut self, error: RedisError) -> RedisResult<()> {
        let is_answered =
            |answer: &Option<RedisResult<Value>>| answer.as_ref().is_some_and(Result::is_ok);
        if !self.answers.iter().any(is_answered) {
            return Err(error);
        }
        for answer in &mut self.answers {
            if !is_answered(answer) {
                *answer = Some(Err(error.clone()));
            }
        }
        self.plain.clear();
        self.asks = None;
        Ok(())
    }
}

fn lost() -> RedisError {
    (ErrorKind::Io, "no answer came").into()
}

/// It is being decided who has the slot.
fn is_down(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown)
}

/// The node is not what it was taken for.
fn is_stale(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    )
}
