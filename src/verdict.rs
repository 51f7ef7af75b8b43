//! What follows from how a handler ended: outcome x attempt x policy -> settlement. Pure.

use std::time::Duration;

use crate::message::{Attempt, Outgoing};
use crate::store::Settlement;
use crate::text::human_duration;

mod backoff;

pub use self::backoff::{Backoff, Delays, first_began_ms, is_too_late};

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
    /// No attempt had begun by the time that its producer set, so no handler ran.
    Expired,
    /// An attempt failed, and no retry can begin in the time that the queue gives a message.
    GaveUp {
        /// That time.
        limit: Duration,
        /// How the attempt failed.
        last: Box<Outcome>,
    },
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
    /// All classes of runs. [`GaveUp`](Self::GaveUp) is none: it is what follows from one.
    pub const CLASSES: [&'static str; 15] = [
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
        "message-expired",
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
            Self::Expired => "message-expired",
            Self::GaveUp { .. } => "gave-up",
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
                format!("the handler exited with an error; it printed: {last_words}")
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
            Self::Expired => "it expired before this attempt began".to_owned(),
            Self::GaveUp { limit, last } => {
                let (limit, class, reason) = (human_duration(*limit), last.class(), last.reason());
                let colon = if reason.is_empty() { "" } else { ": " };
                format!(
                    "no retry within {limit} of the first attempt; the last was {class}{colon}{reason}"
                )
            }
            Self::HostBusy { what } => format!("the host had no {what} free for it"),
        }
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
    backoff: &Backoff,
    random: f64,
) -> Option<Settlement> {
    let delay = match outcome {
        Outcome::HostBusy { .. } => return None,
        Outcome::Acked => return Some(Settlement::Ack { outbox }),
        Outcome::Rejected { .. }
        | Outcome::PayloadMissing
        | Outcome::Expired
        | Outcome::GaveUp { .. } => {
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
        | Outcome::HostFault { .. } => backoff.delay(number, random),
    };
    Some(Settlement::Nack {
        delay: (!delay.is_zero()).then_some(delay),
        attempt: attempt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        match settlement(
            outcome,
            Vec::new(),
            attempt(number),
            &Backoff::default(),
            0.5,
        ) {
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
            settlement(
                &Outcome::Acked,
                Vec::new(),
                attempt(1),
                &Backoff::default(),
                0.0
            ),
            Some(Settlement::ACK)
        );
        for outcome in [
            Outcome::PayloadMissing,
            Outcome::Expired,
            Outcome::GaveUp {
                limit: Duration::ZERO,
                last: Box::new(Outcome::Stopped),
            },
            Outcome::Rejected {
                reason: "no".into(),
            },
        ] {
            let settled = settlement(&outcome, Vec::new(), attempt(1), &Backoff::default(), 0.0);
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
        let settled = settlement(&busy, Vec::new(), attempt(4), &Backoff::default(), 0.5);
        assert_eq!(settled, None);
    }

    #[test]
    fn who_gives_up_says_how_the_last_attempt_failed() {
        let gave_up = |last| Outcome::GaveUp {
            limit: Duration::from_hours(1),
            last: Box::new(last),
        };
        let reason = String::from("HTTP 503");
        let nacked = gave_up(Outcome::Nacked {
            delay: None,
            reason,
        });
        assert_eq!(
            nacked.reason(),
            "no retry within 1h 00m of the first attempt; the last was nacked: HTTP 503"
        );
        let silent = gave_up(Outcome::Nacked {
            delay: None,
            reason: String::new(),
        });
        assert!(silent.reason().ends_with("the last was nacked"));
    }
}
