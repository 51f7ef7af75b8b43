//! Reserves within the limits of a queue. What is kept of them is written in the transaction of the
//! leases; what is running is what is in unack.

use rusqlite::{Connection, params};

use super::error::Failure;
use super::fair::{self, InTurn};
use super::limit_times::{keep, kept};
use super::queue::{QueueRow, QueueTx, unsigned};
use super::{deliver, keyed};
use crate::message::State;
use crate::store::{LimitedReservation, Limits, NextAllowed, Reservation};

/// The theoretical arrival time of the rate.
const RATE: &str = "rate";

/// So long what waits counts as held back.
const UNTIL: &str = "until";

/// What waits is shown as held back for so long after a reservation that found it so: hosts reserve more
/// often. As in
/// `lua/limited_to_unack.lua`.
const SHOWN_US: u64 = 2_000_000;

/// The same of what waits for its turn: hosts whose slots are busy look every five seconds.
const SHOWN_IN_TURN_US: u64 = 10_000_000;

/// ready, retry -> unack, as many as the limits let go.
pub(super) fn reserve(
    tx: &mut QueueTx<'_>,
    wanted: Reservation,
    limits: &Limits,
) -> Result<LimitedReservation, Failure> {
    if tx.row.paused {
        return Ok(LimitedReservation::default());
    }
    if let Some(by) = &limits.by {
        let reserved = keyed::reserve(tx, wanted, limits, by)?;
        show(tx, reserved.next)?;
        return Ok(reserved);
    }
    let now_us = tx.now.us;
    let mut room = wanted.max;
    let (mut tat, mut was_cut) = (0, false);
    if let Some(rate) = limits.rate {
        let kept = kept(tx.tx, tx.row.id, RATE)?;
        tat = rate.tat_now(kept, now_us);
        // Written even if nothing goes. Else it is cut again each time, and the wait never ends.
        was_cut = kept.is_some_and(|kept| kept > tat);
        room = room.min(rate.allowed(tat, now_us));
    }
    let running_max = limits.running_max().map(u64::from);
    if let Some(max) = running_max {
        let free = max.saturating_sub(tx.row.depth(State::Unack));
        room = room.min(usize::try_from(free).unwrap_or(usize::MAX));
    }
    let max = room;
    let InTurn {
        deliveries,
        look_in,
        is_any_aside,
    } = match limits.fair_by() {
        Some(by) => {
            let weights = &limits.fair_weights;
            fair::reserve(tx, Reservation { max, ..wanted }, (by, weights))?
        }
        None => InTurn::none_but(deliver::reserve(tx, Reservation { max, ..wanted })?),
    };
    let mut next = NextAllowed::Now;
    if let Some(rate) = limits.rate {
        if was_cut || !deliveries.is_empty() {
            tat = rate.tat_after(tat, deliveries.len());
            keep(tx, RATE, tat)?;
        }
        let wait = rate.wait(tat, now_us);
        if !wait.is_zero() {
            next = NextAllowed::In(wait);
        }
    }
    let is_full = running_max.is_some_and(|max| tx.row.depth(State::Unack) >= max);
    if next == NextAllowed::Now && is_full {
        next = NextAllowed::WhenSettled;
    }
    if room >= wanted.max || (look_in.is_none() && tx.row.counts().waiting() == 0) {
        next = NextAllowed::Now;
    }
    if is_any_aside {
        keep(tx, UNTIL, now_us.saturating_add(SHOWN_IN_TURN_US))?;
    } else {
        show(tx, next)?;
    }
    if let Some(look_in) = look_in {
        next = NextAllowed::OtherKeys(Some(match next {
            NextAllowed::In(wait) => wait.min(look_in),
            _ => look_in,
        }));
    }
    Ok(LimitedReservation { deliveries, next })
}

/// Writes down for others whether a limit holds messages back.
fn show(tx: &QueueTx<'_>, next: NextAllowed) -> Result<(), Failure> {
    let wait_us = match next {
        NextAllowed::Now => {
            tx.tx
                .prepare_cached("DELETE FROM limits WHERE queue = ?1 AND name = ?2")?
                .execute(params![tx.row.id, UNTIL])?;
            return Ok(());
        }
        NextAllowed::In(wait) => u64::try_from(wait.as_micros()).unwrap_or(u64::MAX),
        NextAllowed::WhenSettled | NextAllowed::OtherKeys(_) => 0,
    };
    keep(tx, UNTIL, tx.now.us.saturating_add(wait_us.max(SHOWN_US)))
}

/// How many messages a limit holds back, as the latest reservation has found.
pub(super) fn held_back(
    connection: &Connection,
    row: &QueueRow,
    now_ms: u64,
) -> rusqlite::Result<u64> {
    if !hold_back(connection, row, now_ms)? {
        return Ok(0);
    }
    // By key, what is over a limit is set aside; else it stays in line.
    let aside: i64 = connection
        .prepare_cached("SELECT count(*) FROM limited WHERE queue = ?1")?
        .query_row([row.id], |row| row.get(0))?;
    Ok(if aside > 0 {
        unsigned(aside)
    } else {
        row.counts().waiting()
    })
}

fn hold_back(connection: &Connection, row: &QueueRow, now_ms: u64) -> rusqlite::Result<bool> {
    let until_us = kept(connection, row.id, UNTIL)?;
    Ok(until_us.is_some_and(|until_us| until_us > now_ms.saturating_mul(1000)))
}
