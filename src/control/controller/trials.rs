//! Tries a handler on dead letters. It is compiled and runs on a thread of its own, so that it delays
//! neither the screen nor a host; the store is read here.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::notices::{done, failed};
use super::tasks::{begin, busy};
use super::{Notice, Shared, lock, scan};
use crate::control::dead_try::LOG_MAX;
use crate::control::{
    Answer, LISTED_PAYLOAD_MAX, Letters, LoadHandler, TRIED_MAX, Trial, TrialEnd, TrialRequest,
    TriedLetter, call_of,
};
use crate::message::{Attempt, HistoryEntry, MessageId, QueueName, Record};
use crate::runtime::{Call, Report};
use crate::store::StoreResult;
use crate::text::{cut, printable};

/// Begins a trial beside the commands, unless another task is under way.
pub(super) fn start(
    shared: &Arc<Shared>,
    request: TrialRequest,
    notices: &mpsc::UnboundedSender<Notice>,
) -> Option<Notice> {
    let Some(loader) = shared.controller.handlers.clone() else {
        let refusal = failed("no handler can be tried here");
        return Some(refuse(shared, request.number, refusal));
    };
    let stops = match begin(shared, "trying", None) {
        Ok(stops) => stops,
        Err(other) => return Some(refuse(shared, request.number, busy(other))),
    };
    let name = printable(&request.file.display().to_string()).into_owned();
    *lock(&shared.trial) = Some(Arc::new(Trial::new(&request, name.clone())));
    let (shared, notices) = (Arc::clone(shared), notices.clone());
    tokio::spawn(async move {
        let (running, mut has_ended) = oneshot::channel();
        let trying = carry_out(&shared, request, (loader, running));
        let end = tokio::select! {
            end = trying => end,
            () = shared.stopped(stops) => TrialEnd::Stopped,
        };
        // The thread has memory and a core for itself: the next one begins after it has ended.
        if let Err(TryRecvError::Empty) = has_ended.try_recv() {
            if end == TrialEnd::Stopped && is_compiling(&shared) {
                let _ = notices.send(done("the trial stops once its handler is compiled"));
            }
            let _ = has_ended.await;
        }
        lock(&shared.task).take();
        let notice = said(&shared, &name, &end);
        change(&shared, |trial| trial.end = Some(end));
        let _ = notices.send(notice);
        shared.changed.notify_one();
    });
    None
}

/// Notes that a trial is not begun, so that no other is taken for it.
fn refuse(shared: &Shared, number: u64, refusal: Notice) -> Notice {
    *lock(&shared.refused_trial) = Some((number, refusal.text.as_str().into()));
    shared.changed.notify_one();
    refusal
}

fn is_compiling(shared: &Shared) -> bool {
    let trial = lock(&shared.trial).clone();
    trial.is_some_and(|trial| trial.digest.is_none())
}

/// What an operator is told of the end.
fn said(shared: &Shared, file: &str, end: &TrialEnd) -> Notice {
    let trial = lock(&shared.trial).clone();
    let (acked, tried) = trial.map_or((0, 0), |trial| (trial.by_class().0, trial.tried.len()));
    let result = format!("{file} acks {acked} of {tried} dead letters; nothing was changed");
    match end {
        TrialEnd::Done => done(result),
        TrialEnd::Stopped => done(format!("stopped: {result}")),
        TrialEnd::Failed(error) => failed(error),
    }
}

fn change(shared: &Shared, change: impl FnOnce(&mut Trial)) {
    if let Some(trial) = &mut *lock(&shared.trial) {
        change(Arc::make_mut(trial));
    }
}

/// `running` is dropped when the thread has ended.
async fn carry_out(
    shared: &Shared,
    request: TrialRequest,
    (loader, running): (Arc<dyn LoadHandler>, oneshot::Sender<()>),
) -> TrialEnd {
    let TrialRequest {
        queue,
        letters,
        file,
        ..
    } = request;
    let ids = match chosen(shared, &queue, letters).await {
        Ok(ids) => ids,
        Err(error) => return TrialEnd::Failed(error.to_string()),
    };
    change(shared, |trial| trial.meant = Some(ids.len()));
    shared.changed.notify_one();
    let of = queue.clone();
    let started = Runner::start(
        move |ready, runs| serve(&*loader, (file.as_path(), &of), ready, runs),
        running,
    );
    let runner = match started.await {
        Ok((runner, digest)) => {
            change(shared, |trial| trial.digest = Some(digest));
            runner
        }
        Err(error) => return TrialEnd::Failed(error),
    };
    if let Some(task) = &mut *lock(&shared.task) {
        task.total = Some(ids.len().min(TRIED_MAX) as u64);
    }
    for id in ids.into_iter().take(TRIED_MAX) {
        let tried = match try_one(shared, &queue, id, &runner).await {
            Ok(tried) => tried,
            Err(error) => return TrialEnd::Failed(error),
        };
        change(shared, |trial| trial.tried.push(tried));
        // Snapshots are made often enough without being asked for.
        if let Some(task) = &mut *lock(&shared.task) {
            task.done += 1;
        }
    }
    TrialEnd::Done
}

async fn chosen(
    shared: &Shared,
    queue: &QueueName,
    letters: Letters,
) -> StoreResult<Vec<MessageId>> {
    match letters {
        Letters::Named(ids) => Ok(ids),
        Letters::Matching(filter) => {
            scan::dead_ids(&*shared.controller.store, queue, &filter, || true).await
        }
    }
}

async fn try_one(
    shared: &Shared,
    queue: &QueueName,
    id: MessageId,
    runner: &Runner,
) -> Result<TriedLetter, String> {
    let store = &*shared.controller.store;
    let record = store.get(queue, &id).await;
    let Some(record) = record.map_err(|error| error.to_string())? else {
        return Ok(TriedLetter {
            id,
            record: None,
            answer: Answer::NotRun("it is no dead letter any more".to_owned()),
            log: String::new(),
        });
    };
    let kept = Some(Arc::new(beginning_of(&record)));
    let (answer, log) = match call_of(queue, record) {
        Err(reason) => (Answer::NotRun(reason), String::new()),
        Ok(call) => {
            let report = runner.run(call).await?;
            let log = cut(&report.log_text(), LOG_MAX).into_owned();
            (Answer::from(&report.outcome), log)
        }
    };
    Ok(TriedLetter {
        id,
        record: kept,
        answer,
        log,
    })
}

/// The same with its last attempt alone, and as much of its payload as a list has.
fn beginning_of(record: &Record) -> Record {
    let payload = record.payload.as_deref();
    let payload = payload.map(|bytes| bytes[..bytes.len().min(LISTED_PAYLOAD_MAX)].to_vec());
    let last = record.last_attempt().map(|last| Attempt {
        log: cut(&last.log, LOG_MAX).into_owned(),
        ..last.clone()
    });
    Record {
        id: record.id.clone(),
        state: record.state,
        at_ms: record.at_ms,
        attempts: record.attempts,
        retries_left: record.retries_left,
        headers: record.headers.clone(),
        history: last.map(HistoryEntry::Attempt).into_iter().collect(),
        payload,
    }
}

/// A call, and where its report is awaited.
type Run = (Call, oneshot::Sender<Report>);

/// The thread on which the handler is compiled and runs. It ends when this is dropped: a run is stopped,
/// and what is being compiled is thrown away.
struct Runner {
    runs: mpsc::UnboundedSender<Run>,
}

/// Says that the handler is loaded, with its digest, or why it is not.
type Ready = oneshot::Sender<Result<String, String>>;

impl Runner {
    /// Starts it, and waits until the handler is loaded. The second is the handler's digest.
    async fn start(
        serve: impl FnOnce(Ready, mpsc::UnboundedReceiver<Run>) + Send + 'static,
        running: oneshot::Sender<()>,
    ) -> Result<(Self, String), String> {
        let (runs, waiting) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        std::thread::Builder::new()
            .name("trial".to_owned())
            .spawn(move || {
                serve(ready, waiting);
                drop(running);
            })
            .map_err(|error| format!("no thread to try a handler: {error}"))?;
        let digest = is_ready.await.map_err(|_| ended())?;
        Ok((Self { runs }, digest?))
    }

    async fn run(&self, call: Call) -> Result<Report, String> {
        let (report, reported) = oneshot::channel();
        self.runs.send((call, report)).map_err(|_| ended())?;
        reported.await.map_err(|_| ended())
    }
}

fn ended() -> String {
    "the trial has ended by a bug in dqhost; the log tells more".to_owned()
}

/// What the thread does.
fn serve(
    loader: &dyn LoadHandler,
    (file, queue): (&Path, &QueueName),
    ready: Ready,
    mut waiting: mpsc::UnboundedReceiver<Run>,
) {
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let threads = threads.map_err(|error| format!("no thread to try a handler: {error}"));
    let handler = threads.and_then(|threads| {
        let handler = loader
            .load(file, queue)
            .map_err(|error| error.to_string())?;
        Ok((threads, handler))
    });
    let (threads, handler) = match handler {
        Ok(handler) => handler,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    if ready.send(Ok(handler.digest().to_owned())).is_err() {
        return;
    }
    threads.block_on(async {
        while let Some((call, mut report)) = waiting.recv().await {
            // Nobody waits for it once the trial is stopped.
            tokio::select! {
                result = handler.run(call) => drop(report.send(result)),
                () = report.closed() => return,
            }
        }
    });
    threads.shutdown_background();
}
