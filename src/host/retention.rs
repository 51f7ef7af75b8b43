//! Dead letters are kept for as long as the operator wants, and as many of them.

use std::sync::Arc;
use std::time::Duration;

use super::{ServedQueue, is_refused};
use crate::message::QueueName;
use crate::store::{Retention, Store, StoreResult};

/// How often a host looks for dead letters that are to be kept no longer.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Deletes what is past its retention, again and again. Several hosts may do so at once: each letter is
/// deleted by its id, and only if it is there.
pub(super) async fn keep_to(served: Arc<ServedQueue>) {
    let (queue, retention) = (&served.queue, served.settings.retention);
    if retention == Retention::ALL {
        return;
    }
    let mut told = false;
    let mut clock = tokio::time::interval(LOOK_EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let mut deleted = 0;
        let result = delete(&*served.shared.store, queue, retention, &mut deleted).await;
        if deleted > 0 {
            tracing::info!(%queue, deleted, "dead letters past their retention were deleted");
        }
        match result {
            Ok(()) => told = false,
            Err(error) if is_refused(&error) && !told => {
                told = true;
                tracing::warn!(%queue, "dead letters are kept for longer: {error}");
            }
            Err(_) => {}
        }
    }
}

async fn delete(
    store: &dyn Store,
    queue: &QueueName,
    retention: Retention,
    deleted: &mut usize,
) -> StoreResult<()> {
    // Each alone, so that letters which cannot be deleted for their age hide none that are too many.
    let Retention { age, number } = retention;
    for one in [
        Retention {
            age,
            ..Retention::ALL
        },
        Retention {
            number,
            ..Retention::ALL
        },
    ] {
        loop {
            let ids = store.past_retention(queue, one).await?;
            let answers = store.delete_dead(queue, &ids).await?;
            let gone = answers.into_iter().filter(|was_there| *was_there).count();
            if gone == 0 {
                // There are none, or another host is at it.
                break;
            }
            *deleted += gone;
        }
    }
    Ok(())
}
