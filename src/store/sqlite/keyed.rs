//! Reserves within limits that are for each value of a header. As `lua/keyed_to_unack.lua`, where it is
//! told what is kept and what repairs it.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::aside::{self, Waiting};
use super::deliver;
use super::error::Failure;
use super::queue::{QueueTx, code, signed, state, text, unsigned};
use crate::message::{Delivery, State};
use crate::store::common::{headers, ms};
use crate::store::{
    BATCH_MAX, First, LimitBy, LimitedReservation, Limits, NextAllowed, Rate, Reservation,
};

/// A message over its limit is pending for so long, unless its key lets it go before.
const ASIDE_MS: u64 = 60_000;

/// When a key is looked at again that waits for a message which is in line. One that waits for a message
/// in flight is looked at each time.
const IN_LINE_US: u64 = 100_000;

/// The same of one that has nothing aside.
const IDLE_US: u64 = 1_000_000;

/// Keys and messages in line that one reservation looks at.
const KEYS_MAX: i64 = 500;
const LOOKS_MAX: usize = 250;

/// What is known of a key.
#[derive(Debug, Default)]
struct Key {
    /// Ids that occupy it.
    holders: Vec<String>,
    tat_us: u64,
    /// When to look at it next, if it is blocked.
    look_us: Option<u64>,
}

struct Keyed<'a, 't> {
    tx: &'a mut QueueTx<'t>,
    by: LimitBy,
    rate: Option<Rate>,
    running_max: Option<usize>,
    wanted: usize,
    lease_end: i64,
    aside_ms: i64,
    keys: BTreeMap<String, Key>,
    deliveries: Vec<Delivery>,
    looked_at: usize,
}

/// ready, retry -> unack or pending; pending -> unack for what was set aside.
pub(super) fn reserve(
    tx: &mut QueueTx<'_>,
    wanted: Reservation,
    limits: &Limits,
    by: &LimitBy,
) -> Result<LimitedReservation, Failure> {
    let running_max = limits.running_max().map(|max| max as usize);
    let mut keyed = Keyed {
        by: by.clone(),
        rate: limits.rate,
        running_max,
        wanted: wanted.max.min(BATCH_MAX),
        lease_end: signed(tx.now.ceil_ms.saturating_add(ms(wanted.lease))),
        aside_ms: signed(tx.now.ceil_ms.saturating_add(ASIDE_MS)),
        keys: BTreeMap::new(),
        deliveries: Vec::new(),
        looked_at: 0,
        tx,
    };
    for key in keyed.awake()? {
        keyed.wake(&key)?;
    }
    let states = match wanted.first {
        First::Ready => [State::Ready, State::Retry],
        First::Retry => [State::Retry, State::Ready],
    };
    for from in states {
        keyed.take_in_line(from)?;
    }
    keyed.keep()?;
    let next = keyed.next()?;
    Ok(LimitedReservation {
        deliveries: keyed.deliveries,
        next,
    })
}

impl Keyed<'_, '_> {
    fn room(&self) -> usize {
        self.wanted.saturating_sub(self.deliveries.len())
    }

    /// The keys that are to be looked at. Those whose time is further ahead than any limit puts it are among
    /// them: the clock was set back since.
    fn awake(&self) -> rusqlite::Result<Vec<String>> {
        let now_us = self.tx.now.us;
        let by_rate = self
            .rate
            .map(|rate| rate.tat_after(now_us, rate.burst() as usize));
        let latest_us = by_rate.unwrap_or(0).max(now_us.saturating_add(IDLE_US));
        let mut find = self.tx.tx.prepare_cached(
            "SELECT key FROM limit_keys WHERE queue = ?1 AND look_us BETWEEN ?2 AND ?3
             ORDER BY look_us LIMIT ?4",
        )?;
        let mut keys = Vec::new();
        for (from, to) in [
            (0, signed(now_us)),
            (signed(latest_us.saturating_add(1)), i64::MAX),
        ] {
            let some = find.query_map(params![self.tx.row.id, from, to, KEYS_MAX], |row| {
                text(row, 0)
            })?;
            keys.extend(some.collect::<rusqlite::Result<Vec<String>>>()?);
        }
        Ok(keys)
    }

    /// Whether a holder still has its key. With a maximum of 1 it has it until it is acked or dead. An id may
    /// come again, with another key or for a time of its own: then it waits like any other.
    fn occupies(&self, key: &str, id: &str) -> rusqlite::Result<bool> {
        let found: Option<(State, String, i64, bool)> = self
            .tx
            .tx
            .prepare_cached(
                "SELECT m.state, m.headers, m.failed, coalesce(l.due_ms = m.place, 0)
                 FROM messages AS m LEFT JOIN limited AS l ON l.queue = m.queue AND l.id = m.id
                 WHERE m.queue = ?1 AND m.id = ?2",
            )?
            .query_row(params![self.tx.row.id, id], |row| {
                Ok((state(row.get(0)?), text(row, 1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        let Some((state, json, failed, is_aside)) = found else {
            return Ok(false);
        };
        Ok(self.by.key_of(&headers(&json)) == key
            && match state {
                State::Unack => true,
                State::Ready | State::Retry => self.running_max == Some(1),
                State::Pending => self.running_max == Some(1) && (failed > 0 || is_aside),
                _ => false,
            })
    }

    /// Reads what is known of a key.
    fn load(&mut self, key: &str) -> rusqlite::Result<()> {
        if self.keys.contains_key(key) {
            return Ok(());
        }
        let kept: Option<(i64, String)> = self
            .tx
            .tx
            .prepare_cached("SELECT tat_us, holders FROM limit_keys WHERE queue = ?1 AND key = ?2")?
            .query_row(params![self.tx.row.id, key], |row| {
                Ok((row.get(0)?, text(row, 1)?))
            })
            .optional()?;
        let (tat_us, holders) = kept.unwrap_or_default();
        let mut known = Key::default();
        if let Some(rate) = self.rate {
            known.tat_us = rate.tat_now(Some(unsigned(tat_us)), self.tx.now.us);
        }
        if self.running_max.is_some() {
            let ids: Vec<String> = serde_json::from_str(&holders).unwrap_or_default();
            for id in ids {
                if self.occupies(key, &id)? {
                    known.holders.push(id);
                }
            }
        }
        self.keys.insert(key.to_owned(), known);
        Ok(())
    }

    fn holds(&self, key: &str, id: &str) -> bool {
        let known = self.keys.get(key);
        known.is_some_and(|known| known.holders.iter().any(|holder| holder == id))
    }

    /// When to look at a message again; none when it may go.
    fn blocked_until(&self, key: &str, id: &str) -> Option<u64> {
        let known = self.keys.get(key)?;
        let now_us = self.tx.now.us;
        let is_full = self
            .running_max
            .is_some_and(|max| known.holders.len() >= max);
        if is_full && !self.holds(key, id) {
            return Some(now_us);
        }
        let wait = self.rate?.wait(known.tat_us, now_us);
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        (wait_us > 0).then(|| now_us.saturating_add(wait_us))
    }

    fn look_at(&mut self, key: &str, at_us: u64) {
        if let Some(known) = self.keys.get_mut(key) {
            known.look_us = Some(at_us);
        }
    }

    fn go(&mut self, key: &str, message: Waiting) -> Result<(), Failure> {
        let holds = self.holds(key, &message.id);
        let (rate, is_counted) = (self.rate, self.running_max.is_some());
        if let Some(known) = self.keys.get_mut(key) {
            if let Some(rate) = rate {
                known.tat_us = rate.tat_after(known.tat_us, 1);
            }
            if is_counted && !holds {
                known.holders.push(message.id);
            }
        }
        let delivery = deliver::take(self.tx, message.seq, message.from, self.lease_end)?;
        self.deliveries.push(delivery);
        Ok(())
    }

    /// What is first aside in a key: ids, places and due times.
    fn aside(&self, key: &str, limit: usize) -> rusqlite::Result<Vec<(String, i64, i64)>> {
        self.tx
            .tx
            .prepare_cached(
                "SELECT id, place, due_ms FROM limited WHERE queue = ?1 AND key = ?2
                 ORDER BY place LIMIT ?3",
            )?
            .query_map(params![self.tx.row.id, key, signed(limit as u64)], |row| {
                Ok((text(row, 0)?, row.get(1)?, row.get(2)?))
            })?
            .collect()
    }

    /// Lets go what is first aside in a key.
    fn wake(&mut self, key: &str) -> Result<(), Failure> {
        self.load(key)?;
        for (id, _, due_ms) in self.aside(key, self.room() + 1)? {
            if self.room() == 0 {
                return Ok(());
            }
            match aside::message(self.tx, &id)? {
                Some((seq, State::Pending, place)) if place == due_ms => {
                    if let Some(at_us) = self.blocked_until(key, &id) {
                        self.look_at(key, at_us);
                        return Ok(());
                    }
                    aside::forget(self.tx, &id)?;
                    let from = State::Pending;
                    self.go(key, Waiting { seq, id, from })?;
                }
                // Its minute is over, and it is in line: it is looked at there.
                Some((_, State::Ready | State::Retry, _)) => {
                    self.look_at(key, self.tx.now.us + IN_LINE_US);
                    return Ok(());
                }
                // It was cancelled, moved, rescheduled or delivered by others.
                _ => aside::forget(self.tx, &id)?,
            }
        }
        Ok(())
    }

    fn take_in_line(&mut self, from: State) -> Result<(), Failure> {
        while self.room() > 0 && self.looked_at < LOOKS_MAX && self.tx.row.depth(from) > 0 {
            let limit = self.room().min(LOOKS_MAX - self.looked_at);
            let found: Vec<(i64, String, String)> = self
                .tx
                .tx
                .prepare_cached(
                    "SELECT seq, id, headers FROM messages
                     WHERE queue = ?1 AND state = ?2 ORDER BY place, seq LIMIT ?3",
                )?
                .query_map(
                    params![self.tx.row.id, code(from), signed(limit as u64)],
                    |row| Ok((row.get(0)?, text(row, 1)?, text(row, 2)?)),
                )?
                .collect::<rusqlite::Result<_>>()?;
            if found.is_empty() {
                return Ok(());
            }
            self.looked_at += found.len();
            for (seq, id, json) in found {
                let key = self.by.key_of(&headers(&json)).to_owned();
                self.meet(&key, Waiting { seq, id, from })?;
            }
        }
        Ok(())
    }

    /// A message that is first in line goes, or is set aside behind those of its key.
    fn meet(&mut self, key: &str, message: Waiting) -> Result<(), Failure> {
        self.load(key)?;
        let is_holder = self.holds(key, &message.id);
        let first = self.aside(key, 1)?.pop();
        let is_next = first.is_none_or(|(id, _, _)| id == message.id);
        let blocked = self.blocked_until(key, &message.id);
        match blocked {
            None if is_holder || is_next => {
                aside::forget(self.tx, &message.id)?;
                return self.go(key, message);
            }
            Some(at_us) if is_holder || is_next => self.look_at(key, at_us),
            _ => {}
        }
        // A retry comes before its successors.
        let place = if is_holder { 0 } else { self.tx.last_place() };
        aside::set_aside(self.tx, &message, (key, place), self.aside_ms)?;
        Ok(())
    }

    /// Writes what is known of the keys.
    fn keep(&mut self) -> Result<(), Failure> {
        let now_us = self.tx.now.us;
        for (key, known) in std::mem::take(&mut self.keys) {
            let has_aside = !self.aside(&key, 1)?.is_empty();
            let look_us = if has_aside {
                known.look_us.unwrap_or(now_us)
            } else if !known.holders.is_empty() {
                now_us + IDLE_US
            } else {
                // A time that is over means the same as none.
                known.tat_us
            };
            if !has_aside && look_us <= now_us {
                self.tx
                    .tx
                    .prepare_cached("DELETE FROM limit_keys WHERE queue = ?1 AND key = ?2")?
                    .execute(params![self.tx.row.id, key])?;
                continue;
            }
            self.tx
                .tx
                .prepare_cached(
                    "INSERT OR REPLACE INTO limit_keys (queue, key, look_us, tat_us, holders)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    self.tx.row.id,
                    key,
                    signed(look_us),
                    signed(known.tat_us),
                    serde_json::json!(known.holders).to_string(),
                ])?;
        }
        Ok(())
    }

    /// When the next key may go.
    fn next(&self) -> Result<NextAllowed, Failure> {
        if self.room() > 0 && self.looked_at >= LOOKS_MAX {
            // There is more to look at.
            return Ok(NextAllowed::OtherKeys(Some(Duration::from_micros(1))));
        }
        let has_aside = aside::is_any(self.tx, None)?;
        if !has_aside {
            return Ok(NextAllowed::Now);
        }
        let now_us = self.tx.now.us;
        let at_us: Option<i64> = self
            .tx
            .tx
            .prepare_cached(
                "SELECT look_us FROM limit_keys WHERE queue = ?1 AND look_us > ?2
                 ORDER BY look_us LIMIT 1",
            )?
            .query_row(params![self.tx.row.id, signed(now_us)], |row| row.get(0))
            .optional()?;
        let wait_us = at_us.map(|at_us| unsigned(at_us).saturating_sub(now_us));
        Ok(NextAllowed::OtherKeys(wait_us.map(Duration::from_micros)))
    }
}
