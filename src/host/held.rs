//! What the loop of one queue knows of its limits. A hint: the store decides, so after a crash of this
//! host nothing is to be repaired.

use std::time::Instant;

use crate::store::NextAllowed;

/// Whether a limit of the queue was reached when the loop last reserved.
#[derive(Debug, Default)]
pub(super) struct Held {
    until: Option<Until>,
    /// When the store has something to sort or to put off, whether or not there is a slot.
    sort_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
enum Until {
    Time(Instant),
    Settled,
    /// Messages of some keys; those of others may go.
    Keys(Option<Instant>),
}

impl Held {
    /// Takes note of what a reservation has found.
    pub(super) fn note(&mut self, next: NextAllowed) {
        self.until = match next {
            NextAllowed::Now => None,
            NextAllowed::In(wait) => Some(Until::Time(Instant::now() + wait)),
            NextAllowed::WhenSettled => Some(Until::Settled),
            NextAllowed::OtherKeys(wait) => {
                Some(Until::Keys(wait.map(|wait| Instant::now() + wait)))
            }
        };
    }

    /// Takes note of when there is more to sort.
    pub(super) fn note_sorting(&mut self, next: NextAllowed) {
        self.sort_at = match next {
            NextAllowed::OtherKeys(Some(wait)) => Some(Instant::now() + wait),
            _ => None,
        };
    }

    /// True if there is something to sort.
    pub(super) fn has_to_sort(&self) -> bool {
        self.sort_at.is_some_and(|at| at <= Instant::now())
    }

    /// Something was settled here, or has been elsewhere for all that is known. True if a reservation
    /// may bring something now that would have brought nothing before.
    pub(super) fn may_be_settled(&mut self) -> bool {
        let was_held = matches!(self.until, Some(Until::Settled | Until::Keys(_)));
        if was_held {
            self.until = None;
        }
        was_held
    }

    /// The same when the time has come at which the limit lets the next one go.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = self.until().is_some_and(|at| at <= Instant::now());
        if is_over {
            self.until = None;
        }
        is_over
    }

    /// True while a reservation would bring nothing.
    pub(super) fn is_held(&self) -> bool {
        match self.until {
            None | Some(Until::Keys(_)) => false,
            Some(Until::Time(at)) => at > Instant::now(),
            Some(Until::Settled) => true,
        }
    }

    /// When the limit lets the next message go or there is something to sort, if that is known.
    pub(super) fn until(&self) -> Option<Instant> {
        let until = match self.until {
            Some(Until::Time(at)) => Some(at),
            Some(Until::Keys(at)) => at,
            _ => None,
        };
        [until, self.sort_at].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_reached_limit_holds_until_its_time_or_until_something_is_settled() {
        let mut held = Held::default();
        assert!(!held.is_held());
        held.note(NextAllowed::In(Duration::from_hours(1)));
        assert!(!held.may_be_settled() && !held.is_over());
        assert!(held.is_held() && held.until().is_some());
        held.note(NextAllowed::In(Duration::ZERO));
        assert!(!held.is_held() && held.until().is_some());
        assert!(held.is_over() && !held.is_over());
        held.note(NextAllowed::WhenSettled);
        assert!(held.is_held() && held.until().is_none() && !held.is_over());
        assert!(held.may_be_settled() && !held.may_be_settled());
        assert!(!held.is_held());
        held.note(NextAllowed::OtherKeys(Some(Duration::ZERO)));
        assert!(!held.is_held() && held.is_over() && !held.may_be_settled());
        held.note(NextAllowed::OtherKeys(None));
        assert!(!held.is_held() && held.until().is_none() && held.may_be_settled());
        held.note(NextAllowed::WhenSettled);
        held.note(NextAllowed::Now);
        assert!(!held.is_held());
    }

    #[test]
    fn what_is_to_be_sorted_is_not_forgotten_before_it_was() {
        let mut held = Held::default();
        held.note_sorting(NextAllowed::OtherKeys(Some(Duration::from_hours(1))));
        assert!(!held.has_to_sort() && !held.is_over() && held.until().is_some());
        held.note_sorting(NextAllowed::OtherKeys(Some(Duration::ZERO)));
        assert!(held.has_to_sort() && held.is_over() && held.is_over());
        held.note_sorting(NextAllowed::Now);
        assert!(!held.has_to_sort() && !held.is_over() && held.until().is_none());
    }
}
