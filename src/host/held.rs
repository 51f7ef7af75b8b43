//! What the loop of one queue knows of its limits. A hint: the store decides, so after a crash of this
//! host nothing is to be repaired.

use std::time::Instant;

use crate::store::NextAllowed;

/// Whether a limit of the queue was reached when the loop last reserved.
#[derive(Debug, Default)]
pub(super) struct Held(Option<Until>);

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
        self.0 = match next {
            NextAllowed::Now => None,
            NextAllowed::In(wait) => Some(Until::Time(Instant::now() + wait)),
            NextAllowed::WhenSettled => Some(Until::Settled),
            NextAllowed::OtherKeys(wait) => {
                Some(Until::Keys(wait.map(|wait| Instant::now() + wait)))
            }
        };
    }

    /// Something was settled here, or has been elsewhere for all that is known. True if a reservation
    /// may bring something now that would have brought nothing before.
    pub(super) fn may_be_settled(&mut self) -> bool {
        let was_held = matches!(self.0, Some(Until::Settled | Until::Keys(_)));
        if was_held {
            self.0 = None;
        }
        was_held
    }

    /// The same when the time has come at which the limit lets the next one go.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = self.until().is_some_and(|at| at <= Instant::now());
        if is_over {
            self.0 = None;
        }
        is_over
    }

    /// True while a reservation would bring nothing.
    pub(super) fn is_held(&self) -> bool {
        match self.0 {
            None | Some(Until::Keys(_)) => false,
            Some(Until::Time(at)) => at > Instant::now(),
            Some(Until::Settled) => true,
        }
    }

    /// When the limit lets the next message go, if that is known.
    pub(super) fn until(&self) -> Option<Instant> {
        match self.0 {
            Some(Until::Time(at)) => Some(at),
            Some(Until::Keys(at)) => at,
            _ => None,
        }
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
}
