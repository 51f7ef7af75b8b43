//! The list of queues that dqhost has used. Only operators read it.

use std::collections::HashSet;
use std::sync::PoisonError;

use redis::Cmd;

use super::transport::client::Client;
use super::{QueueName, RedisStore, StoreError, StoreResult};
use crate::store::Operation;

const NAMING: Operation = Operation::NameQueue;

impl RedisStore {
    fn registration(&self, queue: &QueueName) -> Cmd {
        let mut command = redis::cmd("SADD");
        command.arg(self.naming.queues()).arg(queue.as_str());
        command
    }

    fn is_registered(&self, queue: &QueueName) -> bool {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(queue)
    }

    /// Puts the queue into the list of queues, once a process.
    pub(super) async fn register(&self, queue: &QueueName) -> StoreResult<()> {
        if self.is_registered(queue) {
            return Ok(());
        }
        self.work.run(NAMING, &[self.registration(queue)]).await?;
        self.set_registered(queue);
        Ok(())
    }

    /// Puts the queues into the list of queues in one round trip, once a process. Those for which
    /// the server has no memory are returned.
    pub(super) async fn register_all<'q>(
        &self,
        link: &Client,
        mut queues: HashSet<&'q QueueName>,
    ) -> StoreResult<HashSet<&'q QueueName>> {
        queues.retain(|queue| !self.is_registered(queue));
        if queues.is_empty() {
            return Ok(queues);
        }
        let commands: Vec<Cmd> = queues
            .iter()
            .map(|queue| self.registration(queue))
            .collect();
        let answers = link.run_each(NAMING, &commands).await?;
        let mut without = HashSet::new();
        for (queue, answer) in queues.into_iter().zip(answers) {
            match answer {
                Ok(_) => self.set_registered(queue),
                Err(error) => match link.error(NAMING, &error) {
                    // Full, or not allowed: what goes with it is refused alone.
                    StoreError::Unusable { .. } | StoreError::Refused { .. } => {
                        without.insert(queue);
                    }
                    error @ StoreError::Unreachable { .. } => return Err(error),
                },
            }
        }
        Ok(without)
    }

    fn set_registered(&self, queue: &QueueName) {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(queue.clone());
    }
}
