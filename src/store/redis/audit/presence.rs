//! Where an id is and what is kept of it, and what follows from that. No Redis here.

use crate::store::FindingKind;

/// A sum of the bits below, as `lua/include/presence.lua` makes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Presence(pub u32);

pub(super) const PENDING: u32 = 1;
pub(super) const READY: u32 = 1 << 1;
pub(super) const UNACK: u32 = 1 << 2;
pub(super) const RETRY: u32 = 1 << 3;
pub(super) const GARBAGE: u32 = 1 << 4;
pub(super) const DEAD: u32 = 1 << 5;
pub(super) const MOVING: u32 = 1 << 6;
/// More than once in this list.
pub(super) const READY_TWICE: u32 = 1 << 7;
pub(super) const RETRY_TWICE: u32 = 1 << 8;
/// There is something under the payload's key, ...
pub(super) const PAYLOAD: u32 = 1 << 9;
/// ... and it is no string.
pub(super) const NO_STRING: u32 = 1 << 10;
/// A field in `retry:cnt`, `attempts`, ...
pub(super) const COUNTS: u32 = 1 << 11;
pub(super) const ATTEMPTS: u32 = 1 << 12;
pub(super) const DUE: u32 = 1 << 13;
pub(super) const HEADERS: u32 = 1 << 14;
pub(super) const HISTORY: u32 = 1 << 15;
pub(super) const WAS: u32 = 1 << 16;
/// In unack, and the lease has not ended.
pub(super) const LEASE_RUNS: u32 = 1 << 17;
/// One of the places has a key of a wrong type, so that an id may be where nobody can see it.
pub(super) const UNREADABLE: u32 = 1 << 18;

const PLACES: u32 = PENDING | READY | UNACK | RETRY | GARBAGE | DEAD | MOVING;
const FIELDS: u32 = COUNTS | ATTEMPTS | DUE | HEADERS | HISTORY | WAS;
/// Places of what still is to be handled here.
const LIVE: u32 = PENDING | READY | UNACK | RETRY;

/// What is to be done about an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repair {
    /// Nothing is kept of it.
    Forget,
    /// It stays in this place and is nowhere else.
    Keep(u32),
    /// It becomes a dead letter.
    DeadLetter,
    /// A host has it in flight, so it stays as it is.
    Wait,
    /// It stays as it is.
    None,
}

impl Presence {
    fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// What is wrong, if anything is.
    pub(super) fn finding(self) -> Option<FindingKind> {
        let places = self.0 & PLACES;
        let all_is_seen = !self.has(UNREADABLE);
        let is_lost = !self.has(PAYLOAD) && self.has(LIVE) && !self.has(MOVING);
        let is_stale = self.has(DUE) && !self.has(READY | RETRY | MOVING)
            || self.has(WAS) && !self.has(MOVING);
        Some(match () {
            () if self.has(NO_STRING) => FindingKind::WrongType,
            () if places == 0 && self.has(PAYLOAD) && all_is_seen => FindingKind::OrphanPayload,
            () if places == 0 && self.has(FIELDS) && all_is_seen => FindingKind::OrphanField,
            () if is_lost => FindingKind::PayloadMissing,
            () if places.count_ones() > 1 => FindingKind::TwoStates,
            () if self.has(READY_TWICE | RETRY_TWICE) => FindingKind::TwiceInLine,
            () if places != 0 && is_stale && all_is_seen => FindingKind::StaleField,
            () => return None,
        })
    }

    /// What puts a finding right, so that no lease that runs is broken, nothing that was there is
    /// lost, and nothing can run twice at once.
    pub(super) fn repair(self) -> Repair {
        let places = self.0 & PLACES;
        let is_in_hand = self.has(LEASE_RUNS);
        let first = |order: &[u32]| order.iter().copied().find(|place| self.has(*place));
        match () {
            // Nobody knows what it is.
            () if self.has(NO_STRING) => Repair::None,
            () if places == 0 && self.has(PAYLOAD) => Repair::DeadLetter,
            () if places == 0 => Repair::Forget,
            // A copy may have put it into another store already, where it will be handled; here it
            // must not be, and yet a handler may be at work.
            () if self.has(MOVING) && is_in_hand => Repair::Wait,
            () if self.has(MOVING) => Repair::Keep(MOVING),
            () if self.has(PAYLOAD) => first(&[UNACK, PENDING, RETRY, READY, DEAD, GARBAGE])
                .map_or(Repair::None, Repair::Keep),
            // The handler may have got the payload before it was lost.
            () if is_in_hand => Repair::Wait,
            // The ack of a delayqueue consumer left it: hosts drop it.
            () if !self.has(COUNTS | DEAD | GARBAGE) => Repair::Forget,
            () => first(&[DEAD, GARBAGE]).map_or(Repair::DeadLetter, Repair::Keep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Presence> {
        // What cannot be is left out: twice where it is not once, a lease that is none.
        (0..1_u32 << 19).map(Presence).filter(|marks| {
            let implies = |a, b| !marks.has(a) || marks.has(b);
            implies(READY_TWICE, READY)
                && implies(RETRY_TWICE, RETRY)
                && implies(NO_STRING, PAYLOAD)
                && implies(LEASE_RUNS, UNACK)
        })
    }

    /// What is left of the marks after a repair.
    fn repaired(marks: Presence, repair: Repair) -> Presence {
        let base = marks.0 & (PAYLOAD | NO_STRING | UNREADABLE);
        let fields = marks.0 & FIELDS;
        let stale = |place: u32| {
            let due = if place & (READY | RETRY | MOVING) == 0 {
                DUE
            } else {
                0
            };
            let was = if place == MOVING { 0 } else { WAS };
            due | was
        };
        Presence(match repair {
            Repair::Forget => base & !PAYLOAD,
            Repair::Keep(place) => {
                let lease = if place == UNACK { LEASE_RUNS } else { 0 };
                base | place | marks.0 & lease | fields & !stale(place)
            }
            Repair::DeadLetter => {
                base | DEAD | ATTEMPTS | HISTORY | fields & !stale(DEAD) & !COUNTS
            }
            Repair::Wait | Repair::None => marks.0,
        })
    }

    #[test]
    fn every_cure_leaves_nothing_wrong_and_a_cure_of_nothing_is_never_asked_for() {
        for marks in all() {
            let Some(kind) = marks.finding() else {
                continue;
            };
            match marks.repair() {
                Repair::None => assert_eq!(kind, FindingKind::WrongType),
                Repair::Wait => assert!(marks.has(LEASE_RUNS)),
                repair => assert_eq!(
                    repaired(marks, repair).finding(),
                    None,
                    "{marks:?} {repair:?}"
                ),
            }
        }
    }

    #[test]
    fn no_cure_breaks_a_running_lease_or_loses_a_payload() {
        for marks in all().filter(|marks| marks.finding().is_some()) {
            let after = repaired(marks, marks.repair());
            if marks.has(LEASE_RUNS) {
                assert!(after.has(LEASE_RUNS), "{marks:?}");
            }
            if marks.has(PAYLOAD) {
                assert!(after.has(PAYLOAD) && after.has(PLACES) || after == marks);
            }
            // What was out of reach for hosts does not come into it.
            if !marks.has(LIVE) {
                assert!(!after.has(LIVE), "{marks:?}");
            }
        }
    }

    #[test]
    fn an_id_without_payload_and_retries_becomes_no_dead_letter() {
        for place in [PENDING, READY, UNACK, RETRY] {
            for marks in [place, place | ATTEMPTS | HISTORY | DUE] {
                assert_eq!(Presence(marks).repair(), Repair::Forget);
                assert_eq!(Presence(marks | COUNTS).repair(), Repair::DeadLetter);
            }
        }
        assert_eq!(Presence(UNACK | LEASE_RUNS).repair(), Repair::Wait);
    }

    #[test]
    fn what_is_as_it_should_be_is_no_finding() {
        for marks in [
            0,
            PENDING | PAYLOAD | COUNTS,
            READY | PAYLOAD | COUNTS | DUE | HEADERS,
            UNACK | LEASE_RUNS | PAYLOAD | COUNTS,
            UNACK | PAYLOAD | COUNTS | ATTEMPTS | HISTORY,
            RETRY | PAYLOAD | COUNTS | ATTEMPTS | HISTORY | DUE,
            GARBAGE | COUNTS | ATTEMPTS | HISTORY,
            DEAD | PAYLOAD | ATTEMPTS,
            DEAD | ATTEMPTS,
            MOVING | PAYLOAD | WAS | DUE,
            MOVING | WAS,
            // As delayqueue's producers leave it.
            PENDING | PAYLOAD,
        ] {
            assert_eq!(Presence(marks).finding(), None, "{marks}");
        }
    }

    #[test]
    fn where_not_everything_can_be_seen_nothing_is_an_orphan() {
        assert_eq!(Presence(PAYLOAD | UNREADABLE).finding(), None);
        assert_eq!(Presence(COUNTS | UNREADABLE).finding(), None);
        assert_eq!(
            Presence(READY | PENDING | PAYLOAD | UNREADABLE).finding(),
            Some(FindingKind::TwoStates)
        );
    }
}
