//! Tells the store how messages ended, for those who look: beside the settlements, so that none waits for it.
//! What ends within a moment goes in one request, and of more than are kept only the latest. After a crash
//! the last moment is missing, and nothing else depends on it.

use std::time::{Duration, Instant};

use super::ended::Note;
use super::{ServedQueue, is_refused};
use crate::message::MessageId;

/// The shortest time between two requests. It bounds what a busy queue pays.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Tells the store, until nothing more comes and all is told. What the store refuses is left out.
pub(super) async fn tell(served: &ServedQueue) {
    let (notes, keep) = (&served.ended, served.settings.keep_ended);
    let mut is_warned = false;
    loop {
        notes.changed().await;
        let is_over = notes.is_over();
        let taken = notes.take();
        if !taken.is_empty() {
            let (shared, queue) = (&served.shared, &served.queue);
            let (host, now) = (&shared.config.host_id, Instant::now());
            let mut taken = taken;
            let results = results(taken.make_contiguous());
            let ended = taken.into_iter().map(|note| note.told(host, now));
            let ended: Vec<_> = ended.collect();
            let told = async {
                // First: whoever sees how a message ended finds its result.
                let kept = match results.as_slice() {
                    [] => Ok(()),
                    some => {
                        let bytes = served.settings.keep_results;
                        shared.store.keep_results(queue, some, bytes).await
                    }
                };
                shared.store.keep_ended(queue, &ended, keep).await?;
                kept
            };
            match told.await {
                Ok(()) => is_warned = false,
                Err(error) if is_refused(&error) && !is_warned => {
                    is_warned = true;
                    tracing::warn!(%queue, "how its messages ended is not kept: {error}");
                }
                Err(_) => {}
            }
        }
        if is_over {
            return;
        }
        let _ = tokio::time::timeout(TELL_EVERY, notes.over()).await;
    }
}

/// What handlers returned. That they did stays in the notes.
fn results(notes: &mut [Note]) -> Vec<(MessageId, Vec<u8>)> {
    let result = |note: &mut Note| {
        let bytes = std::mem::take(note.result.as_mut()?);
        Some((note.id.clone(), bytes))
    };
    notes.iter_mut().filter_map(result).collect()
}
