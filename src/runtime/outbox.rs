//! What a run sends: kept aside until its ack.

use std::time::Duration;

use super::bindings::dqhost::queue::outbox::{NewMessage as Wanted, SendError};
use super::guest_log::GuestLog;
use super::limits::Limits;
use super::permissions::Permissions;
use super::run_lines::RunLines;
use super::trace::Trace;
use crate::message::{
    DELAY_MS_MAX, Due, HEADERS_MAX, MessageId, NewMessage, OnRepeat, Outgoing, PAYLOAD_MAX_DEFAULT,
    QueueName, RETRIES_MAX, expiry, headers_size,
};

/// The messages of one run that wait for its ack.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Names the message that is being handled, and its queue.
    run: RunLines,
    trace: Trace,
    calls: u32,
    bytes: usize,
    taken: Vec<Outgoing>,
}

impl Outbox {
    pub(super) fn new(run: RunLines, trace: Trace) -> Self {
        Self {
            run,
            trace,
            calls: 0,
            bytes: 0,
            taken: Vec::new(),
        }
    }

    /// The queue of the message that is being handled.
    pub(super) fn queue(&self) -> &str {
        self.run.place().map_or("", |(queue, ..)| queue)
    }

    /// The trace of the message that is being handled.
    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    fn parent(&self) -> &str {
        self.run.place().map_or("", |(_, id, _)| id)
    }

    pub(super) fn into_taken(self) -> Vec<Outgoing> {
        self.taken
    }

    /// Takes a message, or says why not.
    pub(super) fn take(
        &mut self,
        wanted: Wanted,
        limits: &Limits,
        permissions: &Permissions,
        log: &GuestLog,
    ) -> Result<String, SendError> {
        self.calls = self.calls.saturating_add(1);
        let queue = wanted.queue.as_deref().unwrap_or(self.queue());
        let queue: QueueName = queue
            .parse()
            .map_err(|error| SendError::Invalid(format!("{error}")))?;
        if !permissions.sends.contains(&queue) {
            let why = format!("a send to queue {queue} is not allowed (--allow-send)");
            log.refuse(&format!("refused: {why}"));
            return Err(SendError::NotAllowed(why));
        }
        let retries = wanted.retries.unwrap_or(permissions.retries_default);
        check(&wanted, retries).map_err(SendError::Invalid)?;
        let bytes = self.bytes + wanted.payload.len() + headers_size(&wanted.headers);
        let too_much = if self.taken.len() >= limits.sends {
            format!("more than {} messages (--limit sends)", limits.sends)
        } else if bytes > limits.send_bytes {
            format!("more than {} bytes (--limit send-bytes)", limits.send_bytes)
        } else {
            self.bytes = bytes;
            let id = MessageId::derived(self.queue(), self.parent(), self.calls);
            let mut headers = wanted.headers;
            self.trace.enter_message(&mut headers);
            self.taken.push(Outgoing {
                queue,
                message: NewMessage {
                    id: id.clone(),
                    payload: wanted.payload,
                    due: Due::In(Duration::from_millis(wanted.delay_ms)),
                    retries,
                    headers,
                    dedup_window: Duration::ZERO,
                    on_repeat: OnRepeat::Ignore,
                },
            });
            return Ok(id.to_string());
        };
        log.refuse(&format!("refused: a send of {too_much}"));
        Err(SendError::TooMuch(too_much))
    }
}

fn check(wanted: &Wanted, retries: u32) -> Result<(), String> {
    let headers = headers_size(&wanted.headers);
    let (payload, delay_ms) = (wanted.payload.len(), wanted.delay_ms);
    if payload > PAYLOAD_MAX_DEFAULT {
        Err(format!(
            "the payload has {payload} bytes and the limit is {PAYLOAD_MAX_DEFAULT}"
        ))
    } else if headers > HEADERS_MAX {
        Err(format!(
            "the headers take {headers} bytes and the limit is {HEADERS_MAX}"
        ))
    } else if retries > RETRIES_MAX {
        Err(format!(
            "{retries} retries are over the limit of {RETRIES_MAX}"
        ))
    } else if delay_ms > DELAY_MS_MAX {
        Err(format!(
            "a delay of {delay_ms} ms is over the limit of 100 years"
        ))
    } else if expiry::relative_ms(&wanted.headers).is_some_and(|ms| ms <= delay_ms) {
        Err("the message would expire before it is due".to_owned())
    } else {
        expiry::check(&wanted.headers)
    }
}
