//! Topics: a set of subscriptions for each prefix, and a script that sends to several queues in one step.

use async_trait::async_trait;
use redis::{Cmd, Value};

use super::args::add_message;
use super::decode::{text, unexpected};
use super::settle::target;
use super::{NewMessage, QueueName, RedisStore, Sent, StoreResult, scripts};
use crate::message::TopicName;
use crate::message::topic::{TOPIC_QUEUES_MAX, copy};
use crate::store::Operation;
use crate::store::common::topic_steps;
use crate::store::topics::{TopicSent, Topics, parse, queues_of, refusal, too_many};

const SUBSCRIBING: Operation = Operation::NameQueue;

#[async_trait]
impl Topics for RedisStore {
    async fn subscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool> {
        let mut queues = queues_of(topic, self.subscriptions().await?);
        if queues.contains(queue) {
            return Ok(false);
        }
        if queues.len() >= TOPIC_QUEUES_MAX {
            return Err(self.refused(SUBSCRIBING, too_many(topic)));
        }
        queues.push(queue.clone());
        self.check_reach(SUBSCRIBING, topic, &queues)?;
        self.register(queue).await?;
        let added: i64 = self.subscription("SADD", topic, queue).await?;
        Ok(added == 1)
    }

    async fn unsubscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool> {
        let removed: i64 = self.subscription("SREM", topic, queue).await?;
        Ok(removed == 1)
    }

    async fn subscriptions(&self) -> StoreResult<Vec<(TopicName, QueueName)>> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(self.naming.topics());
        let found: Vec<Value> = self.one(&self.work, Operation::ListQueues, command).await?;
        let found = found.into_iter().filter_map(|member| parse(&text(member)));
        let mut found: Vec<(TopicName, QueueName)> = found.collect();
        found.sort();
        Ok(found)
    }

    async fn send_to_topic(
        &self,
        topic: &TopicName,
        messages: &[NewMessage],
    ) -> StoreResult<TopicSent> {
        const OPERATION: Operation = Operation::Send;
        if let Some(why) = refusal(messages) {
            return Err(self.refused(OPERATION, why));
        }
        let queues = queues_of(topic, self.subscriptions().await?);
        self.check_reach(OPERATION, topic, &queues)?;
        for queue in &queues {
            self.register(queue).await?;
        }
        let copies: Vec<NewMessage> = messages.iter().map(|new| copy(new, topic)).collect();
        let mut sent: TopicSent = queues.iter().map(|queue| (queue.clone(), vec![])).collect();
        if queues.is_empty() {
            return Ok(sent);
        }
        for step in topic_steps(&copies, queues.len()) {
            let command = self.send_to_each(&queues, step);
            let answers: Vec<Vec<i64>> = self.one(&self.work, OPERATION, command).await?;
            let is_whole = answers.iter().all(|dues| dues.len() == step.len());
            if answers.len() != queues.len() || !is_whole {
                return Err(unexpected(&self.name, OPERATION));
            }
            for ((_, sent), dues) in sent.iter_mut().zip(answers) {
                sent.extend(step.iter().zip(dues).map(|(message, due)| {
                    let due_at_ms = u64::try_from(due).ok().filter(|due| *due != 0);
                    Sent::new(message.id.clone(), due_at_ms)
                }));
            }
        }
        for (queue, sent) in &sent {
            self.events.sent(queue, &copies, sent);
        }
        Ok(sent)
    }
}

impl RedisStore {
    async fn subscription(
        &self,
        command: &str,
        topic: &TopicName,
        queue: &QueueName,
    ) -> StoreResult<i64> {
        let mut command = redis::cmd(command);
        command
            .arg(self.naming.topics())
            .arg(format!("{topic} {queue}"));
        self.one(&self.work, SUBSCRIBING, command).await
    }

    fn send_to_each(&self, queues: &[QueueName], step: &[NewMessage]) -> Cmd {
        let keys: Vec<_> = queues.iter().map(|queue| self.keys(queue)).collect();
        let payloads: Vec<Vec<String>> = keys
            .iter()
            .map(|to| step.iter().map(|new| to.message(&new.id)).collect())
            .collect();
        let mut given = Vec::new();
        for (to, payloads) in keys.iter().zip(&payloads) {
            given.extend(target(to));
            given.extend(payloads);
        }
        let mut command = scripts::SEND_TO_EACH.call(&keys[0], &given);
        for to in &keys {
            command.arg(&to.wake).arg(step.len());
            for message in step {
                add_message(&mut command, message, "");
            }
        }
        command
    }

    /// Refuses what no script can reach. In a cluster the keys of a queue are in the slot of its hash tag, and
    /// no two queues have the same tag.
    fn check_reach(
        &self,
        operation: Operation,
        topic: &TopicName,
        queues: &[QueueName],
    ) -> StoreResult<()> {
        let [first, second, ..] = queues else {
            return Ok(());
        };
        if !self.is_cluster {
            return Ok(());
        }
        Err(self.refused(
            operation,
            format!(
                "in a cluster one step reaches the keys of one hash tag only, and the queues {first} and \
                 {second} of topic {topic} have two; keep the topic to one queue, or send to each queue"
            ),
        ))
    }
}
