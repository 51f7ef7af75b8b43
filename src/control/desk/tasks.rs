//! What takes longer than a moment: redriving or deleting many dead letters.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::super::Which;
use super::{Notice, Shared, TaskView, lock, scan};
use crate::message::{MessageId, QueueName};
use crate::store::{Redriven, StoreResult};

/// Messages that one step does at most.
const STEP_MAX: usize = 100;

/// What is done to each.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Redrive {
        retries: Option<u32>,
        rate: Option<u32>,
    },
    Delete,
}

impl Work {
    fn doing(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "redriving",
            Self::Delete => "deleting",
        }
    }

    fn did(self) -> &'static str {
        match self {
            Self::Redrive { .. } => "redriven",
            Self::Delete => "deleted",
        }
    }

    fn rate(self) -> Option<u32> {
        match self {
            Self::Redrive { rate, .. } => rate,
            Self::Delete => None,
        }
    }
}

/// Messages of one step, and the pause after it, for so many a second at most.
#[must_use]
pub fn pace(rate: Option<u32>) -> (usize, Duration) {
    let Some(rate) = rate else {
        return (STEP_MAX, Duration::ZERO);
    };
    let rate = rate.max(1);
    let step = rate.div_ceil(10).min(100);
    (step as usize, Duration::from_secs(1) * step / rate)
}

/// Begins the task beside the commands, unless one is under way.
pub(super) fn start(
    shared: &Arc<Shared>,
    queue: QueueName,
    which: Which,
    work: Work,
    notices: &mpsc::UnboundedSender<Notice>,
) -> Option<Notice> {
    let mut task = lock(&shared.task);
    if let Some(task) = &*task {
        return Some(Notice {
            text: format!("wait for the end of {}, or stop it with :stop", task.what),
            failed: true,
            made: None,
        });
    }
    *task = Some(TaskView {
        what: work.doing(),
        done: 0,
        failed: 0,
    });
    drop(task);
    let (shared, notices) = (Arc::clone(shared), notices.clone());
    tokio::spawn(async move {
        let stops = shared.stops_of_tasks();
        let result = run(&shared, &queue, which, work).await;
        let view = lock(&shared.task).take();
        let (done, left) = view.map_or((0, 0), |view| (view.done, view.failed));
        let did = work.did();
        let (text, failed) = match result {
            Err(error) => (format!("{done} {did}, then: {error}"), true),
            Ok(()) if shared.stops_of_tasks() != stops => (format!("stopped: {done} {did}"), false),
            Ok(()) if left > 0 => (
                format!(
                    "{done} {did}, {left} not: they are no dead letters any more, or have no payload"
                ),
                true,
            ),
            Ok(()) => (format!("{done} {did}"), false),
        };
        let _ = notices.send(Notice {
            text,
            failed,
            made: None,
        });
        shared.read_again();
    });
    None
}

async fn run(shared: &Shared, queue: &QueueName, which: Which, work: Work) -> StoreResult<()> {
    let stops = shared.stops_of_tasks();
    let store = &*shared.desk.store;
    let ids = match which {
        Which::Ids(ids) => ids,
        Which::Matching(filter) => scan::dead_ids(store, queue, &filter).await?,
    };
    let (step, pause) = pace(work.rate());
    for step in ids.chunks(step) {
        if shared.stops_of_tasks() != stops {
            return Ok(());
        }
        let done = do_step(shared, queue, step, work).await?;
        if let Some(task) = &mut *lock(&shared.task) {
            task.done += done as u64;
            task.failed += (step.len() - done) as u64;
        }
        shared.changed.notify_one();
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// How many of these it was done to.
async fn do_step(
    shared: &Shared,
    queue: &QueueName,
    ids: &[MessageId],
    work: Work,
) -> StoreResult<usize> {
    let store = &shared.desk.store;
    Ok(match work {
        Work::Redrive { retries, .. } => {
            let answers = store.redrive(queue, ids, retries).await?;
            answers
                .iter()
                .filter(|answer| matches!(answer, Redriven::As(_)))
                .count()
        }
        Work::Delete => {
            let answers = store.delete_dead(queue, ids).await?;
            answers.iter().filter(|deleted| **deleted).count()
        }
    })
}
