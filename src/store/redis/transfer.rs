//! The way to another store and from one.

use crate::store::Operation;
use crate::store::Transfer;
use async_trait::async_trait;
use redis::{Cmd, Value};

use super::decode::{state, text, unexpected};
use super::foreign::{is_foreign, log_dropped, persist};
use super::inspect::command;
use super::keys::Keys;
use super::{
    BATCH_MAX, MessageId, NewMessage, Peer, QueueName, Record, RedisStore, State, StoreError,
    StoreResult, scripts,
};
use crate::store::common::{OTHER_RUN, headers_json, history_lines, import_steps, third_store};
use crate::text::{cut, printable};

/// How long a mark stays that was forgotten: an audit waits for longer before it calls one an orphan.
const MARK_SECONDS: u64 = 4;

/// An id, its state, and the time that goes with that.
type Entry = (MessageId, State, Option<u64>);

/// "state:ms", as the scripts keep it.
fn previous_state(record: &Record) -> String {
    let ms = record.at_ms.map_or("-1".to_owned(), |ms| ms.to_string());
    format!("{}:{ms}", record.state.as_str())
}

#[async_trait]
impl Transfer for RedisStore {
    async fn begin_transfer(&self, queue: &QueueName, peer: &Peer) -> StoreResult<()> {
        const OPERATION: Operation = Operation::BeginTransfer;
        self.register(queue).await?;
        let k = self.keys(queue);
        let mut command = scripts::BEGIN_TRANSFER.call(&k, scripts::NO_MORE);
        command.arg(&peer.name).arg(&peer.run);
        command.arg(i32::from(peer.renamed));
        let known: String = self.one(&self.work, OPERATION, command).await?;
        if known.is_empty() {
            Ok(())
        } else {
            Err(self.refused(OPERATION, third_store(&known)))
        }
    }

    async fn export(&self, queue: &QueueName, run: &str, max: usize) -> StoreResult<Vec<Record>> {
        loop {
            let mut records = self.take_for_export(queue, run, max).await?;
            let taken = records.len();
            self.drop_empty_exports(queue, run, &mut records).await?;
            // None would mean that nothing is left.
            if !records.is_empty() || taken == 0 {
                return Ok(records);
            }
        }
    }

    async fn import(&self, queue: &QueueName, run: &str, records: &[Record]) -> StoreResult<()> {
        self.register(queue).await?;
        let k = self.keys(queue);
        for mut step in import_steps(records) {
            while !step.is_empty() {
                let done = self.import_step(&k, run, step).await?;
                step = &step[done.min(step.len())..];
            }
        }
        Ok(())
    }

    async fn remove_exported(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        self.remove_moving(queue, run, ids, false).await
    }

    async fn commit_import(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
    ) -> StoreResult<()> {
        let k = self.keys(queue);
        for step in ids.chunks(BATCH_MAX) {
            let mut command = scripts::COMMIT_IMPORT.call(&k, scripts::NO_MORE);
            command.arg(&k.wake).arg(run);
            for id in step {
                command.arg(id.as_str());
            }
            self.of_this_run(Operation::CommitImport, command).await?;
        }
        Ok(())
    }

    async fn mark(&self, queue: &QueueName, mark: &str, is_put: bool) -> StoreResult<bool> {
        let key = self.keys(queue).message(&MessageId::from(mark.to_owned()));
        let command = if is_put {
            let mut set = redis::cmd("SET");
            set.arg(key).arg("").arg("EX").arg(MARK_SECONDS);
            set
        } else {
            command("DEL", &key)
        };
        let answer: Value = self
            .one(&self.work, Operation::BeginTransfer, command)
            .await?;
        Ok(answer == Value::Int(1))
    }
}

impl RedisStore {
    pub(super) fn refused(&self, operation: Operation, reason: String) -> StoreError {
        StoreError::Refused {
            store: self.name.to_string(),
            operation,
            reason,
        }
    }

    /// Runs a script that answers 0 when another copy has begun since. Returns what it answers.
    async fn of_this_run(&self, operation: Operation, command: Cmd) -> StoreResult<usize> {
        match self.one(&self.work, operation, command).await? {
            0 => Err(self.refused(operation, OTHER_RUN.to_owned())),
            answer => Ok(answer),
        }
    }

    /// Drops ids that have neither payload nor retries: the ack of a delayqueue consumer left them.
    async fn drop_empty_exports(
        &self,
        queue: &QueueName,
        run: &str,
        records: &mut Vec<Record>,
    ) -> StoreResult<()> {
        let may_be = |record: &&Record| record.payload.is_none() && record.state != State::Dead;
        let open: Vec<MessageId> = (records.iter().filter(may_be))
            .map(|record| record.id.clone())
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        let k = self.keys(queue);
        let mut counts = redis::cmd("HMGET");
        counts.arg(&k.counts);
        for id in &open {
            counts.arg(id.as_str());
        }
        let counts: Vec<Option<Vec<u8>>> = self.one(&self.work, Operation::Export, counts).await?;
        let empty = open.into_iter().zip(counts);
        let empty: Vec<MessageId> = empty
            .filter_map(|(id, count)| count.is_none().then_some(id))
            .collect();
        if !empty.is_empty() {
            self.remove_moving(queue, run, &empty, true).await?;
            log_dropped(queue, empty.len());
            records.retain(|record| !empty.contains(&record.id));
        }
        Ok(())
    }

    /// Puts messages into moving; or returns those that are there already.
    async fn take_for_export(
        &self,
        queue: &QueueName,
        run: &str,
        max: usize,
    ) -> StoreResult<Vec<Record>> {
        const OPERATION: Operation = Operation::Export;
        let max = max.min(BATCH_MAX);
        if max == 0 {
            return Ok(Vec::new());
        }
        let k = self.keys(queue);
        let mut command = scripts::EXPORT.call(&k, scripts::NO_MORE);
        command.arg(max).arg(run);
        let taken: Vec<Value> = self.one(&self.work, OPERATION, command).await?;
        let Some((Value::Int(1), taken)) = taken.split_first() else {
            return Err(self.refused(OPERATION, OTHER_RUN.to_owned()));
        };
        let mut entries = Vec::with_capacity(taken.len() / 2);
        for pair in taken.chunks_exact(2) {
            let (id, was) = (self.nameable(&pair[0])?, text(pair[1].clone()));
            let (name, ms) = was.split_once(':').unwrap_or((&was, ""));
            let state = state(name).unwrap_or(State::Garbage);
            entries.push((MessageId::from(id), state, ms.parse().ok()));
        }
        self.persist_moving(&k, &mut entries).await?;
        // What is under a payload's key and is none must not be taken for a payload that is missing,
        // since what has been moved is removed here.
        let payloads = self
            .payload_starts(&k, &entries, usize::MAX >> 1, false)
            .await?;
        let mut records = self.records(&k, entries, payloads).await?;
        for record in &mut records {
            let untried = record.attempts == 0 && record.state != State::Dead;
            if untried && self.has_no_budget(&k.counts, &record.id).await? {
                record.retries_left = NewMessage::RETRIES_DEFAULT;
            }
        }
        Ok(records)
    }

    /// An expiry that a delayqueue producer set must not end what is under way. Takes over the exact
    /// due times that it tells.
    async fn persist_moving(&self, k: &Keys, entries: &mut [Entry]) -> StoreResult<()> {
        const OPERATION: Operation = Operation::Export;
        let foreign = entries.iter_mut().filter(|(id, ..)| is_foreign(id));
        let mut foreign: Vec<&mut Entry> = foreign.collect();
        if foreign.is_empty() {
            return Ok(());
        }
        let ids: Vec<&[u8]> = foreign
            .iter()
            .map(|(id, ..)| id.as_str().as_bytes())
            .collect();
        let command = persist(k, &ids, true);
        let answers: Vec<u64> = self.one(&self.work, OPERATION, command).await?;
        if answers.len() != foreign.len() {
            return Err(unexpected(&self.name, OPERATION));
        }
        for ((_, _, at_ms), answer) in foreign.iter_mut().zip(answers) {
            if answer > 1 {
                *at_ms = Some(answer);
            }
        }
        Ok(())
    }

    /// An id; refused when it is no text, since what cannot be named cannot be removed once it has
    /// been moved, and would be moved again for ever.
    fn nameable(&self, id: &Value) -> StoreResult<String> {
        let name = text(id.clone());
        match id {
            Value::BulkString(bytes) if *bytes == name.as_bytes() => Ok(name),
            _ => Err(self.refused(
                Operation::Export,
                format!(
                    "the id {} is no text; take that message out of the key :moving",
                    printable(&cut(&name, 80))
                ),
            )),
        }
    }

    /// True for a message whose producer recorded no retries. Only foreign ones are asked about.
    async fn has_no_budget(&self, counts: &str, id: &MessageId) -> StoreResult<bool> {
        if !is_foreign(id) {
            return Ok(false);
        }
        let mut command = redis::cmd("HEXISTS");
        command.arg(counts).arg(id.as_str());
        Ok(self
            .one::<i64>(&self.work, Operation::Export, command)
            .await?
            == 0)
    }

    /// Returns how many of them were seen to.
    async fn import_step(&self, k: &Keys, run: &str, step: &[Record]) -> StoreResult<usize> {
        let payloads: Vec<String> = step.iter().map(|record| k.message(&record.id)).collect();
        let mut command = scripts::IMPORT.call(k, &payloads);
        command.arg(run);
        for record in step {
            add_record(&mut command, record);
        }
        self.of_this_run(Operation::Import, command).await
    }

    /// Removes all of these, or drops those that have neither payload nor retries.
    async fn remove_moving(
        &self,
        queue: &QueueName,
        run: &str,
        ids: &[MessageId],
        is_drop: bool,
    ) -> StoreResult<()> {
        let k = self.keys(queue);
        for step in ids.chunks(BATCH_MAX) {
            let payloads: Vec<String> = step.iter().map(|id| k.message(id)).collect();
            let mut command = scripts::REMOVE_EXPORTED.call(&k, &payloads);
            command.arg(run).arg(u8::from(is_drop));
            for id in step {
                command.arg(id.as_str());
            }
            self.of_this_run(Operation::RemoveExported, command).await?;
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
        .arg(previous_state(record))
        .arg(count)
        .arg(attempts)
        .arg(headers_json(&record.headers))
        .arg(history_lines(&record.history));
    match &record.payload {
        Some(payload) => command.arg([b"+", payload.as_slice()].concat()),
        None => command.arg(""),
    };
}
