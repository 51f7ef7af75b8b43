//! Reserves so that the keys that wait take turns. As `lua/fair_to_unack.lua`, where the algorithm is named,
//! and where it is told what is kept and what repairs it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::aside::{self, Waiting};
use super::error::Failure;
use super::queue::{QueueTx, signed, text, unsigned};
use super::{deliver, limit_times};
use crate::message::{Delivery, State};
use crate::store::common::{headers, ms};
use crate::store::{BATCH_MAX, FairWeights, LimitBy, Reservation};

mod alone;
mod sorting;

/// So far a message puts its key back, in virtual time, if the key has the weight 1.
const STEP: i64 = 1000;

/// Messages of a key that are read at a time.
const PAGE: usize = 100;

/// When to call again while messages wait, and when there is more to sort.
const LOOK_IN: Duration = Duration::from_secs(5);
const AT_ONCE: Duration = Duration::from_micros(1);

/// The virtual time, among what the limits remember.
const TURN: &str = "turn";

/// What a reservation in turn brought.
pub(super) struct InTurn {
    pub deliveries: Vec<Delivery>,
    /// When to call again for what still waits.
    pub look_in: Option<Duration>,
    pub is_any_aside: bool,
}

impl InTurn {
    /// What was reserved without turns.
    pub(super) fn none_but(deliveries: Vec<Delivery>) -> Self {
        Self {
            deliveries,
            look_in: None,
            is_any_aside: false,
        }
    }
}

/// A message that may be chosen.
struct Candidate {
    message: Waiting,
    /// It may have a row in `limited`.
    is_marked: bool,
}

/// What waits of a key.
#[derive(Default)]
struct Group {
    /// Met in retry.
    first: VecDeque<Candidate>,
    /// Aside, and read so far.
    line: VecDeque<Candidate>,
    /// Met in ready, behind others.
    last: VecDeque<Candidate>,
    /// Place and id of what was read last of its line; none before the first.
    read_to: Option<(i64, String)>,
    is_read: bool,
}

/// All in ready up to a place are of one key, as far as is known, and stay where they are.
struct Run {
    key: String,
    to: i64,
    /// Those that are read so far.
    ahead: VecDeque<Waiting>,
    read_to: i64,
    /// It has so many of other keys that all of it is sorted from the next call on.
    is_over: bool,
}

struct Fair<'a, 't> {
    tx: &'a mut QueueTx<'t>,
    by: LimitBy,
    weights: &'a FairWeights,
    room: usize,
    lease_end: i64,
    aside_ms: i64,
    virtual_now: i64,
    groups: BTreeMap<String, Group>,
    run: Option<Run>,
    /// Met in line, with a place in the lines of their keys, which stand beside them.
    back: HashMap<String, (String, Waiting)>,
    /// All that was met and is not in the run.
    met: HashSet<i64>,
    /// All that was in line was met.
    is_sorted: bool,
    has_more: bool,
    deliveries: Vec<Delivery>,
}

/// ready, retry -> unack or pending; pending -> unack for what was set aside.
pub(super) fn reserve(
    tx: &mut QueueTx<'_>,
    wanted: Reservation,
    (by, weights): (&LimitBy, &FairWeights),
) -> Result<InTurn, Failure> {
    let before = limit_times::kept(tx.tx, tx.row.id, TURN)?.unwrap_or(0);
    let mut fair = Fair {
        by: by.clone(),
        weights,
        room: wanted.max.min(BATCH_MAX),
        lease_end: signed(tx.now.ceil_ms.saturating_add(ms(wanted.lease))),
        aside_ms: sorting::end_of(tx.now.ms, 3),
        virtual_now: signed(before),
        groups: BTreeMap::new(),
        run: None,
        back: HashMap::new(),
        met: HashSet::new(),
        is_sorted: false,
        has_more: false,
        deliveries: Vec::new(),
        tx,
    };
    if let Some(done) = fair.without_others()? {
        return Ok(done);
    }
    fair.put_off()?;
    fair.sort()?;
    fair.choose()?;
    fair.set_aside()?;
    fair.end(before)
}

impl Fair<'_, '_> {
    fn start_of(&self, key: &str) -> rusqlite::Result<Option<i64>> {
        self.tx
            .tx
            .prepare_cached("SELECT start_at FROM fair_keys WHERE queue = ?1 AND key = ?2")?
            .query_row(params![self.tx.row.id, key], |row| row.get(0))
            .optional()
    }

    fn set_start(&self, key: &str, start: i64) -> rusqlite::Result<()> {
        self.tx
            .tx
            .prepare_cached(
                "INSERT OR REPLACE INTO fair_keys (queue, key, start_at) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![self.tx.row.id, key, start])?;
        Ok(())
    }

    /// So far a message of this key puts it back.
    fn step_of(&self, key: &str) -> i64 {
        let weight = i64::from(self.weights.of(key));
        (STEP + weight / 2) / weight
    }

    fn choose(&mut self) -> Result<(), Failure> {
        while self.deliveries.len() < self.room {
            let mut first_two: Vec<(String, i64)> = self
                .tx
                .tx
                .prepare_cached(
                    "SELECT key, start_at FROM fair_keys WHERE queue = ?1
                     ORDER BY start_at, key LIMIT 2",
                )?
                .query_map([self.tx.row.id], |row| Ok((text(row, 0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            if first_two.is_empty() {
                first_two.extend(self.without_turn()?.map(|key| (key, self.virtual_now)));
            }
            let stop = first_two.get(1).map_or(i64::MAX, |(_, start)| *start);
            let Some((key, start)) = first_two.into_iter().next() else {
                break;
            };
            let mut group = self.groups.remove(&key).unwrap_or_default();
            let went = self.serve(&key, &mut group, (start, stop));
            self.groups.insert(key, group);
            went?;
        }
        Ok(())
    }

    /// A key that has lost its turn is found by what is aside.
    fn without_turn(&mut self) -> Result<Option<String>, Failure> {
        let key = self
            .tx
            .tx
            .prepare_cached("SELECT key FROM limited WHERE queue = ?1 LIMIT 1")?
            .query_row([self.tx.row.id], |row| text(row, 0))
            .optional()?;
        let key = key.filter(|key| !self.groups.get(key).is_some_and(|group| group.is_read));
        self.has_more |= key.is_some();
        Ok(key)
    }

    /// Lets messages of a key go until it is the turn of another.
    fn serve(
        &mut self,
        key: &str,
        group: &mut Group,
        (mut start, stop): (i64, i64),
    ) -> Result<(), Failure> {
        let began = self.deliveries.len();
        let stride = self.step_of(key);
        while self.deliveries.len() < self.room && (self.deliveries.len() == began || start < stop)
        {
            let Some(candidate) = self.next_of(key, group)? else {
                break;
            };
            let Waiting { seq, id, from } = candidate.message;
            if candidate.is_marked {
                aside::forget(self.tx, &id)?;
            }
            let delivery = deliver::take(self.tx, seq, from, self.lease_end)?;
            self.deliveries.push(delivery);
            let on = start.max(self.virtual_now.saturating_add(1));
            self.virtual_now = on.min(start.saturating_add(stride));
            start = start.saturating_add(stride);
        }
        if self.deliveries.len() > began {
            self.set_start(key, start)?;
            return Ok(());
        }
        // Idle for so long that it has nothing left to answer for.
        self.virtual_now = self.virtual_now.max(start);
        self.tx
            .tx
            .prepare_cached("DELETE FROM fair_keys WHERE queue = ?1 AND key = ?2")?
            .execute(params![self.tx.row.id, key])?;
        Ok(())
    }

    fn next_of(&mut self, key: &str, group: &mut Group) -> Result<Option<Candidate>, Failure> {
        while group.first.is_empty() && group.line.is_empty() && !group.is_read {
            self.read_line(key, group)?;
        }
        let next = group.first.pop_front().or_else(|| group.line.pop_front());
        if let Some(next) = next.or_else(|| group.last.pop_front()) {
            return Ok(Some(next));
        }
        let is_marked = false;
        let next = self.next_in_run(key)?;
        Ok(next.map(|message| Candidate { message, is_marked }))
    }

    /// Reads on in the line of a key. What was cancelled, moved, rescheduled or delivered by others is
    /// forgotten.
    fn read_line(&mut self, key: &str, group: &mut Group) -> Result<(), Failure> {
        let limit = (self.room - self.deliveries.len()).min(PAGE) + 10;
        let (place, id) = group.read_to.clone().unwrap_or((i64::MIN, String::new()));
        let some: Vec<(String, i64, i64)> = self
            .tx
            .tx
            .prepare_cached(
                "SELECT id, place, due_ms FROM limited
                 WHERE queue = ?1 AND key = ?2 AND (place, id) > (?3, ?4)
                 ORDER BY place, id LIMIT ?5",
            )?
            .query_map(
                params![self.tx.row.id, key, place, id, signed(limit as u64)],
                |row| Ok((text(row, 0)?, row.get(1)?, row.get(2)?)),
            )?
            .collect::<rusqlite::Result<_>>()?;
        group.is_read = some.len() < limit;
        for (id, place, due_ms) in some {
            group.read_to = Some((place, id.clone()));
            let message = match aside::message(self.tx, &id)? {
                Some((seq, State::Pending, at_ms)) if at_ms == due_ms => Some(Waiting {
                    seq,
                    id,
                    from: State::Pending,
                }),
                Some((_, State::Ready | State::Retry, _)) => {
                    let met = self.back.remove(&id).map(|(_, message)| message);
                    if met.is_none() && self.is_sorted {
                        aside::forget(self.tx, &id)?;
                    }
                    // The others are in line further on.
                    met
                }
                _ => {
                    aside::forget(self.tx, &id)?;
                    None
                }
            };
            let is_marked = true;
            group
                .line
                .extend(message.map(|message| Candidate { message, is_marked }));
        }
        Ok(())
    }

    /// The next of the run. What is not as was thought is met as if it had been seen now.
    fn next_in_run(&mut self, key: &str) -> Result<Option<Waiting>, Failure> {
        let Some(mut run) = self.run.take_if(|run| run.key == key) else {
            return Ok(None);
        };
        let read = self.read_run(&mut run);
        self.is_sorted &= !run.is_over;
        let next = run.ahead.pop_front();
        self.run = Some(run);
        read.map(|()| next)
    }

    fn read_run(&mut self, run: &mut Run) -> Result<(), Failure> {
        while run.ahead.is_empty() && run.read_to < run.to && !run.is_over {
            let limit = (self.room - self.deliveries.len()).clamp(1, PAGE);
            let some: Vec<(i64, String, String, i64)> = self
                .tx
                .tx
                .prepare_cached(
                    "SELECT seq, id, headers, place FROM messages
                     WHERE queue = ?1 AND state = 3 AND place > ?2 AND place <= ?3
                     ORDER BY place LIMIT ?4",
                )?
                .query_map(
                    params![self.tx.row.id, run.read_to, run.to, signed(limit as u64)],
                    |row| Ok((row.get(0)?, text(row, 1)?, text(row, 2)?, row.get(3)?)),
                )?
                .collect::<rusqlite::Result<_>>()?;
            if some.len() < limit {
                run.read_to = run.to;
            }
            for (seq, id, json, place) in some {
                run.read_to = run.read_to.max(place);
                if self.met.contains(&seq) {
                    continue;
                }
                let key = self.by.key_of(&headers(&json)).to_owned();
                let from = State::Ready;
                if key == run.key {
                    run.ahead.push_back(Waiting { seq, id, from });
                    continue;
                }
                self.met.insert(seq);
                run.is_over |= self.met.len() >= sorting::MET_MAX;
                if self.start_of(&key)?.is_none() {
                    self.set_start(&key, self.virtual_now)?;
                }
                self.groups
                    .entry(key)
                    .or_default()
                    .last
                    .push_back(Candidate {
                        message: Waiting { seq, id, from },
                        is_marked: true,
                    });
            }
        }
        Ok(())
    }

    /// Writes the virtual time and the run; when there is something to do next. If nobody waits for anybody,
    /// all start anew.
    fn end(self, before: u64) -> Result<InTurn, Failure> {
        self.keep_run()?;
        let is_any_aside = aside::is_any(self.tx, None)?;
        let is_all = self.is_sorted && !self.has_more;
        let look_in = if !is_all {
            Some(AT_ONCE)
        } else if is_any_aside || self.tx.row.depth(State::Ready) > 0 {
            Some(LOOK_IN)
        } else {
            for forgotten in [
                "DELETE FROM fair_keys WHERE queue = ?1",
                "DELETE FROM limits WHERE queue = ?1 AND name = 'turn'",
            ] {
                self.tx
                    .tx
                    .prepare_cached(forgotten)?
                    .execute([self.tx.row.id])?;
            }
            None
        };
        if look_in.is_some() && self.virtual_now != signed(before) {
            limit_times::keep(self.tx, TURN, unsigned(self.virtual_now))?;
        }
        Ok(InTurn {
            deliveries: self.deliveries,
            look_in,
            is_any_aside,
        })
    }
}
