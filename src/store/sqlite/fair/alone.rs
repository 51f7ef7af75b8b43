//! The way of a queue in which one key alone waits: nobody takes turns. As `without_others` in
//! `lua/fair_to_unack.lua`.

use rusqlite::params;

use super::sorting::{LOOKS_MAX, RUN};
use super::{AT_ONCE, Fair, InTurn, LOOK_IN};
use crate::message::{Delivery, State};
use crate::store::common::headers;
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::queue::{signed, text, unsigned};
use crate::store::sqlite::{aside, deliver, limit_times};

impl Fair<'_, '_> {
    /// The oldest go. Virtual time stands still, since only the distance of the one key from it counts.
    /// None, and nothing is changed, if there are others or there is more to see to.
    pub(super) fn without_others(&mut self) -> Result<Option<InTurn>, Failure> {
        let depth = |state| self.tx.row.depth(state);
        let room = self.room as u64;
        if room == 0 || depth(State::Retry) > 0 || depth(State::Ready) <= room {
            return Ok(None);
        }
        let Some(mut run) = self.kept_run()? else {
            return Ok(None);
        };
        if !self.is_alone(&run.key)? || aside::is_any(self.tx, None)? {
            return Ok(None);
        }
        let was_to = run.to;
        let newer = self.newer(run.to)?;
        let is_sorted = newer.len() < LOOKS_MAX;
        if !newer.iter().all(|(_, json)| self.is_of(&run.key, json)) {
            return Ok(None);
        }
        run.to = newer.last().map_or(run.to, |(place, _)| *place);
        // Something has to be left of the run.
        if !is_sorted && self.room >= LOOKS_MAX {
            return Ok(None);
        }
        let found = deliver::in_line(self.tx, State::Ready, self.room)?;
        let is_ours =
            |(_, delivery): &(i64, Delivery)| self.by.key_of(&delivery.headers) == run.key;
        if !found.iter().all(is_ours) {
            return Ok(None);
        }
        let deliveries = deliver::to_unack(self.tx, State::Ready, found, self.lease_end)?;
        if run.to != was_to {
            limit_times::keep(self.tx, &format!("{RUN}{}", run.key), unsigned(run.to))?;
        }
        Ok(Some(InTurn {
            deliveries,
            look_in: Some(if is_sorted { LOOK_IN } else { AT_ONCE }),
            is_any_aside: false,
        }))
    }

    /// Whether this key has a turn, no other has, and it is as far from virtual time as when it goes alone.
    fn is_alone(&self, key: &str) -> rusqlite::Result<bool> {
        let starts: Vec<(String, i64)> = self
            .tx
            .tx
            .prepare_cached("SELECT key, start_at FROM fair_keys WHERE queue = ?1 LIMIT 2")?
            .query_map([self.tx.row.id], |row| Ok((text(row, 0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let start = self.virtual_now.saturating_add(self.step_of(key));
        Ok(starts == [(key.to_owned(), start)])
    }

    fn is_of(&self, key: &str, json: &str) -> bool {
        self.by.key_of(&headers(json)) == key
    }

    /// Places and headers of what is in ready behind the run.
    fn newer(&self, than: i64) -> rusqlite::Result<Vec<(i64, String)>> {
        self.tx
            .tx
            .prepare_cached(
                "SELECT place, headers FROM messages
                 WHERE queue = ?1 AND state = 3 AND place > ?2 ORDER BY place, seq LIMIT ?3",
            )?
            .query_map(
                params![self.tx.row.id, than, signed(LOOKS_MAX as u64)],
                |row| Ok((row.get(0)?, text(row, 1)?)),
            )?
            .collect()
    }
}
