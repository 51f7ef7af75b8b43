//! Puts dead letters into another queue of the same store.

use std::time::Duration;

use crate::format::json;
use crate::message::{Due, MessageId, NewMessage, OnRepeat, QueueName, Record, State, expiry};
use crate::store::{Redrive, Redriven, Store, StoreResult};

/// How often a message may be redriven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveCap {
    /// As often as the settings of its queue say.
    OfQueue,
    /// So often.
    At(u32),
    /// Any number of times.
    None,
}

impl RedriveCap {
    /// How often that is, where the queue has this number.
    #[must_use]
    pub fn max_redrives(self, of_queue: impl FnOnce() -> Option<u32>) -> Option<u32> {
        match self {
            Self::OfQueue => of_queue(),
            Self::At(max) => Some(max),
            Self::None => None,
        }
    }
}

/// How long a repeat is recognised, even when the new message is gone.
const REPEAT_WINDOW: Duration = Duration::from_hours(24);

/// Sends dead letters of `from` to another queue as new messages, due at once, and then deletes them.
/// One answer for each id, in order. The new messages begin a count of their own.
///
/// After a crash between the two steps the dead letters are still there. A repeat to the same queue sends
/// nothing twice, since it makes the same ids: within a day, or as long as the new messages are there.
pub async fn redrive_to(
    store: &dyn Store,
    (from, to): (&QueueName, &QueueName),
    ids: &[MessageId],
    how: Redrive,
) -> StoreResult<Vec<Redriven>> {
    let (mut answers, mut messages, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for id in ids {
        let record = store.get(from, id).await?;
        let Some(record) = record.filter(|record| record.state == State::Dead) else {
            answers.push(Redriven::Unknown);
            continue;
        };
        if how.refuses(record.redrives()) {
            answers.push(Redriven::TooOften(record.redrives()));
            continue;
        }
        let Some(message) = again(from, record, how.retries) else {
            answers.push(Redriven::PayloadMissing);
            continue;
        };
        answers.push(Redriven::As(message.id.clone()));
        messages.push(message);
        sent.push(id.clone());
    }
    if !sent.is_empty() {
        store.send(to, &messages).await?;
        store.delete_dead(from, &sent).await?;
    }
    Ok(answers)
}

/// The new message; none if the payload is missing. Its id is made of the time of death as well: an id
/// that is sent and dies once more is another dead letter.
fn again(from: &QueueName, record: Record, retries: Option<u32>) -> Option<NewMessage> {
    let budget = match record.attempts {
        0 => NewMessage::RETRIES_DEFAULT,
        _ => json::retries(&record),
    };
    let died_ms = record.at_ms.unwrap_or(0);
    // As in its own queue, it need not begin by any time.
    let mut headers = record.headers;
    expiry::remove(&mut headers);
    Some(NewMessage {
        id: MessageId::of_key(&format!("redrive\0{from}\0{}\0{died_ms}", record.id)),
        payload: record.payload?,
        due: Due::NOW,
        retries: retries.unwrap_or(budget),
        headers,
        dedup_window: REPEAT_WINDOW,
        on_repeat: OnRepeat::Ignore,
    })
}
