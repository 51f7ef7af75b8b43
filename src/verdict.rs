//! What follows from how a handler ended: outcome x attempt x policy -> settlement. Pure.

use std::time::Duration;

use crate::message::{Attempt, Outgoing};
use crate::store::Settlement;

/// How one run of a handler ended: the runtime makes it, and [`settlement`] reads it. Whatever goes
/// wrong in a guest is one of these, never an error of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It returned `ack`.
    Acked,
    /// It returned `nack`.
    Nacked {
        /// The delay it asked for.
        delay: Option<Duration>,
        /// Why.
        reason: String,
    },
    /// It returned `reject`.
    Rejected {
        /// Why.
        reason: String,
    },
    /// It trapped: a panic, a bad access, the end of the stack.
    Trapped {
        /// The trap, with the last line that the guest printed to stderr.
        reason: String,
    },
    /// It exited instead of returning.
    Exited {
        /// False when it said that it failed.
        ok: bool,
        /// The last line that it printed, or nothing.
        last_words: String,
    },
    /// It ran into its time limit and was stopped.
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// It asked for more memory than it may have and was stopped.
    OutOfMemory {
        /// The limit, bytes.
        limit: usize,
    },
    /// It called deeper than its stack allows.
    OutOfStack {
        /// The limit, bytes.
        limit: usize,
    },
    /// It wanted more than another of its limits allows.
    OverLimit {
        /// The limit, and how it is set.
        what: String,
    },
    /// It acked, and the store does not take what it sent.
    SendsRefused,
    /// An operator stopped it.
    Stopped,
    /// The store has the message but not its payload, so no handler ran.
    PayloadMissing,
    /// The host had too few of something for it: it fails through no fault of its own.
    HostBusy {
        /// One of what was missing.
        what: &'static str,
    },
    /// The host itself could not run it.
    HostFault {
        /// What happened.
        reason: String,
    },
}

impl Outcome {
    /// All that [`class`](Self::class) answers.
    pub const CLASSES: [&'static str; 14] = [
        "acked",
        "nacked",
        "rejected",
        "trapped",
        "exited",
        "timed-out",
        "out-of-memory",
        "out-of-stack",
        "over-limit",
        "sends-refused",
        "stopped",
        "payload-missing",
        "host-busy",
        "host-fault",
    ];

    /// The kind of end, one word.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Nacked { .. } => "nacked",
            Self::Rejected { .. } => "rejected",
            Self::Trapped { .. } => "trapped",
            Self::Exited { .. } => "exited",
            Self::TimedOut { .. } => "timed-out",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::OutOfStack { .. } => "out-of-stack",
            Self::OverLimit { .. } => "over-limit",
            Self::SendsRefused => "sends-refused",
            Self::Stopped => "stopped",
            Self::PayloadMissing => "payload-missing",
            Self::HostBusy { .. } => "host-busy",
            Self::HostFault { .. } => "host-fault",
        }
    }

    /// The end in words; empty when the class says it all.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Acked => String::new(),
            Self::Nacked { reason, .. }
            | Self::Rejected { reason }
            | Self::Trapped { reason }
            | Self::HostFault { reason } => reason.clone(),
            Self::Exited { ok: true, .. } => "the handler exited instead of returning".to_owned(),
            Self::Exited { last_words, .. } if last_words.is_empty() => {
                "the handler exited with an error".to_owned()
            }
            Self::Exited { last_words, .. } => {
                format!("the handler exited with an error; the last line printed: {last_words}")
            }
            Self::TimedOut { limit } => format!("no verdict within {limit:?}"),
            Self::OutOfMemory { limit } => {
                format!("more than {} MiB of memory wanted", limit / (1024 * 1024))
            }
            Self::OutOfStack { limit } => {
                format!("more than {} KiB of stack wanted", limit / 1024)
            }
            Self::OverLimit { what } => format!("more wanted than {what}"),
            Self::SendsRefused => {
                "the store has no room for what the handler sent, or does not let it in".to_owned()
            }
            Self::Stopped => "an operator stopped it".to_owned(),
            Self::PayloadMissing => "the store has lost the payload".to_owned(),
            Self::HostBusy { what } => format!("the host had no {what} free for it"),
        }
    }
}

/// How long to wait after a failed attempt whose handler named no delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first attempt; doubled after each further one.
    pub base: Duration,
    /// The longest, for the handler's own delays too.
    pub max: Duration,
}

impl Backoff {
    /// The delay after the given attempt (1 for the first). `jitter` is a random number from 0 to
    /// 1 that spreads the delay by a fifth to either side, so that messages that failed together
    /// do not come back together.
    #[must_use]
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let doubled = self
            .base
            .saturating_mul(1 << attempt.saturating_sub(1).min(31));
        doubled
            .min(self.max)
            .mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0))
            .min(self.max)
    }
}

/// What the store is to do with a delivery whose handler ended so and sent this. It was the delivery of
/// this `number`, 1 for the first; `attempt` is what is kept of it when it failed. None if the message is
/// to be released as if it had not been delivered.
#[must_use]
pub fn settlement(
    outcome: &Outcome,
    outbox: Vec<Outgoing>,
    (number, attempt): (u32, impl FnOnce() -> Attempt),
    backoff: Backoff,
    jitter: f64,
) -> Option<Settlement> {
    let delay = match outcome {
        Outcome::HostBusy { .. } => return None,
        Outcome::Acked => return Some(Settlement::Ack { outbox }),
        Outcome::Rejected { .. } | Outcome::PayloadMissing => {
            return Some(Settlement::Reject { attempt: attempt() });
        }
        Outcome::Nacked {
            delay: Some(delay), ..
        } => (*delay).min(backoff.max),
        Outcome::Nacked { delay: None, .. }
        | Outcome::Trapped { .. }
        | Outcome::Exited { .. }
        | Outcome::TimedOut { .. }
        | Outcome::OutOfMemory { .. }
        | Outcome::OutOfStack { .. }
        | Outcome::OverLimit { .. }
        | Outcome::SendsRefused
        | Outcome::Stopped
        | Outcome::HostFault { .. } => backoff.delay(number, jitter),
    };
    Some(Settlement::Nack {
        delay: (!delay.is_zero()).then_some(delay),
        attempt: attempt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_secs(1),
        max: Duration::from_hours(1),
    };

    fn attempt(number: u32) -> (u32, impl FnOnce() -> Attempt) {
        let attempt = move || Attempt {
            attempt: number,
            at_ms: 0,
            class: String::new(),
            reason: String::new(),
            duration_ms: None,
            host: String::new(),
            handler: String::new(),
            log: String::new(),
        };
        (number, attempt)
    }

    fn delay_of(outcome: &Outcome, number: u32) -> Option<Duration> {
        match settlement(outcome, Vec::new(), attempt(number), BACKOFF, 0.5) {
            Some(Settlement::Nack { delay, .. }) => delay,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        let trapped = Outcome::Trapped {
            reason: String::new(),
        };
        assert_eq!(delay_of(&trapped, 1), Some(Duration::from_secs(1)));
        assert_eq!(delay_of(&trapped, 4), Some(Duration::from_secs(8)));
        assert_eq!(delay_of(&trapped, u32::MAX), Some(Duration::from_hours(1)));
    }

    #[test]
    fn the_handler_names_its_own_delay_within_the_maximum() {
        let nack = |ms| Outcome::Nacked {
            delay: Some(Duration::from_millis(ms)),
            reason: String::new(),
        };
        assert_eq!(delay_of(&nack(0), 3), None);
        assert_eq!(delay_of(&nack(250), 3), Some(Duration::from_millis(250)));
        assert_eq!(delay_of(&nack(u64::MAX), 3), Some(Duration::from_hours(1)));
    }

    #[test]
    fn acks_and_rejects_are_final() {
        assert_eq!(
            settlement(&Outcome::Acked, Vec::new(), attempt(1), BACKOFF, 0.0),
            Some(Settlement::ACK)
        );
        for outcome in [
            Outcome::PayloadMissing,
            Outcome::Rejected {
                reason: "no".into(),
            },
        ] {
            let settled = settlement(&outcome, Vec::new(), attempt(1), BACKOFF, 0.0);
            assert!(
                matches!(settled, Some(Settlement::Reject { .. })),
                "{settled:?}"
            );
        }
    }

    #[test]
    fn what_the_host_could_not_provide_is_no_attempt() {
        let busy = Outcome::HostBusy {
            what: "HTTP connection",
        };
        let settled = settlement(&busy, Vec::new(), attempt(4), BACKOFF, 0.5);
        assert_eq!(settled, None);
    }

    proptest! {
        #[test]
        fn any_delay_is_within_its_bounds(
            base_ms in 0u64..1 << 50, max_ms in 0u64..1 << 50, number: u32, jitter: f64,
        ) {
            let backoff = Backoff {
                base: Duration::from_millis(base_ms), max: Duration::from_millis(max_ms),
            };
            prop_assert!(backoff.delay(number, jitter) <= backoff.max);
        }
    }
}
