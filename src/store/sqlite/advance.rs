//! Promotes what is due, takes back what leases have expired for, and dead-letters garbage.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::error::Failure;
use super::queue::{
    QueueRow, QueueTx, code, count, first_place_in, signed, unsigned, waiting_state,
};
use super::settle::{Failed, Held};
use super::transaction::TxOptions;
use crate::clock::Now;
use crate::message::{Attempt, QueueName, State};
use crate::store::{Advance, Advanced, Operation, StoreResult};

/// Messages that one step of each duty in an `advance` moves at most, so that other writers get
/// their turn within milliseconds.
const ADVANCE_STEP: usize = 500;

/// Free pages that the file keeps for what comes next.
const FREE_PAGES_KEPT: i64 = 2048;

/// What `PRAGMA auto_vacuum` says of a file that gives pages back when asked.
const INCREMENTAL: i64 = 2;

/// Pages that one `advance` gives back at most.
const PAGES_FREED_STEP: i64 = 512;

#[async_trait]
impl Advance for SqliteStore {
    async fn advance(&self, queue: &QueueName) -> StoreResult<Advanced> {
        const OPERATION: Operation = Operation::Advance;
        let clock = self.clock.clone();
        // A look first: when nothing is due, as most often, nobody is kept from writing.
        let duties = self
            .read_queue(OPERATION, queue, move |connection, row| {
                duties(connection, row, clock.now())
            })
            .await?;
        let idle = Advanced {
            waiting: duties.as_ref().is_some_and(|duties| duties.waiting),
            next_in: duties.as_ref().and_then(|duties| duties.next_in),
            ..Advanced::default()
        };
        if !duties.is_some_and(|duties| duties.now) {
            return Ok(idle);
        }
        let done = self
            .transact(OPERATION, queue, TxOptions::PASSING, advance)
            .await?;
        Ok(done.unwrap_or(idle))
    }
}

/// What there is for `advance` to do, read without keeping writers out.
pub(super) struct Duties {
    /// True when something is due now.
    pub now: bool,
    /// True when messages wait in line.
    pub waiting: bool,
    pub next_in: Option<Duration>,
}

pub(super) fn duties(
    connection: &Connection,
    row: &QueueRow,
    now: Now,
) -> rusqlite::Result<Duties> {
    let mut next: Option<u64> = None;
    for state in [State::Pending, State::Unack] {
        if row.depth(state) > 0 {
            let place = first_place_in(connection, row.id, state)?.map(unsigned);
            next = next.into_iter().chain(place).min();
        }
    }
    let due = next.is_some_and(|at_ms| at_ms <= now.ms);
    Ok(Duties {
        now: due || row.depth(State::Garbage) > 0 || pages_over(connection)? > 0,
        waiting: row.depth(State::Ready) > 0 || row.depth(State::Retry) > 0,
        next_in: next
            .map(|at_ms| Duration::from_micros(at_ms.saturating_mul(1000).saturating_sub(now.us))),
    })
}

pub(super) fn advance(tx: &mut QueueTx<'_>) -> Result<Advanced, Failure> {
    let promoted = promote(tx)?;
    after_promotion(tx, promoted)
}

pub(super) fn after_promotion(tx: &mut QueueTx<'_>, promoted: usize) -> Result<Advanced, Failure> {
    let expired = expire(tx)?;
    let dead_lettered = dead_letter(tx)?;
    let more = promoted.max(expired).max(dead_lettered) == ADVANCE_STEP;
    let Duties {
        waiting, next_in, ..
    } = duties(tx.tx, &tx.row, tx.now)?;
    let (given_back, more_pages) = give_pages_back(tx.tx)?;
    tx.smaller = given_back > 0;
    Ok(Advanced {
        promoted,
        adopted: 0,
        expired,
        dead_lettered,
        more: more || more_pages,
        waiting,
        next_in,
    })
}

/// The first of a state, up to a place: sequence numbers, and how often they have failed.
fn first_up_to(tx: &QueueTx<'_>, state: State, place: i64) -> rusqlite::Result<Vec<(i64, i64)>> {
    tx.tx
        .prepare_cached(
            "SELECT seq, failed FROM messages
             WHERE queue = ?1 AND state = ?2 AND place <= ?3 ORDER BY place, seq LIMIT ?4",
        )?
        .query_map(
            params![tx.row.id, code(state), place, signed(ADVANCE_STEP as u64)],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect()
}

/// pending -> ready, or retry for what failed before.
pub(super) fn promote(tx: &mut QueueTx<'_>) -> Result<usize, Failure> {
    if tx.row.depth(State::Pending) == 0 {
        return Ok(0);
    }
    let due = first_up_to(tx, State::Pending, signed(tx.now.ms))?;
    let mut update = tx
        .tx
        .prepare_cached("UPDATE messages SET state = ?2, place = ?3 WHERE seq = ?1")?;
    for &(seq, failed) in &due {
        let to = waiting_state(failed);
        let place = tx.last_place();
        update.execute(params![seq, code(to), place])?;
        tx.moved(Some(State::Pending), Some(to));
    }
    Ok(due.len())
}

/// unack -> retry, or garbage when no retries are left: their leases have expired.
fn expire(tx: &mut QueueTx<'_>) -> Result<usize, Failure> {
    if tx.row.depth(State::Unack) == 0 {
        return Ok(0);
    }
    let ended = first_up_to(tx, State::Unack, signed(tx.now.ms))?;
    for &(seq, failed) in &ended {
        let attempt = Attempt {
            attempt: count(failed).saturating_add(1),
            at_ms: tx.now.ms,
            class: "lease-ended".to_owned(),
            reason: "no answer before the lease ended".to_owned(),
            duration_ms: None,
            host: String::new(),
            handler: String::new(),
            log: String::new(),
        };
        let failed = Failed {
            delay: None,
            is_final: false,
            attempt: &attempt,
        };
        if let Some(held) = Held::of_expired(tx.tx, seq)? {
            held.fail(tx, &failed)?;
            tx.row.totals.expired += 1;
        }
    }
    Ok(ended.len())
}

/// garbage -> dead letter.
fn dead_letter(tx: &mut QueueTx<'_>) -> Result<usize, Failure> {
    if tx.row.depth(State::Garbage) == 0 {
        return Ok(0);
    }
    let garbage = first_up_to(tx, State::Garbage, i64::MAX)?;
    let mut update = tx
        .tx
        .prepare_cached("UPDATE messages SET state = ?2, place = ?3 WHERE seq = ?1")?;
    for &(seq, _) in &garbage {
        update.execute(params![seq, code(State::Dead), signed(tx.now.ms)])?;
        tx.moved(Some(State::Garbage), Some(State::Dead));
    }
    tx.row.totals.dead += garbage.len() as u64;
    Ok(garbage.len())
}

/// Free pages that are too many: more than are worth keeping, and most of the file. So what is moved to
/// make it smaller is less than what it gets smaller by.
fn pages_over(connection: &Connection) -> rusqlite::Result<i64> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let free = number("freelist_count")?;
    // A file that was a database before, or was rewritten by hand, may not be able to give any back.
    if free <= FREE_PAGES_KEPT || number("auto_vacuum")? != INCREMENTAL {
        return Ok(0);
    }
    let half = number("page_count")? / 2;
    Ok((free - FREE_PAGES_KEPT.max(half)).max(0))
}

/// Makes the file smaller by a step. Returns how many pages, and whether there are more.
fn give_pages_back(connection: &Connection) -> rusqlite::Result<(i64, bool)> {
    let over = pages_over(connection)?;
    let step = over.min(PAGES_FREED_STEP);
    if step > 0 {
        // It is a query that does its work row by row.
        let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({step})"))?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok((step, over > step))
}
