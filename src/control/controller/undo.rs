//! What can be taken back for some seconds: a cancel, and another time.
//!
//! A message that was cancelled is sent again as it was: with its id, payload, headers, time and
//! retries left. What it had failed at before is not told any more.

use std::time::Instant;

use super::notices::{done, failed, several};
use super::{Notice, Shared, lock};
use crate::control::{UNDO_MAX, UNDO_TIME};
use crate::message::{Due, MessageId, NewMessage, QueueName, Record, State};
use crate::store::{Rescheduled, StoreResult};

/// What was done last.
#[derive(Debug)]
pub(super) struct Undo {
    until: Instant,
    queue: QueueName,
    what: What,
}

#[derive(Debug)]
enum What {
    Cancelled(Vec<NewMessage>),
    /// With the times before.
    Moved(Vec<(MessageId, u64)>),
}

/// The messages as they are before something is done to them; none of too many.
pub(super) async fn records(
    shared: &Shared,
    queue: &QueueName,
    ids: &[MessageId],
) -> StoreResult<Vec<Option<Record>>> {
    let mut records = Vec::new();
    if ids.len() <= UNDO_MAX {
        for id in ids {
            records.push(shared.controller.store.get(queue, id).await?);
        }
    }
    Ok(records)
}

/// Those of the records to which it was done.
fn done_to(records: Vec<Option<Record>>, done: &[bool]) -> impl Iterator<Item = Record> {
    let both = records.into_iter().zip(done.to_vec());
    both.filter_map(|(record, is_done)| record.filter(|_| is_done))
}

/// Keeps what was cancelled. False when not all of it could be brought back.
pub(super) fn keep_cancelled(
    shared: &Shared,
    queue: QueueName,
    before: Vec<Option<Record>>,
    answers: &[bool],
) -> bool {
    let message = |record: Record| {
        let due = match (record.state, record.at_ms) {
            (State::Pending, Some(ms)) => Due::At(ms),
            _ => Due::NOW,
        };
        Some(NewMessage {
            id: record.id,
            due,
            retries: record.retries_left,
            headers: record.headers,
            ..NewMessage::new(record.payload?)
        })
    };
    let messages: Vec<NewMessage> = done_to(before, answers).filter_map(message).collect();
    let all = answers.iter().filter(|is_done| **is_done).count();
    let can_undo = !messages.is_empty() && messages.len() == all;
    keep(shared, queue, can_undo.then_some(What::Cancelled(messages)))
}

/// Keeps the times that messages had. False when not all of them had one.
pub(super) fn keep_moved(
    shared: &Shared,
    queue: QueueName,
    before: Vec<Option<Record>>,
    answers: &[bool],
) -> bool {
    let time = |record: Record| {
        let at_ms = record.at_ms.filter(|_| record.state == State::Pending)?;
        Some((record.id, at_ms))
    };
    let times: Vec<(MessageId, u64)> = done_to(before, answers).filter_map(time).collect();
    let all = answers.iter().filter(|is_done| **is_done).count();
    let can_undo = !times.is_empty() && times.len() == all;
    keep(shared, queue, can_undo.then_some(What::Moved(times)))
}

fn keep(shared: &Shared, queue: QueueName, what: Option<What>) -> bool {
    let can_undo = what.is_some();
    *lock(&shared.undo) = what.map(|what| Undo {
        until: Instant::now() + UNDO_TIME,
        queue,
        what,
    });
    can_undo
}

/// Takes back what was done last.
pub(super) async fn undo(shared: &Shared) -> StoreResult<Notice> {
    let last = lock(&shared.undo).take();
    let Some(last) = last.filter(|last| Instant::now() <= last.until) else {
        return Ok(failed("there is nothing to undo any more"));
    };
    let store = &shared.controller.store;
    match last.what {
        What::Cancelled(messages) => {
            let sent = store.send(&last.queue, &messages).await?;
            let count = sent.iter().filter(|sent| sent.due_at_ms.is_some()).count();
            let all = messages.len();
            let text = format!("{count} of {all} back in {}", last.queue);
            Ok(if count == all {
                done(text)
            } else {
                failed(text)
            })
        }
        What::Moved(times) => {
            let mut answers = Vec::new();
            for (id, at_ms) in times {
                let ids = [id];
                answers.extend(store.reschedule(&last.queue, &ids, Due::At(at_ms)).await?);
            }
            let is_done = |answer: &Rescheduled| matches!(answer, Rescheduled::At(_));
            Ok(several(
                "back at the time before",
                "wait in this queue",
                answers.iter().map(is_done),
            ))
        }
    }
}
