//! What takes longer than a moment: redriving or deleting many dead letters.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Notice, Shared, TaskView, lock, scan};
use crate::control::{Bulk, Command, Filter};
use crate::message::{MessageId, QueueName};
use crate::store::{Redrive, Redriven, StoreResult};
use crate::text::{cut, printable};

/// Messages that one step does at most.
const STEP_MAX: usize = 100;

impl Bulk {
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

/// Takes the place of the one task that may be under way: what tells when it is to stop. Else the
/// task that has the place.
pub(super) fn begin(
    shared: &Shared,
    what: &'static str,
    total: Option<u64>,
) -> Result<u64, &'static str> {
    let mut task = lock(&shared.task);
    if let Some(task) = &*task {
        return Err(task.what);
    }
    *task = Some(TaskView {
        what,
        done: 0,
        failed: 0,
        total,
    });
    shared.changed.notify_one();
    Ok(shared.stops_of_tasks())
}

pub(super) fn busy(what: &str) -> Notice {
    Notice {
        text: format!("wait for the end of {what}, or stop it with S"),
        failed: true,
        made: None,
        then: None,
        can_undo: false,
    }
}

/// Finds the dead letters that match, beside the commands, and asks whether to go on.
pub(super) fn choose(
    shared: &Arc<Shared>,
    queue: QueueName,
    filter: Filter,
    bulk: Bulk,
    notices: &mpsc::UnboundedSender<Notice>,
) -> Option<Notice> {
    let stops = match begin(shared, "counting dead letters", None) {
        Ok(stops) => stops,
        Err(other) => return Some(busy(other)),
    };
    let (shared, notices) = (Arc::clone(shared), notices.clone());
    tokio::spawn(async move {
        let store = &*shared.controller.store;
        let goes_on = || shared.stops_of_tasks() == stops;
        let found = scan::dead_ids(store, &queue, &filter, goes_on).await;
        lock(&shared.task).take();
        let notice = match found {
            Err(error) => (error.to_string(), true, None),
            Ok(_) if !goes_on() => ("stopped".to_owned(), false, None),
            Ok(ids) if ids.is_empty() => (format!("no dead letter of {queue} matches"), true, None),
            Ok(ids) => {
                let question = question(&queue, &filter, ids.len(), bulk);
                (question, false, Some(Command::Bulk(queue, ids, bulk)))
            }
        };
        let (text, failed, then) = notice;
        let _ = notices.send(Notice {
            text,
            failed,
            made: None,
            then,
            can_undo: false,
        });
        shared.changed.notify_one();
    });
    None
}

/// What is asked before something is done to so many dead letters.
fn question(queue: &QueueName, filter: &Filter, count: usize, bulk: Bulk) -> String {
    let letters = if count == 1 {
        "dead letter"
    } else {
        "dead letters"
    };
    let mut which = format!("{count} {letters} of {queue}");
    if let Some(reason) = filter.group() {
        let _ = write!(
            which,
            " with the reason \"{}\"",
            printable(&cut(reason, 80))
        );
    }
    if !filter.text().is_empty() {
        let _ = write!(
            which,
            " that match \"{}\"",
            printable(&cut(filter.text(), 80))
        );
    }
    match bulk {
        Bulk::Redrive { .. } => format!("Put {which} back, each as a new message?"),
        Bulk::Delete => format!("Delete {which}? That cannot be undone."),
    }
}

/// Begins the task beside the commands, unless one is under way.
pub(super) fn start(
    shared: &Arc<Shared>,
    queue: QueueName,
    ids: Vec<MessageId>,
    bulk: Bulk,
    notices: &mpsc::UnboundedSender<Notice>,
) -> Option<Notice> {
    let stops = match begin(shared, bulk.doing(), Some(ids.len() as u64)) {
        Ok(stops) => stops,
        Err(other) => return Some(busy(other)),
    };
    let (shared, notices) = (Arc::clone(shared), notices.clone());
    tokio::spawn(async move {
        let result = run(&shared, &queue, &ids, bulk, stops).await;
        let view = lock(&shared.task).take();
        let (done, left) = view.map_or((0, 0), |view| (view.done, view.failed));
        let did = bulk.did();
        let (text, failed) = match result {
            Err(error) => (format!("{done} {did}, then: {error}"), true),
            Ok(()) if shared.stops_of_tasks() != stops => (format!("stopped: {done} {did}"), false),
            Ok(()) if left > 0 => (
                format!(
                    "{done} {did}, {left} not: they are no dead letters any more, have no payload, or \
                     were redriven too often"
                ),
                true,
            ),
            Ok(()) => (format!("{done} {did}"), false),
        };
        let _ = notices.send(Notice {
            text,
            failed,
            made: None,
            then: None,
            can_undo: false,
        });
        shared.read_again();
    });
    None
}

async fn run(
    shared: &Shared,
    queue: &QueueName,
    ids: &[MessageId],
    bulk: Bulk,
    stops: u64,
) -> StoreResult<()> {
    let (step, pause) = pace(bulk.rate());
    for step in ids.chunks(step) {
        if shared.stops_of_tasks() != stops {
            return Ok(());
        }
        let done = do_step(shared, queue, step, bulk).await?;
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
    bulk: Bulk,
) -> StoreResult<usize> {
    let store = &shared.controller.store;
    Ok(match bulk {
        Bulk::Redrive { retries, cap, .. } => {
            let host = shared.controller.host.as_ref();
            let of_queue = || host.and_then(|(monitor, _)| monitor.max_redrives(queue));
            let how = Redrive {
                retries,
                max_redrives: cap.max_redrives(of_queue),
            };
            let answers = store.redrive(queue, ids, how).await?;
            let is_done = |answer: &&Redriven| matches!(answer, Redriven::As(_));
            answers.iter().filter(is_done).count()
        }
        Bulk::Delete => {
            let answers = store.delete_dead(queue, ids).await?;
            answers.iter().filter(|deleted| **deleted).count()
        }
    })
}
