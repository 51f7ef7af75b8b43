//! What the methods of producers and operators note.

use super::{Event, EventBuffer, EventKind};
use crate::message::{MessageId, NewMessage, QueueName, SendOutcome, Sent};
use crate::store::{Cancelled, Redriven, Rescheduled};

impl EventBuffer {
    /// What a send has accepted, or changed in what waits. A repeat that did nothing is not told.
    pub(in crate::store) fn sent(&self, queue: &QueueName, messages: &[NewMessage], sent: &[Sent]) {
        let accepted = |(message, sent): (&NewMessage, &Sent)| {
            let due_at_ms = Some(sent.due_at_ms?);
            Some(match sent.outcome {
                // One that waits for the end of a run was accepted as well.
                SendOutcome::Sent | SendOutcome::Repeat | SendOutcome::AfterRunning => {
                    Event::sent(message, due_at_ms)
                }
                SendOutcome::Replaced | SendOutcome::Extended => Event {
                    due_at_ms,
                    ..Event::of(EventKind::Rescheduled, &message.id)
                },
            })
        };
        self.note(queue, messages.iter().zip(sent).filter_map(accepted));
    }

    pub(in crate::store) fn cancelled(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        answers: &[Cancelled],
    ) {
        let done = ids.iter().zip(answers);
        let done = done.filter(|(_, answer)| matches!(answer, Cancelled::Done | Cancelled::Killed));
        self.note(
            queue,
            done.map(|(id, _)| Event::of(EventKind::Cancelled, id)),
        );
    }

    pub(in crate::store) fn rescheduled(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        answers: &[Rescheduled],
    ) {
        let event = |(id, answer): (&MessageId, &Rescheduled)| match answer {
            Rescheduled::At(at_ms) => Some(Event {
                due_at_ms: Some(*at_ms),
                ..Event::of(EventKind::Rescheduled, id)
            }),
            _ => None,
        };
        self.note(queue, ids.iter().zip(answers).filter_map(event));
    }

    pub(in crate::store) fn redriven(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        answers: &[Redriven],
    ) {
        let event = |(id, answer): (&MessageId, &Redriven)| match answer {
            Redriven::As(new) => Some(Event {
                new_id: Some(new.clone()),
                ..Event::of(EventKind::Redriven, id)
            }),
            _ => None,
        };
        self.note(queue, ids.iter().zip(answers).filter_map(event));
    }

    pub(in crate::store) fn deleted(&self, queue: &QueueName, ids: &[MessageId], answers: &[bool]) {
        let done = ids.iter().zip(answers).filter(|(_, was_there)| **was_there);
        self.note(queue, done.map(|(id, _)| Event::of(EventKind::Deleted, id)));
    }

    pub(in crate::store) fn paused(&self, queue: &QueueName, paused: bool) {
        let kind = if paused {
            EventKind::Paused
        } else {
            EventKind::Resumed
        };
        self.note(queue, std::iter::once_with(|| Event::now(kind)));
    }
}
