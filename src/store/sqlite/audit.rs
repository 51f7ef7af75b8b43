//! Finds and repairs inconsistencies in the file. The schema forbids most of them, so they come from
//! another program that has written to the file, or from the disk.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use self::rows::{Repaired, Row};
use super::SqliteStore;
use super::error::Failure;
use super::queue::{QueueRow, QueueTx, state};
use super::transaction::TxOptions;
use crate::message::{QueueName, State};
use crate::store::report::Remedy;
use crate::store::{Audit, AuditQueues, AuditReport, FindingKind, Operation, StoreResult};

mod file;
mod rows;

const OPERATION: Operation = Operation::Audit;

/// Rows that one look reads.
const PAGE: i64 = 1000;

/// Rows that one transaction repairs.
const STEP: usize = 100;

/// The states, in the order in which their depths are kept.
fn states() -> impl Iterator<Item = State> {
    (2..=8).map(state)
}

/// How many messages are in each state. By an index alone: 1,000,000 rows take about 60 ms.
fn counted(connection: &Connection, queue: i64) -> rusqlite::Result<[i64; 7]> {
    let mut depths = [0; 7];
    let mut query = connection.prepare_cached(
        "SELECT state, count(*) FROM messages INDEXED BY messages_in_line
         WHERE queue = ?1 AND state BETWEEN 2 AND 8 GROUP BY state",
    )?;
    let mut rows = query.query([queue])?;
    while let Some(row) = rows.next()? {
        let place = usize::try_from(row.get::<_, i64>(0)? - 2).unwrap_or(0);
        depths[place] = row.get(1)?;
    }
    Ok(depths)
}

/// What is not right about the depths that are kept, in words.
fn wrong_depths(row: &QueueRow, counted: [i64; 7]) -> Vec<String> {
    states()
        .zip(row.depths().into_iter().zip(counted))
        .filter(|(_, (kept, there))| kept != there)
        .map(|(state, (kept, there))| format!("{}: {kept} noted, {there} there", state.as_str()))
        .collect()
}

/// Counts the messages of a queue anew. Nobody else writes meanwhile, so this is done only when a look
/// has shown that it is needed.
fn repair_depths(tx: &mut QueueTx<'_>) -> Result<Vec<String>, Failure> {
    let counted = counted(tx.tx, tx.row.id)?;
    let wrong = wrong_depths(&tx.row, counted);
    tx.row.set_depths(counted);
    Ok(wrong)
}

/// A page of the rows that are to be looked at: the last number of it, none when there are no more,
/// and what is wrong in it.
type Page = (Option<i64>, Vec<(i64, Repaired)>);

fn page(connection: &Connection, queue: i64, after: i64, now_ms: u64) -> rusqlite::Result<Page> {
    let last: Option<i64> = connection
        .prepare_cached(
            "SELECT max(seq) FROM (SELECT seq FROM messages WHERE seq > ?1 ORDER BY seq LIMIT ?2)",
        )?
        .query_row([after, PAGE], |row| row.get(0))?;
    let Some(last) = last else {
        return Ok((None, Vec::new()));
    };
    // The plus keeps SQLite from an index that would not be in this order.
    let mut query = connection.prepare_cached(&format!(
        "SELECT {} FROM messages WHERE seq > ?1 AND seq <= ?2 AND +queue = ?3 ORDER BY seq",
        rows::COLUMNS
    ))?;
    let mut rows = query.query([after, last, queue])?;
    let mut wrong = Vec::new();
    while let Some(row) = rows.next()? {
        let row = Row::read(row)?;
        if let Some(repaired) = row.repaired(now_ms) {
            wrong.push((row.seq, repaired));
        }
    }
    Ok((Some(last), wrong))
}

/// Mends a row, if anything is still wrong with it.
fn repair_row(tx: &mut QueueTx<'_>, seq: i64) -> Result<Option<Repaired>, Failure> {
    let row = tx
        .tx
        .prepare_cached(&format!(
            "SELECT {} FROM messages WHERE seq = ?1 AND queue = ?2",
            rows::COLUMNS
        ))?
        .query_row([seq, tx.row.id], Row::read)
        .optional()?;
    let Some((row, repaired)) = row.and_then(|row| {
        let repaired = row.repaired(tx.now.ms)?;
        Some((row, repaired))
    }) else {
        return Ok(None);
    };
    if repaired.remedy == Remedy::InFlight {
        return Ok(Some(repaired));
    }
    let new = &repaired.row;
    tx.tx
        .prepare_cached(
            "UPDATE messages SET state = ?2, place = ?3, was = ?4, due_ms = ?5, failed = ?6,
             retries_left = ?7, headers = ?8, history = ?9 WHERE seq = ?1",
        )?
        .execute(params![
            seq,
            new.state,
            new.place,
            new.was,
            new.due_ms,
            new.failed,
            new.retries_left,
            String::from_utf8_lossy(&new.headers),
            String::from_utf8_lossy(&new.history),
        ])?;
    if row.state != new.state {
        let known = |code: i64| (2..=8).contains(&code).then(|| state(code));
        tx.moved(known(row.state), known(new.state));
    }
    if repaired.remedy == Remedy::DeadLettered {
        tx.row.totals.dead += 1;
    }
    Ok(Some(repaired))
}

/// One transaction on the whole file that mends a queue's row.
fn repair_queue_row(tx: &Transaction<'_>, queue: i64) -> Result<(), Failure> {
    file::adopt(tx, queue, counted(tx, queue)?)
}

#[async_trait]
impl AuditQueues for SqliteStore {
    async fn audit(&self, queue: &QueueName, how: Audit) -> StoreResult<AuditReport> {
        self.audit_queue(queue, how.repair).await
    }

    async fn audit_store(&self, repair: bool) -> StoreResult<AuditReport> {
        self.audit_file(repair).await
    }
}

impl SqliteStore {
    pub(super) async fn audit_file(&self, repair: bool) -> StoreResult<AuditReport> {
        let mut report = AuditReport::default();
        for damage in self.read(OPERATION, file::damage).await? {
            report.add(FindingKind::Damaged, &damage, Remedy::None);
        }
        if !report.0.is_empty() {
            return Ok(report);
        }
        for unknown in self.read(OPERATION, file::unknown_queues).await? {
            let mut remedy = Remedy::None;
            if repair {
                let queue = unknown.queue;
                let mend = move |tx: &Transaction<'_>| repair_queue_row(tx, queue);
                self.transact_file(OPERATION, TxOptions::CHANGE, mend)
                    .await?;
                remedy = Remedy::Repaired;
            }
            report.add(FindingKind::UnknownQueue, &unknown.to_string(), remedy);
        }
        Ok(report)
    }

    pub(super) async fn audit_queue(
        &self,
        queue: &QueueName,
        repair: bool,
    ) -> StoreResult<AuditReport> {
        let mut report = AuditReport::default();
        self.audit_depths(queue, repair, &mut report).await?;
        let mut after = i64::MIN;
        loop {
            let clock = self.clock.clone();
            let look = move |connection: &Connection, row: &QueueRow| {
                page(connection, row.id, after, clock.now().ms)
            };
            let Some((Some(last), wrong)) = self.read_queue(OPERATION, queue, look).await? else {
                return Ok(report);
            };
            self.note_rows(queue, repair, wrong, &mut report).await?;
            after = last;
        }
    }

    async fn audit_depths(
        &self,
        queue: &QueueName,
        repair: bool,
        report: &mut AuditReport,
    ) -> StoreResult<()> {
        let look = |connection: &Connection, row: &QueueRow| {
            Ok(wrong_depths(row, counted(connection, row.id)?))
        };
        let mut wrong = self.read_queue(OPERATION, queue, look).await?;
        let mut remedy = Remedy::None;
        if repair && wrong.as_ref().is_some_and(|wrong| !wrong.is_empty()) {
            let options = TxOptions::CHANGE;
            wrong = self
                .transact(OPERATION, queue, options, repair_depths)
                .await?;
            remedy = Remedy::Repaired;
        }
        for depth in wrong.unwrap_or_default() {
            report.add(FindingKind::WrongDepth, &depth, remedy);
        }
        Ok(())
    }

    /// Notes what is wrong in some rows, once it is repaired if it is to be.
    async fn note_rows(
        &self,
        queue: &QueueName,
        repair: bool,
        wrong: Vec<(i64, Repaired)>,
        report: &mut AuditReport,
    ) -> StoreResult<()> {
        for step in wrong.chunks(STEP) {
            let mut noted: Vec<Repaired> =
                step.iter().map(|(_, repaired)| repaired.clone()).collect();
            if repair {
                let seqs: Vec<i64> = step.iter().map(|(seq, _)| *seq).collect();
                let mend = move |tx: &mut QueueTx<'_>| {
                    let each = seqs.into_iter().map(|seq| repair_row(tx, seq));
                    each.collect::<Result<Vec<_>, _>>()
                };
                let done = self
                    .transact(OPERATION, queue, TxOptions::CHANGE, mend)
                    .await?;
                noted = done.into_iter().flatten().flatten().collect();
            }
            for repaired in noted {
                let remedy = match repaired.remedy {
                    Remedy::InFlight => Remedy::InFlight,
                    _ if !repair => Remedy::None,
                    remedy => remedy,
                };
                let id = String::from_utf8_lossy(&repaired.row.id);
                report.add(repaired.kind, &id, remedy);
            }
        }
        Ok(())
    }
}
