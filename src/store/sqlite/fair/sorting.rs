//! Sorts what is in line: the key that has the oldest keeps its messages in ready, and those of others are
//! set aside unless they go.

use rusqlite::{OptionalExtension, params};

use super::{Candidate, Fair, Run};
use crate::message::State;
use crate::store::common::headers;
use crate::store::sqlite::aside::{self, Waiting};
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::limit_times;
use crate::store::sqlite::queue::{code, signed, text, unsigned};

/// Messages in line that one reservation sorts, and messages aside that it puts off.
pub(super) const LOOKS_MAX: usize = 250;

/// Messages that one call meets at most, in line and among those of the run.
pub(super) const MET_MAX: usize = 2 * LOOKS_MAX;
const RENEWALS_MAX: usize = 250;

/// All that is set aside in a period has one due time, so that it is found by it.
const PERIOD_MS: u64 = 30_000;

/// The place to which the run goes, among what the limits remember; its key is behind it.
pub(super) const RUN: &str = "run:";

/// A row in line, and the key under which it has a place.
type InLine = (Waiting, i64, String, Option<String>);

/// The end of this period, of the next, and so on. Never a whole second, as in Redis.
pub(super) fn end_of(now_ms: u64, period: u64) -> i64 {
    signed((now_ms / PERIOD_MS + period) * PERIOD_MS + 1)
}

impl Fair<'_, '_> {
    /// What is due in this period is put off, and found again if its key has lost its turn.
    pub(super) fn put_off(&mut self) -> Result<(), Failure> {
        let soon_ms = end_of(self.tx.now.ms, 1);
        let soon: Vec<(i64, String, String)> = self
            .tx
            .tx
            .prepare_cached(
                "SELECT m.seq, m.id, l.key FROM messages AS m JOIN limited AS l
                 ON l.queue = m.queue AND l.id = m.id AND l.due_ms = m.place
                 WHERE m.queue = ?1 AND m.state = 2 AND m.place = ?2 LIMIT ?3",
            )?
            .query_map(
                params![self.tx.row.id, soon_ms, signed(RENEWALS_MAX as u64)],
                |row| Ok((row.get(0)?, text(row, 1)?, text(row, 2)?)),
            )?
            .collect::<rusqlite::Result<_>>()?;
        self.has_more = soon.len() == RENEWALS_MAX;
        for (seq, id, key) in soon {
            self.tx
                .tx
                .prepare_cached("UPDATE messages SET place = ?2, due_ms = ?2 WHERE seq = ?1")?
                .execute(params![seq, self.aside_ms])?;
            self.tx
                .tx
                .prepare_cached("UPDATE limited SET due_ms = ?3 WHERE queue = ?1 AND id = ?2")?
                .execute(params![self.tx.row.id, id, self.aside_ms])?;
            if self.start_of(&key)?.is_none() {
                self.set_start(&key, self.virtual_now)?;
            }
        }
        Ok(())
    }

    /// Reads what is in line: half of retry at most, so that neither keeps the other waiting. Then the keys
    /// of what was met take part.
    pub(super) fn sort(&mut self) -> Result<(), Failure> {
        self.run = self.kept_run()?;
        let had_run = self.run.as_ref().map(|run| run.key.clone());
        let retries = self.in_line(State::Retry, i64::MIN, LOOKS_MAX / 2)?;
        let from = self.run.as_ref().map_or(i64::MIN, |run| run.to);
        let readies = self.in_line(State::Ready, from, LOOKS_MAX - retries.len())?;
        let number = retries.len() + readies.len();
        self.is_sorted = retries.len() < LOOKS_MAX / 2 && number < LOOKS_MAX;
        for (message, _, json, marked) in retries {
            self.meet(message, &json, marked.as_deref());
        }
        for (message, place, json, marked) in readies {
            let key = self.by.key_of(&headers(&json)).to_owned();
            if self.run.is_none() && marked.is_none() {
                self.run = Some(Run::of(key.clone(), place));
            }
            let run = self.run.as_mut();
            let in_run = run.is_some_and(|run| {
                run.to = place;
                run.key == key && marked.is_none()
            });
            if !in_run {
                self.meet(message, &json, marked.as_deref());
            }
        }
        if let Some(run) = &self.run {
            self.groups.entry(run.key.clone()).or_default();
        }
        self.enter(had_run.as_deref())
    }

    pub(super) fn kept_run(&self) -> rusqlite::Result<Option<Run>> {
        self.tx
            .tx
            .prepare_cached(
                "SELECT name, at_us FROM limits
                 WHERE queue = ?1 AND name >= 'run:' AND name < 'run;' LIMIT 1",
            )?
            .query_row([self.tx.row.id], |row| {
                let name = text(row, 0)?;
                let key = name.strip_prefix(RUN).unwrap_or_default().to_owned();
                Ok(Run::of(key, row.get(1)?))
            })
            .optional()
    }

    pub(super) fn keep_run(&self) -> Result<(), Failure> {
        self.tx
            .tx
            .prepare_cached(
                "DELETE FROM limits WHERE queue = ?1 AND name >= 'run:' AND name < 'run;'",
            )?
            .execute([self.tx.row.id])?;
        let Some(run) = self.run.as_ref().filter(|run| !run.is_over) else {
            return Ok(());
        };
        let is_left = self
            .tx
            .tx
            .prepare_cached(
                "SELECT 1 FROM messages WHERE queue = ?1 AND state = 3 AND place <= ?2 LIMIT 1",
            )?
            .exists(params![self.tx.row.id, run.to])?;
        if !is_left {
            return Ok(());
        }
        limit_times::keep(self.tx, &format!("{RUN}{}", run.key), unsigned(run.to))
    }

    fn in_line(&self, from: State, behind: i64, limit: usize) -> rusqlite::Result<Vec<InLine>> {
        if self.tx.row.depth(from) == 0 {
            return Ok(Vec::new());
        }
        self.tx
            .tx
            .prepare_cached(
                "SELECT m.seq, m.id, m.place, m.headers, l.key FROM messages AS m
                 LEFT JOIN limited AS l ON l.queue = m.queue AND l.id = m.id
                 WHERE m.queue = ?1 AND m.state = ?2 AND m.place > ?3
                 ORDER BY m.place, m.seq LIMIT ?4",
            )?
            .query_map(
                params![self.tx.row.id, code(from), behind, signed(limit as u64)],
                |row| {
                    let (seq, id) = (row.get(0)?, text(row, 1)?);
                    let marked = row.get_ref(4)?.as_bytes_or_null()?;
                    let marked = marked.map(|key| String::from_utf8_lossy(key).into_owned());
                    Ok((
                        Waiting { seq, id, from },
                        row.get(2)?,
                        text(row, 3)?,
                        marked,
                    ))
                },
            )?
            .collect()
    }

    /// A message leaves its list: it goes, or is set aside.
    fn meet(&mut self, message: Waiting, json: &str, marked: Option<&str>) {
        let key = self.by.key_of(&headers(json)).to_owned();
        self.met.insert(message.seq);
        let group = self.groups.entry(key.clone()).or_default();
        if marked == Some(key.as_str()) {
            // Its time was over. It keeps its place, and is found there.
            self.back.insert(message.id.clone(), (key, message));
            return;
        }
        let part = match message.from {
            State::Retry => &mut group.first,
            _ => &mut group.last,
        };
        part.push_back(Candidate {
            message,
            is_marked: marked.is_some(),
        });
    }

    /// Idleness gives no credit.
    fn enter(&self, had_run: Option<&str>) -> Result<(), Failure> {
        for key in self.groups.keys() {
            let start = self.start_of(key)?;
            let is_behind = start.is_some_and(|start| start < self.virtual_now);
            let was_idle =
                is_behind && had_run != Some(key.as_str()) && !aside::is_any(self.tx, Some(key))?;
            if start.is_none() || was_idle {
                self.set_start(key, self.virtual_now)?;
            }
        }
        Ok(())
    }

    /// What was met and does not go is set aside. Retries come first within their key.
    pub(super) fn set_aside(&mut self) -> Result<(), Failure> {
        for (key, message) in std::mem::take(&mut self.back).into_values() {
            aside::set_aside(self.tx, &message, (&key, 0), self.aside_ms)?;
        }
        for (key, group) in std::mem::take(&mut self.groups) {
            for Candidate { message, .. } in group.first.into_iter().chain(group.line) {
                if message.from != State::Pending {
                    aside::set_aside(self.tx, &message, (&key, 0), self.aside_ms)?;
                }
            }
            for Candidate { message, .. } in group.last {
                let place = self.tx.last_place();
                aside::set_aside(self.tx, &message, (&key, place), self.aside_ms)?;
            }
        }
        Ok(())
    }
}

impl Run {
    fn of(key: String, to: i64) -> Self {
        let (ahead, read_to) = (std::collections::VecDeque::new(), i64::MIN);
        Self {
            key,
            to,
            ahead,
            read_to,
            is_over: false,
        }
    }
}
