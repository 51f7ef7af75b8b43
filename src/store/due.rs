//! What a store tells of the time ahead.

/// Spans of a [`DueAhead`] at most.
pub const DUE_SPANS_MAX: usize = 60;

/// When pending messages fall due, from now on in spans of one length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueAhead {
    /// When the first span begins, by the store's clock: unix milliseconds. Messages that are overdue
    /// count into it.
    pub from_ms: u64,
    /// The spans, in their order.
    pub spans: Vec<DueSpan>,
    /// True when more messages have failed than [`FAILED_SAMPLE_MAX`](super::FAILED_SAMPLE_MAX): the numbers of those that have
    /// failed are too low.
    pub partial: bool,
}

/// The messages that fall due in one span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DueSpan {
    /// How many.
    pub count: u64,
    /// Those of them that have failed before.
    pub failed: u64,
    /// True when the store has stopped counting: there are more.
    pub is_more: bool,
}

impl DueAhead {
    /// So many spans of this length, with nothing in them yet.
    pub(super) fn empty(from_ms: u64, spans: usize) -> Self {
        Self {
            from_ms,
            spans: vec![DueSpan::default(); spans.min(DUE_SPANS_MAX)],
            partial: false,
        }
    }

    /// Counts those that have failed, by when they are due.
    pub(super) fn add_failed(&mut self, due_ms: impl IntoIterator<Item = u64>, span_ms: u64) {
        for due_ms in due_ms {
            let at = due_ms.saturating_sub(self.from_ms) / span_ms;
            let span = usize::try_from(at)
                .ok()
                .and_then(|at| self.spans.get_mut(at));
            if let Some(span) = span {
                span.failed += 1;
            }
        }
        // They were counted at another moment.
        for span in &mut self.spans {
            span.failed = span.failed.min(span.count);
        }
    }
}
