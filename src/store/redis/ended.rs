//! Keeps and tells how messages ended.

use std::time::Duration;

use redis::Value;

use super::decode::text;
use super::inspect::command;
use super::{MessageId, QueueName, RedisStore, StoreResult, ms, scripts};
use crate::store::{BATCH_MAX, Ended, Operation};

impl RedisStore {
    pub(super) async fn write_ended(
        &self,
        queue: &QueueName,
        ended: &[(Ended, Duration)],
        keep: usize,
    ) -> StoreResult<()> {
        if keep == 0 {
            return Ok(());
        }
        let k = self.keys(queue);
        for step in ended.chunks(BATCH_MAX) {
            let mut command = scripts::KEEP_ENDED.call(&k, scripts::NO_MORE);
            command.arg(keep);
            for (ended, ago) in step {
                command.arg(ms(*ago)).arg(ended.json());
            }
            let _kept: i64 = self.one(&self.work, Operation::KeepEnded, command).await?;
        }
        Ok(())
    }

    pub(super) async fn write_results(
        &self,
        queue: &QueueName,
        results: &[(MessageId, Vec<u8>)],
        bytes_max: usize,
    ) -> StoreResult<()> {
        if bytes_max == 0 {
            return Ok(());
        }
        let k = self.keys(queue);
        for step in results.chunks(BATCH_MAX) {
            let mut command = scripts::KEEP_RESULTS.call(&k, scripts::NO_MORE);
            command.arg(bytes_max);
            for (id, bytes) in step {
                command.arg(id.as_str()).arg(bytes);
            }
            let _kept: i64 = self.one(&self.work, Operation::KeepEnded, command).await?;
        }
        Ok(())
    }

    pub(super) async fn read_ended(
        &self,
        queue: &QueueName,
        offset: usize,
        limit: usize,
    ) -> StoreResult<Vec<Ended>> {
        let limit = limit.min(BATCH_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        // No list is so long, and Redis takes no larger number.
        let offset = offset.min(usize::MAX >> 2);
        let mut range = command("LRANGE", &self.keys(queue).ended);
        range.arg(offset).arg(offset + limit - 1);
        let lines: Vec<Value> = self.one(&self.work, Operation::List, range).await?;
        let lines = lines.into_iter();
        Ok(lines.filter_map(|line| Ended::parse(&text(line))).collect())
    }
}
