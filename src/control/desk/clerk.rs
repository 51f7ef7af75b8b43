//! Does what the dashboard asks for, one command after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use super::{Command, Notice, Shared, Stage, lock, tasks};
use crate::message::{MessageId, NewMessage, QueueName};
use crate::store::{Cancelled, Redriven, Rescheduled, StoreResult};
use crate::text::{for_people, printable};

/// Does commands until nobody is left to ask.
pub(super) async fn work(
    shared: Arc<Shared>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    notices: mpsc::UnboundedSender<Notice>,
) {
    while let Some(command) = commands.recv().await {
        if shared.desk.read_only && !command.is_safe() {
            let _ = notices.send(failed(
                "nothing is changed: the dashboard was started with --read-only",
            ));
            continue;
        }
        let notice = match obey(&shared, command, &notices).await {
            Ok(notice) => notice,
            Err(error) => Some(failed(error.to_string())),
        };
        if let Some(notice) = notice {
            let _ = notices.send(notice);
        }
        shared.read_again();
    }
}

fn done(text: impl Into<String>) -> Notice {
    Notice {
        text: text.into(),
        failed: false,
        made: None,
    }
}

fn failed(text: impl Into<String>) -> Notice {
    Notice {
        text: text.into(),
        failed: true,
        made: None,
    }
}

/// Does one command. None when there is nothing to say, or when a task will say it.
async fn obey(
    shared: &Arc<Shared>,
    command: Command,
    notices: &mpsc::UnboundedSender<Notice>,
) -> StoreResult<Option<Notice>> {
    let store = &shared.desk.store;
    Ok(Some(match command {
        Command::Look(look) => {
            *lock(&shared.look) = look;
            return Ok(None);
        }
        Command::Send(queue, message) => send(shared, queue, *message).await?,
        Command::Pause(queue, paused) => {
            store.set_paused(&queue, paused).await?;
            done(if paused {
                format!("{queue} is paused: no host is given its messages")
            } else {
                format!("{queue} goes on")
            })
        }
        Command::Cancel(queue, ids) => {
            let answers = store.cancel(&queue, &ids).await?;
            let is_done = |answer: &Cancelled| *answer == Cancelled::Done;
            several(
                "cancelled",
                "wait in this queue",
                answers.iter().map(is_done),
            )
        }
        Command::Reschedule(queue, ids, due) => {
            let answers = store.reschedule(&queue, &ids, due).await?;
            let is_done = |answer: &Rescheduled| matches!(answer, Rescheduled::At(_));
            several(
                "rescheduled",
                "wait in this queue",
                answers.iter().map(is_done),
            )
        }
        Command::RedriveEdited { .. } => send_again(shared, command).await?,
        Command::Redrive {
            queue,
            which,
            retries,
            rate,
        } => {
            let work = tasks::Work::Redrive { retries, rate };
            return Ok(tasks::start(shared, queue, which, work, notices));
        }
        Command::Delete(queue, which) => {
            return Ok(tasks::start(
                shared,
                queue,
                which,
                tasks::Work::Delete,
                notices,
            ));
        }
        Command::StopTask => {
            shared.task_stops.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        Command::StopHandler(queue, id) => stop_handler(shared, &queue, &id),
        Command::StopHost(stage) => {
            stop_host(shared, stage);
            return Ok(None);
        }
    }))
}

async fn send(shared: &Shared, queue: QueueName, message: NewMessage) -> StoreResult<Notice> {
    let id = message.id.clone();
    let sent = shared.desk.store.send(&queue, &[message]).await?;
    let now_ms = shared
        .desk
        .store
        .overview(&queue)
        .await
        .map(|overview| overview.now_ms);
    let due_ms = sent.first().and_then(|sent| sent.due_at_ms);
    let when = match (due_ms, now_ms) {
        (Some(due_ms), Ok(now_ms)) if due_ms > now_ms => {
            let wait = std::time::Duration::from_millis(due_ms - now_ms);
            format!("due in {}", for_people(wait))
        }
        _ => "due now".to_owned(),
    };
    Ok(Notice {
        text: format!("sent {id}, {when}"),
        failed: false,
        made: Some((queue, id)),
    })
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
    let store = &shared.desk.store;
    let answer = store.redrive_edited(&queue, &id, &payload, retries).await?;
    Ok(match answer {
        Redriven::As(new) => Notice {
            text: format!("sent again as {new}; the dead letter is kept"),
            failed: false,
            made: Some((queue, new)),
        },
        Redriven::Unknown | Redriven::PayloadMissing => failed(format!(
            "{} is no dead letter any more",
            printable(id.as_str())
        )),
    })
}

/// Tells the host in this process to stop; it never takes a word back.
fn stop_host(shared: &Shared, stage: Stage) {
    if let Some((_, sender)) = &shared.desk.host {
        sender.send_if_modified(|now| {
            let is_higher = stage > *now;
            *now = stage.max(*now);
            is_higher
        });
    }
}

/// The answer to what was asked of several messages.
fn several(did: &str, must: &str, answers: impl Iterator<Item = bool>) -> Notice {
    let answers: Vec<bool> = answers.collect();
    let count = answers.iter().filter(|done| **done).count();
    if count == answers.len() {
        let messages = if count == 1 { "message" } else { "messages" };
        return done(format!("{count} {messages} {did}"));
    }
    failed(format!(
        "{count} of {} {did}: the others do not {must}",
        answers.len()
    ))
}

fn stop_handler(shared: &Shared, queue: &QueueName, id: &MessageId) -> Notice {
    let here = shared.desk.host.as_ref();
    let id_text = printable(id.as_str());
    if here.is_some_and(|(monitor, _)| monitor.stop_handler(queue, id)) {
        done(format!(
            "the handler of {id_text} is stopped; its attempt has failed"
        ))
    } else {
        failed(format!("no handler of {id_text} runs in this process"))
    }
}
