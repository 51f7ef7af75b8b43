//! The way to another store and from one.

use redis::{Cmd, Value};

use super::decode::{state, text};
use super::deliver::{is_foreign, persist};
use super::{
    BATCH_MAX, MessageId, NewMessage, Peer, QueueName, Record, RedisStore, State, StoreError,
    StoreResult, evalsha, scripts,
};
use crate::store::common::{headers_json, history_lines, import_steps};

/// "state:ms", as the scripts keep it.
fn was(record: &Record) -> String {
    let ms = record.at_ms.map_or("-1".to_owned(), |ms| ms.to_string());
    format!("{}:{ms}", record.state.as_str())
}

impl RedisStore {
    /// An answer whose first number is 0 when messages are moving to or from another store.
    async fn met(&self, operation: &'static str, command: Cmd) -> StoreResult<Vec<Value>> {
        let mut answer: Vec<Value> = self.one(&self.work, operation, command).await?;
        if matches!(answer.first(), Some(Value::Int(1))) {
            answer.remove(0);
            return Ok(answer);
        }
        let known = answer.pop().map(text).unwrap_or_default();
        Err(StoreError::Refused {
            store: self.name.to_string(),
            operation,
            reason: Peer::refusal(&known),
        })
    }

    pub(super) async fn export_messages(
        &self,
        queue: &QueueName,
        peer: &Peer,
        max: usize,
    ) -> StoreResult<Vec<Record>> {
        const OPERATION: &str = "export";
        let max = max.min(BATCH_MAX);
        if max == 0 {
            return Ok(Vec::new());
        }
        let k = self.keys(queue);
        let keys = [
            &k.ready,
            &k.retry,
            &k.pending,
            &k.garbage,
            &k.dead,
            &k.due,
            &k.moving,
            &k.moving_was,
            &k.moving_peer,
        ];
        let mut command = evalsha(&scripts::EXPORT, keys.map(String::as_str));
        command.arg(max).arg(&peer.name);
        command.arg(i32::from(peer.renamed));
        let taken = self.met(OPERATION, command).await?;
        let mut entries = Vec::with_capacity(taken.len() / 2);
        for pair in taken.chunks_exact(2) {
            let (id, was) = (text(pair[0].clone()), text(pair[1].clone()));
            let (name, ms) = was.split_once(':').unwrap_or((&was, ""));
            let state = state(name).unwrap_or(State::Garbage);
            entries.push((MessageId::from(id), state, ms.parse().ok()));
        }
        // A TTL that a delayqueue producer set must not end what is under way.
        let foreign: Vec<Cmd> = entries
            .iter()
            .filter(|(id, ..)| is_foreign(id))
            .map(|(id, ..)| persist(&k, id))
            .collect();
        if !foreign.is_empty() {
            self.work.run(OPERATION, &foreign).await?;
        }
        let mut records = self.records(&k, entries, usize::MAX >> 1).await?;
        for record in &mut records {
            let untried = record.attempts == 0 && record.state != State::Dead;
            if untried && self.has_no_budget(&k.counts, &record.id).await? {
                record.retries_left = NewMessage::RETRIES_DEFAULT;
            }
        }
        Ok(records)
    }

    /// True for a message whose producer recorded no retries. Only foreign ones are asked about.
    async fn has_no_budget(&self, counts: &str, id: &MessageId) -> StoreResult<bool> {
        if !is_foreign(id) {
            return Ok(false);
        }
        let mut command = redis::cmd("HEXISTS");
        command.arg(counts).arg(id.as_str());
        Ok(self.one::<i64>(&self.work, "export", command).await? == 0)
    }

    pub(super) async fn import_messages(
        &self,
        queue: &QueueName,
        peer: &Peer,
        records: &[Record],
    ) -> StoreResult<()> {
        self.register(queue).await?;
        let k = self.keys(queue);
        for step in import_steps(records) {
            let payloads: Vec<String> = step.iter().map(|record| k.message(&record.id)).collect();
            let fixed = [
                &k.moving,
                &k.moving_was,
                &k.moving_peer,
                &k.counts,
                &k.attempts,
                &k.headers,
                &k.history,
                &k.dead,
            ];
            let keys = fixed.into_iter().chain(&payloads).map(String::as_str);
            let mut command = evalsha(&scripts::IMPORT, keys);
            command.arg(&peer.name).arg(i32::from(peer.renamed));
            for record in step {
                add_record(&mut command, record);
            }
            self.met("import", command).await?;
        }
        Ok(())
    }

    pub(super) async fn discard_moved(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        let k = self.keys(queue);
        for step in ids.chunks(BATCH_MAX) {
            let payloads: Vec<String> = step.iter().map(|id| k.message(id)).collect();
            let fixed = [
                &k.moving,
                &k.moving_was,
                &k.moving_peer,
                &k.counts,
                &k.attempts,
                &k.due,
                &k.headers,
                &k.history,
            ];
            let keys = fixed.into_iter().chain(&payloads).map(String::as_str);
            let mut command = evalsha(&scripts::DISCARD, keys);
            for id in step {
                command.arg(id.as_str());
            }
            self.one::<i64>(&self.work, "discard", command).await?;
        }
        Ok(())
    }

    pub(super) async fn admit_moved(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        let k = self.keys(queue);
        for step in ids.chunks(BATCH_MAX) {
            let keys = [
                &k.moving,
                &k.moving_was,
                &k.moving_peer,
                &k.ready,
                &k.retry,
                &k.pending,
                &k.garbage,
                &k.dead,
                &k.due,
            ];
            let mut command = evalsha(&scripts::ADMIT, keys.map(String::as_str));
            command.arg(&k.wake);
            for id in step {
                command.arg(id.as_str());
            }
            self.one::<i64>(&self.work, "admit", command).await?;
        }
        Ok(())
    }
}

/// Appends a message as `import` takes it.
fn add_record(command: &mut Cmd, record: &Record) {
    let (failed, left) = (record.attempts, record.retries_left);
    let (count, attempts) = match record.state {
        State::Dead => (String::new(), format!("{failed}:0:{left}")),
        _ if failed == 0 => (left.to_string(), String::new()),
        _ => (left.to_string(), format!("{failed}:0")),
    };
    command
        .arg(record.id.as_str())
        .arg(was(record))
        .arg(count)
        .arg(attempts)
        .arg(headers_json(&record.headers))
        .arg(history_lines(&record.history));
    match &record.payload {
        Some(payload) => command.arg([b"+", payload.as_slice()].concat()),
        None => command.arg(""),
    };
}
