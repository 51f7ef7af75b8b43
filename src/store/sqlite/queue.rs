//! The row of a queue, and the transaction that changes it together with its messages.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::error::Failure;
use crate::clock::Now;
use crate::message::{Due, QueueName, State};
use crate::store::common::ms;
use crate::store::{Counts, Totals};

/// A number that SQLite keeps as a signed one.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that the schema keeps from being negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A count that the schema keeps from being negative; it stays far below 2^32.
pub(super) fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// Text of a column. The file may come from anywhere, and SQLite checks no text: what is no UTF-8 is
/// replaced, so that one such row does not keep all others from being read.
pub(super) fn text(row: &Row<'_>, index: usize) -> rusqlite::Result<String> {
    let bytes = row.get_ref(index)?.as_bytes()?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// That of pending.
const FIRST_CODE: i64 = 2;

/// What `messages.state` is for a state.
pub(super) fn code(state: State) -> i64 {
    match state {
        State::Pending => 2,
        State::Ready => 3,
        State::Unack => 4,
        State::Retry => 5,
        State::Garbage => 6,
        State::Dead => 7,
        State::Moving => 8,
    }
}

/// What a `messages.state` means. The schema allows no other number.
pub(super) fn state(code: i64) -> State {
    match code {
        2 => State::Pending,
        3 => State::Ready,
        4 => State::Unack,
        5 => State::Retry,
        6 => State::Garbage,
        7 => State::Dead,
        _ => State::Moving,
    }
}

/// A row of `queues`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueRow {
    pub id: i64,
    head: i64,
    tail: i64,
    delivery: i64,
    /// By state, as coded, less [`FIRST_CODE`].
    depths: [i64; 7],
    pub peer: Option<String>,
    pub run: Option<String>,
    /// No host is given messages.
    pub paused: bool,
    pub totals: Totals,
}

impl QueueRow {
    pub(super) fn find(connection: &Connection, name: &str) -> rusqlite::Result<Option<Self>> {
        // By name and not with `*`: an older file has its columns in another order.
        connection
            .prepare_cached(
                "SELECT queue, head, tail, delivery, pending, ready, unack, retry, garbage, dead,
                 moving, peer, run, paused, sent, acked, nacked, rejected, expired, released,
                 died, redriven, cancelled, deleted FROM queues WHERE name = ?1",
            )?
            .query_row([name], Self::read)
            .optional()
    }

    /// As `find` selects it. By place: each transaction reads a row, and names are looked up one by one.
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let total = |at: usize| row.get(at).map(unsigned);
        let lossy = |at: usize| -> rusqlite::Result<Option<String>> {
            let bytes = row.get_ref(at)?.as_bytes_or_null()?;
            Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
        };
        let mut depths = [0; 7];
        for (at, depth) in (4_usize..).zip(&mut depths) {
            *depth = row.get(at)?;
        }
        Ok(Self {
            id: row.get(0)?,
            head: row.get(1)?,
            tail: row.get(2)?,
            delivery: row.get(3)?,
            depths,
            peer: lossy(11)?,
            run: lossy(12)?,
            paused: row.get(13)?,
            totals: Totals {
                sent: total(14)?,
                acked: total(15)?,
                nacked: total(16)?,
                rejected: total(17)?,
                expired: total(18)?,
                released: total(19)?,
                dead: total(20)?,
                redriven: total(21)?,
                cancelled: total(22)?,
                deleted: total(23)?,
                // Nobody else works on a file.
                dropped: 0,
            },
        })
    }

    fn write(&self, tx: &Transaction<'_>) -> rusqlite::Result<()> {
        let [pending, ready, unack, retry, garbage, dead, moving] = self.depths;
        let t = &self.totals;
        tx.prepare_cached(
            "UPDATE queues SET head = ?2, tail = ?3, delivery = ?4, pending = ?5, ready = ?6,
             unack = ?7, retry = ?8, garbage = ?9, dead = ?10, moving = ?11, peer = ?12,
             sent = ?13, acked = ?14, nacked = ?15, rejected = ?16, expired = ?17,
             released = ?18, died = ?19, redriven = ?20, cancelled = ?21, deleted = ?22,
             run = ?23, paused = ?24 WHERE queue = ?1",
        )?
        .execute(params![
            self.id,
            self.head,
            self.tail,
            self.delivery,
            pending,
            ready,
            unack,
            retry,
            garbage,
            dead,
            moving,
            self.peer,
            signed(t.sent),
            signed(t.acked),
            signed(t.nacked),
            signed(t.rejected),
            signed(t.expired),
            signed(t.released),
            signed(t.dead),
            signed(t.redriven),
            signed(t.cancelled),
            signed(t.deleted),
            self.run,
            self.paused,
        ])?;
        Ok(())
    }

    pub(super) fn depth(&self, state: State) -> u64 {
        let place = usize::try_from(code(state) - FIRST_CODE).unwrap_or(0);
        unsigned(self.depths[place])
    }

    /// The depths as they are kept, from pending on in the order of the codes.
    pub(super) fn depths(&self) -> [i64; 7] {
        self.depths
    }

    /// Keeps depths that were counted.
    pub(super) fn set_depths(&mut self, depths: [i64; 7]) {
        self.depths = depths;
        // The schema wants a name when messages are moving, and it has been lost.
        if depths[6] > 0 && self.peer.is_none() {
            self.peer = Some("an unknown store".to_owned());
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            pending: self.depth(State::Pending),
            ready: self.depth(State::Ready),
            unack: self.depth(State::Unack),
            retry: self.depth(State::Retry),
            dead: self.depth(State::Dead) + self.depth(State::Garbage),
            moving: self.depth(State::Moving),
            totals: self.totals,
        }
    }
}

/// A transaction on one queue: its messages through `tx`, its row through the methods; the row is
/// written once, at the end.
pub(super) struct QueueTx<'t> {
    pub tx: &'t Transaction<'t>,
    pub now: Now,
    pub row: QueueRow,
    /// True when hosts are to be woken after the commit.
    pub wake: bool,
    /// True when pages were given back, which the file shows once the log is in it.
    pub smaller: bool,
    pub runs: Runs,
}

/// What became of runs.
#[derive(Default)]
pub(super) struct Runs {
    /// True when hosts are to look after the commit whether what they have in flight is still theirs.
    pub killed: bool,
    /// True when one has ended, for which a repeat may wait.
    pub ended: bool,
}

impl<'t> QueueTx<'t> {
    /// On a queue that is there, or that is made here if `create`; none otherwise.
    pub(super) fn on(
        tx: &'t Transaction<'t>,
        queue: &QueueName,
        create: bool,
        now: Now,
    ) -> Result<Option<Self>, Failure> {
        let mut row = QueueRow::find(tx, queue.as_str())?;
        if row.is_none() && create {
            tx.execute("INSERT INTO queues (name) VALUES (?1)", [queue.as_str()])?;
            row = QueueRow::find(tx, queue.as_str())?;
        }
        Ok(row.map(|row| Self {
            tx,
            now,
            row,
            wake: false,
            smaller: false,
            runs: Runs::default(),
        }))
    }

    /// Does work on a queue in this transaction: on this one, or on another, which is made when it is
    /// not there.
    pub(super) fn with<T>(
        &mut self,
        queue: &QueueName,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let other = Self::on(self.tx, queue, true, self.now)?;
        // Of this one the row at hand counts: what was read is as old as the transaction.
        let Some(mut other) = other.filter(|other| other.row.id != self.row.id) else {
            return work(self);
        };
        let done = other.apply(work)?;
        self.wake |= other.wake;
        Ok(done)
    }

    /// Does work on the row and writes it if that changed it.
    pub(super) fn apply<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let before = self.row.clone();
        let done = work(self)?;
        if self.row != before {
            self.row.write(self.tx)?;
        }
        Ok(done)
    }

    /// One message is in another state than before; none is outside of the queue.
    pub(super) fn moved(&mut self, from: Option<State>, to: Option<State>) {
        self.runs.ended |= from == Some(State::Unack);
        for (state, by) in [(from, -1), (to, 1)] {
            if let Some(state) = state {
                let place = usize::try_from(code(state) - FIRST_CODE).unwrap_or(0);
                self.row.depths[place] = self.row.depths[place].saturating_add(by);
            }
        }
    }

    /// A place behind all that are in line.
    pub(super) fn last_place(&mut self) -> i64 {
        self.row.tail = self.row.tail.saturating_add(1);
        self.row.tail - 1
    }

    /// A place before all that are in line.
    pub(super) fn first_place(&mut self) -> i64 {
        self.row.head = self.row.head.saturating_sub(1);
        self.row.head + 1
    }

    /// A token that no delivery of this queue has had, but for those that a power cut has undone.
    pub(super) fn next_token(&mut self) -> i64 {
        self.row.delivery = self.row.delivery.wrapping_add(1);
        self.row.delivery
    }
}

/// Where a message waits for a slot.
pub(super) fn waiting_state(failed: i64) -> State {
    if failed > 0 {
        State::Retry
    } else {
        State::Ready
    }
}

/// When a message is due that is accepted now.
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
