//! Whether a row of `messages` means something, and what it is to be if not. No SQL here.

use crate::message::{Attempt, Headers, HistoryEntry};
use crate::store::FindingKind;
use crate::store::common::append_history;
use crate::store::report::Remedy;
use crate::store::sqlite::queue::{count, signed};
use crate::text::{cut, printable};

/// What [`Row::read`] reads.
pub(super) const COLUMNS: &str =
    "seq, id, state, place, was, due_ms, failed, retries_left, headers,
    history, payload IS NOT NULL";

/// States by their codes.
const PENDING: i64 = 2;
const UNACK: i64 = 4;
const RETRY: i64 = 5;
const GARBAGE: i64 = 6;
const DEAD: i64 = 7;
const MOVING: i64 = 8;

/// How much of headers that mean nothing is kept, in the history.
const HEADERS_KEPT: usize = 1000;

/// A row as it is. Its texts may be any bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub seq: i64,
    pub id: Vec<u8>,
    pub state: i64,
    pub place: i64,
    pub was: Option<i64>,
    pub due_ms: Option<i64>,
    pub failed: i64,
    pub retries_left: i64,
    pub headers: Vec<u8>,
    pub history: Vec<u8>,
    pub has_payload: bool,
}

/// What a row is to be.
#[derive(Debug, Clone)]
pub(super) struct Repaired {
    pub kind: FindingKind,
    pub row: Row,
    pub remedy: Remedy,
}

/// The lines of a history that mean something.
fn understood(history: &[u8]) -> String {
    let text = String::from_utf8_lossy(history);
    let lines = text.lines().filter(|line| {
        let entry: Result<HistoryEntry, _> = serde_json::from_str(line);
        entry.is_ok()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// True for a history as it is kept: it has no line, and no space at an end, that means nothing.
fn is_understood(history: &[u8]) -> bool {
    understood(history).as_bytes() == history
}

impl Row {
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            id: row.get_ref(1)?.as_bytes()?.to_vec(),
            state: row.get(2)?,
            place: row.get(3)?,
            was: row.get(4)?,
            due_ms: row.get(5)?,
            failed: row.get(6)?,
            retries_left: row.get(7)?,
            headers: row.get_ref(8)?.as_bytes()?.to_vec(),
            history: row.get_ref(9)?.as_bytes()?.to_vec(),
            has_payload: row.get(10)?,
        })
    }

    /// What it is to be, if anything is wrong with it.
    pub(super) fn repaired(&self, now_ms: u64) -> Option<Repaired> {
        let mut right = self.with_numbers();
        let mut wrong: Vec<(FindingKind, String)> = Vec::new();
        if right.state == self.state && !right.has_payload && right.state <= RETRY {
            let what = "the payload is gone".to_owned();
            wrong.push((FindingKind::PayloadMissing, what));
        }
        let headers: Result<Headers, _> = serde_json::from_slice(&self.headers);
        let kind = FindingKind::NotUnderstood;
        if !self.headers.is_empty() && headers.is_err() {
            let kept = String::from_utf8_lossy(&self.headers);
            let what = printable(&cut(&kept, HEADERS_KEPT)).into_owned();
            wrong.push((kind, format!("headers mean nothing: {what}")));
            right.headers = Vec::new();
        }
        if right.state != self.state {
            wrong.push((kind, format!("there is no state {}", self.state)));
        }
        if let Some((kind, _)) = wrong.first() {
            let whats: Vec<&str> = wrong.iter().map(|(_, what)| what.as_str()).collect();
            let reason = format!("an audit found that {}", whats.join(", and that "));
            return Some(self.as_dead_letter(right, *kind, &reason, now_ms));
        }
        (right != *self).then_some(Repaired {
            kind,
            row: right,
            remedy: Remedy::Repaired,
        })
    }

    /// The same with numbers that go together, and a history that means something. A state that is
    /// none becomes garbage.
    fn with_numbers(&self) -> Self {
        let mut right = self.clone();
        if !(PENDING..=MOVING).contains(&self.state) {
            right.state = GARBAGE;
        }
        let was_known = self.was.filter(|was| matches!(was, 2 | 3 | 5 | 6 | 7));
        right.was = (right.state == MOVING).then(|| was_known.unwrap_or(GARBAGE));
        if right.state == PENDING {
            // Rather late than early.
            right.place = self.place.max(self.due_ms.unwrap_or(self.place));
            right.due_ms = Some(right.place);
        }
        right.failed = self.failed.max(0);
        right.retries_left = self.retries_left.max(0);
        if !is_understood(&self.history) {
            right.history = understood(&self.history).into_bytes();
        }
        right
    }

    /// `right` with a line of history that tells what was wrong, as a dead letter if it is a message
    /// that would be handled.
    fn as_dead_letter(
        &self,
        mut right: Self,
        kind: FindingKind,
        reason: &str,
        now_ms: u64,
    ) -> Repaired {
        if self.state == UNACK && self.place > signed(now_ms) {
            return Repaired {
                kind,
                row: self.clone(),
                remedy: Remedy::InFlight,
            };
        }
        let attempt = Attempt {
            attempt: count(right.failed).saturating_add(1),
            at_ms: now_ms,
            class: kind.as_str().to_owned(),
            reason: reason.to_owned(),
            duration_ms: None,
            host: String::new(),
            handler: String::new(),
            log: String::new(),
        };
        let line = serde_json::json!(attempt).to_string();
        let lines = String::from_utf8_lossy(&right.history).into_owned();
        right.history = append_history(&lines, &line).into_bytes();
        // What is moving is in no host's reach, and another store may have it already.
        if matches!(right.state, DEAD | MOVING) {
            return Repaired {
                kind,
                row: right,
                remedy: Remedy::Repaired,
            };
        }
        // As if this had been an attempt, so that a redrive gives the budget that it had.
        right.failed = right.failed.saturating_add(1);
        right.state = DEAD;
        right.place = signed(now_ms);
        right.due_ms = None;
        Repaired {
            kind,
            row: right,
            remedy: Remedy::DeadLettered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_MS: u64 = 1_795_228_395_123;

    fn waiting() -> Row {
        Row {
            seq: 1,
            id: b"a".to_vec(),
            state: 3,
            place: 1_099_511_627_777,
            was: None,
            due_ms: None,
            failed: 0,
            retries_left: 3,
            headers: br#"[["k","v"]]"#.to_vec(),
            history: Vec::new(),
            has_payload: true,
        }
    }

    #[test]
    fn a_lease_that_runs_is_left_alone_and_one_that_has_ended_is_not() {
        let lost = |place| Row {
            state: UNACK,
            place,
            has_payload: false,
            ..waiting()
        };
        let running = lost(signed(NOW_MS + 1));
        let repaired = running.repaired(NOW_MS).unwrap();
        assert_eq!(
            (repaired.remedy, &repaired.row),
            (Remedy::InFlight, &running)
        );
        let repaired = lost(signed(NOW_MS)).repaired(NOW_MS).unwrap();
        assert_eq!(
            (repaired.remedy, repaired.row.state),
            (Remedy::DeadLettered, DEAD)
        );
    }

    #[test]
    fn of_two_due_times_the_later_counts() {
        let row = |place, due_ms| Row {
            state: PENDING,
            place,
            due_ms,
            ..waiting()
        };
        for (place, due_ms) in [(5, Some(7)), (7, Some(5)), (7, None)] {
            let repaired = row(place, due_ms).repaired(NOW_MS).unwrap();
            assert_eq!(repaired.row, row(7, Some(7)));
        }
    }

    #[test]
    fn a_history_of_spaces_is_mended_once() {
        for history in [" ", "\n", "\n \n"] {
            let row = Row {
                history: history.as_bytes().to_vec(),
                ..waiting()
            };
            let repaired = row.repaired(NOW_MS).unwrap();
            assert!(
                repaired.row.repaired(NOW_MS).is_none(),
                "{:?}",
                repaired.row
            );
        }
    }

    proptest! {
        #[test]
        fn a_mended_row_is_right_whatever_it_was(
            state in -1_i64..12, was in prop::option::of(0_i64..10), place in any::<i64>(),
            due_ms in prop::option::of(any::<i64>()), failed in -2_i64..5, retries_left in -2_i64..5,
            headers in prop_oneof![Just(Vec::new()), Just(br#"[["k","v"]]"#.to_vec()), prop::collection::vec(any::<u8>(), 0..20)],
            history in prop::collection::vec(any::<u8>(), 0..40), has_payload in any::<bool>(),
        ) {
            let row = Row {
                state, place, was, due_ms, failed, retries_left, headers, history, has_payload,
                ..waiting()
            };
            if let Some(repaired) = row.repaired(NOW_MS) {
                let is_in_hand = repaired.remedy == Remedy::InFlight;
                prop_assert_eq!(is_in_hand, repaired.row == row);
                prop_assert!(is_in_hand || repaired.row.repaired(NOW_MS).is_none(), "{:?}", repaired.row);
                prop_assert_eq!(repaired.row.has_payload, has_payload);
            }
        }
    }
}
