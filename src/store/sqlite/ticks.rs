//! Sends the messages of schedules.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::Failure;
use super::manage::find;
use super::queue::{QueueTx, due_ms, signed, unsigned};
use super::transaction::TxOptions;
use super::{DiskReserve, SqliteStore, dedup, send};
use crate::message::{QueueName, Sent, State};
use crate::store::common::ms;
use crate::store::{Operation, ScheduleState, SendTicks, StoreResult, Tick, TickSent};

/// What is kept of a schedule.
#[derive(Default)]
struct Kept {
    paused_ms: i64,
    resumed_ms: i64,
    skipped: i64,
    /// The id of the last tick that was sent; empty before the first.
    last: String,
}

impl Kept {
    const COLUMNS: &str = "paused_ms, resumed_ms, skipped, last";

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            paused_ms: row.get(0)?,
            resumed_ms: row.get(1)?,
            skipped: row.get(2)?,
            last: row.get(3)?,
        })
    }

    fn find(tx: &QueueTx<'_>, schedule: &str) -> rusqlite::Result<Option<Self>> {
        let columns = Self::COLUMNS;
        tx.tx
            .prepare_cached(&format!(
                "SELECT {columns} FROM schedules WHERE queue = ?1 AND name = ?2"
            ))?
            .query_row(params![tx.row.id, schedule], Self::read)
            .optional()
    }

    fn write(&self, tx: &QueueTx<'_>, schedule: &str) -> rusqlite::Result<()> {
        let columns = Self::COLUMNS;
        tx.tx
            .prepare_cached(&format!(
                "INSERT OR REPLACE INTO schedules (queue, name, {columns})
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            ))?
            .execute(params![
                tx.row.id,
                schedule,
                self.paused_ms,
                self.resumed_ms,
                self.skipped,
                self.last
            ])?;
        Ok(())
    }

    /// True while the message of the last tick is neither gone nor on its way to the dead letters.
    fn has_not_ended(&self, tx: &QueueTx<'_>) -> rusqlite::Result<bool> {
        let last = find(tx, &self.last.as_str().into())?;
        Ok(last.is_some_and(|(_, state)| !matches!(state, State::Garbage | State::Dead)))
    }
}

/// (nowhere) -> ready when already due, else -> pending. When the message is due, if it is sent.
fn send_tick(tx: &mut QueueTx<'_>, tick: &Tick) -> Result<(TickSent, Option<u64>), Failure> {
    let mut kept = Kept::find(tx, &tick.schedule)?.unwrap_or_default();
    if kept.paused_ms != 0 {
        return Ok((TickSent::Paused, None));
    }
    let Tick {
        schedule, message, ..
    } = tick;
    if dedup::is_there(tx, message.id.as_str())? || find(tx, &message.id)?.is_some() {
        return Ok((TickSent::Known, None));
    }
    if !tick.may_overlap && kept.has_not_ended(tx)? {
        let due_ms = due_ms(message.due, tx.now);
        let until_ms = due_ms.saturating_add(ms(message.dedup_window));
        dedup::keep(tx, message.id.as_str(), until_ms)?;
        kept.skipped = kept.skipped.saturating_add(1);
        kept.write(tx, schedule)?;
        return Ok((TickSent::Skipped, None));
    }
    let sent = send::send(tx, [message])?;
    if !tick.may_overlap {
        kept.last = message.id.to_string();
        kept.write(tx, schedule)?;
    }
    let due_ms = sent.first().and_then(|sent| sent.due_at_ms);
    Ok((TickSent::Sent, due_ms))
}

fn set_paused(tx: &QueueTx<'_>, schedule: &str, paused: bool) -> Result<(), Failure> {
    let found = Kept::find(tx, schedule)?;
    if let Some(found) = &found
        && (found.paused_ms != 0) == paused
    {
        return Ok(());
    }
    let mut kept = found.unwrap_or_default();
    if paused {
        kept.paused_ms = signed(tx.now.ms);
    } else {
        (kept.paused_ms, kept.resumed_ms) = (0, signed(tx.now.ms));
    }
    kept.write(tx, schedule)?;
    Ok(())
}

fn states(connection: &Connection, queue: i64) -> rusqlite::Result<Vec<ScheduleState>> {
    let columns = Kept::COLUMNS;
    let state = |row: &Row<'_>| {
        let kept = Kept::read(row)?;
        let time = |at_ms: i64| Some(unsigned(at_ms)).filter(|at_ms| *at_ms != 0);
        Ok(ScheduleState {
            name: row.get(4)?,
            paused_since_ms: time(kept.paused_ms),
            resumed_at_ms: time(kept.resumed_ms),
            skipped: unsigned(kept.skipped),
        })
    };
    connection
        .prepare_cached(&format!(
            "SELECT {columns}, name FROM schedules WHERE queue = ?1 ORDER BY name"
        ))?
        .query_map([queue], state)?
        .collect()
}

#[async_trait]
impl SendTicks for SqliteStore {
    async fn send_ticks(&self, queue: &QueueName, ticks: &[Tick]) -> StoreResult<Vec<TickSent>> {
        let mut answers = Vec::with_capacity(ticks.len());
        for tick in ticks {
            let (room, of) = (self.room.clone(), tick.clone());
            let work = move |tx: &mut QueueTx<'_>| {
                room.as_ref().map_or(Ok(()), DiskReserve::check)?;
                send_tick(tx, &of)
            };
            let done = self
                .transact(Operation::Send, queue, TxOptions::CREATE, work)
                .await?;
            // The queue is made when it is not there.
            let (answer, due_at_ms) = done.unwrap_or((TickSent::Known, None));
            let sent = Sent::new(tick.message.id.clone(), due_at_ms);
            let message = std::slice::from_ref(&tick.message);
            self.events.sent(queue, message, &[sent]);
            answers.push(answer);
        }
        Ok(answers)
    }

    async fn set_schedule_paused(
        &self,
        queue: &QueueName,
        schedule: &str,
        paused: bool,
    ) -> StoreResult<()> {
        let schedule = schedule.to_owned();
        let work = move |tx: &mut QueueTx<'_>| set_paused(tx, &schedule, paused);
        self.transact(Operation::Pause, queue, TxOptions::CREATE, work)
            .await?;
        Ok(())
    }

    async fn schedules(&self, queue: &QueueName) -> StoreResult<Vec<ScheduleState>> {
        let states = self.read_queue(Operation::List, queue, |connection, row| {
            states(connection, row.id)
        });
        Ok(states.await?.unwrap_or_default())
    }
}
