//! `dqhost send`.

#![expect(
    clippy::doc_markdown,
    reason = "doc comments of arguments are help texts"
)]

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::open::Missing;
use super::{Exit, QueueArg, StoreArgs, Usage, log, ndjson, open, payload, print, time};
use crate::message::{Due, MessageId, NewMessage, PAYLOAD_MAX_DEFAULT, RETRIES_MAX};

/// How long a key counts unless said otherwise: longer than scripts and people go on trying.
const DEDUP_WINDOW: Duration = Duration::from_hours(24);

/// A message as people give it, on the command line and at the prompt of the dashboard.
#[derive(Debug, Args)]
pub(super) struct MessageArgs {
    /// The payload: text, @FILE for the bytes of a file, or - for stdin
    #[arg(allow_hyphen_values = true)]
    pub payload: Option<String>,
    #[command(flatten)]
    pub timing: Timing,
    /// Deliveries that may follow a failed first one
    #[arg(long, value_name = "N", default_value_t = NewMessage::RETRIES_DEFAULT,
        value_parser = clap::value_parser!(u32).range(..=i64::from(RETRIES_MAX)))]
    pub retries: u32,
    /// A header that the handler gets with the message; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Under this key it is sent once: again while the message waits, runs or is dead, or within
    /// --dedup-window, writes nothing
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub idempotency_key: Option<String>,
    /// How long the key counts after the due time that it was sent with, even when the message is gone
    /// [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    pub dedup_window: Option<Duration>,
    /// The largest payload that is sent, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = PAYLOAD_MAX_DEFAULT,
        env = "DQHOST_MAX_PAYLOAD")]
    pub max_payload: usize,
}

impl MessageArgs {
    /// The message with these bytes, or why no host would take it.
    pub(super) fn message(self, bytes: Vec<u8>) -> Result<NewMessage, String> {
        payload::check(&bytes, &self.headers, self.max_payload)?;
        let key = self.idempotency_key.as_deref();
        if key.is_none() && self.dedup_window.is_some() {
            return Err("--dedup-window is for messages with an --idempotency-key".to_owned());
        }
        let message = NewMessage {
            due: self.timing.due(),
            retries: self.retries,
            headers: self.headers,
            ..NewMessage::new(bytes)
        };
        Ok(with_key(message, key, self.dedup_window))
    }
}

/// The message under this idempotency key, if there is one.
pub(super) fn with_key(
    message: NewMessage,
    key: Option<&str>,
    window: Option<Duration>,
) -> NewMessage {
    let Some(key) = key else { return message };
    NewMessage {
        id: MessageId::of_key(key),
        dedup_window: window.unwrap_or(DEDUP_WINDOW),
        ..message
    }
}

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    #[command(flatten)]
    message: MessageArgs,
    #[command(flatten)]
    queue: QueueArg,
    /// Send a message for each line of stdin (or @FILE): {"payload": ..., "in": "5s", "at": ...,
    /// "retries": 3, "headers": {...}, "idempotency_key": ..., "dedup_window": "1d"}; "payload" is a
    /// string or any JSON, "payload_base64" is for bytes. A line that is wrong is reported and the others go in
    #[arg(long, conflicts_with = "idempotency_key")]
    ndjson: bool,
    /// Print a JSON object for each message
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(super) struct Timing {
    /// Deliver it so long from now: 1500ms, 30s, 2h, 1d
    #[arg(long = "in", value_name = "DURATION", value_parser = time::duration,
        allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Deliver it at this time: 2026-12-31T14:00:00Z, "2026-12-31 14:00" or 14:00
    #[arg(long, value_name = "TIME", value_parser = time::at, allow_hyphen_values = true)]
    at: Option<u64>,
}

impl Timing {
    pub(super) fn due(self) -> Due {
        match (self.at, self.delay) {
            (Some(at_ms), _) => Due::At(at_ms),
            (None, delay) => Due::In(delay.unwrap_or_default()),
        }
    }
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give it as KEY=VALUE".to_owned()),
    }
}

pub(super) async fn send(args: SendArgs) -> anyhow::Result<Exit> {
    log::to_stderr("warn", false)?;
    let message = args.message;
    if args.ndjson {
        let source = message.payload.as_deref().unwrap_or("-");
        let input = payload::source(source)?.ok_or_else(|| {
            Usage(format!(
                "--ndjson reads - or @FILE, and {source:?} is neither"
            ))
        })?;
        let store = open::store(&args.store, Missing::Make).await?;
        let defaults = ndjson::Defaults {
            due: message.timing.due(),
            retries: message.retries,
            headers: message.headers,
            dedup_window: message.dedup_window,
            max_payload: message.max_payload,
        };
        return ndjson::send(input, &*store, &args.queue.queue, &defaults, args.json).await;
    }
    let text = message.payload.as_deref().ok_or_else(no_payload)?;
    let bytes = payload::read(text, message.max_payload).await?;
    let message = message.message(bytes).map_err(Usage)?;
    let store = open::store(&args.store, Missing::Make).await?;
    for sent in store.send(&args.queue.queue, &[message]).await? {
        print::sent(&sent, args.json)?;
    }
    Ok(Exit::Done)
}

fn no_payload() -> Usage {
    Usage("give the payload: text, @FILE for the bytes of a file, or - for stdin".to_owned())
}
