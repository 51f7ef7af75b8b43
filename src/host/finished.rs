//! A run that ended, and what the store is to do with its message.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::ended::Note;
use super::in_flight::InFlightId;
use super::{QueueSettings, ServedQueue};
use crate::clock::Clock;
use crate::message::{Attempt, Claim, Outgoing, Token};
use crate::runtime::{Handler, LogLine, RUN_LINES_MAX, Report, Source};
use crate::spans::Started;
use crate::store::{End, Settlement, StoreError};
use crate::text::cut_for_json;
use crate::verdict::{self, Outcome};

/// Bytes that are kept of a failed attempt's reason and of what the guest printed, as JSON.
const KEPT_REASON_MAX: usize = 512;
const KEPT_LOG_MAX: usize = 1024;

/// A run that ended: the handler's task makes it, and the queue's settler reads it.
pub(super) struct Finished {
    pub in_flight_id: InFlightId,
    pub claim: Claim,
    pub attempt: u32,
    pub attempts_max: u32,
    /// When this attempt became due, if it waited for a time.
    pub due_at_ms: Option<u64>,
    pub report: Report,
    /// What ran.
    pub handler: Arc<Handler>,
    /// None if the message is to be released, or while the store is asked.
    pub settlement: Option<Settlement>,
    /// The span of its settlement, if it is recorded.
    pub span: Option<Started>,
}

impl Finished {
    /// Its claim, while the store is asked: a copy for each message would cost more than to put it back.
    pub(super) fn take_claim(&mut self) -> Claim {
        let none = Claim {
            id: String::new().into(),
            token: Token(String::new()),
        };
        std::mem::replace(&mut self.claim, none)
    }

    /// Decides what follows from how the run ended.
    pub(super) async fn decide(&mut self, served: &ServedQueue) {
        self.tell_of_result(&served.settings);
        let outbox = std::mem::take(&mut self.report.outbox);
        self.settlement = self.settlement(served, outbox);
        let Some(limit) = served.settings.give_up_after else {
            return;
        };
        let Some(Settlement::Nack { delay, .. }) = self.settlement else {
            return;
        };
        if self.attempt >= self.attempts_max {
            // It is dead for want of retries.
            return;
        }
        if let Some(age) = self.age(served).await
            && verdict::is_too_late(age, delay, limit)
        {
            let last = std::mem::replace(&mut self.report.outcome, Outcome::Stopped);
            self.report.outcome = Outcome::GaveUp {
                limit,
                last: Box::new(last),
            };
            self.settlement = self.settlement(served, Vec::new());
        }
    }

    /// Says it in the log of the run if it returned more than the queue keeps.
    fn tell_of_result(&mut self, settings: &QueueSettings) {
        let size = self.report.result.as_ref().map_or(0, Vec::len);
        let max = settings.keep_results;
        // Whoever keeps none knows that.
        let keeps_any = max > 0 && settings.keep_ended > 0;
        if !keeps_any || size <= max || self.report.outcome != Outcome::Acked {
            return;
        }
        // Among those that are logged, however many the handler printed.
        let place = self.report.log.len().min(RUN_LINES_MAX - 1);
        let text = format!(
            "the result has {size} bytes and is not kept: the queue keeps {max} (--keep-results)"
        );
        let source = Source::Host;
        self.report.log.insert(place, LogLine { source, text });
    }

    fn settlement(&self, served: &ServedQueue, outbox: Vec<Outgoing>) -> Option<Settlement> {
        verdict::settlement(
            &self.report.outcome,
            outbox,
            (self.attempt, || self.kept(served)),
            &served.settings.backoff,
            fastrand::f64(),
        )
    }

    /// How the message ended, if it has.
    pub(super) fn note(self, settlement: &Settlement, at: Instant) -> Option<Note> {
        let is_last = self.attempt >= self.attempts_max;
        let failure = match settlement {
            Settlement::Ack { .. } => None,
            Settlement::Nack { .. } if !is_last => return None,
            Settlement::Nack { attempt, .. } | Settlement::Reject { attempt } => {
                Some((attempt.class.clone(), attempt.reason.clone()))
            }
        };
        Some(Note {
            id: self.claim.id,
            at,
            attempt: self.attempt,
            duration: self.report.duration,
            due_at_ms: self.due_at_ms,
            handler: Some(self.handler),
            end: if failure.is_some() {
                End::Died
            } else {
                End::Acked
            },
            result: self.report.result.filter(|_| failure.is_none()),
            failure,
        })
    }

    /// How long ago the first attempt of the message began. None if the store does not tell: then the
    /// message is retried, and the question comes up again when that fails.
    async fn age(&self, served: &ServedQueue) -> Option<Duration> {
        if self.attempt == 1 {
            return Some(self.report.duration);
        }
        let store = &served.shared.store;
        let record = match store.get(&served.queue, &self.claim.id).await {
            Ok(record) => record?,
            Err(error) => {
                let is_away = matches!(error, StoreError::Unreachable { .. });
                if !is_away && !served.is_history_refused.swap(true, Relaxed) {
                    let queue = &served.queue;
                    tracing::warn!(%queue, "no message is given up after its time: {error}");
                }
                return None;
            }
        };
        let began_ms = verdict::first_began_ms(&record.history)?;
        let now_ms = Clock::System.now().ms;
        Some(Duration::from_millis(now_ms.saturating_sub(began_ms)))
    }

    /// What is kept of a failed attempt.
    fn kept(&self, served: &ServedQueue) -> Attempt {
        let (outcome, took) = (&self.report.outcome, self.report.duration);
        Attempt {
            attempt: self.attempt,
            at_ms: Clock::System.now().ms,
            class: outcome.class().to_owned(),
            reason: cut_for_json(&outcome.reason(), KEPT_REASON_MAX).into_owned(),
            duration_ms: u64::try_from(took.as_millis()).ok(),
            host: served.shared.config.host_id.clone(),
            handler: self.handler.digest().to_owned(),
            log: cut_for_json(&self.report.log_text(), KEPT_LOG_MAX).into_owned(),
        }
    }
}
