//! Topics: a table of subscriptions, and sends to several queues in one transaction.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::queue::{QueueTx, text};
use super::transaction::TxOptions;
use super::{DiskReserve, SqliteStore, send};
use crate::message::topic::{TOPIC_QUEUES_MAX, copy};
use crate::message::{NewMessage, QueueName, Sent, TopicName};
use crate::store::common::topic_steps;
use crate::store::topics::{TopicSent, Topics, parse, queues_of, refusal, too_many};
use crate::store::{Operation, StoreError, StoreResult};

const SUBSCRIBING: Operation = Operation::NameQueue;

#[async_trait]
impl Topics for SqliteStore {
    async fn subscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool> {
        let (of, name) = (topic.clone(), queue.clone());
        // The queue is made with it, so that it is listed.
        let work = move |tx: &mut QueueTx<'_>| {
            let queues = queues_of(&of, subscriptions(tx.tx)?);
            if queues.contains(&name) {
                return Ok(Some(false));
            }
            if queues.len() >= TOPIC_QUEUES_MAX {
                return Ok(None);
            }
            tx.tx.execute(
                "INSERT INTO topics (topic, queue) VALUES (?1, ?2)",
                params![of.as_str(), name.as_str()],
            )?;
            Ok(Some(true))
        };
        let done = self
            .transact(SUBSCRIBING, queue, TxOptions::CREATE, work)
            .await?;
        done.flatten()
            .ok_or_else(|| self.refused(SUBSCRIBING, too_many(topic)))
    }

    async fn unsubscribe_queue(&self, topic: &TopicName, queue: &QueueName) -> StoreResult<bool> {
        let (of, name) = (topic.clone(), queue.clone());
        self.transact_file(SUBSCRIBING, TxOptions::CHANGE, move |tx| {
            let removed = tx.execute(
                "DELETE FROM topics WHERE topic = ?1 AND queue = ?2",
                params![of.as_str(), name.as_str()],
            )?;
            Ok(removed == 1)
        })
        .await
    }

    async fn subscriptions(&self) -> StoreResult<Vec<(TopicName, QueueName)>> {
        self.read(Operation::ListQueues, subscriptions).await
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
        let copies: Vec<NewMessage> = messages.iter().map(|new| copy(new, topic)).collect();
        let mut sent: TopicSent = queues.iter().map(|queue| (queue.clone(), vec![])).collect();
        let Some(first) = queues.first() else {
            return Ok(sent);
        };
        for step in topic_steps(&copies, queues.len()) {
            let (step, queues, room) = (step.to_vec(), queues.clone(), self.room.clone());
            let work = move |tx: &mut QueueTx<'_>| {
                room.as_ref().map_or(Ok(()), DiskReserve::check)?;
                let of_each = queues.iter().map(|queue| {
                    let step = &step;
                    tx.with(queue, |to| send::send(to, step))
                });
                of_each.collect::<Result<Vec<Vec<Sent>>, _>>()
            };
            let done = self.transact(OPERATION, first, TxOptions::CREATE, work);
            for ((_, sent), more) in sent.iter_mut().zip(done.await?.unwrap_or_default()) {
                sent.extend(more);
            }
        }
        for (queue, sent) in &sent {
            self.events.sent(queue, &copies, sent);
        }
        Ok(sent)
    }
}

impl SqliteStore {
    fn refused(&self, operation: Operation, reason: String) -> StoreError {
        StoreError::Refused {
            store: self.name.to_string(),
            operation,
            reason,
        }
    }
}

fn subscriptions(connection: &Connection) -> rusqlite::Result<Vec<(TopicName, QueueName)>> {
    let rows: Vec<String> = connection
        .prepare_cached("SELECT topic || ' ' || queue FROM topics")?
        .query_map([], |row| text(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut found: Vec<(TopicName, QueueName)> = rows.iter().filter_map(|row| parse(row)).collect();
    found.sort();
    Ok(found)
}
