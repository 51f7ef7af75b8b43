//! Topics: what is sent to one goes into every queue that subscribes to it, into all of them or none.

use async_trait::async_trait;

use super::StoreResult;
use crate::message::{NewMessage, OnRepeat, QueueName, Sent, TopicName, topic};

/// What became of a topic's copies: for each queue, by name, one answer for each message.
pub type TopicSent = Vec<(QueueName, Vec<Sent>)>;

/// Names to which queues subscribe.
#[async_trait]
pub trait Topics: Send + Sync + 'static {
    /// Lets a queue have a copy of what is sent to the topic from now on. False if it had one before.
    ///
    /// Refused if the topic has [`TOPIC_QUEUES_MAX`](topic::TOPIC_QUEUES_MAX) queues, or if no single step
    /// reaches all of them.
    async fn subscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool>;

    /// Ends that. False if it had none.
    async fn unsubscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool>;

    /// All subscriptions, sorted.
    async fn subscriptions(&self) -> StoreResult<Vec<(TopicName, QueueName)>>;

    /// Puts a copy of each message into each queue that subscribes to the topic, as by
    /// [`send`](super::SendMessages::send). Returns an empty list, and sends nothing, if none does.
    ///
    /// All copies of a message have its id and the header [`TOPIC`](topic::TOPIC). They are accepted in one
    /// step: all of them or none. So a repeat after an error sends what is missing.
    ///
    /// Refused if a message has another [`NewMessage::on_repeat`] than [`OnRepeat::Ignore`].
    async fn send_to_topic(
        &self,
        topic: &TopicName,
        messages: &[NewMessage],
    ) -> StoreResult<TopicSent>;
}

/// Why messages cannot be sent to a topic.
pub(super) fn refusal(messages: &[NewMessage]) -> Option<String> {
    let changes = |message: &NewMessage| message.on_repeat != OnRepeat::Ignore;
    messages
        .iter()
        .any(changes)
        .then(|| "a message to a topic cannot replace or extend others".to_owned())
}

/// Why one more queue cannot subscribe.
pub(super) fn too_many(topic: &TopicName) -> String {
    format!(
        "topic {topic} has {} queues, and that is the most",
        topic::TOPIC_QUEUES_MAX
    )
}

/// A subscription as stores keep it: two names, which have no space.
pub(super) fn parse(text: &str) -> Option<(TopicName, QueueName)> {
    let (topic, queue) = text.split_once(' ')?;
    Some((topic.parse().ok()?, queue.parse().ok()?))
}

/// The queues of a topic, of all subscriptions.
pub(super) fn queues_of(
    topic: &TopicName,
    subscriptions: Vec<(TopicName, QueueName)>,
) -> Vec<QueueName> {
    let of_it = subscriptions.into_iter().filter(|(of, _)| of == topic);
    of_it.map(|(_, queue)| queue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_subscription_is_left_out() {
        let good = parse("orders emails").unwrap();
        assert_eq!((good.0.as_str(), good.1.as_str()), ("orders", "emails"));
        for bad in ["", "orders", "orders ", " emails", "a b c", "a\u{1b} b"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
