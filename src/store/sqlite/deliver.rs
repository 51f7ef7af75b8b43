//! The way of a message through a host's hands: sent, due, reserved, kept.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::dedup;
use super::error::Failure;
use super::queue::{QueueRow, QueueTx, code, count, signed, text, unsigned};
use super::settle::{Failed, Held};
use crate::clock::Now;
use crate::message::{Attempt, Claim, Delivery, Due, NewMessage, Sent, State, Token};
use crate::store::common::{headers, headers_json, ms};
use crate::store::{Advanced, BATCH_MAX, First, Reservation, Settled};

/// Messages that one step of each duty in an `advance` moves at most, so that other writers get
/// their turn within milliseconds.
const ADVANCE_STEP: usize = 500;

/// Free pages that the file keeps for what comes next.
const FREE_PAGES_KEPT: i64 = 2048;

/// What `PRAGMA auto_vacuum` says of a file that gives pages back when asked.
const INCREMENTAL: i64 = 2;

/// Pages that one `advance` gives back at most.
const PAGES_FREED_STEP: i64 = 512;

pub(super) fn send<'m>(
    tx: &mut QueueTx<'_>,
    messages: impl IntoIterator<Item = &'m NewMessage>,
) -> Result<Vec<Sent>, Failure> {
    let head = first_place_in(tx.tx, tx.row.id, State::Pending)?;
    let mut insert = tx.tx.prepare_cached(
        "INSERT INTO messages (queue, id, state, place, retries_left, headers, payload, due_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (queue, id) DO NOTHING",
    )?;
    let mut sent = Vec::new();
    for message in messages {
        let window = message.dedup_window;
        if !window.is_zero() && dedup::is_there(tx, message.id.as_str())? {
            sent.push(Sent {
                id: message.id.clone(),
                due_at_ms: None,
            });
            continue;
        }
        let due_ms = due_ms(message.due, tx.now);
        let (state, place) = if due_ms <= tx.now.ms {
            (State::Ready, tx.last_place())
        } else {
            (State::Pending, signed(due_ms))
        };
        let written = insert.execute(params![
            tx.row.id,
            message.id.as_str(),
            code(state),
            place,
            message.retries,
            headers_json(&message.headers),
            message.payload,
            (state == State::Pending).then_some(place),
        ])?;
        if written == 1 {
            tx.moved(None, Some(state));
            tx.row.totals.sent += 1;
            tx.wake |= state == State::Ready || head.is_none_or(|head| place < head);
            if !window.is_zero() {
                dedup::keep(tx, message.id.as_str(), due_ms.saturating_add(ms(window)))?;
            }
        }
        sent.push(Sent {
            id: message.id.clone(),
            due_at_ms: (written == 1).then_some(due_ms),
        });
    }
    Ok(sent)
}

pub(super) fn due_ms(due: Due, now: Now) -> u64 {
    match due {
        Due::In(Duration::ZERO) => now.ms,
        Due::In(delay) => now.ceil_ms.saturating_add(ms(delay)),
        Due::At(at_ms) => at_ms.max(now.ms),
    }
}

/// The smallest place of a state.
pub(super) fn first_place_in(
    connection: &Connection,
    queue: i64,
    state: State,
) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(
            "SELECT place FROM messages WHERE queue = ?1 AND state = ?2 ORDER BY place LIMIT 1",
        )?
        .query_row([queue, code(state)], |row| row.get(0))
        .optional()
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

pub(super) fn advance_and_reserve(
    tx: &mut QueueTx<'_>,
    wanted: Reservation,
) -> Result<(Advanced, Vec<Delivery>), Failure> {
    let promoted = promote(tx)?;
    let deliveries = reserve(tx, wanted)?;
    Ok((after_promotion(tx, promoted)?, deliveries))
}

fn after_promotion(tx: &mut QueueTx<'_>, promoted: usize) -> Result<Advanced, Failure> {
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
fn promote(tx: &mut QueueTx<'_>) -> Result<usize, Failure> {
    if tx.row.depth(State::Pending) == 0 {
        return Ok(0);
    }
    let due = first_up_to(tx, State::Pending, signed(tx.now.ms))?;
    let mut update = tx
        .tx
        .prepare_cached("UPDATE messages SET state = ?2, place = ?3 WHERE seq = ?1")?;
    for &(seq, failed) in &due {
        let to = waiting(failed);
        let place = tx.last_place();
        update.execute(params![seq, code(to), place])?;
        tx.moved(Some(State::Pending), Some(to));
    }
    Ok(due.len())
}

/// Where a message waits for a slot.
pub(super) fn waiting(failed: i64) -> State {
    if failed > 0 {
        State::Retry
    } else {
        State::Ready
    }
}

/// unack -> retry, or garbage when no retries are left: their leases have ended.
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

/// Free pages that are too many: more than are worth keeping, and most of the file, so that what is
/// moved to make it smaller is less than what it gets smaller by.
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

/// ready, retry -> unack.
pub(super) fn reserve(tx: &mut QueueTx<'_>, wanted: Reservation) -> Result<Vec<Delivery>, Failure> {
    if tx.row.paused {
        return Ok(Vec::new());
    }
    let states = match wanted.first {
        First::Ready => [State::Ready, State::Retry],
        First::Retry => [State::Retry, State::Ready],
    };
    let lease_end = signed(tx.now.ceil_ms.saturating_add(ms(wanted.lease)));
    let max = wanted.max.min(BATCH_MAX);
    let mut deliveries = Vec::new();
    for from in states {
        if deliveries.len() == max || tx.row.depth(from) == 0 {
            continue;
        }
        let found = in_line(tx, from, max - deliveries.len())?;
        let mut update = tx.tx.prepare_cached(
            "UPDATE messages SET state = 4, place = ?2, token = ?3 WHERE seq = ?1",
        )?;
        for (seq, mut delivery) in found {
            let token = tx.next_token();
            update.execute(params![seq, lease_end, token])?;
            tx.moved(Some(from), Some(State::Unack));
            delivery.claim.token = Token(format!("{seq}/{token}"));
            deliveries.push(delivery);
        }
    }
    Ok(deliveries)
}

/// The first in line of a state, with their sequence numbers; without tokens yet.
fn in_line(tx: &QueueTx<'_>, state: State, limit: usize) -> rusqlite::Result<Vec<(i64, Delivery)>> {
    tx.tx
        .prepare_cached(
            "SELECT seq, id, payload, headers, failed, retries_left, due_ms FROM messages
             WHERE queue = ?1 AND state = ?2 ORDER BY place, seq LIMIT ?3",
        )?
        .query_map(
            params![tx.row.id, code(state), signed(limit as u64)],
            |row| {
                let attempt = count(row.get(4)?).saturating_add(1);
                let delivery = Delivery {
                    claim: Claim {
                        id: text(row, 1)?.into(),
                        token: Token(String::new()),
                    },
                    payload: row.get(2)?,
                    headers: headers(&text(row, 3)?),
                    attempt,
                    attempts_max: attempt.saturating_add(count(row.get(5)?)),
                    due_at_ms: row.get::<_, Option<i64>>(6)?.map(unsigned),
                };
                Ok((row.get(0)?, delivery))
            },
        )?
        .collect()
}

/// unack -> unack, with a later end.
pub(super) fn extend(
    tx: &mut QueueTx<'_>,
    claims: &[Claim],
    lease: Duration,
) -> Result<Vec<Settled>, Failure> {
    let lease_end = signed(tx.now.ceil_ms.saturating_add(ms(lease)));
    let mut update = tx
        .tx
        .prepare_cached("UPDATE messages SET place = ?2 WHERE seq = ?1")?;
    let mut seen = HashSet::new();
    let mut answers = Vec::with_capacity(claims.len());
    for claim in claims {
        // As in Redis: what is named twice counts once.
        let held = Held::by(tx, claim)?.filter(|held| seen.insert(held.seq));
        answers.push(match held {
            Some(held) => {
                update.execute(params![held.seq, lease_end])?;
                Settled::Done
            }
            None => Settled::LeaseLost,
        });
    }
    Ok(answers)
}
