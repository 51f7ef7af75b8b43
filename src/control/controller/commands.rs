//! Does what the dashboard asks for, one command after the other.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::notices::{done, failed, several};
use super::{Command, Notice, Shared, Stage, lock, tasks, trials, undo};
use crate::control::{is_known, not_there};
use crate::format::message::outcome_text;
use crate::message::{Due, MessageId, NewMessage, QueueName, SendOutcome};
use crate::store::{Cancelled, Redriven, Rescheduled, StoreResult};
use crate::text::{human_duration, printable};

/// Does commands until nobody is left to ask. What is for the screen or for the host in this process
/// is done at once, whatever the store is at.
pub(super) async fn work(
    shared: Arc<Shared>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    notices: mpsc::UnboundedSender<Notice>,
) {
    let (for_store, mut waiting) = mpsc::unbounded_channel();
    let at_once = async {
        while let Some(command) = commands.recv().await {
            if shared.controller.read_only && !command.is_safe() {
                let text = "nothing is changed: the dashboard was started with --read-only";
                let _ = notices.send(failed(text));
            } else if let Some(command) = do_at_once(&shared, command, &notices) {
                let _ = for_store.send(command);
            }
        }
        drop(for_store);
    };
    let in_turn = async {
        while let Some(command) = waiting.recv().await {
            let notice = match obey(&shared, command, &notices).await {
                Ok(notice) => notice,
                Err(error) => Some(failed(error.to_string())),
            };
            if let Some(notice) = notice {
                let _ = notices.send(notice);
            }
            shared.read_again();
        }
    };
    tokio::join!(at_once, in_turn);
}

/// Does what needs no store; gives back what does.
fn do_at_once(
    shared: &Shared,
    command: Command,
    notices: &mpsc::UnboundedSender<Notice>,
) -> Option<Command> {
    match command {
        Command::Query(query) => {
            *lock(&shared.query) = query;
            shared.read_again();
        }
        Command::StopTask => {
            shared.task_stops.send_modify(|stops| *stops += 1);
        }
        Command::StopHandler(queue, id) => {
            let _ = notices.send(stop_handler(shared, &queue, &id));
        }
        Command::StopHost(stage) => stop_host(shared, stage),
        command => return Some(command),
    }
    shared.changed.notify_one();
    None
}

/// Does one command. None when there is nothing to say, or when a task will say it.
async fn obey(
    shared: &Arc<Shared>,
    command: Command,
    notices: &mpsc::UnboundedSender<Notice>,
) -> StoreResult<Option<Notice>> {
    Ok(Some(match command {
        Command::Send(queue, message) => send(shared, queue, *message).await?,
        Command::Pause {
            queue,
            paused,
            create,
        } => pause(shared, &queue, paused, create).await?,
        Command::Cancel(queue, ids) => cancel(shared, queue, &ids).await?,
        Command::Kill(queue, ids) => kill(shared, &queue, &ids).await?,
        Command::Reschedule(queue, ids, due) => reschedule(shared, queue, &ids, due).await?,
        Command::Undo => undo::undo(shared).await?,
        Command::RedriveEdited { .. } => send_again(shared, command).await?,
        Command::Bulk(queue, ids, bulk) => {
            return Ok(tasks::start(shared, queue, ids, bulk, notices));
        }
        Command::Choose(queue, filter, bulk) => {
            return Ok(tasks::choose(shared, queue, filter, bulk, notices));
        }
        Command::Try(request) => return Ok(trials::start(shared, request, notices)),
        // Done at once.
        Command::Query(_) | Command::StopTask | Command::StopHandler(..) | Command::StopHost(_) => {
            return Ok(None);
        }
    }))
}

async fn pause(
    shared: &Shared,
    queue: &QueueName,
    paused: bool,
    create: bool,
) -> StoreResult<Notice> {
    let store = &*shared.controller.store;
    if !create && !is_known(store, queue).await? {
        return Ok(failed(not_there(queue, paused)));
    }
    store.set_paused(queue, paused).await?;
    Ok(done(if paused {
        format!("{queue} is paused: no host is given its messages")
    } else {
        format!("{queue} goes on")
    }))
}

async fn send(shared: &Shared, queue: QueueName, message: NewMessage) -> StoreResult<Notice> {
    let id = message.id.clone();
    let sent = shared.controller.store.send(&queue, &[message]).await?;
    let now_ms = shared
        .controller
        .store
        .overview(&queue)
        .await
        .map(|overview| overview.now_ms);
    let due_ms = sent.first().and_then(|sent| sent.due_at_ms);
    let outcome = sent
        .first()
        .map_or(SendOutcome::Repeat, |sent| sent.outcome);
    let told = outcome_text(outcome).unwrap_or_default();
    let text = match (due_ms, now_ms) {
        _ if !told.is_empty() => format!("{id} {told}"),
        (Some(due_ms), Ok(now_ms)) if due_ms > now_ms => {
            let wait = std::time::Duration::from_millis(due_ms - now_ms);
            format!("sent {id}, due in {}", human_duration(wait))
        }
        _ => format!("sent {id}, due now"),
    };
    Ok(Notice {
        text,
        failed: false,
        made: Some((queue, id)),
        then: None,
        can_undo: false,
    })
}

async fn cancel(shared: &Shared, queue: QueueName, ids: &[MessageId]) -> StoreResult<Notice> {
    let store = &shared.controller.store;
    let before = undo::records(shared, &queue, ids).await?;
    let answers = store.cancel(&queue, ids).await?;
    let is_done = |answer: &Cancelled| *answer == Cancelled::Done;
    let done: Vec<bool> = answers.iter().map(is_done).collect();
    let mut notice = several("cancelled", "wait in this queue", done.iter().copied());
    notice.can_undo = undo::keep_cancelled(shared, queue, before, &done);
    Ok(notice)
}

/// Nothing takes it back: what a handler has begun is not undone by sending its message again.
async fn kill(shared: &Shared, queue: &QueueName, ids: &[MessageId]) -> StoreResult<Notice> {
    let answers = shared.controller.store.kill(queue, ids).await?;
    let is_done = |answer: &Cancelled| matches!(answer, Cancelled::Done | Cancelled::Killed);
    let must = "wait or run in this queue";
    Ok(several("cancelled", must, answers.iter().map(is_done)))
}

async fn reschedule(
    shared: &Shared,
    queue: QueueName,
    ids: &[MessageId],
    due: Due,
) -> StoreResult<Notice> {
    let store = &shared.controller.store;
    let before = undo::records(shared, &queue, ids).await?;
    let answers = store.reschedule(&queue, ids, due).await?;
    let is_done = |answer: &Rescheduled| matches!(answer, Rescheduled::At(_));
    let done: Vec<bool> = answers.iter().map(is_done).collect();
    let mut notice = several("rescheduled", "wait in this queue", done.iter().copied());
    notice.can_undo = undo::keep_moved(shared, queue, before, &done);
    Ok(notice)
}

/// Sends a dead letter again with another payload.
async fn send_again(shared: &Shared, command: Command) -> StoreResult<Notice> {
    let Command::RedriveEdited {
        queue,
        id,
        payload,
        retries,
    } = command
    else {
        return Ok(failed("nothing to send again"));
    };
    let store = &shared.controller.store;
    let answer = store.redrive_edited(&queue, &id, &payload, retries).await?;
    Ok(match answer {
        Redriven::As(new) => Notice {
            text: format!("sent again as {new}; the dead letter is kept"),
            failed: false,
            made: Some((queue, new)),
            then: None,
            can_undo: false,
        },
        Redriven::Unknown | Redriven::PayloadMissing | Redriven::TooOften(_) => failed(format!(
            "{} is no dead letter any more",
            printable(id.as_str())
        )),
    })
}

/// Tells the host in this process to stop; it never takes a word back.
fn stop_host(shared: &Shared, stage: Stage) {
    if let Some((_, sender)) = &shared.controller.host {
        sender.send_if_modified(|now| {
            let is_higher = stage > *now;
            *now = stage.max(*now);
            is_higher
        });
    }
}

fn stop_handler(shared: &Shared, queue: &QueueName, id: &MessageId) -> Notice {
    let here = shared.controller.host.as_ref();
    let id_text = printable(id.as_str());
    if here.is_some_and(|(monitor, _)| monitor.stop_handler(queue, id)) {
        done(format!(
            "the handler of {id_text} is stopped; its attempt has failed"
        ))
    } else {
        failed(format!("no handler of {id_text} runs in this process"))
    }
}
