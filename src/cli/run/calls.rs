//! What `dqhost run` gives to the handler: one payload, the messages of a file, or a dead letter.

use anyhow::{Context, bail};
use tokio::io::{AsyncRead, BufReader};

use super::RunArgs;
use crate::cli::lines::{self, TooLong, read_line};
use crate::cli::open::{self, Missing};
use crate::cli::{Usage, payload};
use crate::control::call_of;
use crate::format::line::{Defaults, line_max, parse};
use crate::format::message::Repeats;
use crate::message::{Due, Headers, MessageId, NewMessage, PAYLOAD_MAX_DEFAULT, headers_size};
use crate::runtime::Call;
use crate::store::address::Endpoints;

pub(in crate::cli) const RETRIES_DEFAULT: u32 = NewMessage::RETRIES_DEFAULT;

/// Bytes of all payloads and headers that are held at a time.
const MESSAGES_MAX: usize = 256 << 20;

/// Bytes that a message takes besides these.
const OVERHEAD: usize = 256;

/// The calls that the arguments ask for. If a store is asked, where it is reached is noted in
/// `endpoints`.
pub(super) async fn of(args: &RunArgs, endpoints: &Endpoints) -> anyhow::Result<Vec<Call>> {
    if let Some(id) = &args.dead {
        return Ok(vec![dead(args, id, endpoints).await?]);
    }
    open::refuse_store(&args.store, "--dead")?;
    if let Some(file) = &args.messages {
        let retries = args.attempts.map(|attempts| attempts.saturating_sub(1));
        let retries = retries.unwrap_or(RETRIES_DEFAULT);
        let messages = messages(file, retries, args.headers.clone()).await?;
        let call = |message: NewMessage| {
            let attempts = args.attempts.unwrap_or(message.retries.saturating_add(1));
            call(args, message, attempts)
        };
        return Ok(messages.into_iter().map(call).collect());
    }
    let bytes = payload::read(&args.payload, PAYLOAD_MAX_DEFAULT).await?;
    payload::check(&bytes, &args.headers, PAYLOAD_MAX_DEFAULT).map_err(Usage)?;
    let message = NewMessage {
        id: args.id.clone().map_or_else(MessageId::new, MessageId::from),
        headers: args.headers.clone(),
        ..NewMessage::new(bytes)
    };
    let attempts = args.attempts.unwrap_or(RETRIES_DEFAULT + 1);
    Ok(vec![call(args, message, attempts)])
}

fn call(args: &RunArgs, message: NewMessage, attempts_max: u32) -> Call {
    let attempt = args.attempt.unwrap_or(1);
    Call {
        sent_at_ms: message.id.sent_at_ms(),
        id: message.id.to_string(),
        queue: args.queue.to_string(),
        payload: message.payload,
        headers: message.headers,
        attempt,
        attempts_max: attempts_max.max(attempt),
        due_at_ms: None,
    }
}

/// All messages of a file, or of stdin (`-`), with these where a line says nothing else. A wrong line is an
/// error.
pub(in crate::cli) async fn messages(
    file: &str,
    retries: u32,
    headers: Headers,
) -> anyhow::Result<Vec<NewMessage>> {
    let input: Box<dyn AsyncRead + Unpin> = if file == "-" {
        Box::new(tokio::io::stdin())
    } else {
        let opened = tokio::fs::File::open(file).await;
        Box::new(opened.map_err(|error| Usage(format!("cannot read {file}: {error}")))?)
    };
    let defaults = Defaults {
        due: Due::NOW,
        retries,
        headers,
        key: None,
        repeats: Repeats::default(),
        expires_in: None,
        max_payload: PAYLOAD_MAX_DEFAULT,
    };
    let (mut reader, mut messages, mut room) = (BufReader::new(input), Vec::new(), MESSAGES_MAX);
    let mut number = 0u64;
    while let Some(line) = read_line(&mut reader, line_max(&defaults))
        .await
        .with_context(|| format!("cannot read {file}"))?
    {
        number += 1;
        let message = match line {
            Ok(line) if line.trim_ascii().is_empty() => continue,
            Ok(line) => parse(&line, &defaults),
            Err(TooLong) => Err(lines::too_long(&defaults)),
        };
        let message = message.and_then(|message| {
            let size = message.payload.len() + headers_size(&message.headers) + OVERHEAD;
            let left = room.checked_sub(size);
            room = left.ok_or("with it, the messages take more than 256 MiB")?;
            Ok(message)
        });
        let wrong = |error| Usage(format!("line {number} of {file}: {error}; nothing was run"));
        messages.push(message.map_err(wrong)?);
    }
    if messages.is_empty() {
        return Err(Usage(format!("{file} has no message: give a line for each")).into());
    }
    Ok(messages)
}

/// The dead letter as it was delivered last.
async fn dead(args: &RunArgs, id: &str, endpoints: &Endpoints) -> anyhow::Result<Call> {
    let queue = &args.queue;
    let store = open::store_noting(&args.store, Missing::Refuse, endpoints).await?;
    let Some(record) = store.get(queue, &MessageId::from(id)).await? else {
        bail!("queue {queue} has no message {id}: `dqhost dead list` shows its dead letters");
    };
    let mut call = call_of(queue, record).map_err(anyhow::Error::msg)?;
    if let Some(attempt) = args.attempt {
        call.attempt = attempt;
    }
    call.attempts_max = args.attempts.unwrap_or(call.attempts_max).max(call.attempt);
    Ok(call)
}
