//! Sends that change what is there under their id, and repeats that wait for the end of a run.
//!
//! A repeat of a message that runs is kept in a table of its own. It takes effect in the transaction that ends the
//! run, however that ends, so a crash leaves both or neither.

use rusqlite::{OptionalExtension, Row, params};

use super::error::Failure;
use super::queue::{
    QueueTx, code, due_ms, first_place_in, signed, state, text, unsigned, waiting_state,
};
use crate::message::repeat::{bounded_due, first_sent_ms, with_first_sent, without_first_sent};
use crate::message::{Headers, NewMessage, OnRepeat, SendOutcome, Sent, State, expiry};
use crate::store::common::{headers, headers_json, ms};

/// Repeats that take effect in one transaction at most; the rest do so in the next that ends a run.
const AFTER_RUNS_MAX: i64 = 1000;

/// A send that may change what is there.
struct Change {
    id: String,
    /// It takes the place of what is there; else it moves that.
    replaces: bool,
    due_ms: u64,
    max_wait_ms: Option<u64>,
    /// When it was sent, if that is not now.
    first_ms: Option<u64>,
    retries: u32,
    /// Without the time of the first send.
    headers: Headers,
    payload: Vec<u8>,
}

impl Change {
    fn of(message: &NewMessage, tx: &QueueTx<'_>) -> Self {
        Self {
            id: message.id.to_string(),
            replaces: matches!(message.on_repeat, OnRepeat::Replace { .. }),
            due_ms: due_ms(message.due, tx.now),
            max_wait_ms: message.on_repeat.max_wait().map(ms),
            first_ms: None,
            retries: message.retries,
            headers: without_first_sent(
                expiry::resolved(&message.headers, tx.now.ceil_ms).into_owned(),
            ),
            payload: message.payload.clone(),
        }
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: text(row, 0)?,
            replaces: row.get(1)?,
            due_ms: row.get(2).map(unsigned)?,
            max_wait_ms: row.get::<_, Option<i64>>(3)?.map(unsigned),
            first_ms: Some(row.get(4).map(unsigned)?),
            retries: u32::try_from(row.get::<_, i64>(5)?).unwrap_or(0),
            headers: headers(&text(row, 6)?),
            payload: row.get(7)?,
        })
    }

    /// When it was sent.
    fn sent_ms(&self, tx: &QueueTx<'_>) -> u64 {
        self.first_ms.unwrap_or(tx.now.ms).min(tx.now.ms)
    }

    /// When what is there was sent first, for whom it is known: a repeat that waited for a run counts from its own
    /// first send.
    fn first_sent(&self, known: Option<u64>, tx: &QueueTx<'_>) -> u64 {
        match (self.first_ms, known) {
            (None, Some(known)) => known,
            _ => self.sent_ms(tx),
        }
    }

    /// When the message is due that was sent first at this time.
    fn due_since(&self, first_ms: u64, tx: &QueueTx<'_>) -> u64 {
        bounded_due(self.due_ms, first_ms, self.max_wait_ms, tx.now.ms)
    }

    fn done(&self, outcome: SendOutcome, due_ms: u64) -> Sent {
        Sent {
            id: self.id.as_str().into(),
            due_at_ms: Some(due_ms),
            outcome,
        }
    }
}

/// What is there under an id.
struct Found {
    seq: i64,
    state: State,
    failed: i64,
    headers: Headers,
    /// There is no payload.
    is_missing: bool,
}

fn find(tx: &QueueTx<'_>, id: &str) -> rusqlite::Result<Option<Found>> {
    tx.tx
        .prepare_cached(
            "SELECT seq, state, failed, headers, payload IS NULL FROM messages
             WHERE queue = ?1 AND id = ?2",
        )?
        .query_row(params![tx.row.id, id], |row| {
            Ok(Found {
                seq: row.get(0)?,
                state: state(row.get(1)?),
                failed: row.get(2)?,
                headers: headers(&text(row, 3)?),
                is_missing: row.get(4)?,
            })
        })
        .optional()
}

/// (nowhere) -> ready when already due, else -> pending; pending, ready, retry, garbage, dead letter ->
/// pending, ready or retry. What runs stays, and the repeat waits until the run has ended.
pub(super) fn send_or_change(tx: &mut QueueTx<'_>, message: &NewMessage) -> Result<Sent, Failure> {
    let change = Change::of(message, tx);
    accept(tx, change)
}

fn accept(tx: &mut QueueTx<'_>, change: Change) -> Result<Sent, Failure> {
    match find(tx, &change.id)? {
        None => insert(tx, &change),
        Some(found) => match found.state {
            State::Moving => Ok(Sent::new(change.id.into(), None)),
            State::Unack => keep_for_later(tx, &change),
            State::Pending | State::Ready | State::Retry if !change.replaces => {
                extend(tx, &change, &found)
            }
            _ => begin_anew(tx, &change, &found),
        },
    }
}

/// Where a message waits that has not failed, and its place there.
fn waiting(tx: &mut QueueTx<'_>, due_ms: u64) -> (State, i64) {
    if due_ms <= tx.now.ms {
        (State::Ready, tx.last_place())
    } else {
        (State::Pending, signed(due_ms))
    }
}

/// Hosts are woken for what is ready, and for what is due sooner than all others. To be asked before it is
/// written.
fn wake(tx: &mut QueueTx<'_>, to: State, place: i64) -> Result<(), Failure> {
    let is_sooner = to != State::Pending
        || first_place_in(tx.tx, tx.row.id, State::Pending)?.is_none_or(|head| place < head);
    tx.wake |= is_sooner;
    Ok(())
}

fn insert(tx: &mut QueueTx<'_>, change: &Change) -> Result<Sent, Failure> {
    let first_ms = change.sent_ms(tx);
    let due_ms = change.due_since(first_ms, tx);
    let (to, place) = waiting(tx, due_ms);
    wake(tx, to, place)?;
    tx.tx
        .prepare_cached(
            "INSERT INTO messages (queue, id, state, place, retries_left, headers, payload, due_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            tx.row.id,
            change.id,
            code(to),
            place,
            change.retries,
            headers_json(&with_first_sent(change.headers.clone(), first_ms)),
            change.payload,
            (to == State::Pending).then_some(place),
        ])?;
    tx.moved(None, Some(to));
    tx.row.totals.sent += 1;
    Ok(change.done(SendOutcome::Sent, due_ms))
}

/// What waits has another time, and all else stays.
fn extend(tx: &mut QueueTx<'_>, change: &Change, found: &Found) -> Result<Sent, Failure> {
    let known = first_sent_ms(&found.headers, tx.now.ms);
    let first_ms = change.first_sent(known, tx);
    let due_ms = change.due_since(first_ms, tx);
    if known != Some(first_ms) {
        let headers = headers_json(&with_first_sent(found.headers.clone(), first_ms));
        tx.tx
            .prepare_cached("UPDATE messages SET headers = ?2 WHERE seq = ?1")?
            .execute(params![found.seq, headers])?;
    }
    let is_now = due_ms <= tx.now.ms;
    // What is in line already keeps its place.
    if !is_now || found.state == State::Pending {
        let (to, place) = if is_now {
            (waiting_state(found.failed), tx.last_place())
        } else {
            (State::Pending, signed(due_ms))
        };
        wake(tx, to, place)?;
        tx.tx
            .prepare_cached(
                "UPDATE messages SET state = ?2, place = ?3, due_ms = ?4 WHERE seq = ?1",
            )?
            .execute(params![found.seq, code(to), place, signed(due_ms)])?;
        tx.moved(Some(found.state), Some(to));
    }
    Ok(change.done(SendOutcome::Extended, due_ms))
}

/// What waits or is dead begins anew, with the payload of the repeat if that replaces it or it has none.
fn begin_anew(tx: &mut QueueTx<'_>, change: &Change, found: &Found) -> Result<Sent, Failure> {
    let waits = matches!(found.state, State::Pending | State::Ready | State::Retry);
    let known = first_sent_ms(&found.headers, tx.now.ms).filter(|_| waits);
    let first_ms = change.first_sent(known, tx);
    let due_ms = change.due_since(first_ms, tx);
    // What is in line already keeps its place.
    let stays = due_ms <= tx.now.ms && found.state == State::Ready;
    let headers = if change.replaces {
        change.headers.clone()
    } else {
        let mut headers = found.headers.clone();
        expiry::remove(&mut headers);
        headers
    };
    let payload = (change.replaces || found.is_missing).then_some(&change.payload);
    tx.tx
        .prepare_cached(
            "UPDATE messages SET failed = 0, retries_left = ?2, headers = ?3, history = '',
             payload = coalesce(?4, payload) WHERE seq = ?1",
        )?
        .execute(params![
            found.seq,
            change.retries,
            headers_json(&with_first_sent(headers, first_ms)),
            payload,
        ])?;
    if !stays {
        let (to, place) = waiting(tx, due_ms);
        wake(tx, to, place)?;
        tx.tx
            .prepare_cached(
                "UPDATE messages SET state = ?2, place = ?3, due_ms = ?4 WHERE seq = ?1",
            )?
            .execute(params![found.seq, code(to), place, signed(due_ms)])?;
        tx.moved(Some(found.state), Some(to));
    }
    if !waits {
        tx.row.totals.redriven += 1;
    }
    let outcome = if change.replaces {
        SendOutcome::Replaced
    } else {
        SendOutcome::Extended
    };
    Ok(change.done(outcome, due_ms))
}

fn kept(tx: &QueueTx<'_>, id: &str) -> rusqlite::Result<Option<Change>> {
    tx.tx
        .prepare_cached(
            "SELECT id, replaces, due_ms, max_wait_ms, first_ms, retries, headers, payload
             FROM repeats WHERE queue = ?1 AND id = ?2",
        )?
        .query_row(params![tx.row.id, id], Change::read)
        .optional()
}

/// The message runs. The repeat is kept, as one with those that came before it in this run.
fn keep_for_later(tx: &mut QueueTx<'_>, change: &Change) -> Result<Sent, Failure> {
    let before = kept(tx, &change.id)?;
    let first_ms = before
        .as_ref()
        .map_or(tx.now.ms, |before| before.sent_ms(tx));
    let due_ms = change.due_since(first_ms, tx);
    let of = match &before {
        Some(before) if !change.replaces => before,
        _ => change,
    };
    tx.tx
        .prepare_cached(
            "INSERT OR REPLACE INTO repeats
               (queue, id, replaces, due_ms, max_wait_ms, first_ms, retries, headers, payload)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            tx.row.id,
            change.id,
            of.replaces,
            signed(due_ms),
            change.max_wait_ms.map(signed),
            signed(first_ms),
            of.retries,
            headers_json(&of.headers),
            of.payload,
        ])?;
    Ok(change.done(SendOutcome::AfterRunning, due_ms))
}

/// Lets repeats take effect whose messages do not run any more, if a run has ended in this transaction.
pub(super) fn after_runs(tx: &mut QueueTx<'_>) -> Result<(), Failure> {
    if !std::mem::take(&mut tx.runs.ended) {
        return Ok(());
    }
    let ids: Vec<String> = {
        let mut ended = tx.tx.prepare_cached(
            "SELECT id FROM repeats WHERE queue = ?1 AND NOT EXISTS
               (SELECT 1 FROM messages WHERE messages.queue = repeats.queue
                AND messages.id = repeats.id AND state IN (4, 8)) LIMIT ?2",
        )?;
        let ids = ended.query_map([tx.row.id, AFTER_RUNS_MAX], |row| text(row, 0))?;
        ids.collect::<rusqlite::Result<_>>()?
    };
    for id in ids {
        if let Some(change) = kept(tx, &id)? {
            accept(tx, change)?;
        }
        tx.tx
            .prepare_cached("DELETE FROM repeats WHERE queue = ?1 AND id = ?2")?
            .execute(params![tx.row.id, id])?;
    }
    Ok(())
}
