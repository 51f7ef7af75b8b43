//! Tells what happens by pub/sub, while a key says that somebody listens. In a cluster too: a key is asked
//! for where its queue is, and each node tells all others of a publication.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use redis::Cmd;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::inspect::command;
use super::wake::{Told, listen_forever};
use super::{EventBuffer, QueueName, RedisStore, StoreError, StoreResult};
use crate::store::events::{ANNOUNCE_EVERY, EventSender, LISTENER_TTL_MS, report_channel};
use crate::store::{EventStream, Events, Operation, ReportCounts};

const OPERATION: Operation = Operation::Events;

#[async_trait]
impl Events for RedisStore {
    fn events(&self) -> &Arc<EventBuffer> {
        &self.events
    }

    async fn listened(&self, queues: &[QueueName]) -> StoreResult<Vec<QueueName>> {
        if !self.is_cluster && queues.len() > 1 {
            // One command for all of them, as long as nobody listens.
            let mut any = redis::cmd("EXISTS");
            for queue in queues {
                any.arg(&self.keys(queue).listeners);
            }
            if self.one::<u64>(&self.work, OPERATION, any).await? == 0 {
                return Ok(Vec::new());
            }
        }
        let mut listened = Vec::new();
        for queue in queues {
            let exists = command("EXISTS", &self.keys(queue).listeners);
            if self.one::<u64>(&self.work, OPERATION, exists).await? > 0 {
                listened.push(queue.clone());
            }
        }
        Ok(listened)
    }

    async fn publish_events(&self, queue: &QueueName, batches: &[String]) -> StoreResult<()> {
        let channel = &self.keys(queue).events;
        self.publish_all(channel, batches).await
    }

    async fn report_events(&self, queue: &QueueName, counts: ReportCounts) -> StoreResult<()> {
        self.publish_all(&report_channel(queue), &counts.payloads())
            .await
    }

    fn listen(self: Arc<Self>, queues: Vec<QueueName>, delayqueue: bool) -> EventStream {
        EventStream::start(move |sender| async move {
            let error = tokio::select! {
                never = self.hear(&queues, delayqueue, &sender) => never,
                error = self.announce_when(&queues, &sender) => error,
            };
            sender.fail(error).await;
        })
    }
}

impl RedisStore {
    async fn publish_all(&self, channel: &str, payloads: &[String]) -> StoreResult<()> {
        let publish = |payload: &String| {
            let mut publish = command("PUBLISH", channel);
            publish.arg(payload);
            publish
        };
        let commands: Vec<Cmd> = payloads.iter().map(publish).collect();
        self.work.run(OPERATION, &commands).await?;
        Ok(())
    }

    /// Passes on what is published. Ends when that cannot work.
    async fn hear(
        &self,
        queues: &[QueueName],
        delayqueue: bool,
        sender: &EventSender,
    ) -> StoreError {
        let mut channels: HashMap<String, (&QueueName, bool)> = HashMap::new();
        for queue in queues {
            channels.insert(self.keys(queue).events.clone(), (queue, false));
            if delayqueue {
                channels.insert(report_channel(queue), (queue, true));
            }
        }
        let names: Vec<String> = channels.keys().cloned().collect();
        let (failed, failures) = unbounded_channel();
        let on = |told: Told<'_>| match told {
            Told::Listening => sender.listens(),
            Told::Published(told) => match channels.get(told.get_channel_name()) {
                Some((queue, true)) => sender.report(queue, told.get_payload_bytes()),
                Some((queue, false)) => sender.batch(queue, told.get_payload_bytes()),
                None => {}
            },
            Told::Failed(error) => {
                let _ = failed.send(self.work.error(OPERATION, &error));
            }
        };
        let source = self.wake.source();
        tokio::select! {
            never = listen_forever(&source, &names, on) => match never {},
            error = lasting(failures) => error,
        }
    }

    /// Says that somebody listens, as soon as that is so. Ends when it may not be said.
    async fn announce_when(&self, queues: &[QueueName], sender: &EventSender) -> StoreError {
        sender.listening().await;
        loop {
            for queue in queues {
                let mut set = command("SET", &self.keys(queue).listeners);
                set.arg(1).arg("PX").arg(LISTENER_TTL_MS);
                match self.one::<redis::Value>(&self.work, OPERATION, set).await {
                    Err(error) if !matches!(error, StoreError::Unreachable { .. }) => return error,
                    _ => {}
                }
            }
            tokio::time::sleep(ANNOUNCE_EVERY).await;
        }
    }
}

/// The first of them that does not pass by itself.
async fn lasting(mut failures: UnboundedReceiver<StoreError>) -> StoreError {
    loop {
        match failures.recv().await {
            Some(StoreError::Unreachable { .. }) => {}
            Some(error) => return error,
            None => std::future::pending().await,
        }
    }
}
