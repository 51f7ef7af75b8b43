//! Keeps the list of hosts that serve a queue.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value};

use super::decode::{decode, score_ms, text, unexpected};
use super::inspect::{command, unix_ms};
use super::{RedisStore, scripts};
use crate::message::{DELAY_MS_MAX, QueueName};
use crate::store::common::ms;
use crate::store::{HostInfo, Hosts, Operation, SeenHost, StoreResult};

#[async_trait]
impl Hosts for RedisStore {
    async fn heartbeat(
        &self,
        queue: &QueueName,
        host: &HostInfo,
        silence: Duration,
    ) -> StoreResult<()> {
        self.register(queue).await?;
        let info = serde_json::json!(host).to_string();
        let command = self.beat(queue, &host.id, &info, silence);
        let (_, repeats): (i64, i64) = self.one(&self.work, Operation::Heartbeat, command).await?;
        if repeats > 0 {
            self.after_runs(Operation::Heartbeat, queue, Vec::new())
                .await;
        }
        Ok(())
    }

    async fn leave(&self, queue: &QueueName, host_id: &str) -> StoreResult<()> {
        // It says nothing of others, however long they have been silent.
        let nobody = Duration::from_millis(DELAY_MS_MAX);
        let command = self.beat(queue, host_id, "", nobody);
        self.one::<(i64, i64)>(&self.work, Operation::Leave, command)
            .await?;
        Ok(())
    }

    async fn hosts(&self, queue: &QueueName, silence: Duration) -> StoreResult<Vec<SeenHost>> {
        const OPERATION: Operation = Operation::ListHosts;
        let k = self.keys(queue);
        let mut beats = command("ZRANGE", &k.hosts);
        beats.arg(0).arg(-1).arg("WITHSCORES");
        let commands = [redis::cmd("TIME"), beats, command("HGETALL", &k.hosts_info)];
        let answers = self.work.run(OPERATION, &commands).await?;
        let [time, beats, infos] =
            <[Value; 3]>::try_from(answers).map_err(|_| unexpected(&self.name, OPERATION))?;
        let now_ms = unix_ms(decode(&self.name, OPERATION, time)?);
        let since = now_ms.saturating_sub(ms(silence));
        let beats: Vec<(Value, Value)> = decode(&self.name, OPERATION, beats)?;
        let infos: Vec<(Value, Value)> = decode(&self.name, OPERATION, infos)?;
        let infos: HashMap<String, String> = infos
            .into_iter()
            .map(|(id, info)| (text(id), text(info)))
            .collect();
        let seen = |(id, beat): (Value, Value)| {
            let at_ms = score_ms(&text(beat)).filter(|at_ms| *at_ms >= since)?;
            Some(SeenHost {
                info: serde_json::from_str(infos.get(&text(id))?).ok()?,
                seen_ms_ago: now_ms.saturating_sub(at_ms),
            })
        };
        let mut hosts: Vec<SeenHost> = beats.into_iter().filter_map(seen).collect();
        hosts.sort_by(|a, b| a.info.id.cmp(&b.info.id));
        Ok(hosts)
    }
}

impl RedisStore {
    fn beat(&self, queue: &QueueName, host_id: &str, info: &str, silence: Duration) -> Cmd {
        let k = self.keys(queue);
        let mut command = scripts::HEARTBEAT.call(&k, scripts::NO_MORE);
        command.arg(host_id).arg(info).arg(ms(silence));
        command
    }
}
