//! The span of a send, and the trace that its messages carry on.

use super::Answer;
use crate::message::{Headers, NewMessage};
use crate::spans::{Ended, Kind, Spans, Started, parent_of};

/// A send that is recorded.
pub(super) struct SendSpan(Started, Ended);

impl SendSpan {
    /// Begins it, to a queue or a topic, as a part of the trace that these headers name. It enters the
    /// messages that say nothing else. None if nobody records it.
    pub(super) fn begin(
        spans: &Spans,
        to: &str,
        of: &Headers,
        messages: &mut [NewMessage],
    ) -> Option<Self> {
        let started = spans.start(of, fastrand::u128(1..))?;
        let parent = parent_of(of);
        for message in &mut *messages {
            if parent_of(&message.headers) == parent {
                started.enter(&mut message.headers);
            }
        }
        let ended = Ended::operation(Kind::Producer, "send", to);
        let ended = match messages {
            [one] => ended
                .with("messaging.message.id", one.id.as_str())
                .with("messaging.message.body.size", one.payload.len()),
            many => ended.with("messaging.batch.message_count", many.len()),
        };
        Some(Self(started, ended))
    }

    /// The client has its answer.
    pub(super) fn end(self, answer: &Answer) {
        let Self(started, ended) = self;
        let error = answer.as_ref().err();
        let error = error.map(|problem| {
            let words = problem.status.canonical_reason().unwrap_or_default();
            (problem.status.as_u16().to_string(), words.to_owned())
        });
        started.end(ended.failed(error));
    }
}
