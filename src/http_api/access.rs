//! The queue and the message that a path names, and whether the client may do this with them.

use std::collections::HashMap;
use std::marker::PhantomData;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::guard::{Client, Holder};
use super::problem::Problem;
use super::tokens::{Grant, Role, Tokens};
use crate::message::{MessageId, QueueName, TopicName};
use crate::text::printable;

/// What a request needs to be allowed.
pub(super) trait Need: Send {
    const ROLE: Role;
}

/// To send messages.
pub(super) struct ToSend;
/// To look at something.
pub(super) struct ToView;
/// To change anything else.
pub(super) struct ToOperate;

impl Need for ToSend {
    const ROLE: Role = Role::Send;
}

impl Need for ToView {
    const ROLE: Role = Role::View;
}

impl Need for ToOperate {
    const ROLE: Role = Role::Operate;
}

/// A client that may do this.
pub(super) struct Allowed<N> {
    client: Client,
    need: PhantomData<fn() -> N>,
}

impl<N: Need> Allowed<N> {
    /// What its token allows; none where no tokens are needed.
    fn grant(&self) -> Option<&Grant> {
        let Client(holder) = &self.client;
        holder.as_ref().map(|holder| &*holder.grant)
    }

    /// Whether the client may do it with this queue.
    pub(super) fn covers(&self, queue: &QueueName) -> bool {
        self.grant().is_none_or(|grant| grant.covers(queue))
    }

    /// Whether the client may do it with every queue.
    pub(super) fn covers_all(&self) -> bool {
        self.grant().is_none_or(|grant| grant.queues.is_none())
    }

    /// The line of the log for what was changed.
    fn log(&self, what: &str, queue: &QueueName, id: Option<&MessageId>) {
        let client = self.grant().map_or("-", |grant| grant.name.as_str());
        let id = id.map_or("-".into(), |id| printable(id.as_str()));
        tracing::info!(%queue, %id, client, "{what} over HTTP");
    }
}

impl<N: Need, S: Send + Sync> FromRequestParts<S> for Allowed<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let client = parts.extensions.get::<Client>().cloned();
        let client = client
            .ok_or_else(|| Problem::forbidden("the connection of this request is not known"))?;
        if let Client(Some(Holder { grant, .. })) = &client
            && !grant.has_role(N::ROLE)
        {
            return Err(Problem::forbidden(format!(
                "the token of {} has not the role {}",
                grant.name,
                N::ROLE.as_str()
            )));
        }
        Ok(Self {
            client,
            need: PhantomData,
        })
    }
}

async fn names<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<HashMap<String, String>, Problem> {
    let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
    let Path(names) = path.map_err(|_| Problem::bad_request("the path is not UTF-8"))?;
    Ok(names)
}

/// A queue with which the client may do this.
pub(super) struct OfQueue<N> {
    pub queue: QueueName,
    allowed: Allowed<N>,
}

impl<N: Need> OfQueue<N> {
    pub(super) fn log(&self, what: &str) {
        self.allowed.log(what, &self.queue, None);
    }

    /// Whether the client may do it by these tokens too, which have come since its request.
    pub(super) fn holds_with(&self, tokens: &Tokens) -> bool {
        let Client(Some(Holder { token, .. })) = &self.allowed.client else {
            return false;
        };
        let grant = tokens.find(token);
        grant.is_some_and(|grant| grant.has_role(N::ROLE) && grant.covers(&self.queue))
    }
}

impl<N: Need, S: Send + Sync> FromRequestParts<S> for OfQueue<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let allowed = Allowed::<N>::from_request_parts(parts, state).await?;
        let mut names = names(parts, state).await?;
        let queue = names.remove("queue").unwrap_or_default();
        let queue: QueueName = queue
            .parse()
            .map_err(|error| Problem::bad_request(format!("{error}")))?;
        if !allowed.covers(&queue) {
            return Err(Problem::forbidden(format!(
                "the token is not for queue {queue}"
            )));
        }
        Ok(Self { queue, allowed })
    }
}

/// A topic, with which the client may do this if it may with its queues.
pub(super) struct OfTopic<N> {
    pub topic: TopicName,
    allowed: Allowed<N>,
}

impl<N: Need> OfTopic<N> {
    /// Whether the client may do it with this queue of the topic.
    pub(super) fn covers(&self, queue: &QueueName) -> bool {
        self.allowed.covers(queue)
    }
}

impl<N: Need, S: Send + Sync> FromRequestParts<S> for OfTopic<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let allowed = Allowed::<N>::from_request_parts(parts, state).await?;
        let topic = names(parts, state)
            .await?
            .remove("topic")
            .unwrap_or_default();
        let topic: TopicName = topic
            .parse()
            .map_err(|error| Problem::bad_request(format!("{error}")))?;
        Ok(Self { topic, allowed })
    }
}

/// A message of a queue with which the client may do this.
pub(super) struct OfMessage<N> {
    pub queue: QueueName,
    pub id: MessageId,
    allowed: Allowed<N>,
}

impl<N: Need> OfMessage<N> {
    pub(super) fn log(&self, what: &str) {
        self.allowed.log(what, &self.queue, Some(&self.id));
    }

    /// What is said if the queue has no such message.
    pub(super) fn unknown(&self, which: &str) -> Problem {
        Problem::not_found(format!(
            "queue {} has no {which} {}",
            self.queue,
            printable(self.id.as_str())
        ))
    }
}

impl<N: Need, S: Send + Sync> FromRequestParts<S> for OfMessage<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let OfQueue { queue, allowed } = OfQueue::<N>::from_request_parts(parts, state).await?;
        let id = names(parts, state).await?.remove("id").unwrap_or_default();
        Ok(Self {
            queue,
            id: id.into(),
            allowed,
        })
    }
}
